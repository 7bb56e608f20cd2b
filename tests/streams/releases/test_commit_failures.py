"""A failed commit means one of three things, and only one of them may stop an epoch."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from blendstream.streams.releases.commit_failures import (
    CommitInDoubt,
    CommitRefused,
    Fenced,
    translate_commit_errors,
)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError.REQUEST_TIMED_OUT, CommitInDoubt),
        # Kafka 4.3 answered a job that lost a race with it once in a few hundred races.
        (KafkaError.UNKNOWN, CommitInDoubt),
        (KafkaError.MSG_SIZE_TOO_LARGE, CommitRefused),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, CommitRefused),
    ],
)
def test_an_epoch_stops_only_for_what_would_be_refused_again(code, meaning):
    """If the broker's response leaves the outcome unknown, the log decides."""
    with pytest.raises(meaning), translate_commit_errors():
        raise KafkaException(KafkaError(code))
