"""The list of faults that `make mutants` plants fits the code and the tests as they are now."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import catcher_of, place_of, tracked_files
from tests.mutants.planted_faults import FAULTS, Fault

FILES = tracked_files()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_each_fault_has_one_place_and_one_test(fault: Fault):
    """Where a line was changed, its fault would be planted nowhere and seem to be caught."""
    assert fault.right != fault.wrong
    assert place_of(fault, FILES)
    assert catcher_of(fault, FILES)


def test_there_are_thirty_of_them_and_none_twice():
    assert len({fault.right for fault in FAULTS}) == len(FAULTS) >= 30
