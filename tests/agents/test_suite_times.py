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
        ("evaluation/test_published.py", "evaluation"),
    ],
)
def test_every_test_belongs_to_one_part(file, part):
    assert part_of(f"tests/{file}::test_something[{part}]") == part


def test_the_parts_together_fit_into_twenty_five_minutes():
    assert sum(minutes for minutes, _ in PARTS.values()) == 25


def test_a_part_that_took_more_than_its_share_is_marked():
    """Nobody compares seconds with minutes by eye, and twenty-five minutes fill up unnoticed."""
    seconds = {"edge": 150.0, "epochs": 450.0}
    assert table(seconds, {"edge": 7, "epochs": 8}, run_s=480.0) == [
        "   450.0 s      8 tests  epochs: 6.0 of 5.5 min of the run  OVER BY 30 s",
        "   150.0 s      7 tests  edge: 2.0 of 2.5 min of the run",
        "   600.0 s in all, 8.0 of 25 min of the run",
    ]
