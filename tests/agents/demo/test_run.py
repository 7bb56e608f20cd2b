"""When the demo's people begin to search, and which epochs it counts."""

import pytest

from agents.demo.run import check_results, time_to_search
from agents.stack import StackError


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [(95, 16.0), (100, 12.0), (107.5, 6.0), (107.6, None), (114.4, None), (115, None), (116, None)],
)
def test_people_search_in_a_window_only_while_half_of_it_is_left(now_s, expected):
    """An epoch that opens in the last second of its window would be one of a handful of people."""
    collecting = {"window_start_s": 100, "window_end_s": 115}
    assert time_to_search(collecting, now_s) == expected


def test_with_epochs_asked_for_too_many_empty_ones_are_an_error_that_says_what_helps():
    """Else a demo that never has results would never end; without a number it may go on."""
    check_results(1, empty=5)
    check_results(None, empty=6)
    with pytest.raises(StackError, match=r"6 epochs .* empty, at most 5 .* a longer --window"):
        check_results(1, empty=6)
