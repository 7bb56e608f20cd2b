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
        ("agents/evaluation/test_published.py", "the rest"),
    ],
)
def test_every_test_belongs_to_one_part(file, part):
    assert part_of(f"tests/{file}::test_something[{part}]") == part


def test_the_parts_together_fit_into_twenty_minutes():
    assert sum(minutes for minutes, _ in PARTS.values()) == 20


def test_a_part_that_took_more_than_its_share_is_marked():
    """Nobody compares seconds with minutes by eye, and twenty minutes fill up unnoticed."""
    seconds = {"edge": 120.0, "epochs": 275.4}
    assert table(seconds, {"edge": 7, "epochs": 8}) == [
        "   275.4 s      8 tests  epochs (of 4 min in make test)  OVER BY 35 s",
        "   120.0 s      7 tests  edge (of 2 min in make test)",
        "   395.4 s in all",
    ]
