"""All settings, in the order of the data flow: default, unit (in the name) and description.

A setting without a default is required. A section's name is a table in the TOML file and part of
the environment variable: `[epoch] window_s` is `BLENDSTREAM_EPOCH_WINDOW_S`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blendstream.blender.planning.records_per_user import MAX_RECORDS
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
    """Declare an optional file, which must exist if the setting names one."""
    return setting(None, sentence, value_checks.file_exists)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Address of Kafka, and authentication to it."""

    url: Url = required(
        "Brokers as kafka://host:port,host:port; kafka+ssl:// for TLS; may contain user:password@. "
        "KAFKA_URL is accepted too.",
        value_checks.url("kafka", "kafka+ssl", ""),
    )
    tls_ca_file: Path | None = _file(
        "PEM file of the authority that signed the brokers' certificates; none: the system's."
    )
    tls_certificate_file: Path | None = _file(
        "PEM file of the client certificate, if brokers require one."
    )
    tls_key_file: Path | None = _file("PEM file of the client certificate's key.")
    tls_key_password: Secret = setting(Secret(""), "Password of that key file.")
    sasl_mechanism: Literal["none", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = setting(
        "none", "SASL authentication; none: by client certificate or without authentication."
    )
    sasl_user: str = setting("", "SASL user, unless the URL names one.")
    sasl_password: Secret = setting(Secret(""), "SASL password, unless the URL contains one.")
    request_timeout_s: float = setting(
        10.0, "Timeout of one request to a broker, in seconds.", above(0)
    )

    @property
    def bootstrap(self) -> str:
        """Hosts and ports of the brokers."""
        return self.url.hosts

    @property
    def tls(self) -> bool:
        """True if connections use TLS."""
        return self.url.scheme == "kafka+ssl"

    @property
    def user(self) -> str:
        """SASL user, from its setting or the URL."""
        return self.sasl_user or self.url.user

    @property
    def password(self) -> Secret:
        """SASL password, from its setting or the URL."""
        return self.sasl_password or self.url.password


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Address of Redis, which stores the counts."""

    url: Url = required(
        "Redis as redis://host:port/0; several nodes of a cluster as host:port,host:port; a "
        "primary behind Sentinel as redis+sentinel://host:port,host:port/NAME/0; rediss:// for "
        "TLS; an ACL user as user:password@. REDIS_URL is accepted too.",
        value_checks.url("redis", "rediss", "redis+sentinel", "rediss+sentinel"),
    )
    sentinel_password: Secret = setting(
        Secret(""), "Password of the Sentinels; empty: they need none."
    )
    tls_ca_file: Path | None = _file(
        "PEM file of the authority that signed Redis's certificate; none: the system's."
    )
    timeout_s: float = setting(
        2.0, "Timeout of one call, after which it is retried, in seconds.", above(0)
    )

    @property
    def by_sentinel(self) -> bool:
        """True if the hosts are Sentinels, which know the primary's address."""
        return self.url.scheme.endswith("+sentinel")


@dataclass(frozen=True, slots=True)
class TopicsSettings:
    """Topics, which processes create or check at start."""

    prefix: str = setting("blender", "Prefix of every topic and Redis key.", value_checks.name)
    version: int = setting(
        1,
        "Version of the topics of records and reports. Increase it to move to new topics, with "
        "more partitions, at an epoch's boundary.",
        at_least(1),
    )
    partitions: int = setting(
        64,
        "Partitions of the topics of records and of reports; also the maximum number of workers.",
        between(1, 4096),
    )
    replication: int = setting(3, "Replication factor of the topics.", at_least(1))
    min_insync_replicas: int = setting(
        2, "Replicas that must have a record before Kafka acknowledges it.", at_least(1)
    )
    allow_single_broker: bool = setting(
        False, "Allow a single broker without replication. Demo and tests only."
    )
    retention_s: int = setting(
        7 * DAY_S,
        "Retention of records that the jobs do not delete, in seconds.",
        at_least(1),
    )
    segment_s: int = setting(
        0,
        "Maximum age of a log segment, in seconds; 0: one window, at most an hour.",
        at_least(0),
    )


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """Start, length and deadlines of epochs."""

    window_s: int = setting(DAY_S, "Length of an epoch's window, in seconds.", at_least(1))
    origin_unix_s: int = setting(
        0, "Start of epoch 0, in seconds since 1970; never change it.", at_least(0)
    )
    grace_s: float = setting(
        60.0, "Time after a window's end in which its records are accepted, in seconds.", above(0)
    )
    allowed_skew_s: float = setting(
        5.0, "Maximum clock difference between a process and a broker, in seconds.", above(0)
    )
    epochs_ahead: int = setting(
        1,
        "Number of epochs opened before their windows begin: jobs may be down for that many "
        "windows.",
        between(1, 100),
    )
    counting_deadline_s: int = setting(
        0,
        "Maximum wait for every partition after a seal, in seconds; 0: two windows.",
        at_least(0),
    )
    minimum_participants: int = setting(
        100,
        "Minimum participants per group; with fewer, the epoch is published empty.",
        at_least(2),
    )


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Privacy parameters of one budget per person (replace-one neighbours)."""

    profile: Literal["sharp", "paper"] = setting(
        "sharp",
        "Mechanisms: paper (BLENDER's Figures 2-7) or sharp (less error at the same epsilon).",
    )
    epsilon: float = setting(
        4.0,
        "ε of a client's report, and of an opt-in user in the epochs of one budget "
        "(budget.period_epochs).",
        value_checks.epsilon,
    )
    delta: float = setting(
        1e-5,
        "δ of an opt-in user in the same epochs; of clients only in the profile paper.",
        value_checks.delta,
    )
    records_per_optin_user: int = setting(
        1,
        "m_O: maximum number of distinct records counted per opt-in user. A higher number finds "
        "longer lists, but S's counts then only select and rank records: T alone estimates.",
        between(1, MAX_RECORDS),
    )
    records_per_client: int = setting(1, "m_C: number of answers in a client's report.")
    selection_share: float | None = setting(
        None,
        "f_O: proportion of opt-in users who build the head list; none: the profile's default "
        "(sharp 0.9, paper 0.95).",
    )
    query_budget_share: float = setting(
        0.85, "f_C: proportion of a client's ε that is spent on the query."
    )
    head_list_cells: int = setting(
        50, "M: number of records that clients report on.", between(1, 1_000_000)
    )
    max_cells_per_answer: int = setting(
        32, "Maximum number of cell numbers in an answer.", between(1, 65535)
    )
    cohorts: int = setting(
        0,
        "R: number of cohorts. A person takes part in one epoch out of R, so spends budget R times "
        "slower. 0: one cohort; with budget.period_epochs, T cohorts of clients.",
        between(0, 10_000),
    )
    optin_cohorts: int = setting(
        0,
        "R of the opt-in users; 0: as privacy.cohorts, or 1 with budget.period_epochs.",
        between(0, 10_000),
    )

    def parameters(self) -> PrivacyParameters:
        """Make the parameters of the algorithm, with the profile's default proportion of S."""
        default_share = SELECTION_SHARES[self.profile]
        return PrivacyParameters(
            epsilon=self.epsilon,
            delta=self.delta,
            records_per_optin_user=self.records_per_optin_user,
            records_per_client=self.records_per_client,
            selection_share=(
                default_share if self.selection_share is None else self.selection_share
            ),
            query_budget_share=self.query_budget_share,
            head_list_cells=self.head_list_cells,
            max_cells_per_answer=self.max_cells_per_answer,
        )


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Limits to each person's total budget; the service pauses before it exceeds one."""

    period_s: int = required("Period of the limits below, in seconds.", at_least(1))
    optin_epsilon_limit: float = required("Maximum ε per opt-in user and period.", above(0))
    optin_delta_limit: float = required("Maximum δ per opt-in user and period.", between(0, 1))
    client_epsilon_limit: float = required("Maximum ε per client and period.", above(0))
    client_delta_limit: float = required("Maximum δ per client and period.", between(0, 1))
    period_epochs: int | None = setting(
        None,
        "T: number of epochs that share one budget of the opt-in users, who take part in all of "
        "them. privacy.epsilon and delta then hold for all T epochs together, and a client reports "
        "in one of T. 0: a budget per epoch. none: 30 in sharp with one opt-in cohort, else 0.",
        none_or(between(0, 366)),
    )
    known_records: int = setting(
        50_000,
        "Maximum number of records remembered from epoch to epoch, in sharp. Each was published "
        "once, and needs no threshold again. Beyond it the least likely ones are forgotten.",
        between(1, 50_000),
    )


@dataclass(frozen=True, slots=True)
class ClickGraphSettings:
    """The query click graph, built from a separate subgroup of the opt-in users."""

    share: float = setting(
        0.0, "Proportion of opt-in users in its subgroup; 0: no click graph.", between(0, 0.9)
    )
    epsilon: float = setting(
        2.0,
        "ε of one release (add/remove neighbours); the ledger charges 2ε.",
        value_checks.epsilon,
    )
    delta: float = setting(1e-6, "δ of one release (add/remove neighbours).", value_checks.delta)
    queries_per_user: int = setting(1, "d: maximum queries counted per user.", at_least(1))
    clicks_per_user: int = setting(1, "d_c: maximum clicks counted per user.", at_least(1))
    selection_share: float = setting(
        0.5, "Proportion of ε that is spent on selecting queries.", between(0.01, 0.98)
    )
    query_count_share: float = setting(
        0.25, "Proportion of ε that is spent on query counts.", between(0.01, 0.98)
    )
    url_table_file: Path | None = _file(
        "TSV file of the candidate URLs per query, independent of the data; none: those of the "
        "last head list."
    )


@dataclass(frozen=True, slots=True)
class KeysSettings:
    """Secrets from which each epoch derives contributor keys of user ids."""

    master_secrets: Mapping[str, Secret] = required(
        "Master secrets by id, 32 random bytes or more in hexadecimal. Keep each until its epochs "
        "are released.",
        value_checks.master_secrets,
    )
    current_id: str = required("Id of the secret for the next epoch.", value_checks.name)
    cohort_id: str = setting(
        "",
        "Id of the secret that assigns opt-in users to cohorts. Do not change it: a change "
        "reassigns them, and the ledger then charges the worst case of both. Empty: one cohort.",
    )

    def masters(self) -> dict[str, bytes]:
        """Return the secrets' bytes by id."""
        return {
            name: bytes.fromhex(self.master_secrets[name].reveal()) for name in self.master_secrets
        }


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The HTTP API, behind a reverse proxy."""

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = setting(8080, "Port of the public API.", value_checks.port)
    unix_socket: Path | None = setting(
        None, "Socket file to listen on instead of host and port, for a proxy on this machine."
    )
    metrics_port: int = setting(9101, "Port of /metrics, not public.", value_checks.port)
    linger_s: float = setting(
        0.05, "Time for which a frame waits for more entries, in seconds.", between(0, 1)
    )
    delivery_deadline_s: float = setting(
        10.0,
        "Deadline of Kafka's acknowledgement, after which the response is 503, in seconds.",
        above(0),
    )
    frame_bytes: int = setting(
        256 * 1024,
        "Maximum size of a frame in bytes; workers refuse larger ones.",
        between(4096, 256 * 1024),
    )
    frame_entries: int = setting(4096, "Maximum number of entries per frame.", between(1, 65535))
    buffer_bytes: int = setting(
        64 * MIB,
        "Maximum bytes buffered for Kafka; beyond it the response is 503.",
        at_least(MIB),
    )
    body_bytes: int = setting(
        MAX_BODY_BYTES, "Maximum size of a request's body in bytes.", between(1024, MAX_BODY_BYTES)
    )
    batch_entries: int = setting(
        1000, "Maximum number of entries per request.", between(1, MAX_BATCH_ENTRIES)
    )
    max_in_flight_body_bytes: int = setting(
        64 * MIB,
        "Maximum bytes of all bodies of requests in flight; beyond it the response is 503.",
        at_least(MIB),
    )
    reports_per_s: float = setting(
        0.0,
        "Average reports per second that one gateway accepts; 0: no limit. A full batch may exceed "
        "it.",
        at_least(0),
    )
    optin_records_per_s: float = setting(
        10_000.0,
        "Average opt-in records per second that one gateway accepts per application; 0: no limit.",
        at_least(0),
    )
    admission: str = setting(
        "",
        "package.module:function that returns the admission hook of reports; empty: every report "
        "is admitted.",
    )
    history_epochs: int = setting(
        400, "Number of published epochs that the API keeps in memory.", between(2, 100_000)
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "Origins whose pages may call the API; * for all, but only named origins may send tokens.",
    )
    token_file: Path | None = _file(
        "File of hashed bearer tokens of applications that send opt-in records; none: the gateway "
        "refuses all opt-in records."
    )
    user_token_s: int = setting(
        86_400,
        "Maximum lifetime of a single user's token, in seconds.",
        between(60, 31 * 86_400),
    )
    stop_deadline_s: float = setting(
        15.0, "Deadline of a stop, which sends all accepted entries, in seconds.", above(0)
    )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The worker, which counts frames into Redis."""

    batch_frames: int = setting(
        512, "Number of frames at which a batch is full.", between(1, 100_000)
    )
    batch_wait_s: float = setting(
        0.05, "Time for which a batch waits for more frames, in seconds.", between(0.001, 10)
    )
    buffer_bytes: int = setting(
        64 * MIB, "Maximum bytes of frames that are read but not yet counted.", at_least(MIB)
    )
    session_timeout_s: float = setting(
        30.0,
        "Session timeout of the consumer group, after which a silent worker loses its partitions, "
        "in seconds.",
        at_least(1),
    )
    idle_check_s: float = setting(
        1.0,
        "Interval at which the worker compares an idle partition's offset with Redis, in seconds.",
        above(0),
    )
    stall_exit_s: float = setting(
        120.0,
        "Time after which a worker with lag that counts nothing exits, in seconds.",
        at_least(5),
    )
    stop_deadline_s: float = setting(
        15.0, "Deadline of a stop, even if Redis or Kafka hangs, in seconds.", above(0)
    )
    metrics_port: int = setting(9102, "Port of /metrics, not public.", value_checks.port)


@dataclass(frozen=True, slots=True)
class JobsSettings:
    """The jobs, which open and seal epochs and release results."""

    lease_s: float = setting(
        30.0, "Time after which a silent job loses its lease, in seconds.", at_least(1)
    )
    lease_renew_s: float = setting(10.0, "Interval of lease renewals, in seconds.", above(0))
    poll_s: float = setting(
        1.0, "Interval at which a job checks for its next step, in seconds.", above(0)
    )
    transaction_timeout_s: float = setting(
        60.0, "Time after which Kafka aborts the transaction of a release, in seconds.", at_least(1)
    )
    stop_deadline_s: float = setting(15.0, "Deadline of a stop, in seconds.", above(0))
    metrics_port: int = setting(9103, "Port of /metrics, not public.", value_checks.port)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Settings that every process's /metrics shares."""

    host: str = setting("127.0.0.1", "Address on which /metrics listens; never a public one.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log, which every process writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Minimum level of log lines."
    )
    form: Literal["auto", "json", "text"] = setting(
        "auto", "json: one object per line; text: for people; auto: text on a terminal, else json."
    )
