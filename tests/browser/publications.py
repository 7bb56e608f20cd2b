"""Invented publications: twelve epochs of everyday queries, the last of them with a surprise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from blendstream.blender.values.record import normalise
from blendstream.streams.wire.estimates_document import (
    DisputedRecords,
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    FilteredQuery,
    FilteredRecord,
    FilteredStatement,
    Participants,
    PublishedAgreement,
    PublishedDifference,
)
from blendstream.streams.wire.statements import (
    difference_statement,
    disputed_statement,
    privacy_statement,
)

Row = TypeVar("Row", EstimatedCell, EstimatedQuery)

DAY_S = 86_400
FIRST_S = 1_790_000_000 // DAY_S * DAY_S
EPOCHS = range(40, 52)
TYPED = (
    "weather tomorrow", "train times", "news today", "pancake recipe", "Straße Sperrung", "天気",
    "Οδικός χάρτης", "ısı", "isi",
    "football results", "how to remove red wine from a very old and very dear carpet", "map",
    "cinema tonight", "bus timetable", "cheap flights", "pasta", "bicycle repair", "chess",
    "library hours", "garden plants", "guitar chords", "night sky", "tide tables", "board games",
    "museum", "<b>bold</b> & \"quoted\"",
)  # fmt: skip
#: As the service publishes them: folded as Python folds, which leaves no final sigma.
QUERIES = tuple(normalise(typed, "https://any.example/").query for typed in TYPED)


def _figure(p: float, epoch: int, place: int) -> EstimatedShare:
    p *= 1 + 0.15 * math.sin(epoch * 1.3 + place)
    width = 0.004 + 0.02 * p
    return EstimatedShare.of(p, (width / 1.96) ** 2, max(0.0, p - width), p + width)


def _document(epoch: int) -> EstimatesDocument:
    cells, queries = [], []
    for place, query in enumerate(QUERIES):
        share = 0.12 / (place + 1)
        for result in range(2 if place else 3):
            if place == 3 and epoch % 4 == 0:
                continue  # not on every epoch's list
            url = f"https://{'-'.join(query.split()[:3])}.example/{result}"
            found = _figure(share * (0.7 if result == 0 else 0.3), epoch, place + result)
            cells.append(EstimatedCell(query, url, found, found, found, 0.4, found.probability))
        total = _figure(share, epoch, place)
        queries.append(EstimatedQuery(query, total, total, total, 0.4))
    rest = _figure(0.4, epoch, 0)
    cells.append(EstimatedCell(None, None, rest, rest, rest, 0.4, rest.probability))
    last = epoch == EPOCHS[-1]
    start_s = FIRST_S + (epoch - EPOCHS[0]) * DAY_S
    return EstimatesDocument(
        epoch=epoch,
        window_start_s=start_s,
        window_end_s=start_s + DAY_S,
        reports_until_s=start_s + 2 * DAY_S,
        outcome="incomplete" if last else "complete",
        reasons=("not_all_counted",) if last else (),
        head_list_id="ab" * 32,
        parameters={"epsilon": 4.0, "delta": 1e-5},
        mechanisms={"profile": "sharp"},
        participants=Participants(9_000, 21_000, 1_234_567),
        records=tuple(cells),
        queries=tuple(queries),
        agreement=PublishedAgreement(1.0, 0.4, True, "blend"),
        privacy={"statement": STATEMENT},
        versions={"blendstream": "0.2.0"},
        quantity="Shares of people.",
    )


STATEMENT = privacy_statement(
    optin=(4.0, 1e-5), clients=(4.0, 0.0), cohorts=1, records_per_user=1, answers=1
)


def publications() -> list[EstimatesDocument]:
    """Oldest first."""
    return [_document(epoch) for epoch in EPOCHS]


def many(queries: int, epochs: int) -> list[EstimatesDocument]:
    """A service of so many queries with two results each, oldest first: one rises, one falls."""
    words = ("tide", "train", "pasta", "chess", "cheap", "night", "garden", "museum", "old", "map")
    names = [f"{words[n % 10]} {words[n // 10 % 10]} {n}" for n in range(queries)]
    made = []
    for epoch, document in enumerate(map(_document, range(EPOCHS[0], EPOCHS[0] + epochs))):
        cells, rows = [], []
        for place, query in enumerate(names):
            share = (
                0.1 / (place + 5) * {3: 1 + epoch / 4, 4: 1 - epoch / (2 * epochs)}.get(place, 1)
            )
            parts = [_figure(share / 2, 7 * epoch + part, place) for part in (0, 1)]
            for part, found in enumerate(parts):
                url = f"https://{query.replace(' ', '-')}.example/{part}"
                cells.append(EstimatedCell(query, url, found, found, found, 0.4, found.probability))
            total = _figure(share, epoch, place)
            rows.append(EstimatedQuery(query, total, total, total, 0.4))
        made.append(replace(document, records=tuple(cells), queries=tuple(rows)))
    return made


def emptied(document: EstimatesDocument) -> EstimatesDocument:
    """The same epoch, had too few taken part."""
    return replace(
        document,
        outcome="empty",
        reasons=("too_few_reports",),
        records=(),
        queries=(),
        agreement=None,
    )


def filtered(document: EstimatesDocument, since_epoch: int) -> EstimatesDocument:
    """The same epoch with what all epochs say: every second query and record a third less."""

    def beside(row: Row, place: int) -> Row:
        own, factor = row.blend, 1.0 if place % 2 else 2 / 3
        if own is None or own.probability is None or row.query is None:
            return row
        p, reach = factor * own.probability, 0.001
        return replace(
            row, filtered=EstimatedShare.of(p, (reach / 1.96) ** 2, p - reach, p + reach)
        )

    return replace(
        document,
        records=tuple(beside(row, place) for place, row in enumerate(document.records)),
        queries=tuple(beside(row, place) for place, row in enumerate(document.queries)),
        filtered=FilteredStatement(
            since_epoch, document.epoch - since_epoch + 1, 0.09, "What each is for.", (), ()
        ),
    )


#: Known and on no list: another result of a listed query, and two of a query of their own.
UNLISTED = (
    (QUERIES[0], "https://known.example/0"),
    ("rarely asked", "https://known.example/1"),
    ("rarely asked", "https://known.example/2"),
)


def with_unlisted(document: EstimatesDocument, since_epoch: int) -> EstimatesDocument:
    """The same epoch, had more records been known than are listed."""
    whole = filtered(document, since_epoch)
    assert whole.filtered is not None
    rows = tuple(
        FilteredRecord(query, url, EstimatedShare.of(p := 4e-4 / (n + 1), 1e-9, p - 6e-5, p + 6e-5))
        for n, (query, url) in enumerate(UNLISTED)
    )
    own = [row.filtered for row in rows if row.query == "rarely asked"]
    return replace(
        whole,
        queries=tuple(
            replace(row, filtered=_summed([row.filtered, rows[0].filtered]))
            if row.query == QUERIES[0] and row.filtered is not None
            else row
            for row in whole.queries
        ),
        filtered=replace(
            whole.filtered,
            unlisted=rows,
            unlisted_queries=(FilteredQuery("rarely asked", _summed(own)),),
        ),
    )


def _summed(figures: Sequence[EstimatedShare]) -> EstimatedShare:
    p, v = (sum(getattr(one, name) for one in figures) for name in ("probability", "variance"))
    reach = 1.96 * math.sqrt(v)
    return EstimatedShare.of(p, v, p - reach, p + reach)


def disputed(document: EstimatesDocument) -> EstimatesDocument:
    """The same epoch, had a record stood out that reports name five times as often."""

    def five_times(row: Row) -> Row:
        whole = row.optin
        assert whole is not None
        p, low, high = (5 * (value or 0) for value in (whole.probability, whole.low, whole.high))
        spans = EstimatedShare(whole.probability, 1e-6, whole.low, high)
        client = EstimatedShare.of(p, 1e-6, low, high)
        return replace(row, client=client, blend=spans, optin_weight=None, disputed=True)

    def changed(row: Row) -> Row:
        return five_times(row) if getattr(row, "url", url) == url and row.query == query else row

    query, url = QUERIES[1], next(r.url for r in document.records if r.query == QUERIES[1])
    return replace(
        document,
        difference=PublishedDifference(
            0.18, 0.15, 0.22, 1.02, 0.18, difference_statement(0.18, 0.15, 0.22)
        ),
        disputed=DisputedRecords(1, "optin", disputed_statement(1, devices_admitted=False)),
        records=tuple(map(changed, document.records)),
        queries=tuple(map(changed, document.queries)),
    )


def preferring_clients(document: EstimatesDocument) -> EstimatesDocument:
    """The same epoch, had the groups disagreed: the clients' figures are to be read."""

    def half(row: Row) -> Row:
        whole = row.client
        assert whole is not None
        p, low, high = ((value or 0) / 2 for value in (whole.probability, whole.low, whole.high))
        return replace(row, client=EstimatedShare.of(p, 1e-6, low, high))

    return replace(
        document,
        agreement=PublishedAgreement(20.0, 0.001, False, "client"),
        records=tuple(map(half, document.records)),
        queries=tuple(map(half, document.queries)),
    )
