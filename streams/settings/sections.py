"""Every setting, in the order data flows: its default, its unit (in the name) and a sentence.

A setting without a default must be given. Names of sections are tables in the TOML file, and the
middle of the variable: `[epoch] window_s` is `BLENDSTREAM_EPOCH_WINDOW_S`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blendstream.blender.planning.records_per_user import MOST_RECORDS
from blendstream.blender.values.parameters import SELECTION_SHARES, PrivacyParameters
from blendstream.streams.settings import value_checks
from blendstream.streams.settings.fields import Secret, Url, required, setting
from blendstream.streams.settings.value_checks import above, at_least, between, none_or
from blendstream.streams.wire.submissions import MAX_BATCH_ENTRIES, MAX_BODY_BYTES

__all__ = [
    "BudgetSettings",
    "ClickGraphSettings",
    "EpochSettings",
    "GatewaySettings",
    "JobsSettings",
    "KafkaSettings",
    "KeysSettings",
    "LogSettings",
    "MetricsSettings",
    "PrivacySettings",
    "RedisSettings",
    "TopicsSettings",
    "WorkerSettings",
]

MIB = 1024 * 1024
DAY_S = 86_400


def _file(sentence: str) -> Path | None:
    """Declare a file that may be named; if it is, it must exist."""
    return setting(None, sentence, value_checks.file_exists)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where Kafka is and how to prove who we are."""

    url: Url = required(
        "Brokers as kafka://host:port,host:port; kafka+ssl:// for TLS; may hold user:password@. "
        "KAFKA_URL is taken too.",
        value_checks.url("kafka", "kafka+ssl", ""),
    )
    tls_ca_file: Path | None = _file(
        "PEM file of the authority that signed the brokers' certificates; none: the system's."
    )
    tls_certificate_file: Path | None = _file(
        "PEM file of our own certificate, where brokers ask for one."
    )
    tls_key_file: Path | None = _file("PEM file of the key to our own certificate.")
    tls_key_password: Secret = setting(Secret(""), "What unlocks that key file.")
    sasl_mechanism: Literal["none", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = setting(
        "none", "How we prove who we are; none: by certificate or not at all."
    )
    sasl_user: str = setting("", "The user, unless the URL names one.")
    sasl_password: Secret = setting(Secret(""), "The password, unless the URL holds one.")
    request_timeout_s: float = setting(
        10.0, "How long one request to a broker may take, in seconds.", above(0)
    )

    @property
    def bootstrap(self) -> str:
        return self.url.hosts

    @property
    def tls(self) -> bool:
        return self.url.scheme == "kafka+ssl"

    @property
    def user(self) -> str:
        return self.sasl_user or self.url.user

    @property
    def password(self) -> Secret:
        return self.sasl_password or self.url.password


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where counts rest."""

    url: Url = required(
        "Redis as redis://host:port/0; several nodes of a cluster as host:port,host:port; a "
        "primary behind Sentinel as redis+sentinel://host:port,host:port/NAME/0; rediss:// for "
        "TLS; an ACL user as user:password@. REDIS_URL is taken too.",
        value_checks.url("redis", "rediss", "redis+sentinel", "rediss+sentinel"),
    )
    sentinel_password: Secret = setting(
        Secret(""), "Password of the Sentinels themselves; empty: they need none."
    )
    tls_ca_file: Path | None = _file(
        "PEM file of the authority that signed Redis's certificate; none: the system's."
    )
    timeout_s: float = setting(
        2.0, "How long one call may take before it is tried again, in seconds.", above(0)
    )

    @property
    def by_sentinel(self) -> bool:
        """Whether the hosts are Sentinels, which know where the primary is."""
        return self.url.scheme.endswith("+sentinel")


@dataclass(frozen=True, slots=True)
class TopicsSettings:
    """The topics that are created or checked at start."""

    prefix: str = setting("blender", "First part of every topic and Redis key.", value_checks.name)
    version: int = setting(
        1,
        "Raised to move to new topics, with more partitions, at an epoch's boundary.",
        at_least(1),
    )
    partitions: int = setting(
        64, "Partitions of the records' and reports' topics: the most workers.", between(1, 4096)
    )
    replication: int = setting(3, "Copies of every record in Kafka.", at_least(1))
    min_insync_replicas: int = setting(2, "Copies that must exist to accept.", at_least(1))
    allow_single_broker: bool = setting(
        False, "Allow a single broker without replication. Demo and tests only."
    )
    retention_s: int = setting(
        7 * DAY_S,
        "How long Kafka keeps records that the jobs do not delete, in seconds.",
        at_least(1),
    )
    segment_s: int = setting(
        0,
        "How long one file of the log is written to, in seconds; 0: a window, at most an hour.",
        at_least(0),
    )


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """When an epoch begins, ends and is judged late."""

    window_s: int = setting(DAY_S, "How long one epoch collects, in seconds.", at_least(1))
    origin_unix_s: int = setting(
        0, "When epoch 0 began, in seconds since 1970; never change it.", at_least(0)
    )
    grace_s: float = setting(
        60.0, "How long after its end a window's records may still arrive, in seconds.", above(0)
    )
    allowed_skew_s: float = setting(
        5.0, "How far a clock of ours may be off a broker's, in seconds.", above(0)
    )
    epochs_ahead: int = setting(
        1,
        "Epochs opened before their windows begin: jobs may be down for so many windows.",
        between(1, 100),
    )
    counting_deadline_s: int = setting(
        0,
        "How long after a seal an epoch waits for every partition, in seconds; 0: two windows.",
        at_least(0),
    )
    minimum_participants: int = setting(
        100,
        "Fewer participants than this in a group, and the epoch is published empty.",
        at_least(2),
    )


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """What each person's data may reveal in one budget (replace-one neighbours)."""

    profile: Literal["sharp", "paper"] = setting(
        "sharp", "Mechanisms: paper (BLENDER's Figures 2-7) or sharp (closer at the same epsilon)."
    )
    epsilon: float = setting(
        4.0,
        "ε of a client's report, and of an opt-in user in the epochs of one budget "
        "(budget.period_epochs).",
        value_checks.epsilon,
    )
    delta: float = setting(
        1e-5,
        "δ of an opt-in user in the same epochs; of clients only in the paper's profile.",
        value_checks.delta,
    )
    records_per_optin_user: int = setting(
        1,
        "m_O: distinct records one opt-in user counts with. More find longer lists, but S's counts "
        "then only select and rank: T alone estimates.",
        between(1, MOST_RECORDS),
    )
    records_per_client: int = setting(1, "m_C: answers one client's report holds.")
    selection_share: float | None = setting(
        None,
        "f_O: share of opt-in users who build the head list; none: the profile's own "
        "(sharp 0.9, paper 0.95).",
    )
    query_budget_share: float = setting(0.85, "f_C: share of a client's ε spent on the query.")
    head_list_cells: int = setting(50, "M: records the clients report on.", between(1, 1_000_000))
    max_cells_per_answer: int = setting(32, "Most cell numbers in one answer.", between(1, 65535))
    cohorts: int = setting(
        0,
        "R: groups people take turns in, so that one spends R times slower; 0: none take turns, or "
        "with budget.period_epochs the clients do, in so many.",
        between(0, 10_000),
    )
    optin_cohorts: int = setting(
        0,
        "R of the opt-in users; 0: as above, or 1 with budget.period_epochs.",
        between(0, 10_000),
    )

    def parameters(self) -> PrivacyParameters:
        own_share = SELECTION_SHARES[self.profile]
        return PrivacyParameters(
            epsilon=self.epsilon,
            delta=self.delta,
            records_per_optin_user=self.records_per_optin_user,
            records_per_client=self.records_per_client,
            selection_share=own_share if self.selection_share is None else self.selection_share,
            query_budget_share=self.query_budget_share,
            head_list_cells=self.head_list_cells,
            max_cells_per_answer=self.max_cells_per_answer,
        )


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """What each person's data may reveal in all; the service pauses rather than overspend."""

    period_s: int = required("The period the limits below hold for, in seconds.", at_least(1))
    optin_epsilon_limit: float = required("Most ε an opt-in user spends in a period.", above(0))
    optin_delta_limit: float = required("Most δ an opt-in user spends in a period.", between(0, 1))
    client_epsilon_limit: float = required("Most ε a client spends in a period.", above(0))
    client_delta_limit: float = required("Most δ a client spends in a period.", between(0, 1))
    period_epochs: int | None = setting(
        None,
        "T: epochs that share one budget of the opt-in users, who take part in all of them; "
        "privacy.epsilon and delta are then an opt-in user's for all T, and clients report once in "
        "T. 0: a budget for each epoch. none: 30 in sharp, unless opt-in users take turns, and 0 "
        "in paper.",
        none_or(between(0, 366)),
    )
    known_records: int = setting(
        50_000,
        "Most records that stay known from epoch to epoch, in sharp: each was published once, and "
        "needs no threshold again. Of more, the least likely ones are forgotten.",
        between(1, 50_000),
    )


@dataclass(frozen=True, slots=True)
class ClickGraphSettings:
    """The query click graph, released from opt-in users of its own."""

    share: float = setting(0.0, "Share of opt-in users it is built from; 0: none.", between(0, 0.9))
    epsilon: float = setting(
        2.0, "ε of one release, add/remove; charged twice.", value_checks.epsilon
    )
    delta: float = setting(1e-6, "δ of one release, add/remove.", value_checks.delta)
    queries_per_user: int = setting(1, "d: queries one user counts with.", at_least(1))
    clicks_per_user: int = setting(1, "d_c: clicks one user counts with.", at_least(1))
    selection_share: float = setting(
        0.5, "Share of ε spent on choosing queries.", between(0.01, 0.98)
    )
    query_count_share: float = setting(
        0.25, "Share of ε spent on query counts.", between(0.01, 0.98)
    )
    url_table_file: Path | None = _file(
        "Which URLs each query may show (TSV, from outside the data); none: the last head list."
    )


@dataclass(frozen=True, slots=True)
class KeysSettings:
    """The secrets that turn user ids into contributor keys, epoch by epoch."""

    master_secrets: Mapping[str, Secret] = required(
        "Master secrets by id, 32 random bytes or more in hexadecimal; old ones stay until "
        "their epochs are released.",
        value_checks.master_secrets,
    )
    current_id: str = required("Which of them the next epoch opens with.", value_checks.name)
    cohort_id: str = setting(
        "",
        "Which of them decides the opt-in users' cohorts; keep it for good, since a change "
        "shuffles them and is charged as if it met the worst of both. Empty: one cohort.",
    )

    def masters(self) -> dict[str, bytes]:
        return {
            name: bytes.fromhex(self.master_secrets[name].reveal()) for name in self.master_secrets
        }


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The HTTP API, behind an edge."""

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = setting(8080, "Port of the public API.", value_checks.port)
    unix_socket: Path | None = setting(
        None, "Socket file to listen on in place of host and port, for an edge on this machine."
    )
    metrics_port: int = setting(9101, "Port of /metrics, not public.", value_checks.port)
    linger_s: float = setting(
        0.05, "How long a frame waits for more entries, in seconds.", between(0, 1)
    )
    delivery_deadline_s: float = setting(
        10.0, "Kafka must have acknowledged by then, or the answer is 503, in seconds.", above(0)
    )
    frame_bytes: int = setting(
        256 * 1024,
        "Most bytes in one frame; workers refuse larger ones.",
        between(4096, 256 * 1024),
    )
    frame_entries: int = setting(4096, "Most entries in one frame.", between(1, 65535))
    buffer_bytes: int = setting(
        64 * MIB, "Most bytes waiting for Kafka; beyond it the answer is 503.", at_least(MIB)
    )
    body_bytes: int = setting(
        MAX_BODY_BYTES, "Most bytes in one request.", between(1024, MAX_BODY_BYTES)
    )
    batch_entries: int = setting(
        1000, "Most entries in one request.", between(1, MAX_BATCH_ENTRIES)
    )
    max_in_flight_body_bytes: int = setting(
        64 * MIB,
        "Most bytes that requests hold until they are answered; beyond it the answer is 503.",
        at_least(MIB),
    )
    reports_per_s: float = setting(
        0.0,
        "Reports per second that one gateway queues, on average; 0: no limit. A full batch passes.",
        at_least(0),
    )
    optin_records_per_s: float = setting(
        10_000.0,
        "Opt-in records per second that it queues from one application; 0: no limit.",
        at_least(0),
    )
    admission: str = setting(
        "", "package.module:function that returns the hook admitting reports; empty: everybody."
    )
    history_epochs: int = setting(
        400, "Published epochs that the API keeps in memory.", between(2, 100_000)
    )
    cors_origins: tuple[str, ...] = setting(
        (), "Origins whose pages may call the API; * for all, but only those named may send tokens."
    )
    token_file: Path | None = _file(
        "Hashed bearer tokens of applications that send opt-in records; none: all refused."
    )
    user_token_s: int = setting(
        86_400,
        "Longest time that a token of a single user may last, in seconds.",
        between(60, 31 * 86_400),
    )
    stop_deadline_s: float = setting(
        15.0, "How long a stop may take to flush what was accepted, in seconds.", above(0)
    )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The process that counts."""

    batch_frames: int = setting(
        512, "From how many frames on a batch waits for no more.", between(1, 100_000)
    )
    batch_wait_s: float = setting(
        0.05, "How long a batch waits for more frames, in seconds.", between(0.001, 10)
    )
    buffer_bytes: int = setting(
        64 * MIB, "Most bytes of frames read ahead of counting.", at_least(MIB)
    )
    session_timeout_s: float = setting(
        30.0, "A worker silent this long loses its partitions, in seconds.", at_least(1)
    )
    idle_check_s: float = setting(
        1.0, "How often an idle partition's offset is compared with Redis, in seconds.", above(0)
    )
    stall_exit_s: float = setting(
        120.0, "A worker with lag that counts nothing this long exits, in seconds.", at_least(5)
    )
    stop_deadline_s: float = setting(
        15.0, "How long a stop may take, Redis and Kafka hung or not, in seconds.", above(0)
    )
    metrics_port: int = setting(9102, "Port of /metrics, not public.", value_checks.port)


@dataclass(frozen=True, slots=True)
class JobsSettings:
    """The process that releases."""

    lease_s: float = setting(
        30.0, "A job silent this long loses its lease, in seconds.", at_least(1)
    )
    lease_renew_s: float = setting(10.0, "How often the lease is renewed, in seconds.", above(0))
    poll_s: float = setting(
        1.0, "How often the job looks whether an epoch can move on, in seconds.", above(0)
    )
    transaction_timeout_s: float = setting(
        60.0, "Kafka aborts a release left open this long, in seconds.", at_least(1)
    )
    stop_deadline_s: float = setting(15.0, "How long a stop may take, in seconds.", above(0))
    metrics_port: int = setting(9103, "Port of /metrics, not public.", value_checks.port)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What every process's /metrics has in common."""

    host: str = setting("127.0.0.1", "Address /metrics listens on; never a public one.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting("info", "Least level written.")
    form: Literal["auto", "json", "text"] = setting(
        "auto", "One JSON object a line, or text for people; auto: text on a terminal."
    )
