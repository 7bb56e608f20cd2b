"""Translate Kafka's errors of a send or commit to the release log into exceptions for the job.

    exception       cause                                         what the job does
    Fenced          another job of this kind took over, or        it reads the log again, which
                    this one was too slow                         shows what was committed
    CommitInDoubt   a crash or an outage                          the same
    CommitRefused   anything else: a retry would be refused too   it stops the epoch

These exceptions contain Kafka's error code, never its message, which may quote records.
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
    """Another job of this kind opened a session after ours, or ours took too long."""


class CommitInDoubt(StoreUnavailable):
    """The broker may or may not have committed. Discard the draw and read the log again."""


class CommitRefused(BlenderError):
    """The broker will never accept this release; the message contains its code, never content."""


_FENCES = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        # The broker aborted a transaction that timed out, and has forgotten its producer.
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: Codes by which a crash or an outage of brokers, network or disk appears to a client.
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
        # An unexpected error of the broker, observed when two jobs race. The outcome is unknown.
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
    """Return the exception for an error of a send or commit."""
    if error.code() in _FENCES:
        return Fenced(
            f"another job of this kind took over, or this one was too slow ({error.name()})"
        )
    if error.code() in OUTAGES or error.retriable():
        return CommitInDoubt(f"Kafka may or may not have committed the release ({error.name()})")
    return CommitRefused(
        f"Kafka rejected a release permanently ({error.name()}); the epoch stops, because a "
        "release must not be drawn again until one is accepted. Correct the broker's limits or "
        "rights; the next epoch continues automatically"
    )


@contextlib.contextmanager
def translate_commit_errors() -> Iterator[None]:
    """Re-raise errors of a send or commit as `Fenced`, `CommitInDoubt` or `CommitRefused`."""
    with _translated(failure_of, CommitInDoubt("the release could not be sent to Kafka")):
        yield


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Re-raise errors of opening or reading as `StoreUnavailable`: nothing was sent, so retry."""
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
        # The client logs a fatal error while raising it, and Python then reports both as a
        # SystemError; the client's exception is its cause.
        cause = error.__cause__ or error.__context__
        if isinstance(cause, KafkaException):
            raise meaning(cause.args[0]) from error
        raise unknown from error
    except BufferError as error:  # The client's queue is full.
        raise unknown from error
