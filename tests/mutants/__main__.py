"""Plant known faults in a copy of the tree, one at a time, and name those that no test catches.

    python -m tests.mutants                all of them; `make mutants`
    python -m tests.mutants lease token    those whose description has one of these words

Nothing is planted in this tree: each of two workers has its own copy in a temporary folder. Exits 1
if a fault survives, and 2 if the list does not fit the code or a test fails without any fault.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.planted_faults import FAULTS, Fault

REPOSITORY = Path(__file__).parents[2]
WORKERS = 2
#: Folders whose code is not the product's.
_ELSEWHERE = ("tests", "bench", "docs", "deploy", "webclient")
#: Without plugins that leave files behind or take seconds to load.
_LIGHT = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
#: pytest's exit codes. Others mean that the code could not be imported, or no test was found.
_PASSED, _FAILED = 0, 1


def tracked_files() -> list[Path]:
    """Files of the working tree that are, or are about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return [Path(name) for name in listed if os.path.lexists(REPOSITORY / name)]


def place_of(fault: Fault, files: Sequence[Path]) -> Path:
    """Return the only file of the product's code that has the fault's text, and has it once."""
    code = [
        file
        for file in files
        if file.suffix in (".py", ".lua") and file.parts[0] not in _ELSEWHERE
        if not any((REPOSITORY / part).is_symlink() for part in (file, *file.parents))
    ]
    found = {file: (REPOSITORY / file).read_text().count(fault.right) for file in code}
    places = [file for file, times in found.items() for _ in range(times)]
    if len(places) != 1:
        raise LookupError(f"the text of a fault must occur once in the code, got {places}: {fault}")
    return places[0]


def catcher_of(fault: Fault, files: Sequence[Path]) -> str:
    """Return pytest's name of the test that must catch the fault."""
    defined = re.compile(rf"^\s*(async )?def {re.escape(fault.test)}\(", re.MULTILINE)
    named = [file for file in files if file.parts[0] == "tests" and file.name == fault.file]
    having = [file for file in named if defined.search((REPOSITORY / file).read_text())]
    if len(having) != 1:
        raise LookupError(f"one file {fault.file} must define {fault.test}, got {having}")
    return f"{having[0]}::{fault.test}"


def copy_tree(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / file, folder / file, follow_symlinks=False)


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run these tests of the copy on the copy's code; return pytest's exit code and its output."""
    # Before the path on which an editable install finds this tree.
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *_LIGHT, *tests],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, the file that it is planted in, and pytest's name of its test."""

    fault: Fault
    place: Path
    test: str

    def run_in(self, folder: Path) -> tuple[int, str]:
        """Plant the fault in this copy, run its test, and put the right text back."""
        file = folder / self.place
        right = file.read_text()
        file.write_text(right.replace(self.fault.right, self.fault.wrong))
        try:
            return run_tests(folder, [self.test])
        finally:
            file.write_text(right)


def main(words: Sequence[str]) -> int:
    faults = [f for f in FAULTS if not words or any(word in f.what for word in words)]
    files, began = tracked_files(), time.monotonic()
    try:
        planned = [Planned(f, place_of(f, files), catcher_of(f, files)) for f in faults]
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        # Everything below happens in the copies: this tree may be edited meanwhile.
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(WORKERS):
            copy_tree(files, folder := Path(temporary, str(number)))
            copies.put(folder)
        code, said = run_tests(folder, sorted({one.test for one in planned}))
        if code != _PASSED:
            print(f"{said}\nThese tests must pass without any fault.", file=sys.stderr)
            return 2

        def run_somewhere(one: Planned) -> tuple[int, str]:
            folder = copies.get()
            try:
                return one.run_in(folder)
            finally:
                copies.put(folder)

        codes = []
        with ThreadPoolExecutor(WORKERS) as workers:
            for one, (code, said) in zip(planned, workers.map(run_somewhere, planned), strict=True):
                verdict = {_PASSED: "SURVIVED", _FAILED: "caught"}.get(code, "BROKEN")
                print(f"{verdict:9}{one.fault.what}\n         {one.test}", flush=True)
                if verdict == "BROKEN":
                    print(said, file=sys.stderr)
                codes.append(code)
    print(f"{codes.count(_FAILED)} of {len(codes)} caught in {time.monotonic() - began:.0f} s")
    return 2 if set(codes) - {_PASSED, _FAILED} else int(_PASSED in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
