"""One service for all tests of the edge: what they do to it passes."""

from collections.abc import Iterator

import pytest

from tests.edge.edge_service import EdgeService, edge_service


@pytest.fixture(scope="package")
def behind_edge(kafka, redis_server) -> Iterator[EdgeService]:
    """A real gateway, Kafka and Redis behind nginx."""
    with edge_service(kafka.url, redis_server.url) as service:
        service.warm_up()
        yield service
