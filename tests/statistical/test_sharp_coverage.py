"""95 % intervals of the profile `sharp` cover the truth of the records that it chose to list.

The whole epoch is repeated: drawing S and T, choosing the list, ranking, cutting at M, reporting,
blending. So a record is judged only where it was listed, with all that this does to its count.
Seeds fixed; bounds one-sided at 1e-6 over all intervals of a test (4.75 standard errors).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.evaluation.clients import draw_report_counts
from agents.evaluation.epochs import draw_optin, truth_of
from agents.evaluation.populations import AOL, ZipfPeople
from agents.evaluation.simulated_noise import SimulatedNoise
from blender import PrivacyParameters, randomizer_for
from blender.profiles import build_head_list, estimate_epoch

pytestmark = pytest.mark.statistical

ONE_IN_A_MILLION = 4.75

#: Epochs a setting: enough for 2 000 intervals and more near the cut.
RUNS = {"cut at M": 100, "long list": 12, "no T": 60, "threshold only": 40, "known records": 60}


def epochs(runs, *, users, optin, share, cells, known_epochs=0):
    """For every listed record of every run: distance from its cut in deviations, and the blend."""
    people = ZipfPeople(queries=20_000, query_exponent=1.0, urls=20, url_exponent=0.8)
    setting = replace(AOL, people=people, users=users, optin_share=optin)
    rng = np.random.default_rng(20_26)
    parameters = PrivacyParameters(head_list_cells=cells, selection_share=share)
    rows = []
    for _ in range(runs):
        known, numbers = (), {}
        for epoch in range(known_epochs + 1):
            drawn = draw_optin(setting, rng)
            numbers |= drawn.number
            counts = drawn.counts(share)
            release = build_head_list("sharp", counts, parameters, SimulatedNoise(rng), known)
            known = release.head_list.records if epoch < known_epochs else ()
        in_s, clients = counts.selection_users, users - drawn.users
        exact = truth_of(people, release.head_list.cells, numbers)
        listed, truth = exact.listed, exact.cells[:-1]
        randomizer = randomizer_for(release.head_list)
        reports = draw_report_counts(randomizer, rng.multinomial(clients, exact.cells), rng)
        estimates = estimate_epoch(release, reports, clients)
        blend, optin_cells = estimates.blended.cells, estimates.optin.cells
        m = len(listed)
        expected = truth * in_s
        rows.append(
            np.stack(
                [
                    (expected - np.array(release.least)) / np.sqrt(expected + 0.36),
                    (blend.low[:m] <= truth) & (truth <= blend.high[:m]),
                    blend.high[:m] - blend.low[:m],
                    (blend.probability[:m] - truth) / np.sqrt(blend.variance[:m]),
                    (optin_cells.low[:m] <= truth) & (truth <= optin_cells.high[:m]),
                ]
            )
        )
    return np.concatenate(rows, axis=1)


def check(name, covered, width):
    coverage, n = covered.mean(), len(covered)
    print(f"{name}: coverage {coverage:.4f} of {n}, mean width {width.mean():.2e}")
    assert coverage > 0.94 - ONE_IN_A_MILLION * np.sqrt(0.94 * 0.06 / n), name


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("cut at M", {"users": 400_000, "optin": 0.05, "share": 0.9, "cells": 50}),
        ("long list", {"users": 2_000_000, "optin": 0.05, "share": 0.9, "cells": 500}),
        ("no T", {"users": 400_000, "optin": 0.05, "share": 1.0, "cells": 50}),
        ("threshold only", {"users": 100_000, "optin": 0.05, "share": 0.9, "cells": 500}),
        (
            "known records",
            {"users": 100_000, "optin": 0.05, "share": 0.9, "cells": 40, "known_epochs": 2},
        ),
    ],
)
def test_intervals_cover_with_selection_included(name, setting):
    """Over all listed records, and over those within two deviations of their cut."""
    distance, covered, width, score, optin_covered = epochs(RUNS[name], **setting)
    near = distance < 2

    check(name, covered, width)
    check(f"{name}, near the cut", covered[near], width[near])
    check(f"{name}, opt-in alone", optin_covered, width)
    assert abs(score.mean()) < 0.1 + 4 / np.sqrt(len(score)), "centred, to a tenth of a deviation"
