"""Blend both groups' estimates, with less weight on opt-in counts the more the groups differ.

Paper: BlendProbabilities (Figure 7), which assumes that both groups are alike.

The blend estimates one quantity: the share of participating *clients* whose one record, drawn from
the window, is r. `OptinPosterior` is the posterior of the opt-in users' share, selection included.
`estimate_client_shares` carries it over to the clients' share, given how far the groups differ over
the whole list, and combines it with the clients' estimates.

An outlier among the differences is a *disputed* record: opt-in users may be unlike the rest in this
record, or its reports may be forged; the numbers cannot distinguish these. Its interval spans both
groups' intervals, and its value is one group's: the clients' if devices are admitted (attested),
else that of the opt-in users, who are authenticated.

Promises: post-processing only. 95 % intervals cover the clients' share with selection and the
groups' difference included (docs/evaluation.md has the grid on which that was measured).
Assumes: groups that answer independently, over the same cells.
Symbols: p̂_g, σ²_g = one group's estimate and variance; τ = relative difference per record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blendstream.blender.paper.blend import blend_probabilities, query_totals
from blendstream.blender.randomizers.whole_records import flat
from blendstream.blender.sharp.group_difference import (
    ClientPosterior,
    Difference,
    estimate_client_shares,
)
from blendstream.blender.sharp.optin_posterior import OptinPosterior
from blendstream.blender.values.arrays import FloatArray
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.errors import HeadListMismatch
from blendstream.blender.values.intervals import Z_95

__all__ = ["DISPUTED_FROM", "Blend", "blend_groups", "optin_group"]

#: A record with at least this outlier probability is disputed. A lower value marks more honest
#: records (how many: docs/privacy-forged-reports.md), a higher one lets smaller forgeries pass.
DISPUTED_FROM = 0.9

NAME = "between-groups"


@dataclass(frozen=True, slots=True)
class Blend:
    """The blended estimates, the difference between the groups, and a mask of disputed cells.

    `difference` is `None` if only one group has data.
    """

    estimates: GroupEstimates
    difference: Difference | None
    disputed: NDArray[np.bool_]


def optin_group(
    shares: OptinPosterior | None, t_alone: GroupEstimates, cells: Cells
) -> GroupEstimates:
    """Estimate p̂_O of every cell before any device reports: records from S and T, ⟨⋆⟩ from T."""
    if shares is None:
        return t_alone
    listed = len(shares)
    merged = [
        np.concatenate([of_records, of_t[listed:]])
        for of_records, of_t in zip(
            (shares.mean, shares.variance, shares.low, shares.high), _parts(t_alone.cells),
            strict=True,
        )
    ]  # fmt: skip
    estimates = Estimates(*merged)
    return GroupEstimates(
        participants=shares.users,
        cells=estimates,
        query_totals=query_totals(estimates.probability, [(estimates.variance, None)], cells),
        query_marginals=None,
        variance_at=flat(estimates.variance),
    )


def blend_groups(
    shares: OptinPosterior | None,
    optin: GroupEstimates,
    client: GroupEstimates,
    cells: Cells,
    *,
    devices_admitted: bool,
) -> Blend:
    """Estimate the clients' shares of all cells; `optin` is the result of `optin_group`.

    `devices_admitted`: every report came from a checked device, so that nobody can invent many. It
    decides whose value of a disputed record is published.
    """
    size = len(client.cells)
    if len(optin.cells) != size or len(cells) != size:
        raise HeadListMismatch(
            "both groups and the head list must have the same cells, got "
            f"{len(optin.cells)} opt-in and {size} client cells"
        )
    nothing_disputed = np.zeros(size, dtype=np.bool_)
    if shares is None or client.participants == 0 or optin.participants == 0:
        return Blend(client if client.participants else optin, None, nothing_disputed)
    listed = len(shares)

    def of_records(p: FloatArray) -> FloatArray:
        return client.variance_at(np.concatenate([p, np.zeros(size - listed)]))[:listed]

    posterior = estimate_client_shares(shares, client.cells.probability[:listed], of_records)
    disputed = nothing_disputed
    disputed[:listed] = posterior.outlier_probability >= DISPUTED_FROM
    rest = _rest(optin, client, posterior.difference.typical, listed)
    records = Estimates(posterior.mean, posterior.variance, posterior.low, posterior.high)
    joined = Estimates(*(np.concatenate(pair) for pair in zip(_parts(records), rest, strict=True)))
    shown = _with_disputed(
        joined, posterior, (client if devices_admitted else optin), client, disputed
    )
    return Blend(
        GroupEstimates(
            participants=optin.participants + client.participants,
            cells=shown,
            query_totals=_totals(shown, posterior, client, cells, disputed),
            query_marginals=None,
            variance_at=flat(shown.variance),
        ),
        posterior.difference,
        disputed,
    )


def _rest(
    optin: GroupEstimates, client: GroupEstimates, typical: float, listed: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Blend ⟨⋆,⋆⟩ by inverse variances, T's widened by how far the groups may differ.

    ⋆ differs by the sum of the listed records' differences; at worst all have the same sign, which
    makes it τ·(1 − p⋆).
    """
    t, c = (Estimates(*(x[listed:] for x in _parts(group.cells))) for group in (optin, client))
    p = np.clip(c.probability, 0.0, 1.0)
    between = (typical * np.minimum(p, 1 - p)) ** 2
    widened = Estimates(t.probability, t.variance + between, t.low, t.high)
    blended = blend_probabilities(widened, c)
    return _parts(blended)


def _with_disputed(
    blended: Estimates,
    posterior: ClientPosterior,
    first: GroupEstimates,
    client: GroupEstimates,
    disputed: NDArray[np.bool_],
) -> Estimates:
    """Give disputed records the first group's value and an interval that spans both groups'.

    The opt-in users' interval is their prediction for the clients, given how far the groups differ
    in other records.
    """
    low, high = client.cells.low.copy(), client.cells.high.copy()
    listed = len(posterior.mean)
    low[:listed] = np.minimum(low[:listed], posterior.predicted_low)
    high[:listed] = np.maximum(high[:listed], posterior.predicted_high)
    return Estimates(
        np.where(disputed, first.cells.probability, blended.probability),
        np.where(disputed, first.cells.variance, blended.variance),
        np.where(disputed, low, blended.low),
        np.where(disputed, high, blended.high),
    )


def _totals(
    shown: Estimates,
    posterior: ClientPosterior,
    client: GroupEstimates,
    cells: Cells,
    disputed: NDArray[np.bool_],
) -> Estimates:
    """Sum by query. The clients' records are correlated, and the groups' differences may be.

    p̂ is nearly a weighted mean with weight σ²/σ²_C for the clients, so this part of σ² is theirs.
    The part of the rest that comes from the groups' difference counts as common to a query's
    records (one group likes the query more, with all its URLs): deviations add up, not variances.
    """
    listed, queries = len(cells.records), len(cells.queries)
    query = cells.query_of_cell[:listed]
    own = client.variance_at(np.clip(shown.probability, 0.0, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.nan_to_num(np.clip(shown.variance / own, 0.0, 1.0))
        clients = np.where(part > 0, shown.variance * part, 0.0)
    others = shown.variance - clients
    total = query_totals(shown.probability, [(others, None), (clients, client)], cells)

    between = np.zeros(len(shown))
    between[:listed] = np.minimum(
        others[:listed],
        (1 - part[:listed]) ** 2 * (posterior.difference.spread * posterior.mean) ** 2,
    )

    def by_query(values: FloatArray) -> FloatArray:
        sums = np.bincount(query, weights=values[:listed], minlength=queries)
        return np.asarray(sums, dtype=np.float64)

    variance = total.variance + by_query(np.sqrt(between)) ** 2 - by_query(between)
    # A disputed record may lie anywhere in its interval, independently of the others.
    below = by_query(np.where(disputed, shown.probability - shown.low, 0.0))
    above = by_query(np.where(disputed, shown.high - shown.probability, 0.0))
    margin = Z_95 * np.sqrt(variance)
    return Estimates(
        total.probability,
        variance,
        np.clip(total.probability - margin - np.maximum(below, 0.0), 0.0, 1.0),
        np.clip(total.probability + margin + np.maximum(above, 0.0), 0.0, 1.0),
    )


def _parts(of: Estimates) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    return of.probability, of.variance, of.low, of.high
