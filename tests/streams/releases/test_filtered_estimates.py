"""The filtered estimate beside an epoch's own: from published documents alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from blendstream.agents.jobs.estimates import build_estimates
from blendstream.agents.jobs.filter_memory import add_filtered
from blendstream.agents.jobs.job_context import RandomnessSources
from blendstream.agents.jobs.metrics import JOBS
from blendstream.blender.over_time.groups_over_time import pooled_difference
from blendstream.blender.over_time.publication_filter import ClientFigures, Publication
from blendstream.blender.profiles import build_head_list
from blendstream.blender.values.errors import NotFinite
from blendstream.blender.values.interfaces import OptinCounts
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.record import Record
from blendstream.streams.releases.epoch_state import HeadListRelease
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.estimates_document import DisputedRecords, EstimatesDocument
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.agents.jobs.kept_epochs import START, keep
from tests.agents.jobs.model_log import WINDOW_MS, ModelLog
from tests.doubles_jobs import RepeatableNoise
from tests.head_lists import QUANTITY
from tests.streams.wire.exact_schemas import exact_schema
from tests.streams.wire.published_epochs import REFERENCE

RECORDS = [Record(f"query {n % 7}", f"https://{n}.example/") for n in range(20)]
P = np.append(np.linspace(0.08, 0.01, 20), 0.1)


def documents(epochs: int, profile: str = "sharp", **changes) -> list:
    """Head lists and own estimates of some epochs of one population, as the jobs make them."""
    log = ModelLog()
    for epoch in range(epochs):
        keep(log, START + epoch * WINDOW_MS, profile=profile, **changes)
    rng, known, made = np.random.default_rng(5), (), []
    for epoch in range(epochs):
        state = log.log_state.epochs[epoch]
        privacy = state.parameters.plan.privacy
        s, t = (rng.multinomial(n, P / P.sum())[:20] for n in (5_000, 800))
        counts = OptinCounts(RECORDS, s, t, 5_000, 800)
        release = build_head_list(profile, counts, privacy, RepeatableNoise(epoch), known)
        known = release.head_list.records
        cells = len(release.head_list.cells)
        state = replace(state, head_list=HeadListRelease(
            REFERENCE, REFERENCE, cells, 1, 1, False, START + 3 * WINDOW_MS, (), START + WINDOW_MS,
        ))  # fmt: skip
        head_list = HeadListDocument(
            epoch, epoch * 60, epoch * 60 + 60, epoch * 60 + 120, release.head_list, QUANTITY
        )
        reports = rng.multinomial(20_000, np.full(cells, 1 / cells)).astype(np.int64)
        dice = RandomnessSources(RepeatableNoise(3), lambda: np.random.default_rng(1))
        own = build_estimates(state, release, ReportsRead(reports, 20_000, False), (), dice)
        made.append((head_list, own))
    return made


def published(made: list) -> list[tuple[bytes, bytes]]:
    """The same with the filtered estimate, as bytes: all that a reader has."""
    memory, found = FilterMemory(), []
    for head_list, own in made:
        document = with_filtered(own, head_list, memory)
        found.append((head_list.to_bytes(), document.to_bytes()))
        publication = publication_of(head_list, document)
        if publication is not None:
            memory = memory.follow(publication, clients_rotate=rotates(document))
    return found


def recomputed(data: list[tuple[bytes, bytes]]) -> EstimatesDocument:
    """The last publication's filtered estimate, by somebody who has the documents and nothing
    else."""
    read = [
        (HeadListDocument.from_bytes(heads), EstimatesDocument.from_bytes(estimates))
        for heads, estimates in data
    ]
    memory = FilterMemory()
    for head_list, document in read[:-1]:
        publication = publication_of(head_list, document)
        assert publication is not None
        memory = memory.follow(publication, clients_rotate=rotates(document))
    head_list, last = read[-1]
    return with_filtered(replace(last, filtered=None), head_list, memory)


def test_every_record_and_query_has_both_estimates_and_the_document_says_what_each_is_for():
    heads, data = published(documents(4))[-1]
    body = json.loads(data)
    Draft202012Validator(exact_schema("estimates")).validate(body)
    document = EstimatesDocument.from_bytes(data)

    assert document.to_bytes() == data
    assert body["filtered"]["since_epoch"] == 0
    assert body["filtered"]["epochs"] == 4
    assert "this epoch's own estimates" in body["filtered"]["statement"]
    assert "rankings, trends and history" in body["filtered"]["statement"]
    records = [row for row in body["records"] if row["url"] is not None]
    assert len(records) == HeadListDocument.from_bytes(heads).head_list.listed
    for row in records:
        assert row["blend"] is not None
        figure = row["filtered"]
        assert 0 <= figure["low"] <= figure["probability"] <= figure["high"] <= 1
        assert figure["variance"] < row["optin"]["variance"], "four epochs know more than one"
    for query in body["queries"]:
        parts = [
            r["filtered"]
            for r in (*records, *body["filtered"]["unlisted"])
            if r["query"] == query["query"]
        ]
        total = sum(part["probability"] for part in parts)
        assert query["filtered"]["probability"] == pytest.approx(total)


def test_who_has_the_published_documents_makes_the_same_numbers():
    data = published(documents(6))

    for upto in (1, 3, 6):
        assert recomputed(data[:upto]).to_bytes() == data[upto - 1][1]


def test_the_counts_of_t_are_published_and_help_the_filter():
    """They are released values already, behind the opt-in users' estimate: showing them is free."""
    head_list, own = documents(1)[0]
    publication = publication_of(head_list, own)
    assert publication is not None
    counts = {(c.query, c.url): c.estimation_count for c in own.records}
    listed = publication.records[: publication.listed]
    assert publication.estimation is not None
    assert publication.estimation.tolist() == [counts[r.query, r.url] for r in listed]
    assert sum(c.estimation_count for c in own.records) == pytest.approx(800, abs=20), "all of T"
    assert (publication.estimation_users, publication.estimation_noise) == (800, publication.noise)

    older = replace(
        own, records=tuple(replace(cell, estimation_count=None) for cell in own.records)
    )
    without = publication_of(head_list, older)
    assert without is not None
    assert without.estimation is None
    with_t, s_alone = (
        with_filtered(each, head_list, FilterMemory()).records[0].filtered for each in (own, older)
    )
    assert with_t is not None
    assert s_alone is not None
    assert with_t.variance < s_alone.variance


@pytest.mark.parametrize(("shown", "left_out"), [("optin", True), ("client", False)])
def test_reports_on_a_disputed_record_do_not_move_it_where_they_may_be_forged(shown, left_out):
    """The epoch's own estimate shows the opt-in users' number then; the filter must not take in by
    another door what that keeps out. Reports of admitted devices are taken as they are."""
    head_list, own = documents(1)[0]
    first = own.records[0]
    assert first.client is not None
    disputed = replace(
        own,
        disputed=DisputedRecords(1, shown, "Somebody may have forged reports."),
        records=(replace(first, disputed=True), *own.records[1:]),
    )
    publication = publication_of(head_list, disputed)
    assert publication is not None
    assert publication.clients is not None
    place = [(r.query, r.url) for r in publication.records].index((first.query, first.url))
    missing = np.isnan(publication.clients.probability)
    assert missing[place] == left_out
    assert missing.sum() == left_out


def test_a_disputed_record_leaves_all_filtered_figures():
    """Story: its left-out figure became a NaN that reached all records, and none had a filtered
    figure for the next 17 to 32 epochs: 100 forged reports were enough."""
    made = documents(5)
    head_list, own = made[2]
    made[2] = (
        head_list,
        replace(
            own,
            disputed=DisputedRecords(1, "optin", "Somebody may have forged reports."),
            records=(replace(own.records[0], disputed=True), *own.records[1:]),
        ),
    )

    for _, data in published(made):
        figures = [row["filtered"] for row in json.loads(data)["records"] if row["url"]]
        assert len(figures) == 20
        assert all(figure["probability"] is not None for figure in figures)


def test_figures_are_carried_through_epochs_without_counts():
    """Nobody was in S: the records are on the list, and what was known of them still holds, less
    surely."""
    made = documents(6)
    data = published(made[:3])
    memory = FilterMemory()
    for head_list, own in made[:3]:
        publication = publication_of(head_list, own)
        assert publication is not None
        memory = memory.follow(publication, clients_rotate=rotates(own))
    head_list, own = made[5]
    nobody = replace(own, participants=replace(own.participants, selection=0))

    before = {
        (r.query, r.url): r.filtered for r in EstimatesDocument.from_bytes(data[-1][1]).records
    }
    carried = with_filtered(nobody, head_list, memory)

    assert carried.filtered is not None
    assert (carried.filtered.since_epoch, carried.filtered.epochs) == (0, 3)
    for row in (r for r in carried.records if r.url is not None):
        last = before[row.query, row.url]
        assert row.filtered is not None
        assert last is not None
        assert row.filtered.probability == pytest.approx(last.probability, rel=0.01)
        assert row.filtered.variance > last.variance
    assert all(query.filtered is not None for query in carried.queries)
    assert with_filtered(nobody, head_list, FilterMemory()) == nobody, "nothing was known before"


def test_a_filter_that_fails_leaves_the_epochs_own_estimate(monkeypatch, caplog):
    """The publication goes out; the log has the record's number, never its text, and the counter
    of the alert rises."""
    head_list, own = documents(1)[0]
    before = failures()

    def fails(*_):
        raise NotFinite("a filter's mean", 7)

    monkeypatch.setattr("blendstream.agents.jobs.filter_memory.with_filtered", fails)
    assert add_filtered(own, head_list, FilterMemory()) == own

    [told] = caplog.records
    assert (told.message, told.epoch, told.record) == ("filter_failed", 0, 7)
    assert failures() == before + 1


def failures() -> float | None:
    return JOBS.get_sample_value("blender_filter_failures_total", {"kind": "estimates"})


def test_counts_of_another_quantity_are_not_filtered():
    """The paper's profile keeps no counts."""
    head_list, own = documents(1, profile="paper")[0]

    assert publication_of(head_list, own) is None
    assert with_filtered(own, head_list, FilterMemory()) == own
    assert json.loads(own.to_bytes())["filtered"] is None


def test_records_that_are_known_and_not_listed_are_told_too():
    few = PrivacyParameters(selection_share=0.9, head_list_cells=5)
    _, data = published(documents(3, privacy=few))[-1]
    body = json.loads(data)
    Draft202012Validator(exact_schema("estimates")).validate(body)

    assert len(body["filtered"]["unlisted"]) == 15
    shares = [row["filtered"]["probability"] for row in body["filtered"]["unlisted"]]
    assert shares == sorted(shares, reverse=True)
    assert EstimatesDocument.from_bytes(data).to_bytes() == data


def test_of_more_unlisted_records_than_fit_the_largest_are_told(monkeypatch):
    made = documents(2, privacy=PrivacyParameters(selection_share=0.9, head_list_cells=5))
    all_of_them = json.loads(published(made)[-1][1])["filtered"]["unlisted"]
    monkeypatch.setattr("blendstream.streams.releases.filtered_estimates.MOST_UNLISTED", 4)
    fewer = json.loads(published(made)[-1][1])["filtered"]["unlisted"]

    assert fewer == all_of_them[:4]
    assert all(float(f"{x:.6g}") == x for row in fewer for x in row["filtered"].values())


def test_a_querys_figure_is_of_all_its_known_results_before_any_is_cut_off(monkeypatch):
    """A query of three results, one of them listed, was published with that one's share."""
    few = PrivacyParameters(selection_share=0.9, head_list_cells=5)
    made = documents(3, privacy=few)
    whole = json.loads(published(made)[-1][1])
    monkeypatch.setattr("blendstream.streams.releases.filtered_estimates.MOST_UNLISTED", 1)
    cut = json.loads(published(made)[-1][1])

    known = [r for r in (*whole["records"], *whole["filtered"]["unlisted"]) if r["url"]]
    rows = whole["queries"] + whole["filtered"]["unlisted_queries"]
    assert {row["query"] for row in rows} == {r["query"] for r in known}
    beyond = 0
    for row in rows:
        parts = [r["filtered"] for r in known if r["query"] == row["query"]]
        total = sum(part["probability"] for part in parts)
        assert row["filtered"]["probability"] == pytest.approx(total, rel=1e-5)
        least = sum(part["variance"] for part in parts)
        most = sum(part["variance"] ** 0.5 for part in parts) ** 2
        assert least * (1 - 1e-5) <= row["filtered"]["variance"] <= most * (1 + 1e-5)
        beyond += len(parts) > 1 and "blend" in row
    assert beyond, "some query has listed and unlisted results"
    assert len(cut["filtered"]["unlisted"]) == len(cut["filtered"]["unlisted_queries"]) == 1
    assert cut["queries"] == whole["queries"]
    assert cut["filtered"]["unlisted_queries"] == whole["filtered"]["unlisted_queries"][:1]


# --- how far the groups differ, over epochs -------------------------------------------------------


def epochs_of(spread: float, epochs: int, rng: np.random.Generator) -> list[Publication]:
    """Epochs of clients who take turns: one tells little, many tell the groups apart."""
    p = 0.05 / np.arange(1, 51)
    optin = p * np.exp(spread * rng.standard_normal(50))
    records = tuple(Record(f"q{n}", "https://x.example/") for n in range(50))
    deviation = 1.3e-3
    return [
        Publication(
            epoch, records, rng.poisson(30_000 * optin) + rng.integers(-8, 9, 50), 30_000, 25.0, 50,
            clients=ClientFigures(
                p + deviation * rng.standard_normal(50), np.full(50, deviation**2), 20_000
            ),
        )
        for epoch in range(epochs)
    ]  # fmt: skip


def test_groups_that_are_alike_are_known_to_be_after_many_epochs():
    rng = np.random.default_rng(3)
    one, many = (pooled_difference(epochs_of(0.0, n, rng)) for n in (1, 20))

    assert many <= 0.03
    assert many <= one


def test_groups_that_differ_are_known_to_after_many_epochs():
    found = [pooled_difference(epochs_of(0.2, 20, np.random.default_rng(s))) for s in range(6)]

    assert all(0.13 <= tau <= 0.35 for tau in found)


def test_without_clients_what_is_thought_beforehand_stands():
    alone = [replace(p, clients=None) for p in epochs_of(0.2, 3, np.random.default_rng(1))]

    assert pooled_difference(alone) == pooled_difference([])
