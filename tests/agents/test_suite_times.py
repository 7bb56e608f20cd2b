"""Which part of the project a test's time is added to."""

import pytest

from tests.suite_times import PARTS, part_of, table


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("faults/test_counting_faults.py", "counting"),
        ("streams/test_topics.py", "counting"),
        ("integration/test_release_log.py", "epochs"),
        ("agents/gateway/test_app.py", "edge"),
        ("faults/test_gateway_faults.py", "edge"),
        ("statistical/test_estimators.py", "core and sharper"),
        ("integration/test_stack.py", "ground"),
        ("browser/test_results_page.py", "the rest"),
        ("blender/evaluation/test_published.py", "evaluation"),
    ],
)
def test_every_test_belongs_to_one_part(file, part):
    assert part_of(f"tests/{file}::test_something[{part}]") == part


def test_the_parts_together_fit_into_twenty_minutes():
    assert sum(minutes for minutes, _ in PARTS.values()) == 20


def test_a_part_that_took_more_than_its_share_is_marked():
    """Nobody compares seconds with minutes by eye, and twenty minutes fill up unnoticed."""
    seconds = {"edge": 150.0, "epochs": 450.0}
    assert table(seconds, {"edge": 7, "epochs": 8}, run_s=400.0) == [
        "   450.0 s      8 tests  epochs: 5.0 of 4 min of the run  OVER BY 60 s",
        "   150.0 s      7 tests  edge: 1.7 of 2 min of the run",
        "   600.0 s in all, 6.7 of 20 min of the run",
    ]
