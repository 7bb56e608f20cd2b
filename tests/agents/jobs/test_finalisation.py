"""The metrics of the finalisation are those of the published documents, and of nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from blendstream.agents.jobs import metrics
from blendstream.agents.jobs.finalisation import FinalisationMetrics, PublishedPair, summarise
from blendstream.agents.jobs.job_context import JobContext
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import DocumentReference, StoredDocument, split
from blendstream.streams.releases.entries import EpochOutcome, IncompleteReason
from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatedShare,
    EstimatesDocument,
)
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.streams.wire.published_epochs import counts, published_documents

IN_PERIODS = {"period_epochs": 30, "known_records": 1000, "optin_cohorts": 1, "cohorts": 30}
SETTINGS: Mapping[str, dict[str, Any]] = {
    "paper": {"profile": "paper"},
    "sharp": {"profile": "sharp"},
    "period": {"profile": "sharp", **IN_PERIODS},
}
#: In people: the paper's own, that of whole counts at ε = 4 and δ = 1e-5, and a period's.
THRESHOLDS = {"paper": 6.7578125, "sharp": 7, "period": None}


def shown() -> dict[tuple[str, str], float]:
    """Every sample of the metrics that follow the log, by name and label value."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in metrics._LOG_REGISTRY.collect()
        for sample in family.samples
    }


def two_epochs(**settings: Any) -> tuple[bytes, bytes, bytes, bytes]:
    """Head list and publication of an epoch and of the one before, as published."""
    found = []
    for seed in (2, 3):
        # The same popularity, other people: most estimates of the two epochs agree.
        rng, base = np.random.default_rng(seed), counts(np.random.default_rng(2))
        s, t = rng.poisson(base.selection), rng.poisson(base.estimation)
        s[seed::5] = 0
        held = replace(
            base, selection=s, estimation=t,
            selection_users=int(s.sum()), estimation_users=int(t.sum()),
        )  # fmt: skip
        documents = published_documents(reports=50_000, held=held, forged=0.05, **settings)
        found += [document.to_bytes() for document in documents]
    return found[2], found[3], found[0], found[1]


def expected(
    head_list: Any, document: Any, list_before: Any, document_before: Any
) -> dict[tuple[str, str], float]:
    """The metrics, computed from parsed JSON alone, by other code than that of the jobs."""
    name = "blender_head_list_records"
    rows = [row for row in document["records"] if row["url"] is not None]
    blends = [row["blend"] for row in rows]
    before = {(row["query"], row["url"]): row for row in document_before["records"]}
    both = [(before[key], row) for row in rows if (key := (row["query"], row["url"])) in before]
    compared = [
        (one["blend"], two["blend"])
        for one, two in both
        if not (one["disputed"] or two["disputed"])
    ]
    agree = []
    for one, two in compared:
        step = two["probability"] - one["probability"]
        up = math.hypot(one["high"] - one["probability"], two["probability"] - two["low"])
        down = math.hypot(one["probability"] - one["low"], two["high"] - two["probability"])
        agree.append(-down <= step <= up)
    listed = {tuple(pair) for pair in head_list["records"][: head_list["listed"]]}
    listed_before = {tuple(pair) for pair in list_before["records"][: list_before["listed"]]}
    nothing = {"typical": math.nan, "low": math.nan, "high": math.nan}
    difference = document["difference"] or nothing
    return {
        (name, "found"): len(head_list["records"]),
        (name, "listed"): head_list["listed"],
        (name, "new"): len(listed - listed_before),
        (f"{name}_before", "found"): len(list_before["records"]),
        (f"{name}_before", "listed"): list_before["listed"],
        **{("blender_participants", k): v for k, v in document["participants"].items()},
        ("blender_optin_weight", ""): fmean(
            row["optin_weight"] for row in rows if row["optin_weight"] is not None
        ),
        **{("blender_group_difference", k): difference[k] for k in nothing},
        ("blender_disputed_records", ""): sum(row["disputed"] for row in rows),
        ("blender_disputed_records_before", ""): sum(
            row["disputed"] for row in document_before["records"]
        ),
        ("blender_interval_relative_width", ""): median(
            (b["high"] - b["low"]) / b["probability"] for b in blends if b["probability"] > 0
        ),
        ("blender_interval_coverage", ""): fmean(agree),
    }


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_metric_is_a_number_of_the_published_documents(setting: str):
    """A metric made of anything else would be a release that nobody charged for."""
    documents = two_epochs(**SETTINGS[setting])
    metrics.show_finalisation(metrics.Finalisation())
    nothing = shown()
    newest = PublishedPair.from_bytes(*documents[:2])
    before = PublishedPair.from_bytes(*documents[2:])

    metrics.show_finalisation(summarise(newest, before))

    told = {key: value for key, value in shown().items() if not _same(value, nothing[key])}
    parsed = [json.loads(data) for data in documents]
    wanted = expected(*parsed)
    threshold = told.pop(("blender_head_list_threshold", ""))
    period = parsed[1]["parameters"].get("period")
    assert threshold == (THRESHOLDS[setting] if period is None else period["threshold"])
    assert told == pytest.approx({k: v for k, v in wanted.items() if not math.isnan(v)})
    assert told["blender_head_list_records", "new"] > 0
    assert 0 < told["blender_interval_coverage", ""] <= 1


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


# --- from the release log -------------------------------------------------------------------------


class Log(ModelLog):
    """A release log that notes which documents are read."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, bytes] = {}
        self.read: list[str] = []

    async def read_document(self, reference: DocumentReference) -> bytes:
        self.read.append(reference.name)
        return self.stored[reference.id]

    def store(self, name: str, data: bytes) -> StoredDocument:
        document = split(name, data)
        self.stored[document.id] = data
        return document

    def publish(self, epoch: int, head_list: bytes, estimates: bytes, *, empty: bool = False):
        """Bring the next epoch to its end with these documents."""
        now = START + epoch * WINDOW_MS
        keep(self, now)
        self.commit(now, entries.records_sealed(epoch, [1, 1]))
        documents = [self.store("head-list", head_list), self.store("optin", b"not published")]
        listed = entries.head_list_released(
            epoch, documents, cells=3, cells_per_answer=1, answers=1, wildcard_alone=False,
            reports_until_ms=now, reasons=[],
        )  # fmt: skip
        self.commit(now, listed, documents=documents)
        document = self.store("estimates", estimates)
        outcome = EpochOutcome.EMPTY if empty else EpochOutcome.COMPLETE
        reasons = [IncompleteReason.EMPTY_HEAD_LIST] if empty else []
        self.commit(
            now,
            entries.estimate_released(epoch, document, outcome, reasons),
            documents=[document],
        )


async def test_only_published_documents_are_read_and_each_pair_once():
    """The opt-in release has T's noise terms, which stay in the log."""
    log, documents = Log(), two_epochs(profile="sharp")
    finalisation = FinalisationMetrics(cast(JobContext, SimpleNamespace(log=log)))
    await finalisation.update(log.log_state)
    assert log.read == []

    log.publish(0, *documents[2:])
    await finalisation.update(log.log_state)
    assert math.isnan(shown()["blender_head_list_records", "new"])
    assert math.isnan(shown()["blender_interval_coverage", ""])
    log.publish(1, *documents[:2])
    await finalisation.update(log.log_state)
    await finalisation.update(log.log_state)

    assert sorted(log.read) == ["estimates"] * 3 + ["head-list"] * 3
    wanted = expected(*map(json.loads, documents))
    assert {key: shown()[key] for key in wanted} == pytest.approx(wanted, nan_ok=True)


async def test_an_empty_epoch_between_two_hides_no_comparison():
    """Without estimates there is nothing to compare with: the epoch before it is the one before."""
    log, documents = Log(), two_epochs(profile="sharp")
    log.publish(0, *documents[2:])
    log.publish(1, b"of no record", b"empty", empty=True)
    log.publish(2, *documents[:2])

    await FinalisationMetrics(cast(JobContext, SimpleNamespace(log=log))).update(log.log_state)

    wanted = expected(*map(json.loads, documents))
    assert {key: shown()[key] for key in wanted} == pytest.approx(wanted, nan_ok=True)


async def test_an_unreadable_publication_is_shown_as_no_number():
    """The keeper must open and seal epochs whatever a document holds."""
    log, documents = Log(), two_epochs(profile="sharp")
    log.publish(0, *documents[2:])
    log.publish(1, documents[0], b"damaged")

    await FinalisationMetrics(cast(JobContext, SimpleNamespace(log=log))).update(log.log_state)

    assert math.isnan(shown()["blender_head_list_records", "found"])
    assert math.isnan(shown()["blender_disputed_records", ""])


def test_two_estimates_agree_if_their_intervals_allow_no_difference():
    """Intervals of ±2 allow a distance of √8 = 2.83, not the 4 at which they cease to touch."""

    def document(*values: float) -> EstimatesDocument:
        rows = []
        for number, p in enumerate(values):
            figure = EstimatedShare(p, 1.0, p - 2, p + 2)
            rows.append(EstimatedCell("q", f"u{number}", figure, figure, figure, 0.5, None))
        return replace(example.estimates, records=tuple(rows), disputed=None)

    head_list, estimates = published_documents("paper", 5000, counts(np.random.default_rng(2)))
    example = PublishedPair(head_list, estimates)
    newest = PublishedPair(head_list, document(10, 12.8, 7.1, 10))
    before = PublishedPair(head_list, document(10, 10, 10))

    found = summarise(newest, before)

    assert found.coverage == pytest.approx(2 / 3)
    assert found.relative_width == median([0.4, 4 / 12.8, 4 / 7.1, 0.4])
    assert found.records["new"] == 0
