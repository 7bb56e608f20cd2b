"""The settings of a service under test: one dictionary, and what kinds of tests change in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
#: The one master secret of all tests.
MASTER = bytes(range(32))
#: Servers of tests that start nothing that needs them.
NO_KAFKA = "kafka://127.0.0.1:1"
NO_REDIS = "redis://127.0.0.1:1/0"


def service_values(
    kafka: str = NO_KAFKA, redis: str = NO_REDIS, prefix: str = "test", partitions: int = 2
) -> dict[str, str]:
    """One broker, and windows of an hour: an epoch is open for as long as a test wants."""
    return {
        "kafka.url": kafka,
        "kafka.request_timeout_s": "15",  # Only failures take so long, or a machine that is busy.
        "redis.url": redis,
        "redis.timeout_s": "5",
        "budget.period_s": "8640000",
        "budget.period_epochs": "0",
        "budget.optin_epsilon_limit": "1000",
        "budget.optin_delta_limit": "0.5",
        "budget.client_epsilon_limit": "1000",
        "budget.client_delta_limit": "0.5",
        "keys.master_secrets": f"k1={MASTER.hex()}",
        "keys.current_id": "k1",
        "keys.cohort_id": "k1",
        "topics.prefix": prefix,
        "topics.partitions": str(partitions),
        "topics.replication": "1",
        "topics.min_insync_replicas": "1",
        "topics.allow_single_broker": "true",
        "topics.retention_s": "864000",
        "gateway.delivery_deadline_s": "3",
        "gateway.stop_deadline_s": "8",
        "worker.session_timeout_s": "3",
        "worker.stall_exit_s": "60",
        "worker.idle_check_s": "0.3",
        "worker.stop_deadline_s": "5",
        "epoch.window_s": "3600",
        "epoch.minimum_participants": "20",
        # Tests run the jobs' clock hours ahead of the broker's.
        "epoch.counting_deadline_s": "360000",
        "privacy.selection_share": "0.7",
        "privacy.head_list_cells": "10",
        "jobs.poll_s": "0.1",
        "jobs.lease_s": "1",
        "jobs.lease_renew_s": "0.3",
        "jobs.transaction_timeout_s": "20",
        "jobs.stop_deadline_s": "5",
    }


#: Silent servers are noticed soon: for tests that silence them.
IMPATIENT = {"kafka__request_timeout_s": "5", "redis__timeout_s": "1"}
#: Windows of a few seconds, as short as the rules between settings allow.
SHORT = {
    "epoch__window_s": "7",
    "epoch__grace_s": "1.2",
    "epoch__allowed_skew_s": "0.1",
    "gateway__delivery_deadline_s": "0.9",
    "gateway__linger_s": "0.01",
}
#: A click graph for every epoch, from a share of the opt-in users of its own.
GRAPHS = {
    "click_graph__share": "0.2",
    "click_graph__epsilon": "3",
    "click_graph__delta": "0.001",
}
#: An installation on three brokers.
REPLICATED = {
    "topics__replication": "3",
    "topics__min_insync_replicas": "2",
    "topics__allow_single_broker": "false",
}


def dotted(changes: Mapping[str, str]) -> dict[str, str]:
    """`epoch__window_s` as the settings have it: `epoch.window_s`."""
    return {name.replace("__", "."): value for name, value in changes.items()}


def variables_of(values: Mapping[str, object]) -> dict[str, str]:
    """Return the settings as environment variables."""

    def text(value: object) -> str:
        pairs = value.items() if isinstance(value, Mapping) else ()
        return ",".join(f"{name}={part}" for name, part in pairs) or str(value)

    return {f"BLENDSTREAM_{n.replace('.', '_').upper()}": text(v) for n, v in values.items()}


def environment_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that gives a process of the service these settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | variables_of(values) | {"PYTHONPATH": f"{ROOT}/src:{ROOT}"}
