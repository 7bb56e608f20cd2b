"""Both profiles end to end on counts small enough to follow, and what each must publish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender import (
    OptinCounts,
    ParameterError,
    PrivacyParameters,
    Record,
    randomizer_for,
)
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.noise.exact_noise import GRID
from blendstream.blender.profiles import PROFILES, build_head_list
from blendstream.blender.sharp.best_randomizer import share_in_64ths
from blendstream.blender.sharp.gaussian_histogram import calibrate
from blendstream.blender.sharp.stable_histogram import below_threshold_heads
from tests.doubles import NoNoise, ScriptedNoise, SeededNoise

A, B, C, D, E = (Record("q1", "a"), Record("q1", "b"), Record("q2", "c"), Record("q3", "d"),
                 Record("q4", "e"))  # fmt: skip


def optin(selection: dict[Record, int], estimation: dict[Record, int] | None = None, users=1000):
    estimation = estimation or {}
    records = sorted({*selection, *estimation})
    return OptinCounts(
        records,
        np.array([selection.get(r, 0) for r in records]),
        np.array([estimation.get(r, 0) for r in records]),
        users,
        sum(estimation.values()),
    )


def test_only_two_profiles_exist():
    assert PROFILES == ("paper", "sharp")
    with pytest.raises(ParameterError, match="profile must be one of paper, sharp, got 'best'"):
        build_head_list("best", optin({A: 9}), PrivacyParameters(), NoNoise())


def test_sharp_ranks_by_the_counts_of_s_and_publishes_them():
    counts = optin({A: 9, B: 30, C: 9, D: 3}, {A: 50, B: 1, E: 4})

    release = build_head_list("sharp", counts, PrivacyParameters(), NoNoise())

    assert release.head_list.records == (B, A, C)  # ties by text
    assert release.head_list.noisy_counts == (30, 9, 9)
    assert release.noisy.counts.tolist() == [1, 50, 0, 4]
    assert release.threshold == 7


def test_sharp_counts_users_of_t_without_a_record_in_the_last_cell():
    held = optin({A: 9, B: 30, C: 9, D: 3}, {A: 50, B: 1, E: 4})
    counts = OptinCounts(held.records, held.selection, held.estimation, 1000, 55 + 6)

    release = build_head_list("sharp", counts, PrivacyParameters(), NoNoise())

    assert release.noisy.counts.tolist() == [1, 50, 0, 4 + 6]
    assert release.noisy.users == 61


def test_the_names_of_the_mechanisms_are_published():
    counts = optin({A: 30, B: 30}, {A: 5})
    paper = build_head_list("paper", counts, PrivacyParameters(), NoNoise()).mechanisms
    sharp = build_head_list("sharp", counts, PrivacyParameters(), NoNoise()).mechanisms

    assert (paper.selector, paper.randomizer, paper.blender) == (
        "threshold", "two-stage", "inverse-variance")  # fmt: skip
    assert (sharp.profile, sharp.selector, sharp.randomizer, sharp.blender) == (
        "sharp", "stable-histogram", "randomized-response", "between-groups")  # fmt: skip


def test_known_records_that_nobody_holds_are_noised_and_dropped_by_the_rule():
    """All known records draw noise; those below 2 go, at ε = 4."""
    noise = ScriptedNoise([0, 0, 2, 1], [0] * 4)
    counts = optin({A: 9, B: 1})

    release = build_head_list("sharp", counts, PrivacyParameters(), noise, known=(B, C, D))

    assert noise.sizes[0] == 4  # A and B, who are held; C and D, who are known
    assert release.head_list.records == (A, C)
    assert release.head_list.noisy_counts == (9, 2)
    assert release.known == (1,), "C alone was on the last list: what is known is no news"


def test_what_is_not_listed_changes_no_estimate_of_what_is_but_through_the_law_of_all():
    """A count says the same of its record wherever the list is cut."""
    counts = optin({A: 20, B: 12, C: 12, D: 11})
    cut = build_head_list("sharp", counts, PrivacyParameters(head_list_cells=2), NoNoise())
    whole = build_head_list("sharp", counts, PrivacyParameters(), NoNoise())

    assert cut.head_list.records[:2] == whole.head_list.records[:2] == (A, B)
    assert cut.optin.cells.probability[:2] == pytest.approx(whole.optin.cells.probability[:2])


def test_a_new_record_one_below_the_threshold_shows_when_its_coin_says_so():
    class Heads(NoNoise):
        def coins(self, number, *, heads):
            assert heads == below_threshold_heads(4.0, 1e-5)
            return np.arange(number) == 0

    counts = optin({A: 20, B: 6, C: 6, D: 5})
    release = build_head_list("sharp", counts, PrivacyParameters(), Heads())

    assert release.head_list.records == (A, B)
    assert release.below_threshold_probability == pytest.approx(0.1327, abs=1e-4)


def test_without_a_t_the_counts_of_s_estimate_alone():
    """f_O = 1: no noise is drawn for T, and clients join later."""
    noise = ScriptedNoise([0, 0])
    release = build_head_list("sharp", optin({A: 40, B: 25}), PrivacyParameters(), noise)

    assert release.noisy.users == 0
    assert noise.sizes == [2]
    assert release.optin.cells.probability[:2] == pytest.approx([0.040, 0.025], abs=1e-3)
    assert release.optin.cells.variance[2] == np.inf


def test_more_records_a_user_select_by_gaussian_noise_and_estimate_from_t_alone():
    parameters = PrivacyParameters(records_per_optin_user=2)
    counts = optin({A: 400, B: 250, C: 5}, {A: 40, B: 20})

    release = build_head_list("sharp", counts, parameters, NoNoise())

    assert release.mechanisms.selector == "gaussian-histogram"
    assert release.mechanisms.optin_estimator == "noisy-counts"
    assert release.head_list.records == (A, B)
    assert release.shares is not None
    assert release.shares.users == 60
    assert release.optin.cells.probability.tolist() == [40 / 60, 20 / 60, 0]


def test_ts_noise_for_many_records_is_that_of_one_record_a_user():
    """T counts one record a user whatever m_O is: b = 2/ε."""
    parameters = PrivacyParameters(records_per_optin_user=2)
    noise = ScriptedNoise([0, 0], [0, 0, 0])
    build_head_list("sharp", optin({A: 400, B: 250}, {A: 40}), parameters, noise)

    assert noise.scales[1] == 0.5


@pytest.mark.parametrize(
    ("profile", "m", "epsilon"),
    [("paper", 1, 4.0), ("sharp", 1, 4.0), ("sharp", 1, 1.0), ("sharp", 3, 4.0)],
)
def test_each_group_is_noised_once_at_the_whole_budget_and_no_more(profile, m, epsilon):
    """S and T are different people: each draw has all of ε, neither has more, nothing else draws.

    The mechanisms' own tests show that these scales are private, and that smaller ones are not.
    """
    asked = []

    class Listening(NoNoise):
        def discrete_laplace(self, counts, *, scale):
            asked.append(("laplace", scale))
            return counts.copy()

        def discrete_gaussian(self, counts, *, scale):
            asked.append(("gaussian", scale))
            return counts.copy()

    parameters = PrivacyParameters(epsilon=epsilon, records_per_optin_user=m)
    build_head_list(profile, optin({A: 400, B: 250}, {A: 40}), parameters, Listening(), known=(B,))

    units = GRID if profile == "paper" else 1
    laplace = ("laplace", 2 / epsilon * units)
    for_s = laplace if m == 1 else ("gaussian", calibrate(4.0, 1e-5, m).scale)
    assert asked == [for_s, laplace]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_draw_makes_no_estimate(profile, monkeypatch):
    """A draw is not repeated, so what follows from released numbers must not make it fail."""

    def fail(*_, **__):
        raise FloatingPointError("no interval")

    monkeypatch.setattr("blendstream.blender.paper.optin.noisy_count_interval", fail)
    counts = optin({A: 40, B: 25}, {A: 8})
    release = build_head_list(profile, counts, PrivacyParameters(), NoNoise())

    assert release.head_list.listed == 2
    with pytest.raises(FloatingPointError):
        estimate_epoch(release, np.zeros(len(release.head_list.cells), dtype=np.int64), 0)


@pytest.mark.parametrize("profile", PROFILES)
def test_an_epoch_without_reports_publishes_what_the_opt_in_users_say(profile):
    release = build_head_list(profile, optin({A: 40, B: 25}, {A: 8}), PrivacyParameters(),
                              NoNoise())  # fmt: skip
    nothing = np.zeros(len(release.head_list.cells), dtype=np.int64)

    estimates = estimate_epoch(release, nothing, 0)

    assert estimates.blended.cells.probability == pytest.approx(release.optin.cells.probability)
    assert estimates.client.participants == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_an_empty_head_list_is_everyones_wildcard(profile):
    release = build_head_list(profile, optin({A: 1}, {A: 3}), PrivacyParameters(), NoNoise())

    estimates = estimate_epoch(release, np.array([100]), 100)

    assert len(release.head_list.records) == 0
    assert estimates.blended.cells.probability == pytest.approx([1.0])


@pytest.mark.parametrize("profile", PROFILES)
def test_a_query_total_is_the_sum_over_its_listed_records(profile):
    rng = np.random.default_rng(7)
    counts = optin({A: 60, B: 40, C: 30}, {A: 6, B: 4, C: 3, D: 20})
    release = build_head_list(profile, counts, PrivacyParameters(), SeededNoise(3))
    randomizer = randomizer_for(release.head_list)
    cells = release.head_list.cells
    held = np.repeat(np.arange(len(cells)), 2000)
    shown = np.bincount(randomizer.answer_batch(held, rng).ravel(), minlength=len(cells))

    estimates = estimate_epoch(release, shown, len(held))

    # What opt-in users of `sharp` say is a blend too, of S and T.
    for group in (estimates.client, estimates.optin, estimates.blended):
        sums = np.bincount(
            cells.query_of_cell[: len(cells.records)],
            weights=group.cells.probability[: len(cells.records)],
        )
        assert group.query_totals.probability == pytest.approx(sums)
    assert (estimates.client.query_marginals is None) == (profile == "sharp")


def test_everything_after_the_release_draws_no_noise():
    """`estimate_epoch` has no way to: it is handed none."""
    release = build_head_list("sharp", optin({A: 40, B: 25}, {A: 8}), PrivacyParameters(),
                              NoNoise())  # fmt: skip
    shown = np.array([50, 30, 20])
    first, second = (estimate_epoch(release, shown, 100).blended.cells for _ in range(2))
    assert first.probability.tolist() == second.probability.tolist()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_head_list_states_how_long_an_answer_is(profile):
    """Devices compute it themselves, and refuse a list that states another."""
    counts = optin({Record(f"q{i}", "u"): 200 for i in range(40)}, users=20_000)
    release = build_head_list(profile, counts, PrivacyParameters(epsilon=1.0), NoNoise())

    spec = release.head_list.randomizer
    built = randomizer_for(release.head_list)
    assert spec.cells_per_answer == built.cells_per_answer
    wrong = replace(spec, cells_per_answer=built.cells_per_answer + 1)
    with pytest.raises(ParameterError, match="cells_per_answer must be"):
        randomizer_for(replace(release.head_list, randomizer=wrong))


def test_the_share_that_is_listed_follows_from_what_is_released_alone():
    """It decides how long answers are: a function of raw counts there would be a leak."""
    raw = {Record(f"q{i}", "u"): 300 + i for i in range(40)}
    for seed in range(5):
        noise = SeededNoise(seed)
        release = build_head_list(
            "sharp", optin(raw, users=20_000), PrivacyParameters(epsilon=0.5), noise
        )
        heads = release.head_list
        assert heads.noisy_counts is not None
        told = share_in_64ths(heads.noisy_counts[: heads.listed], release.selection_users)
        assert heads.randomizer.listed_64ths == told
    several = PrivacyParameters(records_per_optin_user=3)
    release = build_head_list("sharp", optin(raw, users=20_000), several, NoNoise())
    assert release.head_list.randomizer.listed_64ths == 16, "these counts are of something else"
