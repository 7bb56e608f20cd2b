"""Epoch job: cell counts ──▶ denoise, blend ──▶ releases ──▶ estimates.

Promises: only post-processes the opt-in release and the devices' reports, so it spends no budget.
The job still commits a publication only once, because its agreement test is random and readers must
never see two results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blendstream.agents.jobs.epoch_schedule import BuildEstimates, next_estimates
from blendstream.agents.jobs.filter_memory import add_filtered, estimates_memory
from blendstream.agents.jobs.job_context import JobContext, RandomnessSources, versions
from blendstream.agents.jobs.readers_guarantee import ReadersGuarantee, readers_guarantee
from blendstream.agents.jobs.release_step import CommitContents, PendingRelease, ReleaseSpec
from blendstream.blender.epoch_estimates import EpochEstimates, OptinRelease, estimate_epoch
from blendstream.blender.paper.blend import VarianceBlender, optin_weight, project_onto_simplex
from blendstream.blender.registry import randomizer_for
from blendstream.blender.sharp.agreement import measure_agreement
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.streams.names import InputStream
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import split
from blendstream.streams.releases.entries import EpochOutcome, IncompleteReason, Kind
from blendstream.streams.releases.epoch_state import EpochState, Stage
from blendstream.streams.releases.filtered_estimates import FilterMemory
from blendstream.streams.releases.optin_release import read_optin_release
from blendstream.streams.releases.sealed_counts import ReportsRead
from blendstream.streams.wire.estimates_document import (
    DisputedRecords,
    EstimatedCell,
    EstimatedQuery,
    EstimatedShare,
    EstimatesDocument,
    Participants,
    PublishedAgreement,
    PublishedDifference,
)
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.statements import (
    ESTIMATES_QUANTITY,
    difference_statement,
    disputed_statement,
    privacy_statement,
    readers_statement,
)

__all__ = ["ESTIMATES", "build_estimates", "empty_estimates"]

#: Below this p-value the publication reports that the groups disagree. With a higher value, false
#: alarms are more frequent than one in a hundred epochs. With a lower one, the blend of two
#: different populations is preferred for longer.
DISAGREE_BELOW = 0.01


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a publication."""

    head_list: HeadListDocument
    release: OptinRelease
    reports: ReportsRead
    #: The filter over earlier publications.
    memory: FilterMemory


async def _read(context: JobContext, pending: PendingRelease[BuildEstimates]) -> _Inputs:
    """Read the opt-in release, the reports, and the earlier publications."""
    released = pending.state.head_list
    assert released is not None
    head_list = HeadListDocument.from_bytes(await context.log.read_document(released.head_list))
    optin = await context.log.read_document(released.optin)
    reports = await pending.counts.read_reports(
        pending.state.epoch, pending.seal.bounds, released.cells, complete=pending.complete
    )
    memory = await estimates_memory(context, pending.log_state, pending.state.epoch)
    return _Inputs(head_list, read_optin_release(optin, head_list.head_list), reports, memory)


async def _draw(
    context: JobContext, pending: PendingRelease[BuildEstimates], inputs: _Inputs
) -> CommitContents:
    """Denoise, blend and filter in a thread. This draws no noise for people's privacy."""
    own = await asyncio.to_thread(
        build_estimates,
        pending.state,
        inputs.release,
        inputs.reports,
        pending.move.reasons,
        context.dice,
    )
    document = await asyncio.to_thread(add_filtered, own, inputs.head_list, inputs.memory)
    stored = split("estimates", document.to_bytes())
    reasons = [IncompleteReason(reason) for reason in document.reasons]
    outcome = EpochOutcome(document.outcome)
    return CommitContents(
        [entries.estimate_released(pending.state.epoch, stored, outcome, reasons)], [stored]
    )


def build_estimates(
    state: EpochState,
    release: OptinRelease,
    read: ReportsRead,
    reasons: Sequence[IncompleteReason],
    dice: RandomnessSources,
) -> EstimatesDocument:
    """Compute the publication from the opt-in release and the reports."""
    why = list(reasons)
    if read.lost and IncompleteReason.RECORDS_LOST not in why:
        why.append(IncompleteReason.RECORDS_LOST)
    cells, reports = read.cells, read.reports
    if reports < state.parameters.plan.min_reports:
        # The number of participants alone decides. The blend is then the opt-in group's estimate.
        why.append(IncompleteReason.TOO_FEW_REPORTS)
        cells, reports = np.zeros_like(cells), 0
    admitted = state.parameters.plan.devices_admitted
    estimates = estimate_epoch(release, cells, reports, devices_admitted=admitted)
    agreement = _agreement(release, estimates.client, dice)
    assert state.head_list is not None
    users, head_list_id = release.selection_users, state.head_list.head_list.id
    return replace(
        empty_estimates(state, why, users, release.noisy.users, head_list_id),
        reports_until_s=state.head_list.reports_until_ms // 1000,
        outcome=(EpochOutcome.INCOMPLETE if why else EpochOutcome.COMPLETE).value,
        mechanisms={k: str(v) for k, v in asdict(release.mechanisms).items()},
        participants=Participants(users, release.noisy.users, read.reports),
        records=_records(release, estimates),
        queries=_queries(release, estimates),
        agreement=agreement,
        difference=_difference(estimates),
        disputed=_disputed(estimates, devices_admitted=admitted),
        privacy=_privacy(state, readers_guarantee(state.parameters, release.head_list, reports)),
        versions=versions(dice.noise),
    )


def empty_estimates(
    state: EpochState,
    reasons: Sequence[IncompleteReason],
    selection_users: int,
    estimation_users: int,
    head_list_id: str | None,
) -> EstimatesDocument:
    """Build a publication without estimates, with the reasons."""
    return EstimatesDocument(
        epoch=state.epoch,
        window_start_s=state.parameters.window_start_ms // 1000,
        window_end_s=state.parameters.window_end_ms // 1000,
        reports_until_s=None,
        outcome=EpochOutcome.EMPTY.value,
        reasons=tuple(reason.value for reason in reasons),
        head_list_id=head_list_id,
        parameters=_parameters(state),
        mechanisms={"profile": state.parameters.plan.profile},
        participants=Participants(selection_users, estimation_users, 0),
        records=(),
        queries=(),
        agreement=None,
        privacy=_privacy(state),
        versions=versions(),
        queries_at_least=state.parameters.plan.profile != "paper",
        quantity=ESTIMATES_QUANTITY,
    )


def _agreement(
    release: OptinRelease, client: GroupEstimates, dice: RandomnessSources
) -> PublishedAgreement | None:
    found = measure_agreement(
        release.head_list,
        release.noisy,
        client,
        randomizer_for(release.head_list),
        shares=release.shares,
        best_trimmed=release.best_trimmed,
        rng=dice.bootstrap(),
    )
    if found is None:
        return None
    agree = found.p_value >= DISAGREE_BELOW
    # The paper's blend assumes equal groups; `sharp` weighs them by their estimated difference.
    blend_holds = agree or release.mechanisms.blender != VarianceBlender.name
    prefer = "blend" if blend_holds else "client"
    return PublishedAgreement(found.statistic, found.p_value, agree, prefer)


def _difference(estimates: EpochEstimates) -> PublishedDifference | None:
    found = estimates.difference
    if found is None:
        return None
    statement = difference_statement(found.typical, found.low, found.high)
    return PublishedDifference(**asdict(found), statement=statement)


def _disputed(estimates: EpochEstimates, *, devices_admitted: bool) -> DisputedRecords | None:
    records = int(estimates.disputed.sum())
    if records == 0:
        return None
    reason = disputed_statement(records, devices_admitted=devices_admitted)
    return DisputedRecords(records, "client" if devices_admitted else "optin", reason)


def _records(release: OptinRelease, estimates: EpochEstimates) -> tuple[EstimatedCell, ...]:
    cells = release.head_list.cells
    blended = estimates.blended.cells
    finite = np.isfinite(blended.probability).all() and np.isfinite(blended.variance).all()
    projected = project_onto_simplex(blended.probability) if finite and len(cells) else None
    weight = _weight(estimates)
    rows = []
    for number in range(len(cells)):
        query, url = cells.cell(number)
        rows.append(
            EstimatedCell(
                query=query,
                url=url,
                optin=_figure(estimates.optin, estimates.optin.cells, number),
                client=_figure(estimates.client, estimates.client.cells, number),
                blend=_figure(estimates.blended, blended, number),
                optin_weight=_number(weight, number),
                projected=_number(projected, number),
                disputed=bool(estimates.disputed[number]),
                estimation_count=int(release.noisy.counts[number]) if release.noisy.users else None,
            )
        )
    return tuple(rows)


def _queries(release: OptinRelease, estimates: EpochEstimates) -> tuple[EstimatedQuery, ...]:
    optin, client, blended = estimates.optin, estimates.client, estimates.blended
    weight = _query_weight(release, estimates)
    # A query is disputed if one of its records is: only disputed ones have no weight.
    disputed = _by_query(release, estimates.disputed) > 0

    def figure(group: GroupEstimates, number: int) -> EstimatedShare | None:
        whole = group.query_marginals if _is_complete(estimates) else group.query_totals
        return _figure(group, whole, number)

    return tuple(
        EstimatedQuery(
            query=query,
            optin=figure(optin, number),
            client=figure(client, number),
            blend=figure(blended, number),
            optin_weight=_number(weight, number),
            disputed=bool(disputed[number]),
        )
        for number, query in enumerate(release.head_list.cells.queries)
    )


def _is_complete(estimates: EpochEstimates) -> bool:
    """Return True if queries' figures include ⟨q,⋆⟩, as the paper's p̂_q does."""
    return estimates.mechanisms.profile == "paper"


def _query_weight(release: OptinRelease, estimates: EpochEstimates) -> FloatArray:
    """Return the opt-in group's weight in each query's figure.

    p̂_q is blended like a record, so it has a weight. A sum of blended records has none; its weight
    is defined as the mean of its records' weights, by their blended probability. If the opt-in
    group's estimates of all of a query's records rose by a tenth, the sum would rise by this weight
    times a tenth.
    """
    if _is_complete(estimates):
        of_optin, of_client = estimates.optin.query_marginals, estimates.client.query_marginals
        assert of_optin is not None
        assert of_client is not None
        return _known_weight(estimates, optin_weight(of_optin.variance, of_client.variance))
    # Avoids 0/0: a record of probability 0 counts, but is negligible next to any other record.
    p = np.maximum(estimates.blended.cells.probability, 1e-12)
    return _by_query(release, p * _weight(estimates)) / _by_query(release, p)


def _by_query(release: OptinRelease, values: NDArray[np.generic]) -> FloatArray:
    """Sum the values over each query's listed records."""
    cells = release.head_list.cells
    listed = len(cells.records)
    query = cells.query_of_cell[:listed]
    sums = np.bincount(query, values[:listed], minlength=len(cells.queries))
    return np.asarray(sums, dtype=np.float64)


def _weight(estimates: EpochEstimates) -> FloatArray:
    """Return the opt-in group's weight in the blend of each cell; NaN for a disputed one."""
    optin, client, blended = estimates.optin, estimates.client, estimates.blended
    if estimates.mechanisms.blender == VarianceBlender.name:
        weight = optin_weight(optin.cells.variance, client.cells.variance)
    else:
        # Inverse-variance weighting at the common p: the clients' part is σ²_blend/σ²_C(p).
        p = np.clip(blended.cells.probability, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.clip(1 - blended.cells.variance / client.variance_at(p), 0.0, 1.0)
    return np.where(estimates.disputed, np.nan, _known_weight(estimates, weight))


def _known_weight(estimates: EpochEstimates, weight: FloatArray) -> FloatArray:
    if estimates.client.participants == 0:
        return np.ones_like(weight)
    if estimates.optin.participants == 0:
        return np.zeros_like(weight)
    return weight


def _figure(group: GroupEstimates, of: Estimates | None, number: int) -> EstimatedShare | None:
    if group.participants == 0 or of is None:
        return None
    return EstimatedShare.of(
        float(of.probability[number]),
        float(of.variance[number]),
        float(of.low[number]),
        float(of.high[number]),
    )


def _number(values: FloatArray | None, number: int) -> float | None:
    if values is None or not np.isfinite(values[number]):
        return None
    return float(values[number])


def _parameters(state: EpochState) -> dict[str, object]:
    plan, period = state.parameters.plan, state.parameters.period
    return {
        **asdict(plan.privacy),
        "cohorts": plan.cohorts,
        "profile": plan.profile,
        "grace_s": plan.grace_ms / 1000,
        "allowed_skew_s": plan.skew_ms / 1000,
        "min_optin_users": plan.min_optin_users,
        "min_reports": plan.min_reports,
        "devices_admitted": plan.devices_admitted,
        **({"optin_cohorts": plan.optin_cohorts} if plan.optin_cohorts else {}),
        **({} if period is None else {"period": period.published(state.epoch)}),
    }


def _privacy(state: EpochState, readers: ReadersGuarantee | None = None) -> dict[str, object]:
    plan, charge, period = (
        state.parameters.plan, state.parameters.charge, state.parameters.period,
    )  # fmt: skip
    optin = charge.optin if period is None else period.cost
    epochs = 0 if period is None else period.rule.epochs
    return {
        "statement": privacy_statement(
            optin=(optin.epsilon, optin.delta),
            clients=(charge.clients.epsilon, charge.clients.delta),
            cohorts=plan.cohorts,
            records_per_user=plan.privacy.records_per_optin_user,
            answers=plan.privacy.records_per_client,
            click_graph=plan.click_graph is not None,
            optin_cohorts=plan.optin_cohorts,
            period_epochs=epochs,
        ),
        "neighbouring": "replace-one",
        "optin": {"epsilon": optin.epsilon, "delta": optin.delta}
        | ({"epochs": epochs} if epochs else {}),
        "clients": {"epsilon": charge.clients.epsilon, "delta": charge.clients.delta},
        **({} if readers is None else {"readers": _readers(readers)}),
    }


def _readers(readers: ReadersGuarantee) -> dict[str, object]:
    return {"statement": readers_statement(**asdict(readers)), **asdict(readers)}


#: The publication of an epoch whose reports are sealed and counted. A failure before the commit is
#: not a failed draw: a second computation from the same counts reveals nothing more about people,
#: and `blendstream rebuild` may repair wrong counts.
ESTIMATES = ReleaseSpec(
    kind=Kind.ESTIMATES,
    stem=InputStream.CLIENT_REPORTS,
    next_move=next_estimates,
    is_owed=lambda state: state.stage is Stage.REPORTS_SEALED,
    read=_read,
    draw=_draw,
    document=lambda state: None if state.estimates is None else state.estimates.document,
    topic=lambda topics: topics.estimates.name,
    draws_noise=False,
)
