"""The order of steps of a release is checked in every state that it can reach, by Spin.

`release_order.pml` says what is modelled, docs/released-once.md what is not. What the model
must find is tested beside what it must not: a model in which nothing can fail proves nothing.
"""

import re
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("release_order.pml")

#: Spin prints an assertion as it is written in the model.
TWO_RELEASES = "(releases<=1)"
TWO_PUBLISHED = "published=="
HALF_A_RELEASE = "(parts>=entries)"
WAITS_FOR_EVER = "invalid end state"


def run(folder: Path, *command: str | Path) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def search(folder: Path, *variant: str) -> str:
    """Search all states of the model, also after an error, and give what Spin says of them."""
    run(folder, "spin", "-a", *(f"-D{name}" for name in variant), MODEL)
    # SAFETY: no search for cycles. Paths are finite, so that a job that is never stuck ends.
    # Not optimised: the compiler would take longer than the search.
    run(folder, "gcc", "-w", "-DSAFETY", "-DMEMLIM=2000", "-o", "pan", "pan.c")
    said = run(folder, "./pan", "-c0", "-m10000", "-w21")
    assert "Full statespace search" in said
    for cut_short in ("max search depth", "Search not completed", "out of memory", "MEMLIM"):
        assert cut_short not in said
    return said


def found(said: str) -> set[str]:
    """What was violated."""
    errors = re.findall(r"^pan:\d+: (?:assertion violated )?(.*?) \(at depth", said, re.MULTILINE)
    assert bool(errors) == ("errors: 0\n" not in said)
    return set(errors)


def test_the_order_of_steps_releases_once_and_never_waits_for_ever(tmp_path):
    """Two jobs that crash, pause and miss answers at every step, then one that is left alone."""
    said = search(tmp_path)

    assert found(said) == set()
    # Every line of the job was reached: none of them is safe only because nothing ever gets there.
    assert re.search(r"unreached in proctype Job\n\t\(0 of \d+ states\)", said)


BROKEN = {
    "OLD_ORDER": TWO_RELEASES,
    "END_TOLD": TWO_RELEASES,
    "NO_FENCE": TWO_RELEASES,
    "NO_READ_BACK": TWO_PUBLISHED,
    "TWO_RECORDS": HALF_A_RELEASE,
    "UNVERIFIED": WAITS_FOR_EVER,
}


@pytest.mark.parametrize("variant", BROKEN)
def test_without_one_step_or_assumption_a_promise_breaks(tmp_path, variant):
    """One attempt of each job is enough for that."""
    errors = found(search(tmp_path, "ATTEMPTS=1", variant))

    assert any(BROKEN[variant] in error for error in errors), errors


def test_the_old_order_broke_by_a_frozen_copy_and_by_a_hanging_transaction_alone(tmp_path):
    """The model blames what the trials blamed: a frozen end offset, and a wait without an end."""
    (without_both := tmp_path / "without-both").mkdir()
    (with_hanging := tmp_path / "with-hanging").mkdir()

    assert found(search(without_both, "OLD_ORDER", "ONE_SERVER", "HANGING=0")) == set()
    assert found(search(with_hanging, "OLD_ORDER", "ONE_SERVER")) == {WAITS_FOR_EVER}
