"""Conditions between settings. Each rule yields a sentence per condition that does not hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blendstream.blender.over_time.period_budget import MAX_RECORDS
from blendstream.blender.sharp.gaussian_histogram import MIN_DELTA
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.budget.composition import click_graph_cost
from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.settings.private_files import exposed

if TYPE_CHECKING:
    from blendstream.streams.settings.settings import Settings

__all__ = ["broken_rules"]


def broken_rules(settings: Settings) -> Iterator[str]:
    """Yield a sentence for every rule that the settings break, with what to do."""
    found = False
    for rule in (
        _lateness,
        _privacy,
        _budget,
        _budget_period,
        _click_graph,
        _ports,
        _topics,
        _secrets,
        _redis,
        _leases,
    ):
        for sentence in rule(settings):
            found = True
            yield sentence
    if not found:
        yield from _first_epoch(settings)


def _lateness(settings: Settings) -> Iterator[str]:
    epoch, gateway = settings.epoch, settings.gateway
    # Accepted entries must not be late: they waited in a frame, then for Kafka, and both clocks
    # involved may be wrong.
    needed = gateway.linger_s + gateway.delivery_deadline_s + 2 * epoch.allowed_skew_s
    if epoch.grace_s < needed:
        yield (
            "epoch.grace_s must be at least gateway.linger_s + gateway.delivery_deadline_s + "
            f"2 × epoch.allowed_skew_s = {needed:g}, got {epoch.grace_s:g}; raise it, or lower "
            "those three"
        )
    if epoch.grace_s + epoch.allowed_skew_s > epoch.window_s / 2:
        yield (
            "epoch.grace_s + epoch.allowed_skew_s must be at most half of epoch.window_s = "
            f"{epoch.window_s:g}, got {epoch.grace_s + epoch.allowed_skew_s:g}; lower them or "
            "raise the window, or no time is left to report"
        )


def _privacy(settings: Settings) -> Iterator[str]:
    privacy = settings.privacy
    try:
        selection_share = privacy.parameters().selection_share
    except ParameterError as error:
        yield f"privacy.{error}; choose one within that range"
        return
    if privacy.profile == "paper":
        if privacy.epsilon <= math.log(2):
            yield (
                "privacy.epsilon must be above ln 2 = 0.6931 in the paper's profile (Theorem 1), "
                f"got {privacy.epsilon:g}; raise it, or use profile = sharp"
            )
        if privacy.records_per_optin_user > 1:
            yield (
                "privacy.records_per_optin_user must be 1 in the paper's profile (Theorem 1), "
                f"got {privacy.records_per_optin_user}; use profile = sharp for more"
            )
        if selection_share >= 1:
            yield (
                "privacy.selection_share must be below 1 in the paper's profile, which estimates "
                f"from the others, got {selection_share:g}; lower it, or use sharp"
            )
    if privacy.records_per_optin_user > 1 and privacy.delta < MIN_DELTA:
        yield (
            f"privacy.delta must be at least {MIN_DELTA:g} when records_per_optin_user is above 1, "
            f"got {privacy.delta:g}; raise it, since smaller ones cannot be accounted for"
        )
    if privacy.records_per_optin_user > 1 and selection_share >= 1:
        yield (
            "privacy.selection_share must be below 1 when records_per_optin_user is above 1, got "
            f"{selection_share:g}; lower it, since the counts of those users only select"
        )


def _budget(settings: Settings) -> Iterator[str]:
    privacy, budget = settings.privacy, settings.budget
    client_delta = privacy.delta if privacy.profile == "paper" else 0.0
    for name, limit, one_epoch in (
        ("optin_epsilon_limit", budget.optin_epsilon_limit, privacy.epsilon),
        ("optin_delta_limit", budget.optin_delta_limit, privacy.delta),
        ("client_epsilon_limit", budget.client_epsilon_limit, privacy.epsilon),
        ("client_delta_limit", budget.client_delta_limit, client_delta),
    ):
        if limit < one_epoch:
            yield (
                f"budget.{name} must allow at least one epoch, which spends {one_epoch:g}, "
                f"got {limit:g}; raise it or spend less in an epoch"
            )
    if budget.period_s < settings.epoch.window_s:
        yield (
            f"budget.period_s must be at least epoch.window_s = {settings.epoch.window_s}, "
            f"got {budget.period_s}; raise it"
        )


def _budget_period(settings: Settings) -> Iterator[str]:
    privacy, epochs = settings.privacy, settings.period_epochs
    if epochs == 0:
        return
    if privacy.profile != "sharp":
        yield (
            "privacy.profile must be sharp with budget.period_epochs, whose noise is for the whole "
            f"period, got {privacy.profile}; use sharp, or set period_epochs to 0"
        )
    if privacy.optin_cohorts > 1:
        yield (
            "privacy.optin_cohorts must be 1 with budget.period_epochs, since the budget is for "
            f"people who take part in every epoch, got {privacy.optin_cohorts}; leave it out"
        )
    if privacy.records_per_optin_user * epochs > MAX_RECORDS:
        yield (
            "privacy.records_per_optin_user × budget.period_epochs must be at most "
            f"{MAX_RECORDS}, got {privacy.records_per_optin_user * epochs}; lower one of them"
        )
    if privacy.delta < MIN_DELTA:
        yield (
            f"privacy.delta must be at least {MIN_DELTA:g} with budget.period_epochs, got "
            f"{privacy.delta:g}; raise it, since smaller ones cannot be accounted for, or set "
            "period_epochs to 0"
        )


def _click_graph(settings: Settings) -> Iterator[str]:
    graph, budget = settings.click_graph, settings.budget
    if graph.share == 0:
        return
    if graph.selection_share + graph.query_count_share >= 1:
        yield (
            "click_graph.selection_share + click_graph.query_count_share must be below 1, got "
            f"{graph.selection_share + graph.query_count_share:g}; leave some for the clicks"
        )
    charge = click_graph_cost(graph.epsilon, graph.delta)
    if charge.epsilon > budget.optin_epsilon_limit or charge.delta > budget.optin_delta_limit:
        yield (
            "click_graph.epsilon and delta must fit into the opt-in limit: one release is charged "
            f"({charge.epsilon:g}, {charge.delta:g}), the limit is "
            f"({budget.optin_epsilon_limit:g}, {budget.optin_delta_limit:g}); lower them or raise "
            "the limit"
        )


def _first_epoch(settings: Settings) -> Iterator[str]:
    """Reject settings with which the jobs could not open an epoch, before any process starts."""
    try:
        plan_from(settings)
    except ParameterError as error:
        yield f"no epoch could be opened with these settings: {error}; change one of those"


def _ports(settings: Settings) -> Iterator[str]:
    ports = {
        "gateway.port": settings.gateway.port,
        "gateway.metrics_port": settings.gateway.metrics_port,
        "worker.metrics_port": settings.worker.metrics_port,
        "jobs.metrics_port": settings.jobs.metrics_port,
    }
    for port, times in Counter(ports.values()).items():
        if times > 1:
            names = " and ".join(name for name in ports if ports[name] == port)
            yield f"{names} must differ, got {port} for each; choose another"


def _topics(settings: Settings) -> Iterator[str]:
    topics, epoch = settings.topics, settings.epoch
    if topics.allow_single_broker and (topics.replication > 1 or topics.min_insync_replicas > 1):
        yield (
            "topics.replication and topics.min_insync_replicas must be 1 with "
            f"topics.allow_single_broker, got {topics.replication} and "
            f"{topics.min_insync_replicas}; set both to 1, or allow_single_broker to false"
        )
    if not topics.allow_single_broker and topics.replication < 2:
        yield (
            f"topics.replication must be at least 2, got {topics.replication}; raise it, or set "
            "topics.allow_single_broker = true if losing everything with one disk is acceptable"
        )
    elif not topics.allow_single_broker and topics.min_insync_replicas >= topics.replication:
        yield (
            "topics.min_insync_replicas must be below topics.replication = "
            f"{topics.replication}, got {topics.min_insync_replicas}; otherwise one broker's "
            "restart stops everything"
        )
    # Reports on window e may arrive until the end of window e+2, and jobs may be down for a while.
    needed = 3 * epoch.window_s + epoch.grace_s + epoch.allowed_skew_s
    if topics.retention_s < needed:
        yield (
            "topics.retention_s must be at least 3 windows, the grace and the skew = "
            f"{needed:g}, got {topics.retention_s}; raise it, or records are lost before they count"
        )
    if topics.segment_s > epoch.window_s:
        yield (
            f"topics.segment_s must be at most epoch.window_s = {epoch.window_s}, got "
            f"{topics.segment_s}; lower it (0: the window), or raw data outlives its release"
        )


def _secrets(settings: Settings) -> Iterator[str]:
    kafka, keys, gateway = settings.kafka, settings.keys, settings.gateway
    if keys.current_id not in keys.master_secrets:
        yield (
            "keys.current_id must be one of the ids in keys.master_secrets "
            f"({', '.join(sorted(keys.master_secrets))}), got {keys.current_id}; add its secret"
        )
    # Cohorts need a separate secret: they must not change when secrets rotate.
    cohorts = settings.privacy.optin_cohorts or (
        1 if settings.period_epochs else settings.privacy.cohorts or 1
    )
    needed = cohorts > 1 or keys.cohort_id
    if needed and keys.cohort_id not in keys.master_secrets:
        yield (
            "keys.cohort_id must be one of the ids in keys.master_secrets "
            f"({', '.join(sorted(keys.master_secrets))}) when privacy.cohorts is above 1, got "
            f"{keys.cohort_id or 'none'}; name one and never change it"
        )
    if kafka.sasl_mechanism != "none" and not (kafka.user and kafka.password):
        yield (
            "kafka.sasl_user and kafka.sasl_password must be given with kafka.sasl_mechanism = "
            f"{kafka.sasl_mechanism}, got none; set both, or user:password@ in kafka.url"
        )
    if kafka.sasl_mechanism == "none" and (kafka.user or kafka.password):
        yield (
            "kafka.sasl_mechanism must be set for a user and password, got none; set it to "
            "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    if kafka.sasl_mechanism == "PLAIN" and not kafka.tls:
        yield (
            "kafka.url must begin with kafka+ssl:// when kafka.sasl_mechanism is PLAIN, got "
            f"{kafka.url.scheme or 'no scheme'}; otherwise the password is sent in clear text"
        )
    if (kafka.tls_certificate_file is None) != (kafka.tls_key_file is None):
        yield (
            "kafka.tls_certificate_file and kafka.tls_key_file must be given together, got one; "
            "give the other too"
        )
    private = {
        "gateway.token_file": gateway.token_file,
        "kafka.tls_key_file": kafka.tls_key_file,
    }
    for name, file in private.items():
        if file is not None and (problem := exposed(file, name)):
            yield problem
    tls_files = (kafka.tls_ca_file, kafka.tls_certificate_file, kafka.tls_key_file)
    if not kafka.tls and any(tls_files):
        yield (
            "kafka.url must begin with kafka+ssl:// when kafka's TLS files are given, got "
            f"{kafka.url.scheme or 'no scheme'}; change it, or leave the files out"
        )


def _redis(settings: Settings) -> Iterator[str]:
    redis = settings.redis
    if redis.tls_ca_file and not redis.url.scheme.startswith("rediss"):
        yield (
            "redis.url must begin with rediss:// when redis.tls_ca_file is given, got "
            f"{redis.url.scheme}; change it, or leave the file out"
        )
    if redis.by_sentinel and not redis.url.path.partition("/")[0]:
        yield (
            f"redis.url must name the primary after its Sentinels, as {redis.url.scheme}://"
            "host:26379/NAME/0, got no name; it is the one of `sentinel monitor NAME ...`"
        )
    if redis.sentinel_password and not redis.by_sentinel:
        yield (
            "redis.sentinel_password is for Sentinels, and redis.url names none, got "
            f"{redis.url.scheme}://; leave it out, or begin the address with redis+sentinel://"
        )


def _leases(settings: Settings) -> Iterator[str]:
    jobs, gateway = settings.jobs, settings.gateway
    if jobs.lease_renew_s > jobs.lease_s / 2:
        yield (
            f"jobs.lease_renew_s must be at most half of jobs.lease_s = {jobs.lease_s:g}, got "
            f"{jobs.lease_renew_s:g}; lower it, or one missed renewal loses the lease"
        )
    if jobs.transaction_timeout_s < settings.kafka.request_timeout_s:
        yield (
            "jobs.transaction_timeout_s must be at least kafka.request_timeout_s = "
            f"{settings.kafka.request_timeout_s:g}, got {jobs.transaction_timeout_s:g}; raise it, "
            "or the Kafka client makes no transactional producer"
        )
    if gateway.frame_bytes > gateway.buffer_bytes:
        yield (
            f"gateway.buffer_bytes must have room for one frame of {gateway.frame_bytes} bytes, "
            f"got {gateway.buffer_bytes}; raise it"
        )
