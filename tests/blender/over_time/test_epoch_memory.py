"""What a head list remembers: whose noise, what is kept, ranked and forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender import OptinCounts, ParameterError, PrivacyParameters, Record
from blendstream.blender.epoch_estimates import estimate_epoch
from blendstream.blender.noise.noise_distribution import gaussian_distribution
from blendstream.blender.over_time.epoch_memory import EpochMemory
from blendstream.blender.over_time.period_budget import calibrate_period, check_rule
from blendstream.blender.over_time.publication_filter import Publication, RecordFilter
from blendstream.blender.profiles import build_head_list, prepare_head_list
from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.intervals import noisy_count_interval, sum_of_gaussians
from tests.doubles import NoNoise, SeededNoise

A, B, C, D = (Record(f"q{n}", f"https://{n}.example/") for n in range(4))
RULE = calibrate_period(4.0, 1e-5, 1, 3)
USERS = 5_000
PRIVACY = PrivacyParameters(selection_share=0.9)


class Drawn(NoNoise):
    """Remembers which noise was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, int]] = []

    def discrete_laplace(self, counts: IntArray, *, scale: float) -> IntArray:
        self.asked.append(("laplace", scale, len(counts)))
        return super().discrete_laplace(counts, scale=scale)

    def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
        self.asked.append(("gaussian", scale, len(counts)))
        return super().discrete_gaussian(counts, scale=scale)


def counts_of(s: dict[Record, int], t: dict[Record, int] | None = None, t_users: int = 500):
    records = sorted({*s, *(t or {})})
    return OptinCounts(
        records,
        np.array([s.get(r, 0) for r in records]),
        np.array([(t or {}).get(r, 0) for r in records]),
        USERS,
        t_users if t else 0,
    )


def after(*lists: dict[Record, int]) -> RecordFilter:
    """What earlier head lists with these counts leave in memory."""
    memory = RecordFilter.start()
    for epoch, listed in enumerate(lists):
        values = np.array(list(listed.values()))
        memory = memory.follow(
            Publication(epoch, tuple(listed), values, USERS, RULE.scale**2, listed=0)
        )
    return memory


def period(memory: RecordFilter | None = None, *, most: int = 1000, epoch: int = 9) -> EpochMemory:
    return EpochMemory(epoch, memory or RecordFilter.start(), most, RULE)


def test_all_noise_is_the_periods():
    """Laplace noise for one epoch, T times, would spend T budgets after one charge."""
    noise = Drawn()
    build_head_list("sharp", counts_of({A: 400, B: 90}, {A: 40}), PRIVACY, noise, (C,), period())

    assert {(kind, scale) for kind, scale, _ in noise.asked} == {("gaussian", RULE.scale)}
    assert noise.asked[0][2] == 3, "S: A, B, and C, which is known and which no one holds"


def test_a_known_record_stays_at_any_count_and_a_new_one_from_the_threshold_on():
    low = RULE.threshold - 1
    release = build_head_list(
        "sharp", counts_of({A: RULE.threshold, B: low, C: 1}), PRIVACY, NoNoise(), (C, D), period()
    )

    shown = dict(zip(release.head_list.records, release.head_list.noisy_counts, strict=True))
    assert shown == {A: RULE.threshold, C: 1, D: 0}
    assert [release.head_list.records[i] for i in release.known] == [C, D]
    assert release.mechanisms.selector == "period-histogram"
    assert release.threshold == RULE.threshold


def test_the_list_is_in_the_order_of_what_all_epochs_say():
    """A's count is low this once. By this epoch's counts alone B would come first."""
    memory = after(*[{A: 300, B: 120}] * 6)
    release = build_head_list(
        "sharp", counts_of({A: 118, B: 122}), PRIVACY, NoNoise(), (A, B), period(memory)
    )
    alone = build_head_list("sharp", counts_of({A: 118, B: 122}), PRIVACY, NoNoise(), (A, B))

    assert release.head_list.records == (A, B)
    assert release.head_list.noisy_counts == (118, 122)
    assert alone.head_list.records == (B, A)


def test_what_no_one_holds_any_more_is_forgotten_and_what_is_common_is_not():
    memory = after(*[{A: 300, B: 5}] + [{A: 300, B: -3}] * 8)
    release = build_head_list(
        "sharp", counts_of({A: 300}), PRIVACY, NoNoise(), (A, B), period(memory)
    )

    assert [release.head_list.records[i] for i in release.forgotten] == [B]


def test_at_most_so_many_records_stay_known():
    held = {Record(f"q{n:03}", "https://x.example/"): 200 + n for n in range(40)}
    release = build_head_list("sharp", counts_of(held), PRIVACY, NoNoise(), (), period(most=25))

    gone = {release.head_list.records[i] for i in release.forgotten}
    assert len(gone) == 15
    assert max(held[r] for r in gone) < min(n for r, n in held.items() if r not in gone)


def test_what_is_forgotten_depends_on_released_counts_alone():
    """The same noisy counts from other people: the same list, the same forgotten records."""
    memory = after(*[{A: 300, B: 4}] * 3)
    known = (A, B)

    class Fixed(NoNoise):
        """Whatever is counted, this is what comes out."""

        def discrete_gaussian(self, counts: IntArray, *, scale: float) -> IntArray:
            return np.array([280, -2])

    one = build_head_list("sharp", counts_of({A: 300}), PRIVACY, Fixed(), known, period(memory))
    other = build_head_list("sharp", counts_of({A: 9, B: 8}), PRIVACY, Fixed(), known,
                            period(memory))  # fmt: skip

    assert one.head_list == other.head_list
    assert one.forgotten == other.forgotten


def each_epoch(memory: RecordFilter | None = None, *, most: int = 1000) -> EpochMemory:
    """An epoch with a budget of its own."""
    return EpochMemory(9, RecordFilter.start() if memory is None else memory, most)


@pytest.mark.parametrize("m", [1, 2])
def test_a_known_record_stays_at_any_count_in_an_epoch_with_a_budget_of_its_own(m: int):
    """Once published, for good: with one record a user and with several. It is dropped by the
    selector's own rule only where nothing is remembered."""
    privacy = replace(PRIVACY, records_per_optin_user=m)
    counts = counts_of({A: 300, C: 1}, {A: 30})
    kept = build_head_list("sharp", counts, privacy, NoNoise(), (C, D), each_epoch())
    before = build_head_list("sharp", counts, privacy, NoNoise(), (C, D))

    assert dict(zip(kept.head_list.records, kept.head_list.noisy_counts, strict=True)) == {
        A: 300, C: 1, D: 0,
    }  # fmt: skip
    assert before.head_list.records == (A,)


def test_an_epoch_with_a_budget_of_its_own_is_listed_by_its_own_counts():
    """Its estimates use its window alone."""
    memory = after(*[{A: 300, B: 120}] * 6)
    release = build_head_list(
        "sharp", counts_of({A: 118, B: 122}), PRIVACY, NoNoise(), (A, B), each_epoch(memory)
    )
    assert release.head_list.records == (B, A)
    assert release.filter_failure is None


def test_an_epoch_with_a_budget_of_its_own_forgets_by_the_filter_and_by_the_limit():
    gone = build_head_list(
        "sharp", counts_of({A: 300, D: 200}), PRIVACY, NoNoise(), (A, B, C, D),
        each_epoch(after(*[{A: 300, B: 0, C: 40, D: 200}] * 6)),
    )  # fmt: skip
    bounded = build_head_list(
        "sharp", counts_of({A: 300, D: 200, C: 40}), PRIVACY, NoNoise(), (A, C, D),
        each_epoch(after(*[{A: 300, C: 40, D: 200}] * 6), most=2),
    )  # fmt: skip

    assert [gone.head_list.records[i] for i in gone.forgotten] == [B]
    assert [bounded.head_list.records[i] for i in bounded.forgotten] == [C]


@pytest.mark.parametrize("way", [period, each_epoch])
def test_which_of_equal_records_is_forgotten_does_not_depend_on_how_people_came(way):
    """Counts are whole numbers, so many are equal. The order in which records were first counted
    is raw data; their text is not."""
    held = [Record(f"q{n:03}", "https://x.example/") for n in range(40)]
    numbers = np.full(40, 200)
    found = set()
    for order in (held, held[::-1], held[20:] + held[:20]):
        counts = OptinCounts(order, numbers, np.zeros_like(numbers), USERS * 4, 0)
        release = build_head_list("sharp", counts, PRIVACY, NoNoise(), (), way(most=25))
        found.add(tuple(release.head_list.records[i] for i in release.forgotten))

    assert found == {tuple(held[25:])}


class BrokenFilter(RecordFilter):
    """Follows nothing."""

    def follow(self, publication: Publication) -> RecordFilter:
        raise FloatingPointError("a covariance is not positive")

    def drop(self, forgotten: object) -> RecordFilter:
        return self


@pytest.mark.parametrize("way", [period, each_epoch])
def test_a_filter_that_fails_costs_no_epoch_and_no_second_draw(way):
    """Noise is drawn by then. The released counts decide: the order, and what is beyond the limit.
    Whoever knows them makes the same list."""
    noise = Drawn()
    memory = BrokenFilter((), RecordFilter.start().state)
    counts = counts_of({A: 150, B: 300, C: 90, D: 120}, {A: 40})
    release = build_head_list("sharp", counts, PRIVACY, noise, (C,), way(memory, most=3))

    assert isinstance(release.filter_failure, FloatingPointError)
    assert release.head_list.records == (B, A, D, C)
    assert [release.head_list.records[i] for i in release.forgotten] == [C]
    assert len(noise.asked) == 2, "once for S, once for T"
    assert release.noisy.counts[1] == 40


@pytest.mark.parametrize(
    ("change", "value"),
    [("scale", RULE.scale * 0.9), ("threshold", RULE.threshold - 2), ("epochs", 4)],
)
def test_a_rule_that_does_not_keep_its_promise_draws_nothing(change: str, value: float):
    """σ 10 % too small, a low threshold, a period one epoch too long."""
    broken = replace(RULE, **{change: value})
    noise = Drawn()
    with pytest.raises(ParameterError, match="the noise of a period must keep"):
        prepare_head_list("sharp", PRIVACY, broken)
    with pytest.raises(ParameterError, match="the noise of a period must keep"):
        build_head_list(
            "sharp", counts_of({A: 400}), PRIVACY, noise, (), replace(period(), rule=broken)
        )
    assert noise.asked == []
    check_rule(RULE)


def test_a_period_draws_only_for_the_budget_it_was_made_for():
    noise = Drawn()
    for other in (replace(PRIVACY, epsilon=3.0), replace(PRIVACY, delta=1e-6),
                  replace(PRIVACY, records_per_optin_user=2)):  # fmt: skip
        with pytest.raises(ParameterError, match="must be those of its period"):
            build_head_list("sharp", counts_of({A: 400}), other, noise, (), period())
    with pytest.raises(ParameterError, match="only the profile sharp remembers"):
        build_head_list("paper", counts_of({A: 400}), PRIVACY, noise, (), period())
    assert noise.asked == []


def test_an_epoch_without_anyone_in_s_lists_what_is_known():
    nobody = OptinCounts([A], np.array([0]), np.array([0]), 0, 0)
    release = build_head_list("sharp", nobody, PRIVACY, SeededNoise(3), (A,), period())

    assert release.head_list.records == (A,)
    assert release.forgotten == ()


def test_an_epoch_of_a_period_is_estimated_and_blended():
    s, t = {A: 1_000, B: 300, C: 110}, {A: 100, B: 30}
    release = build_head_list("sharp", counts_of(s, t), PRIVACY, SeededNoise(5), (), period())
    assert release.noisy.gaussian
    reports = 2_000
    cells = np.random.default_rng(1).multinomial(reports, [0.3, 0.2, 0.2, 0.3])
    estimates = estimate_epoch(release, cells, reports)

    assert np.isfinite(estimates.blended.cells.probability).all()
    first = estimates.optin.cells
    assert first.low[0] < 0.2 < first.high[0]


def test_sums_of_gaussian_noise_are_convolutions():
    one = gaussian_distribution(3.0)
    two = np.convolve(one, one)
    found = sum_of_gaussians(2, scale=3.0)
    reach = len(found) // 2
    middle = len(two) // 2

    assert found == pytest.approx(two[middle - reach : middle + reach + 1], abs=1e-12)
    assert sum_of_gaussians(0, scale=3.0).tolist() == [1.0]


def test_intervals_of_counts_with_gaussian_noise_cover():
    """4 000 counts of one p: at least 95 %, and not much more. Four standard errors are 1.4 %."""
    rng = np.random.default_rng(8)
    users, p, scale, runs = 2_000, 0.03, RULE.scale, 4_000
    distribution = gaussian_distribution(scale)
    noise = rng.choice(
        np.arange(-(len(distribution) // 2), len(distribution) // 2 + 1), runs, p=distribution
    )
    low, high = noisy_count_interval(
        rng.binomial(users, p, runs) + noise, users,
        noise_terms=np.ones(runs, dtype=np.int64), scale=scale, gaussian=True,
    )  # fmt: skip

    assert 0.936 < ((low <= p) & (p <= high)).mean() < 0.98
