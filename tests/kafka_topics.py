"""Create and delete topics from a test, throttle a client; each returns only when it is done.

`SOON_BACK`: options of a broker that is killed, so that it need not wait 18 s to be let in again.
"""

import socket
import struct

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SOON_BACK = {"broker.session.timeout.ms": "2500", "broker.heartbeat.interval.ms": "500"}


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    replication: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    """Create one topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, replication, config=config or {})
    admin.create_topics([topic], operation_timeout=20)[name].result(30)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    """Delete topics; one that the test has deleted itself is no trouble."""
    if not names:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(names, operation_timeout=20).values():
        deleted.exception(30)


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Remove everything below an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    where = TopicPartition(topic, partition, before)
    admin.delete_records([where])[where].result(20)


def throttle_fetches(bootstrap: str, client_id: str, bytes_per_s: float | None) -> None:
    """Let a client's fetches through at this rate; None: as fast as they come.

    AlterClientQuotas (key 49, version 0) by hand: neither of our Kafka clients speaks it.
    """

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    change = struct.pack(">i", 1) + text("consumer_byte_rate")
    change += struct.pack(">d?", bytes_per_s or 0.0, bytes_per_s is None)
    request = struct.pack(">hhi", 49, 0, 1) + text("tests")
    request += struct.pack(">i", 1) + entity + change + struct.pack(">?", False)
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (length,) = struct.unpack(">i", answer.read(4))
        _, _, entries, error = struct.unpack_from(">iiih", answer.read(length))
    assert (entries, error) == (1, 0), f"Kafka answered with error {error}"
