"""The list of faults that `make mutants` plants fits the code and the tests as they are now."""

from __future__ import annotations

import json

import pytest

from tests.mutants.__main__ import (
    CLIENTS,
    catcher_of,
    place_of,
    plan_misreading,
    tracked_files,
)
from tests.mutants.misreadings import MISREADINGS, Misreading
from tests.mutants.planted_faults import FAULTS, Fault
from tests.vectors.device.play import FILES as PLAYED
from tests.vectors.device.play import FOLDER

FILES = tracked_files()
VECTORS = {
    f"{file}: {name}"
    for file, vectors_of in PLAYED.items()
    for name, _ in vectors_of(json.loads((FOLDER / f"{file}.json").read_text()))
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_each_fault_has_one_place_and_one_test(fault: Fault):
    """Where a line was changed, its fault would be planted nowhere and seem to be caught."""
    assert fault.right != fault.wrong
    assert place_of(fault.right, (".py", ".lua"), FILES)
    assert catcher_of(fault, FILES)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("misreading", MISREADINGS, ids=lambda misreading: misreading.what)
def test_each_misreading_has_one_place_in_each_client_and_one_vector(
    misreading: Misreading, client: str
):
    planned = plan_misreading(misreading, client, FILES)

    assert planned.right != planned.wrong
    assert misreading.vector in VECTORS


def test_there_are_thirty_of_them_and_none_twice():
    assert len({fault.right for fault in FAULTS}) == len(FAULTS) >= 30
    assert len({misreading.what for misreading in MISREADINGS}) == len(MISREADINGS) >= 30
