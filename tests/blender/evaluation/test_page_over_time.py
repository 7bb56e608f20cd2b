"""What docs/evaluation.md says of thirty epochs is what its CSV says, and reaches what it must."""

from __future__ import annotations

from blender.evaluation.over_time_experiments import PAPER, series_of
from blender.evaluation.summary import Mean
from tests.blender.evaluation.page import At, Says

EACH, ALL_IN_S = series_of("each epoch", 120), series_of("each epoch, all in S", 120)
ONCE, ONCE_STAYING = series_of("one budget", 4), series_of("one budget", 4, "nine in ten stay")
ROTATED, PAPER_EACH = series_of("rotated", 4), series_of(PAPER, 120)


def late(at: At, series: str, metric: str, population: str = "setting-a", x: float = 0) -> Mean:
    mean = at("over_time", population, metric, series, x)
    assert mean.runs == 20, "what is promised is measured with twenty runs"
    return mean


def test_what_one_budget_leaves_beside_the_others(at: At, says: Says) -> None:
    once, rotated = late(at, ONCE, "top_l1").mean, late(at, ROTATED, "own_top_l1").mean
    each, paper = late(at, EACH, "own_top_l1").mean, late(at, PAPER_EACH, "own_top_l1").mean

    assert once <= 0.0055
    says(
        f"leaves an error of {once:.4f} (L1 over the true top 50 of setting A, epochs 19 to 30). "
        f"For the same total, everybody in one epoch of thirty leaves {rotated:.3f}; for thirty "
        f"times as much, `sharp` in every epoch leaves {each:.4f} and `paper` {paper:.3f}"
    )


def test_what_it_leaves_where_people_stay(at: At, says: Says) -> None:
    staying = late(at, ONCE_STAYING, "top_l1")

    assert staying.mean <= 0.0085
    says(f"Where nine in ten opt-in users stay it is {staying.mean:.4f}")


def test_the_stricter_reading(at: At, says: Says) -> None:
    """A record that is shown, but that clients were not asked about in that epoch, as 0."""
    once, staying = (late(at, series, "top_asked_l1").mean for series in (ONCE, ONCE_STAYING))
    asked = 50 * late(at, ONCE, "top_asked").mean

    says(f"it is {once:.4f}, and {staying:.4f} where nine in ten stay")
    says(f"{asked:.1f} of the true top 50 are among the 50 that clients are asked about")


def test_how_much_closer_the_filter_is(at: At, says: Says) -> None:
    filtered, own = late(at, EACH, "filter_l1").mean, late(at, EACH, "own_l1").mean

    assert filtered / own <= 0.36
    says(
        f"L1 over the listed records is {filtered / own:.2f} of the epoch's own in epochs 16 to 30"
    )


def test_how_long_the_list_gets(at: At, says: Says) -> None:
    shown, on_top = late(at, ALL_IN_S, "shown"), late(at, ALL_IN_S, "on_top").mean
    paper, paper_all = (late(at, PAPER_EACH, metric).mean for metric in ("shown", "shown_all_in_s"))

    assert shown.mean >= 2.7 * paper
    assert on_top >= 0.88
    says(
        f"{shown.mean:.0f} records are shown at epoch 30, {shown.mean / paper:.2f} times the "
        f"paper's {paper:.0f} ({shown.mean / paper_all:.2f} times the {paper_all:.0f} that it "
        f"would find with all of them in S), and {on_top * 100:.0f} % of them are truly among the "
        "largest"
    )
