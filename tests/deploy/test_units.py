"""The systemd units: what they say is known to systemd, and starts a verb that exists."""

import re
import shutil
import subprocess
import sys

import pytest

from tests import unit_limits
from tests.deploy.deploy_folder import REPOSITORY, UNITS, run

pytestmark = pytest.mark.long

#: What our units say, and the form that each value must have.
YES = "yes|no"
DIRECTIVES = {
    "Unit": {"Description": ".+", "After": r"[\w.-]+", "Wants": r"[\w.-]+"},
    "Service": {
        "Type": "simple|exec|notify|forking|oneshot|dbus|idle",
        "ExecStart": r"/opt/blendstream/bin/blendstream \w+",
        "Environment": r"[A-Z_]+=\S+",
        "LoadCredential": r"[\w-]+:/\S+",
        "ReadWritePaths": "/run/blendstream",
        "SupplementaryGroups": "www-data",
        "Restart": "no|always|on-success|on-failure|on-abnormal|on-abort|on-watchdog",
        "RestartSec": r"\d+",
        "TimeoutStopSec": r"\d+",
        "KillMode": "control-group|mixed|process|none",
        "LimitNOFILE": r"\d+",
        "LimitCORE": "0",
        "UMask": "0077",
        "ProtectSystem": "yes|no|full|strict",
        "ProtectHome": "yes|no|read-only|tmpfs",
        "RestrictAddressFamilies": r"AF_\w+( AF_\w+)*",
        "SystemCallArchitectures": "native",
        "SystemCallFilter": r"~?@[a-z-]+( @[a-z-]+)*",
        "SystemCallErrorNumber": "EPERM",
        "ProtectProc": "noaccess|invisible|ptraceable|default",
        "CapabilityBoundingSet": "",
        "DynamicUser": YES,
        "NoNewPrivileges": YES,
        "PrivateTmp": YES,
        "PrivateDevices": YES,
        "ProtectKernelTunables": YES,
        "ProtectKernelModules": YES,
        "ProtectControlGroups": YES,
        "ProtectKernelLogs": YES,
        "ProtectClock": YES,
        "ProtectHostname": YES,
        "PrivateMounts": YES,
        "RestrictNamespaces": YES,
        "RestrictRealtime": YES,
        "RestrictSUIDSGID": YES,
        "LockPersonality": YES,
    },
    "Install": {"WantedBy": r"[\w-]+\.target"},
}


def directives(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of each line of a unit; a line of another form is a mistake."""
    section, found = "", []
    for line in text.splitlines():
        if not line or line[0] in "#;":
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
            continue
        key, equals, value = line.partition("=")
        assert equals, line
        found.append((section, key, value))
    return found


def complaints(text: str) -> list[str]:
    """What is wrong with a unit: sections, keys, values, and a verb that does not exist."""
    from blendstream.agents.cli import SUBCOMMANDS

    found = directives(text)
    wrong = [
        f"[{section}] {key}={value}"
        for section, key, value in found
        if not re.fullmatch(DIRECTIVES.get(section, {}).get(key, r"(?!)"), value)
    ]
    several = ("Environment", "LoadCredential", "SystemCallFilter")
    once = [(s, k) for s, k, _ in found if k not in several]
    wrong += [f"{key} twice" for key in {k for k in once if once.count(k) > 1}]
    started = [value.split()[-1] for _, key, value in found if key == "ExecStart"]
    wrong += [f"no verb {verb}" for verb in started if verb not in {v.name for v in SUBCOMMANDS}]
    return wrong if len(started) == 1 else [*wrong, "one ExecStart"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_says_what_systemd_knows_and_starts_a_verb_that_exists(unit):
    """By our own reading, on every system; `test_systemd_takes_the_unit` asks systemd."""
    found = directives(unit.read_text())

    assert complaints(unit.read_text()) == []
    assert {section for section, _, _ in found} == {"Unit", "Service", "Install"}
    verb = unit.stem.rpartition("-")[2].removesuffix("@")
    assert f"blendstream {verb}" in unit.read_text()
    given = {value.partition(":")[0] for _, key, value in found if key == "LoadCredential"}
    used = set(re.findall(r"=%d/([\w-]+)$", unit.read_text(), re.MULTILINE))
    assert given == used, "a credential that nobody loads would be a file that is not there"


def test_a_unit_with_a_mistake_would_be_noticed():
    text = UNITS[0].read_text()
    for right, mistaken in (
        ("Restart=always", "Restart=allways"),
        ("NoNewPrivileges=yes", "NoNewPriviledges=yes"),
        ("[Install]", "[Instal]"),
        ("blendstream gateway\n", "blendstream gatway\n"),
        ("RestartSec=2", "RestartSec=2\nRestartSec=3"),
        ("TimeoutStopSec=20", "TimeoutStopSec=20 # seconds"),
    ):
        assert right in text
        assert complaints(text.replace(right, mistaken)), mistaken


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit):
    """The executable is not installed where tests run; nothing else may be wrong.

    Where there is no systemd (macOS) the reading above is the check.
    """
    if shutil.which("systemd-analyze") is None:
        assert complaints(unit.read_text()) == []
        return
    ended = run("systemd-analyze", "verify", "--man=no", unit)
    said = [
        line
        for line in (ended.stdout + ended.stderr).splitlines()
        if unit.name in line and "is not executable" not in line
    ]

    assert said == []


#: What systemd-analyze may find at most, of 10. What is left is mostly the network, which the
#: service needs, and parts of /proc that its metrics read.
MOST_EXPOSED = 2.0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_leaves_little_to_whoever_breaks_in(unit):
    """By systemd's own score; where there is no systemd, by what makes up most of it."""
    said = {key: value for _, key, value in directives(unit.read_text())}
    assert said["LimitCORE"] == "0", "a core file would hold master secrets and opt-in records"
    assert said["UMask"] == "0077"
    assert said["ProtectProc"] == "invisible"
    assert "SystemCallFilter=@system-service\n" in unit.read_text()
    if shutil.which("systemd-analyze") is None:
        return
    ended = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    (score,) = re.findall(r"Overall exposure level for \S+: (\S+)", ended.stdout)

    assert float(score) <= MOST_EXPOSED


#: What jobs need of the system beyond servers: exact noise, in several threads.
DRAWS = """
import numpy as np
from blendstream.blender.noise.exact_noise import ExactNoise
for draw in (ExactNoise().discrete_laplace, ExactNoise().discrete_gaussian):
    assert draw(np.zeros(5_000, dtype=np.int64), scale=2.0).any()
print("drawn")
"""
LIMITS = """
import os, pathlib, resource, sys
for forbidden in (lambda: os.chroot("/"), lambda: os.sched_setaffinity(0, {0})):
    try:
        forbidden()
    except PermissionError:
        print("refused")
file = pathlib.Path(sys.argv[1])
file.touch()
print(oct(file.stat().st_mode & 0o777), *resource.getrlimit(resource.RLIMIT_CORE))
"""


def under_limits(verb: str, code: str, *words: object) -> list[str]:
    """What this code prints under the limits of a verb's unit."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit_limits", verb, "-c", code, *map(str, words)],
        capture_output=True, text=True, check=False, cwd=REPOSITORY,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_noise_is_drawn_under_the_limits_of_the_unit():
    """A filter that forbids too much would be found in production first.

    `test_records_go_all_the_way_over_tls` runs all three processes under theirs.
    """
    assert under_limits("jobs", DRAWS) == ["drawn"]


def test_the_limits_are_in_force_where_tests_speak_of_them(tmp_path):
    """Root may do all of this without them."""
    if not unit_limits.available():
        return
    for verb in ("gateway", "worker", "jobs"):
        file = tmp_path / verb
        assert under_limits(verb, LIMITS, file) == ["refused", "refused", "0o600 0 0"]
