"""What the running service tells about itself, and what it must never tell.

One service for all of it: an epoch is published, its metrics are looked at, Prometheus watches a
worker and the broker go and come back, and in the end everything it wrote is searched.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import httpx
import pytest
import redis
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from blendstream.agents.gateway.routes import ROUTES
from blendstream.agents.gateway.state.verdicts import Reason as GatewayReason
from blendstream.agents.worker.halt_reasons import HaltReason
from blendstream.streams.names import InputStream
from blendstream.streams.releases.entries import EpochOutcome, Kind
from blendstream.streams.releases.epoch_state import Stage
from blendstream.streams.tables.batch_verdict import Refusal
from blendstream.streams.tables.redis_files import NotRewritten
from tests.prometheus_rules import as_grafana_asks, expressions, metrics_in
from tests.prometheus_server import Prometheus
from tests.service.waiting import wait_for
from tests.watched_service import BROKEN_FRAMES, DEVICES, REPEATED, Watched, watched_service

pytestmark = [pytest.mark.timeout(420), pytest.mark.more]

STEMS = {stem.value for stem in InputStream}
KINDS = {kind.value for kind in Kind} - {"operator"}
GROUPS = {"optin", "clients"}
PARTITIONS = {"0", "1", "2", "3"}
WAITING = {stage.value for stage in Stage if not stage.over}
ANY = None  # values that are no enumeration: checked by their form

#: Every metric of ours: type and, for each label, the values that must all be there.
WORKER: dict[str, tuple[str, dict[str, set[str] | None]]] = {
    **{
        f"blender_{stem}_{what}": ("counter", {"partition": PARTITIONS})
        for stem in STEMS
        for what in ("received", "counted")
    },
    **{
        f"blender_{stem}_refused": (
            "counter",
            {"partition": PARTITIONS, "reason": {reason.value for reason in Refusal}},
        )
        for stem in STEMS
    },
    "blender_batch_entries": ("histogram", {"stem": STEMS}),
    "blender_batch_seconds": ("histogram", {"stem": STEMS}),
    "blender_script_seconds": ("histogram", {"stem": STEMS}),
    "blender_frame_bytes": ("histogram", {"stem": STEMS}),
    "blender_store_retries": ("counter", {"stem": STEMS}),
    "blender_partition_reloads": ("counter", {"stem": STEMS}),
    "blender_partition_seeks": ("counter", {"stem": STEMS}),
    "blender_offset_gaps": ("counter", {"stem": STEMS}),
    "blender_lost_offsets": ("counter", {"stem": STEMS}),
    "blender_rebalances": ("counter", {}),
    "blender_partition_lag": ("gauge", {"stem": STEMS, "partition": PARTITIONS}),
    "blender_partition_lag_seconds": ("gauge", {"stem": STEMS, "partition": PARTITIONS}),
    "blender_partitions_assigned": ("gauge", {"stem": STEMS}),
    "blender_partitions_halted": (
        "gauge",
        {"stem": STEMS, "reason": {reason.value for reason in HaltReason}},
    ),
    "blender_worker_ready": ("gauge", {}),
    "blender_server_up": ("gauge", {"server": {"kafka", "redis", "redis_writes"}}),
    "blender_build_info": ("gauge", {"version": ANY}),
}
GATEWAY: dict[str, tuple[str, dict[str, set[str] | None]]] = {
    "blender_gateway_entries": (
        "counter",
        {"stem": STEMS, "verdict": {"accepted", *(reason.value for reason in GatewayReason)}},
    ),
    "blender_gateway_requests": ("counter", {"method": ANY, "path": ANY, "status": ANY}),
    "blender_gateway_request_seconds": ("histogram", {"method": ANY, "path": ANY}),
    "blender_gateway_requests_in_flight": ("gauge", {}),
    "blender_gateway_buffered_bytes": ("gauge", {}),
    "blender_gateway_stalled_partitions": ("gauge", {}),
    "blender_gateway_frames": ("counter", {}),
    "blender_gateway_late_frames": ("counter", {}),
    "blender_gateway_frame_bytes": ("histogram", {}),
    "blender_gateway_frame_entries": ("histogram", {}),
    "blender_gateway_loop_lag_seconds": ("histogram", {}),
    "blender_gateway_clock_skew_seconds": ("gauge", {}),
    "blender_gateway_clock_skew_limit_seconds": ("gauge", {}),
    "blender_gateway_tokens_stale": ("gauge", {}),
    "blender_gateway_ready": ("gauge", {}),
    "blender_server_up": ("gauge", {"server": {"kafka"}}),
    "blender_build_info": ("gauge", {"version": ANY}),
}
JOBS: dict[str, tuple[str, dict[str, set[str] | None]]] = {
    "blender_job_steps": ("counter", {"kind": KINDS}),
    "blender_job_failures": ("counter", {"kind": KINDS}),
    "blender_filter_failures": ("counter", {"kind": {"head-lists", "estimates"}}),
    "blender_job_lease_held": ("gauge", {"kind": KINDS}),
    "blender_jobs_clock_skew_seconds": ("gauge", {}),
    "blender_jobs_clock_skew_limit_seconds": ("gauge", {}),
    "blender_releases": ("counter", {"entry": ANY}),
    # Labels only while something blocks it.
    "blender_release_log_blocked_seconds": ("gauge", {"offset": {""}}),
    "blender_release_latency_seconds": ("histogram", {"kind": KINDS - {"keeper"}}),
    "blender_epochs": ("gauge", {"stage": {stage.value for stage in Stage}}),
    "blender_epoch_age_seconds": ("gauge", {"stage": WAITING}),
    "blender_epoch_overdue_seconds": ("gauge", {"stage": WAITING}),
    "blender_epoch_outcomes": ("gauge", {"outcome": {o.value for o in EpochOutcome}}),
    "blender_last_epoch_outcome": (
        "gauge",
        {"outcome": {"abandoned", *(outcome.value for outcome in EpochOutcome)}},
    ),
    "blender_last_published_epoch": ("gauge", {}),
    "blender_releases_recorded_twice": ("gauge", {}),
    "blender_service_paused": ("gauge", {}),
    "blender_epoch_epsilon": ("gauge", {"group": GROUPS}),
    "blender_epsilon_spent": ("gauge", {"group": GROUPS}),
    "blender_epsilon_limit": ("gauge", {"group": GROUPS}),
    "blender_delta_spent": ("gauge", {"group": GROUPS}),
    "blender_delta_limit": ("gauge", {"group": GROUPS}),
    "blender_redis_servers_not_rewritten": (
        "gauge",
        {"reason": {reason.value for reason in NotRewritten}},
    ),
    "blender_head_list_cells": ("gauge", {}),
    "blender_head_list_reports": ("gauge", {}),
    "blender_agreement_p_value": ("gauge", {}),
    "blender_agreement_p_value_before": ("gauge", {}),
    "blender_head_list_threshold": ("gauge", {}),
    "blender_head_list_records": ("gauge", {"state": {"found", "listed", "new"}}),
    "blender_head_list_records_before": ("gauge", {"state": {"found", "listed"}}),
    "blender_participants": ("gauge", {"group": {"selection", "estimation", "clients"}}),
    "blender_optin_weight": ("gauge", {}),
    "blender_group_difference": ("gauge", {"bound": {"typical", "low", "high"}}),
    "blender_disputed_records": ("gauge", {}),
    "blender_disputed_records_before": ("gauge", {}),
    "blender_interval_relative_width": ("gauge", {}),
    "blender_interval_coverage": ("gauge", {}),
    "blender_keeper_last_pass_timestamp_seconds": ("gauge", {}),
    "blender_server_up": ("gauge", {"server": {"kafka", "redis", "redis_writes"}}),
    "blender_build_info": ("gauge", {"version": ANY}),
}
FORMS = {
    "method": r"GET|POST|any",
    "path": r"/[a-z0-9/{}._-]*|other",
    "status": r"[1-5]\d\d",
    "version": r"[0-9a-z.+-]+|not installed",
    "entry": r"[a-z_]+",
}


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with watched_service() as service:
        yield service


@pytest.fixture(scope="module")
def prometheus(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Debian's, with the shipped rules sixty times as fast; it sees the publication come."""
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), watched.service.metrics)
    try:
        wait_for(server.all_up, "Prometheus sees every process", 60)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def published(watched: Watched, prometheus: Prometheus) -> dict[str, Any]:
    return watched.run_epoch()


@pytest.fixture(scope="module")
def scraped(watched: Watched, published: dict[str, Any]) -> dict[str, dict[str, Metric]]:
    """Each process's metrics, once the publication and all counts show in them."""

    def complete() -> dict[str, dict[str, Metric]] | None:
        found = {
            name: {family.name: family for family in text_string_to_metric_families(text)}
            for name, text in watched.scrape().items()
        }
        if "blender_last_published_epoch" not in found["jobs"]:
            return None  # a step failed on a busy machine; the keeper's lease is taken anew
        last = value(found["jobs"], "blender_last_published_epoch")
        received = {
            stem: total(found["worker"], f"blender_{stem}_received") for stem in watched.accepted
        }
        sent = {stem: n + BROKEN_FRAMES for stem, n in watched.accepted.items()}
        # Its time is observed a moment after the epoch is.
        timed = count(found["jobs"], "blender_release_latency_seconds", kind="estimates")
        return found if last >= published["epoch"] and received == sent and timed else None

    return wait_for(complete, "metrics that show the publication", 60)


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = [s for s in families[name].samples if labels.items() <= s.labels.items()]
    return float(sample.value)


def total(families: dict[str, Metric], name: str, **labels: str) -> float:
    samples = [s for s in families[name].samples if s.name.endswith("_total")]
    return sum(s.value for s in samples if labels.items() <= s.labels.items())


def count(families: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = [
        s
        for s in families[name].samples
        if s.name.endswith("_count") and labels.items() <= s.labels.items()
    ]
    return float(sample.value)


@pytest.mark.parametrize(
    ("process", "expected"), [("worker", WORKER), ("gateway", GATEWAY), ("jobs", JOBS)]
)
def test_names_types_help_and_labels_are_as_promised(scraped, process, expected):
    """Dashboards, alerts and operators' own rules are written against these."""
    families = {n: f for n, f in scraped[process].items() if n.startswith("blender_")}

    assert families.keys() == expected.keys()
    for name, (kind, labels) in expected.items():
        family = families[name]
        assert family.type == kind, name
        assert family.documentation.endswith("."), name
        for label, values in labels.items():
            found = {s.labels[label] for s in family.samples if label in s.labels}
            if values is None:
                assert all(re.fullmatch(FORMS[label], each) for each in found), (name, found)
            else:
                assert found == values, (name, label)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels.keys(), name


def test_every_route_of_the_gateway_starts_what_it_may_answer_at_zero(scraped):
    """A series that is born at one is no rise: nobody would hear of the first 500."""
    samples = scraped["gateway"]["blender_gateway_requests"].samples
    found: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        route = sample.labels["method"], sample.labels["path"]
        found.setdefault(route, set()).add(sample.labels["status"])
    wanted = {(r.method, r.path): {str(status) for status in (*r.answers, 500)} for r in ROUTES}
    wanted["any", "other"] = {"200", "404", "500"}

    assert found.keys() == wanted.keys()
    assert all(wanted[route] <= found[route] for route in wanted)
    assert sum(s.value for s in samples if s.labels["status"] == "500") == 0


def test_no_label_or_value_is_about_a_single_candidate(watched, scraped):
    """Labels hold stages, reasons and partitions; nothing that a person typed."""
    text = "".join(watched.scrape().values())

    assert [each for each in watched.sent.personal if each in text] == []


def test_every_metric_of_the_dashboard_and_the_alerts_is_in_the_scrape(scraped):
    """Against what the processes really serve, not what is declared somewhere."""
    names = {"up"} | {
        sample.name
        for families in scraped.values()
        for family in families.values()
        for sample in family.samples
    }

    for place, asked in expressions().items():
        for expression in asked:
            assert metrics_in(expression) <= names, place


def test_the_numbers_are_those_of_the_epoch(watched, scraped, published):
    """What operators see is what happened: received = counted + refused, and the publication."""
    worker, gateway, jobs = scraped["worker"], scraped["gateway"], scraped["jobs"]
    for stem, accepted in watched.accepted.items():
        counted = total(worker, f"blender_{stem}_counted")
        refused = total(worker, f"blender_{stem}_refused")
        assert total(gateway, "blender_gateway_entries", stem=stem, verdict="accepted") == accepted
        assert total(worker, f"blender_{stem}_received") == accepted + BROKEN_FRAMES
        assert counted + refused == accepted + BROKEN_FRAMES
        assert total(worker, f"blender_{stem}_refused", reason="malformed") == BROKEN_FRAMES
    took_part = published["participants"]
    assert total(worker, "blender_client_reports_counted") >= took_part["clients"] == DEVICES
    assert total(worker, "blender_optin_records_refused", reason="duplicate") >= REPEATED
    assert total(worker, "blender_rebalances") >= 1
    assert value(jobs, "blender_last_published_epoch") >= published["epoch"]
    assert total(jobs, "blender_releases", entry="head_list_released") >= 1
    assert value(jobs, "blender_releases_recorded_twice") == 0
    assert value(jobs, "blender_head_list_cells") > 0
    for kind in ("head-lists", "estimates"):
        assert count(jobs, "blender_release_latency_seconds", kind=kind) >= 1
    # Both are of one publication: the one that was made last, which need not be of the highest
    # epoch. One that nobody took part in is published empty before an earlier one's reports end.
    last = int(value(jobs, "blender_last_published_epoch"))
    told = value(jobs, "blender_head_list_reports"), value(jobs, "blender_agreement_p_value")
    wanted = tuple(None if math.isnan(x) else x for x in told)

    def is_published() -> bool:
        documents = [watched.published(epoch) for epoch in range(last + 1)]
        return wanted in [
            (d["participants"]["clients"], d["agreement"] and d["agreement"]["p_value"])
            for d in documents
            if d is not None
        ]

    wait_for(is_published, "a publication with these numbers", 30)
    wait_for(lambda: finalisation_is_published(jobs, watched, last), "their publication", 30)
    assert value(jobs, "blender_epsilon_limit", group="optin") == 1e6
    assert value(jobs, "blender_delta_limit", group="optin") == 1.0
    for group in GROUPS:
        assert value(jobs, "blender_epoch_epsilon", group=group) > 0
    assert value(jobs, "blender_job_lease_held", kind="keeper") == 1
    for process, families in scraped.items():
        up = [s.value for s in families["blender_server_up"].samples]
        assert set(up) == {1.0}, process


def finalisation_is_published(jobs: dict[str, Metric], watched: Watched, last: int) -> bool:
    """Return True if one publication has all the figures that the jobs show of the finalisation."""
    groups = ("selection", "estimation", "clients")
    shown = (
        {group: value(jobs, "blender_participants", group=group) for group in groups},
        value(jobs, "blender_head_list_records", state="listed"),
        pytest.approx(value(jobs, "blender_optin_weight")),
        value(jobs, "blender_disputed_records"),
    )
    documents = [watched.published(epoch) for epoch in range(last + 1)]
    return shown in [
        (
            document["participants"],
            len(records),
            fmean(r["optin_weight"] for r in records if r["optin_weight"] is not None),
            sum(r["disputed"] for r in records),
        )
        for document in documents
        if document is not None
        and (records := [r for r in document["records"] if r["url"] is not None])
    ]


# --- what Prometheus makes of it ------------------------------------------------------------------


def test_the_dashboard_marks_a_publication_when_it_comes(prometheus, published):
    """Empty is a right answer to its query while nothing is published, so nobody would miss it."""
    (asked,) = expressions()["annotation Publications"]

    began = str(published["window_start_s"])

    def marks() -> list[float] | None:
        data = prometheus.ask(
            "query_range", query=asked, start=began, end=str(time.time()), step="1s"
        )
        found = [] if data is None else data["result"]
        return [float(at) for series in found for at, _ in series["values"]] or None

    assert max(wait_for(marks, "a mark of the publication", 30)) > published["window_end_s"]


def test_every_query_of_the_dashboard_is_answered(prometheus, published):
    """A panel whose query is wrong is empty, and looks like a service without trouble."""
    asked = {
        (place, expression): as_grafana_asks(expression)
        for place, found in expressions().items()
        for expression in found
        if not place.startswith("alert ")
    }

    def unanswered() -> list[tuple[str, str]]:
        # What is only shown while something is wrong may be empty, and so may means and quantiles
        # of what did not happen since Prometheus looks (">= 0"): Grafana then says "none".
        return [
            key
            for key, query in asked.items()
            if (data := prometheus.ask("query", query=query)) is None
            or not (data["result"] or re.search(">=? 0$|ALERTS", query))
        ]

    assert len(asked) > 60
    wait_for(lambda: not unanswered(), "a rate has two samples", 30)


def test_a_stopped_worker_fires_and_clears(watched, prometheus, scraped):
    """Nothing is counted without workers, and nobody notices from outside."""
    prometheus.wait_for(("ProcessGone", "worker"), firing=False)

    watched.service.processes["worker"].stop()

    prometheus.wait_for(("ProcessGone", "worker"), firing=True)
    assert ("ProcessGone", "jobs") not in (prometheus.firing() or ())
    watched.service.start_process("worker")
    prometheus.wait_for(("ProcessGone", "worker"), firing=False, within_s=90)


def test_a_redis_that_refuses_writes_fires_and_clears(watched, prometheus, scraped):
    """At maxmemory, or with a full disk, Redis answers PING: jobs once called themselves ready."""
    processes = ("worker", "jobs")
    service = watched.service
    with redis.Redis.from_url(service.stack.redis.url) as client:
        client.config_set("maxmemory", 1)
        try:
            for job in processes:
                prometheus.wait_for(("RedisRefusesWrites", job), firing=True)
                answer = httpx.get(service.metrics[job].replace("/metrics", "/readyz"))
                assert answer.status_code == 503
                assert "Redis refuses every write (OOM), because its memory is full" in answer.text
        finally:
            client.config_set("maxmemory", 0)
    for job in processes:
        prometheus.wait_for(("RedisRefusesWrites", job), firing=False, within_s=90)


def test_a_stopped_broker_fires_and_clears(watched, prometheus, scraped):
    """Every process says so, and goes on by itself when the broker is back."""
    processes = ("gateway", "worker", "jobs")
    for job in processes:
        prometheus.wait_for(("KafkaUnreachable", job), firing=False)

    watched.service.stack.kafka.stop()

    for job in processes:
        prometheus.wait_for(("KafkaUnreachable", job), firing=True)
    assert "RedisUnreachable" not in {name for name, _ in prometheus.firing() or ()}
    watched.service.stack.kafka.start()
    for job in processes:
        prometheus.wait_for(("KafkaUnreachable", job), firing=False, within_s=90)


# --- last: everything that was written so far, outages included -----------------------------------


def test_no_query_url_or_user_is_in_anything_the_service_wrote(watched, published):
    """Not in logs, metrics, dead letters or errors, whatever went wrong on the way."""
    written = {
        **watched.logs(),
        **{f"metrics of {name}": text for name, text in watched.scrape().items()},
        "dead letters": "\n".join(watched.dead_letters()),
        "answers to refusals": "\n".join(watched.sent.answers),
    }

    assert all(text for text in written.values()), "an empty log proves nothing"
    assert written["dead letters"].count("malformed") == 2 * BROKEN_FRAMES
    assert len(watched.sent.personal) > 700
    # The search does find what is there: publications show queries, as they should.
    assert [each for each in watched.sent.personal if each in json.dumps(published)] != []
    for place, text in written.items():
        found = [each for each in watched.sent.personal if each in text]
        assert found == [], place


def test_logs_are_one_json_object_a_line_with_an_event(watched, published):
    """Structured, so that machines read them and people filter them."""
    for name in ("gateway", "worker", "jobs"):
        lines = watched.logs()[name].splitlines()
        for line in lines:
            entry = json.loads(line)
            assert entry["event"].replace("_", "").isalnum()
            assert {"at", "level", "logger"} <= entry.keys()
