"""The filter over epochs publishes finite figures, whatever publications contain or leave out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
)
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import NotFinite
from blendstream.blender.values.record import Record
from blendstream.streams.releases.filtered_estimates import (
    FilterMemory,
    publication_of,
    rotates,
    with_filtered,
)
from blendstream.streams.wire.estimates_document import (
    DisputedRecords,
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    Participants,
)
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.head_lists import QUANTITY

#: Enough for the filter to look for a change that all records share.
LISTED, UNLISTED = 12, 3
RECORDS = tuple(Record(f"q{n % 5}", f"https://{n}.example/") for n in range(LISTED + UNLISTED))

#: What the clients' reports say of a record: nothing, a p̂ without variance (one report), or a p̂ as
#: far out as few reports and much noise can bring it.
MISSING, ONE_REPORT = None, (0.3, None)
FIGURES = [
    MISSING,
    ONE_REPORT,
    (0.02, 1e-6),
    (0.0, 0.0),
    (1.0, 1e-12),
    (-40.0, 900.0),
    (1e6, 1e-30),
]
COUNTS = [0, 1, 120, -9, -(2**40), 2**40]
USERS = [0, 1, 5_000, 2**40]
SCALES = [1e-3, 0.5, 8.5, 1e9]


def story(
    epochs: list[dict | None], figure: dict[tuple[int, int], object]
) -> list[EstimatesDocument]:
    """The publications of these epochs with their filtered figures; `None` is an empty epoch."""
    memory, found = FilterMemory(), []
    # The last of the listed and of the unlisted records are first seen after the first epoch.
    later = [e for e, settings in enumerate(epochs) if e and settings and settings["users"]]
    first_seen = dict.fromkeys((LISTED - 1, len(RECORDS) - 1), min(later, default=len(epochs)))
    for epoch, settings in enumerate(epochs):
        if settings is None:
            continue
        numbers = [n for n in range(len(RECORDS)) if first_seen.get(n, 0) <= epoch]
        head_list, own = documents(epoch, numbers, settings, figure)
        found.append(with_filtered(own, head_list, memory))
        publication = publication_of(head_list, own)
        if publication is not None:
            memory = memory.follow(publication, clients_rotate=rotates(own))
    return found


def documents(
    epoch: int, numbers: list[int], of: dict, figure: dict[tuple[int, int], object]
) -> tuple[HeadListDocument, EstimatesDocument]:
    """One epoch's documents as jobs write them; `figure` has each record's, by epoch and number."""
    records = tuple(RECORDS[n] for n in numbers)
    listed = sum(n < LISTED for n in numbers)
    rows, counts = [], []
    for n in numbers:
        client, disputed, count = figure[epoch, n]
        counts.append(count)
        if n < LISTED:
            share = None
            if of["reports"] and client is not None:
                p, v = client
                share = EstimatedShare(p, v, 0.0, 1.0)
            row = EstimatedCell(RECORDS[n].query, RECORDS[n].url, None, share, share, None, None)
            t_count = count if of["estimation"] else None
            rows.append(replace(row, disputed=disputed, estimation_count=t_count))
    spec = RandomizerSpec("randomized-response", 4.0, cells_per_answer=1)
    head_list = HeadList(records, listed, spec, query_wildcards=False, noisy_counts=tuple(counts))
    own = EstimatesDocument(
        epoch=epoch,
        window_start_s=epoch * 60,
        window_end_s=epoch * 60 + 60,
        reports_until_s=None,
        outcome="complete",
        reasons=(),
        head_list_id="ab" * 32,
        parameters={
            "epsilon": 4.0,
            "records_per_optin_user": 1,
            "cohorts": of["cohorts"],
            "period": {"scale": of["scale"]},
        },
        mechanisms={},
        participants=Participants(of["users"], of["estimation"], of["reports"]),
        records=(*rows, EstimatedCell(None, None, None, None, None, None, None)),
        queries=tuple(
            EstimatedQuery(f"q{q}", None, None, None, None) for q in range(min(5, listed))
        ),
        agreement=None,
        privacy={},
        versions={},
        quantity="Shares of people.",
        disputed=DisputedRecords(1, of["shown"], "The groups differ."),
    )
    times = epoch * 60, epoch * 60 + 60, epoch * 60 + 120
    return HeadListDocument(epoch, *times, head_list, QUANTITY), own


def all_finite(document: EstimatesDocument) -> None:
    """Every listed record and every query has a figure, and each of its numbers is one."""
    assert document.filtered is not None
    listed = [row for row in document.records if row.url is not None]
    for row in (*listed, *document.queries, *document.filtered.unlisted):
        figure = row.filtered
        assert figure is not None
        numbers = (figure.probability, figure.variance, figure.low, figure.high)
        assert all(x is not None and np.isfinite(x) for x in numbers)
        assert figure.variance >= 0
        assert 0 <= figure.low <= figure.high <= 1


EPOCH = st.fixed_dictionaries(
    {
        "users": st.sampled_from(USERS),
        "reports": st.sampled_from(USERS),
        "estimation": st.sampled_from([0, 800]),
        "cohorts": st.sampled_from([1, 28]),
        "scale": st.sampled_from(SCALES),
        "shown": st.sampled_from(["optin", "client"]),
    }
)
KINDS = list(itertools.product(FIGURES, [False, True], COUNTS))


@given(data=st.data())
def test_no_combination_of_figures_leaves_a_record_without_its_filtered_figure(data):
    """Story: one disputed record became a NaN, which reached every record and stayed for 17 to 32
    epochs, silently. Missing, disputed, first seen, empty and extreme figures in any order."""
    first = data.draw(EPOCH) | {"users": data.draw(st.sampled_from(USERS[1:]))}
    epochs = [first, *data.draw(st.lists(EPOCH | st.none(), min_size=1, max_size=3))]
    keys = list(itertools.product(range(len(epochs)), range(len(RECORDS))))
    chosen = data.draw(st.binary(min_size=len(keys), max_size=len(keys)))
    figure = {key: KINDS[byte % len(KINDS)] for key, byte in zip(keys, chosen, strict=True)}

    for document in story(epochs, figure):
        all_finite(document)


def test_every_sequence_of_two_figures_is_followed():
    """Each pair of figures in one run, some of records that are new: what hypothesis may not try.

    All 7 056 records stand in one publication, so that one NaN among them would show in all.
    """
    pairs = list(itertools.product(KINDS, repeat=2))
    records = tuple(Record(f"q{n}", "https://x.example/") for n in range(len(pairs)))
    current = RecordFilter.start()
    for epoch in range(2):
        kinds = [pair[epoch] for pair in pairs]
        current = current.follow(publication(epoch, records, kinds))
        state = current.state
        assert np.isfinite(state.mean).all()
        assert np.isfinite(state.covariance).all()
        assert (state.variance >= 0).all()


def publication(epoch: int, records: tuple[Record, ...], kinds: list) -> Publication:
    """What the filter reads of these figures; disputed ones are left out."""
    figures = [
        (np.nan, np.nan)
        if client is None or disputed
        else (client[0], np.nan if client[1] is None else client[1])
        for client, disputed, _ in kinds
    ]
    p, v = np.array(figures).T
    counts = np.array([count for _, _, count in kinds])
    clients = ClientFigures(p, v, 20_000)
    return Publication(epoch, records, counts, 5_000, 72.0, len(records), clients=clients)


@pytest.mark.parametrize(
    ("change", "quantity"),
    [
        ({"probability": np.inf, "variance": 1e-6}, "an observed share"),
        ({"probability": -np.inf, "variance": 1e-6}, "an observed share"),
        ({"noise": np.nan}, "a variance of noise"),
        ({"noise": np.inf}, "a variance of noise"),
        ({"noise": -1.0}, "a variance of noise"),
    ],
)
def test_a_figure_that_is_no_number_is_rejected_with_the_records_number(change, quantity):
    """Where it is created, before any record's state is touched, and never by its text."""
    kinds = [((0.02, 1e-6), False, 120)] * 4
    records = tuple(Record(f"secret {n}", f"https://secret.example/{n}") for n in (3, 1, 0, 2))
    before = RecordFilter.start().follow(publication(0, records[::-1], kinds))
    good = publication(1, records, kinds)
    assert good.clients is not None
    place = 2 if "probability" in change else 0
    for name in ("probability", "variance"):
        if name in change:
            getattr(good.clients, name)[place] = change[name]
    bad = replace(good, noise=change.get("noise", good.noise))

    with pytest.raises(NotFinite) as rejected:
        before.follow(bad)

    assert (rejected.value.record, rejected.value.quantity) == (place, quantity)
    assert "secret" not in str(rejected.value)


def test_a_state_that_is_not_finite_cannot_exist():
    """Whatever makes it, by arithmetic that nobody thought of: the number is its place in the list
    of the epoch that was followed."""
    kinds = [((0.02, 1e-6), False, 120)] * 12
    records = tuple(Record(f"q{n}", "https://x.example/") for n in range(12))
    state = RecordFilter.start().follow(publication(0, records, kinds)).state
    with_reference = RecordFilter.start().follow(publication(0, records, kinds))
    reference = with_reference.follow(publication(1, records, kinds)).state.reference
    assert len(reference.rows) == 12

    mean, covariance, means = state.mean.copy(), state.covariance.copy(), reference.mean.copy()
    mean[3, 5], covariance[0, 0, 7], means[1, 12 * 40 + 9] = np.nan, -1.0, np.inf
    for build, record in (
        (lambda: replace(state, mean=mean), 5),
        (lambda: replace(state, covariance=covariance), 7),
        (lambda: replace(reference, mean=means), 9),
    ):
        with pytest.raises(NotFinite) as rejected:
            build()
        assert rejected.value.record == record


def test_a_rejected_state_is_named_by_its_place_in_the_epochs_list(monkeypatch):
    """The filter keeps records in the order of their first sight; operators have the list."""
    kinds = [((0.02, 1e-6), False, 120)] * 3
    records = tuple(Record(f"q{n}", "https://x.example/") for n in range(3))
    before = RecordFilter.start().follow(publication(0, records, kinds))

    def fails(*_, **__):
        raise NotFinite("a filter's mean", 0)

    monkeypatch.setattr("blendstream.blender.over_time.publication_filter.advance", fails)
    with pytest.raises(NotFinite) as rejected:
        before.follow(publication(1, records[::-1], kinds))
    assert rejected.value.record == 2
