"""Combine all that is known of each record with weights that no single group's luck can move.

Paper: BlendProbabilities (Figure 7), whose weights come from each group's own noisy p̂ and are
therefore smallest in error where p̂ happens to be low, which pulls small records down.

Here every source is asked how far it is from a *common* p, in units of the variance it would have
at that p, and p̂ is where the answers cancel:

    U(p) = Σ over groups of (p̂_g − p)/σ²_g(p)  +  m′(p)/τ²(p)·(Y/S − m(p))  =  0.

Without the last term this is the fixed point of inverse-variance weighting, p = Σ w_g(p)·p̂_g, with
pooled variances. The last term is S's released count, compared with what it would be on average
*given that the record was listed* (`blender.selected_counts`); where it has a part, p̂ is the mean
of the likelihood that U is the slope of.

Promises: post-processing only. E U(p) = 0 at the true p, selection included. The 95 % interval is
every p with |U(p)| ≤ z·√I(p), I = Var U, so that it too takes selection into account.
Assumes: groups that are independent and estimate the same thing over the same cells.
Symbols: p̂_g, σ²_g = one group's estimate and variance; Y, S, m, τ² as in `selected_counts`;
I(p) = Σ 1/σ²_g(p) + m′²(p)/τ²(p).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from blender.blend import blend_probabilities, query_totals
from blender.cell_estimates import Estimates, FloatArray, GroupEstimates, unknown_group
from blender.cells import Cells
from blender.errors import HeadListMismatch
from blender.intervals import Z_95
from blender.selected_counts import SelectedCounts

__all__ = ["StableBlender"]

#: An unbiased estimate may leave [0, 1] by a little; beyond this nothing is looked for.
_LOWEST, _HIGHEST = -1.0, 2.0

#: p̂ and the ends of intervals are found to this part of their standard deviation. Finer would
#: cost time and change no digit that means anything.
_PRECISION = 1e-6

#: How often a range in which a root was not found is made wider, each time fivefold.
_WIDER = 8

#: Halving alone would have found any p after so many rounds; a dozen are the rule.
_ROUNDS = 80

#: The mean is taken over ± this many deviations, at so many points: what lies outside has less
#: than 1e-6 of the likelihood, and eight times as many points move p̂ by 0.03 deviations where the
#: likelihood leans most, by less than 0.003 for 99 records in 100.
_FAR, _STEPS = 5.0, 49

#: Stands for a variance of 0, which a group that is certain states, so that it may be divided by.
_TINY = 1e-200


class StableBlender:
    """Pooled variances, fixed point, and S's counts where the selector kept them."""

    name = "pooled-score"

    def blend(
        self,
        optin: GroupEstimates,
        client: GroupEstimates,
        cells: Cells,
        selected: SelectedCounts | None = None,
    ) -> GroupEstimates:
        """Estimates over the same cells, with variances and intervals of the combination.

        `selected` runs over the listed records, which are the first cells.
        """
        size = len(client.cells)
        if len(optin.cells) != size or len(cells) != size:
            raise HeadListMismatch(
                "both groups and the head list must have the same cells, got "
                f"{len(optin.cells)} opt-in and {size} client cells"
            )
        if selected is not None and len(selected.noisy) >= size:
            raise HeadListMismatch(
                f"S's counts must run over the listed records, fewer than the {size} cells, "
                f"got {len(selected.noisy)}"
            )
        groups = [group for group in (optin, client) if group.participants > 0]
        if selected is None and len(groups) < 2:
            return groups[0] if groups else unknown_group(size, len(client.query_totals))
        evidence = _Evidence(groups, selected, size)
        estimates = evidence.estimates()
        participants = sum(group.participants for group in groups)
        marginals = None
        if optin.query_marginals is not None and client.query_marginals is not None:
            marginals = blend_probabilities(optin.query_marginals, client.query_marginals)
        return GroupEstimates(
            participants=participants + (selected.users if selected is not None else 0),
            cells=estimates,
            query_totals=_totals(evidence, estimates, client, cells),
            query_marginals=marginals,
            variance_at=evidence.variance_at,
        )


class _Evidence:
    """U(p), I(p) and each source's weight, for all cells at once."""

    def __init__(
        self, groups: Sequence[GroupEstimates], selected: SelectedCounts | None, size: int
    ) -> None:
        self.groups = groups
        self.variances = [_cell_by_cell(group) for group in groups]
        self.selected = selected
        self.size = size

    def score(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """U(p) and I(p)."""
        pull, information = np.zeros(self.size), np.zeros(self.size)
        for group, precision in zip(self.groups, self._precisions(p), strict=True):
            pull += (group.cells.probability - p) * precision
            information += precision
        if self.selected is not None:
            listed = slice(0, len(self.selected.noisy))
            selected_pull, selected_information = self.selected.score_at(p[listed])
            pull[listed] += selected_pull
            information[listed] += selected_information
        return pull, information

    def _precisions(self, p: FloatArray) -> list[FloatArray]:
        # Never at a negative p, nor at one above 1: there the binomial variance is none.
        inside = np.clip(p, 0.0, 1.0)
        return [1 / np.maximum(at(inside), _TINY) for at in self.variances]

    def client_part(self, p: FloatArray) -> FloatArray:
        """How much of I(p) the last group, the clients, contributes."""
        return np.asarray(self._precisions(p)[-1] / np.maximum(self.score(p)[1], _TINY))

    def variance_at(self, p: FloatArray) -> FloatArray:
        """1/I(p)."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / self.score(p)[1])

    def estimates(self) -> Estimates:
        """p̂, 1/I there, and where |U| = z·√I."""
        lowest, highest, deviation = self._around_peak()
        peak = self._solve(0.0, lowest, highest, _PRECISION * deviation)

        def end(z: float, precision: float = _PRECISION) -> FloatArray:
            """U falls: what z deviations above 0 reach lies below the peak, and the other way."""
            reach = np.minimum(2 * abs(z) * deviation, _HIGHEST - _LOWEST)
            around = (peak - reach, peak) if z > 0 else (peak, peak + reach)
            return self._solve(z, *around, precision * deviation)

        probability = peak.copy()
        if self.selected is not None:
            listed = slice(0, len(self.selected.noisy))
            probability[listed] = self._mean(end(_FAR, 0.01), end(-_FAR, 0.01))[listed]
        variance = self.variance_at(np.clip(probability, 0.0, 1.0))
        low, high = end(Z_95), end(-Z_95)
        told = np.isfinite(variance)  # a cell that no source speaks of: nothing known
        return Estimates(
            np.where(told, probability, 0.0),
            variance,
            np.where(told, np.clip(low, 0.0, 1.0), 0.0),
            np.where(told, np.clip(high, 0.0, 1.0), 1.0),
        )

    def _mean(self, lowest: FloatArray, highest: FloatArray) -> FloatArray:
        """The mean of all p in [0, 1], each as likely as what was seen makes it: ∝ exp ∫U.

        Taken from `lowest` to `highest`, outside of which there is next to nothing.

        Beside the cut a count says "not much more than this" and little about how much less, so
        the likelihood leans, and its peak lies too low; its mean does not. Where it does not lean
        the two are the same.
        """
        lowest, highest = np.clip(lowest, 0.0, 1.0), np.clip(highest, 0.0, 1.0)
        steps = np.linspace(0.0, 1.0, _STEPS)[:, np.newaxis]
        p = lowest + steps * (highest - lowest)
        slopes = np.stack([self.score(row)[0] for row in p])
        rises = (slopes[1:] + slopes[:-1]) / 2 * (highest - lowest) / (_STEPS - 1)
        heights = np.zeros_like(p)
        np.cumsum(rises, axis=0, out=heights[1:])
        weights = np.exp(heights - heights.max(axis=0))
        weights[[0, -1]] /= 2  # trapezia: beside 0 the likelihood need not have faded at the end
        return np.asarray((weights * p).sum(axis=0) / weights.sum(axis=0))

    def _around_peak(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Between what U = 0 is likely, and how large p̂'s deviation is, roughly.

        Some steps of p + U/I from the highest p that any source says. From above, because U may
        vanish once more below 0, where the binomial variance is none and a source that says p̂ < 0
        claims to be certain of it.
        """
        p = np.full(self.size, _LOWEST)
        for group in self.groups:
            p = np.maximum(p, group.cells.probability)
        if self.selected is not None:
            listed = slice(0, len(self.selected.noisy))
            p[listed] = np.maximum(p[listed], self.selected.share)
        deviation = np.sqrt(self.variance_at(p))
        for _ in range(3):
            pull, information = self.score(p)
            p = np.clip(p + pull / np.maximum(information, _TINY), _LOWEST, _HIGHEST)
        reach = np.minimum(3 * deviation, _HIGHEST - _LOWEST)
        return p - reach, p + reach, deviation

    def _solve(self, z: float, a: FloatArray, b: FloatArray, tolerance: FloatArray) -> FloatArray:
        """The p at which U(p) = z·√I(p), likely between a and b: U falls, so what is above lies
        further up.

        Chandrupatla's method for all cells at once: a parabola through the last three points if
        they are in a row, else halving. U/√I is close to a straight line near its root.
        """

        def height(p: FloatArray) -> FloatArray:
            pull, information = self.score(p)
            return np.asarray(pull / np.sqrt(np.maximum(information, _TINY)) - z)

        a, b = np.clip(a, _LOWEST, _HIGHEST), np.clip(b, _LOWEST, _HIGHEST)
        at_a, at_b = height(a), height(b)
        for _ in range(_WIDER):
            # Where the root is not between them, it lies beyond one of them.
            below, beyond = at_a <= 0, at_b > 0
            if not (below | beyond).any():
                break
            far = 4 * (b - a)
            a, b = (
                np.where(below, np.maximum(a - far, _LOWEST), np.where(beyond, b, a)),
                np.where(below, a, np.where(beyond, np.minimum(b + far, _HIGHEST), b)),
            )
            at_a, at_b = height(a), height(b)
        # Where it is still not found it lies outside what is looked at: its end stands for it.
        at_a, at_b = np.where(at_a > 0, at_a, 1.0), np.where(at_b > 0, -1.0, at_b)
        part = at_a / (at_a - at_b)
        tolerance = np.maximum(tolerance, 1e-15)  # finer than a float near 1 can be
        for _ in range(_ROUNDS):
            wanted = tolerance / np.maximum(np.abs(b - a), _TINY)
            if (wanted >= 1).all():
                break
            middle = a + np.clip(
                part, np.minimum(wanted / 2, 0.5), np.maximum(1 - wanted / 2, 0.5)
            ) * (b - a)
            at_middle = height(middle)
            # (a, b) stays around the root with the newest point as a; c is the point given up.
            same = (at_middle > 0) == (at_a > 0)
            c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
            b, at_b = np.where(same, b, a), np.where(same, at_b, at_a)
            a, at_a = middle, at_middle
            part = _next_part(a, b, c, at_a, at_b, at_c)
        return np.asarray(np.where(np.abs(at_a) < np.abs(at_b), a, b))


def _next_part(
    a: FloatArray, b: FloatArray, c: FloatArray,
    at_a: FloatArray, at_b: FloatArray, at_c: FloatArray,
) -> FloatArray:  # fmt: skip
    """Which part of the way from a to b to look at next."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        xi = (a - b) / (c - b)
        phi = (at_a - at_b) / (at_c - at_b)
        in_a_row = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        parabola = at_a / (at_b - at_a) * at_c / (at_b - at_c) + (c - a) / (b - a) * at_a / (
            at_c - at_a
        ) * at_b / (at_c - at_b)
    return np.where(in_a_row & np.isfinite(parabola), parabola, 0.5)


def _cell_by_cell(group: GroupEstimates) -> Callable[[FloatArray], FloatArray]:
    """The group's variance at p, one cell at a time.

    Where reports tell queries apart, a cell's variance depends on its whole query, and a p tried
    for all cells at once is no distribution: there the variance is taken once, at what the group
    itself estimates, brought back to a distribution.
    """
    if group.query_marginals is None or group.participants == 0:
        return group.variance_at
    own = np.clip(group.cells.probability, 0.0, 1.0)
    fixed = group.variance_at(own / max(float(own.sum()), _TINY))
    return lambda p: fixed


def _totals(
    evidence: _Evidence, estimates: Estimates, client: GroupEstimates, cells: Cells
) -> Estimates:
    """Sums by query; only the clients' records depend on one another by more than a trace."""
    part = np.zeros(evidence.size)
    if client.participants > 1:
        part = evidence.client_part(estimates.probability)
    # p̂ = Σ w_g·p̂_g with w = precision/I, so that w²σ²_g = w/I: a group's part of the variance is
    # its part of the information. A cell that no source speaks of (∞) leaves its query unknown; the
    # clients have no part in it.
    with np.errstate(invalid="ignore"):  # ∞·0, which the condition replaces
        clients = np.where(part > 0, estimates.variance * part, 0.0)
    parts = [(estimates.variance - clients, None), (clients, client)]
    return query_totals(estimates.probability, parts, cells)
