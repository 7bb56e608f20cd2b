"""Run a verb under the system-call filter and limits of its systemd unit, where no systemd runs.

    python -m tests.unit_limits jobs          as `blendstream jobs` in deploy/systemd's unit
    python -m tests.unit_limits jobs -c CODE  Python code under the same limits

The sets of calls (@system-service) are asked of systemd, and the kernel's filter is set up by the
library that systemd itself uses. On a system without them (macOS) the verb runs without limits.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

UNITS = Path(__file__).parents[1] / "deploy" / "systemd"
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def available() -> bool:
    """Whether this system can set up the filter."""
    return bool(shutil.which("systemd-analyze") and ctypes.util.find_library("seccomp"))


def allowed_calls(unit: str) -> set[str]:
    """The names of the system calls that a unit lets through."""
    allowed: set[str] = set()
    for words in re.findall(r"^SystemCallFilter=(.+)$", unit, re.MULTILINE):
        named = _expanded(words.removeprefix("~").split())
        allowed = allowed - named if words.startswith("~") else allowed | named
    # systemd itself always lets these through.
    return allowed | _expanded(["@default"])


def _expanded(names: list[str]) -> set[str]:
    sets = [name for name in names if name.startswith("@")]
    found = set(names) - set(sets)
    if sets:
        listed = subprocess.run(
            ["systemd-analyze", "syscall-filter", "--no-pager", *sets],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        inside = re.findall(r"^ +([@\w-]+)$", listed, re.MULTILINE)
        found |= _expanded(inside)
    return found


def impose(unit: str) -> None:
    """Put this process, and all that it starts, under the unit's limits."""
    (mask,) = re.findall(r"^UMask=(\d+)$", unit, re.MULTILINE)
    os.umask(int(mask, 8))
    (cores,) = re.findall(r"^LimitCORE=(\d+)$", unit, re.MULTILINE)
    resource.setrlimit(resource.RLIMIT_CORE, (int(cores), int(cores)))
    (number,) = re.findall(r"^SystemCallErrorNumber=(\w+)$", unit, re.MULTILINE)
    calls = allowed_calls(unit)
    library = ctypes.CDLL(ctypes.util.find_library("seccomp"), use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
    ]  # fmt: skip
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    filtered = library.seccomp_init(_ERRNO | getattr(errno, number))
    for name in sorted(calls):
        call = library.seccomp_syscall_resolve_name(name.encode())
        if call >= 0:  # Below: a call that this processor does not have.
            assert library.seccomp_rule_add_array(filtered, _ALLOW, call, 0, None) == 0, name
    assert library.seccomp_load(filtered) == 0


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if available():
        (unit,) = UNITS.glob(f"blendstream-{verb}*.service")
        impose(unit.read_text())
    os.execv(sys.executable, [sys.executable, *(rest or ["-m", "blendstream.agents.cli", verb])])
