"""The filtered estimate of an epoch, computed from its publication and earlier ones.

    head lists, estimates of earlier epochs ──▶ filter ──▶ next to this epoch's own estimate

Promises: depends only on the documents in the topics `head-lists` and `estimates`, from the epoch
that `memory_start` names on. Anyone with these documents computes the same numbers on any
machine, up to the last digits of floats.
Assumes: publications arrive in order, and S's counts measure the quantity that clients report on.
They do with one record per user. With m_O > 1 they do not, and `paper` publishes no such counts: in
both cases there is no filtered estimate.

Decision: docs/decisions/0132-the-filtered-estimate-in-publications.md
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace

import numpy as np

from blendstream.blender.noise.exact_noise import laplace_scale, laplace_variance
from blendstream.blender.over_time.filter.filter_modes import default_modes
from blendstream.blender.over_time.groups_over_time import pooled_difference
from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
)
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.cell_estimates import Estimates
from blendstream.blender.values.record import Record
from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatedShare,
    EstimatesDocument,
    FilteredQuery,
    FilteredRecord,
    FilteredStatement,
)
from blendstream.streams.wire.head_list_document import HeadListDocument

__all__ = ["STATEMENT", "FilterMemory", "publication_of", "rotates", "with_filtered"]

#: Purpose of each estimate, for readers.
STATEMENT = (
    "blend, optin and client are this epoch's own estimates: they use its window alone. Take them "
    "to look at one window by itself, or to average over epochs. filtered is the best guess at the "
    "same window from all publications since since_epoch: closer to the truth, and later to follow "
    "a sudden change. Take it for rankings, trends and history."
)

#: Maximum number of unlisted records in a document, and of queries without a listed record. A
#: query's estimate sums all its records, also those omitted here. If lower, documents omit records
#: that a large service shows (2 350 unlisted ones in the evaluation's second setting). If higher, a
#: gateway, which caches 400 documents, needs more memory: with 3 000 in each they take 270 MiB of
#: the 1 GiB that it has in the samples of deploy/.
MOST_UNLISTED = 3_000

#: Number of published digits. Further digits are only noise, and would be a third of the bytes.
_DIGITS = 6


@dataclass(frozen=True)
class FilterMemory:
    """The filter's state after some publications, and those publications.

    The group difference τ is estimated from all of them together. When it changes, which is rare
    after the first few, the filter processes all of them again: so the state depends only on the
    publications, not on when each was read. With 31 publications and 50 000 known records that
    takes 5.7 s of processor time (`python -m bench epoch_filter`).
    """

    publications: tuple[Publication, ...] = ()
    between_groups: float = 0.0
    #: True if clients were in cohorts at the first publication: it chooses the filter's modes.
    clients_rotate: bool = False
    state: RecordFilter = field(default_factory=RecordFilter.start)

    def follow(self, publication: Publication, *, clients_rotate: bool) -> FilterMemory:
        """Return the memory after one more publication."""
        publications = (*self.publications, publication)
        rotate = self.clients_rotate if self.publications else clients_rotate
        tau = pooled_difference(publications)
        if self.publications and tau == self.between_groups:
            state = _followed(self.state, publication, tau)
        else:
            state = RecordFilter.start(default_modes(clients_rotate=rotate))
            for each in publications:
                state = _followed(state, each, tau)
        return FilterMemory(publications, tau, rotate, state)

    def carry_to(self, epoch: int) -> FilterMemory:
        """Predict an epoch that has no counts of S: the same estimates with a larger variance."""
        state = self.state.carry_to(epoch, between_groups=self.between_groups)
        return replace(self, state=state)


def rotates(document: EstimatesDocument) -> bool:
    """Return True if clients are in cohorts, so that two epochs have different clients."""
    return bool(document.parameters["cohorts"] > 1)


def publication_of(head_list: HeadListDocument, document: EstimatesDocument) -> Publication | None:
    """Extract the filter's input from one epoch's documents; `None` if they contain none."""
    listed, counts = head_list.head_list, head_list.head_list.noisy_counts
    parameters, users = document.parameters, document.participants.selection
    if counts is None or not counts or users < 1 or parameters["records_per_optin_user"] != 1:
        return None
    period = parameters.get("period")
    noise = (
        laplace_variance(laplace_scale(sensitivity=2, epsilon=parameters["epsilon"]))
        if period is None
        else float(period["scale"]) ** 2
    )
    # A user of T has the same sensitivity as one of S, so T's noise equals S's.
    estimation = _estimation(head_list, document)
    return Publication(
        epoch=document.epoch,
        records=listed.records,
        counts=np.array(counts, dtype=np.int64),
        users=users,
        noise=noise,
        listed=listed.listed,
        clients=_clients(head_list, document),
        estimation=estimation,
        estimation_users=0 if estimation is None else document.participants.estimation,
        estimation_noise=noise,
    )


def _followed(state: RecordFilter, publication: Publication, tau: float) -> RecordFilter:
    """Return the filter after one more publication, without records that its list dropped."""
    released = set(publication.records)
    known = state.drop(r for r in state.records if r not in released)
    return known.follow(replace(publication, between_groups=tau))


def with_filtered(
    document: EstimatesDocument,
    head_list: HeadListDocument,
    memory: FilterMemory,
) -> EstimatesDocument:
    """Add the filtered estimate to a publication; return it unchanged where there is none.

    In an epoch without anyone in S the estimate is the filter's prediction.
    """
    publication = publication_of(head_list, document)
    if publication is not None:
        followed = memory.follow(publication, clients_rotate=rotates(document))
    elif document.participants.selection == 0 and memory.publications and document.records:
        followed = memory.carry_to(document.epoch)
    else:
        return document
    on_list = head_list.head_list.records[: head_list.head_list.listed]
    known = set(followed.state.records)
    # The filter's prediction lacks a record whose first epoch was abandoned.
    unknown = {record.query for record in on_list if record not in known}
    found = followed.state.estimates(record for record in on_list if record in known)
    place = {record: i for i, record in enumerate(found.records)}
    query_place = {query: i for i, query in enumerate(found.queries)}
    listed = set(on_list)
    beyond = [record for record in found.records if record not in listed]
    queries = {record.query for record in on_list}
    further = [query for query in found.queries if query not in queries]
    further.sort(key=lambda query: (-found.of_queries.probability[query_place[query]], query))

    def of_cell(cell: EstimatedCell) -> EstimatedShare | None:
        if cell.query is None or cell.url is None:
            return None
        at = place.get(Record(cell.query, cell.url))
        return None if at is None else _share(found.of_records, at)

    def of_query(query: str) -> EstimatedShare | None:
        return None if query in unknown else _share(found.of_queries, query_place[query])

    return replace(
        document,
        records=tuple(replace(cell, filtered=of_cell(cell)) for cell in document.records),
        queries=tuple(replace(row, filtered=of_query(row.query)) for row in document.queries),
        filtered=FilteredStatement(
            since_epoch=followed.publications[0].epoch,
            epochs=len(followed.publications),
            between_groups=followed.between_groups,
            statement=STATEMENT,
            unlisted=tuple(
                FilteredRecord(*record, _short(found.of_records, place[record]))
                for record in beyond[:MOST_UNLISTED]
            ),
            unlisted_queries=tuple(
                FilteredQuery(query, _short(found.of_queries, query_place[query]))
                for query in further[:MOST_UNLISTED]
            ),
        ),
    )


def _share(estimates: Estimates, place: int) -> EstimatedShare:
    columns = estimates.probability, estimates.variance, estimates.low, estimates.high
    return EstimatedShare.of(*(float(column[place]) for column in columns))


def _short(estimates: Estimates, place: int) -> EstimatedShare:
    whole = _share(estimates, place)
    return EstimatedShare(*(x and float(f"{x:.{_DIGITS}g}") for x in astuple(whole)))


def _estimation(head_list: HeadListDocument, document: EstimatesDocument) -> IntArray | None:
    """Return T's noisy counts of the listed records, in the list's order; `None` without T."""
    by_record = {(c.query, c.url): c.estimation_count for c in document.records}
    listed = head_list.head_list.records[: head_list.head_list.listed]
    counts = [by_record.get((record.query, record.url)) for record in listed]
    if document.participants.estimation == 0 or not counts or None in counts:
        return None
    return np.array(counts, dtype=np.int64)


def _clients(head_list: HeadListDocument, document: EstimatesDocument) -> ClientFigures | None:
    """Return the clients' p̂ and σ̂² of the listed records, in the list's order.

    Where reports may be forged, those of disputed records are omitted, as in their blend: otherwise
    many forged reports would bias the filtered estimate from then on.
    """
    unsure = document.disputed is not None and document.disputed.shown == "optin"
    shown = {
        (c.query, c.url): c.client
        for c in document.records
        if c.client is not None and not (unsure and c.disputed)
    }
    listed = head_list.head_list.records[: head_list.head_list.listed]
    figures = [shown.get((record.query, record.url)) for record in listed]
    if document.participants.clients == 0 or not any(figures):
        return None

    def values(name: str) -> list[float]:
        found = (None if f is None else getattr(f, name) for f in figures)
        return [np.nan if value is None else float(value) for value in found]

    return ClientFigures(
        np.array(values("probability")),
        np.array(values("variance")),
        document.participants.clients,
    )
