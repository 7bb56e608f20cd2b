"""Create and delete topics from a test, and return only when it is done."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def create_topic(
    bootstrap: str, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    """Create one topic with replication 1."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([topic], operation_timeout=20)[name].result(30)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    """Delete topics; one that the test has deleted itself is no trouble."""
    if not names:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(names, operation_timeout=20).values():
        deleted.exception(30)
