"""What a failed send or commit to the release log means, by Kafka's error code.

    Fenced          another job of this kind took over            the log decides
    CommitInDoubt   a crash or an outage                          the log decides
    CommitRefused   anything else: it would be refused again      the epoch stops

Errors name the code only: Kafka's texts may quote records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from blendstream.blender.values.errors import BlenderError
from blendstream.streams.errors import StoreUnavailable

__all__ = [
    "OUTAGES",
    "CommitInDoubt",
    "CommitRefused",
    "Fenced",
    "opening",
    "translate_commit_errors",
]


class Fenced(StoreUnavailable):
    """Another job of this kind started a turn after ours, or ours took too long."""


class CommitInDoubt(StoreUnavailable):
    """The broker may or may not have committed. Throw the draw away and read the log again."""


class CommitRefused(BlenderError):
    """The broker will never accept this release; the message has its code, never content."""


_FENCES = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        # The broker ended a transaction that took too long, and knows the producer no more.
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: What a crash or an outage of brokers, network or disk looks like from here.
OUTAGES = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._STATE,
        KafkaError._DESTROY,
        # The server's own unexpected error, seen when two jobs race. It does not say what was done.
        KafkaError.UNKNOWN,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


def failure_of(error: Any) -> BlenderError:
    """What a failed send or commit means."""
    if error.code() in _FENCES:
        return Fenced(
            f"another job of this kind took over, or this one was too slow ({error.name()})"
        )
    if error.code() in OUTAGES or error.retriable():
        return CommitInDoubt(f"Kafka may or may not have committed the release ({error.name()})")
    return CommitRefused(
        f"Kafka refused a release for good ({error.name()}); the epoch stops, because a release "
        "must not be drawn again until one is accepted. Correct the broker's limits or rights; the "
        "next epoch continues by itself"
    )


@contextlib.contextmanager
def translate_commit_errors() -> Iterator[None]:
    """Around a send or a commit: an error of the client is raised as what it means."""
    with _translated(failure_of, CommitInDoubt("the release could not be handed to Kafka")):
        yield


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Around what only opens or reads the log: nothing was sent, so it is safe to try again."""
    unknown = StoreUnavailable("the release log could not be opened")
    with _translated(
        lambda error: StoreUnavailable(f"the release log could not be opened ({error.name()})"),
        unknown,
    ):
        yield


@contextlib.contextmanager
def _translated(meaning: Callable[[Any], BlenderError], unknown: BlenderError) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise meaning(error.args[0]) from error
    except SystemError as error:
        # The client logs a fatal error while it raises it, and Python then reports both in this
        # way; what the client raised is the cause.
        cause = error.__cause__ or error.__context__
        if isinstance(cause, KafkaException):
            raise meaning(cause.args[0]) from error
        raise unknown from error
    except BufferError as error:  # More is waiting than the client holds.
        raise unknown from error
