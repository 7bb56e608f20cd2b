"""Which part of the project a test's time is added to."""

import pytest

from tests.suite_times import PARTS, part_of


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
