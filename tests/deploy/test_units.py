"""The systemd units: what they say is known to systemd, and starts a verb that exists."""

import re
import shutil

import pytest

from tests.deploy.test_deployment_files import UNITS, run

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
        "Restart": "no|always|on-success|on-failure|on-abnormal|on-abort|on-watchdog",
        "RestartSec": r"\d+",
        "TimeoutStopSec": r"\d+",
        "KillMode": "control-group|mixed|process|none",
        "LimitNOFILE": r"\d+",
        "ProtectSystem": "yes|no|full|strict",
        "ProtectHome": "yes|no|read-only|tmpfs",
        "RestrictAddressFamilies": r"AF_\w+( AF_\w+)*",
        "SystemCallArchitectures": "native",
        "CapabilityBoundingSet": "",
        "DynamicUser": YES,
        "NoNewPrivileges": YES,
        "PrivateTmp": YES,
        "PrivateDevices": YES,
        "ProtectKernelTunables": YES,
        "ProtectKernelModules": YES,
        "ProtectControlGroups": YES,
        "RestrictNamespaces": YES,
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
    from agents.cli import VERBS

    found = directives(text)
    wrong = [
        f"[{section}] {key}={value}"
        for section, key, value in found
        if not re.fullmatch(DIRECTIVES.get(section, {}).get(key, r"(?!)"), value)
    ]
    once = [(s, k) for s, k, _ in found if k not in ("Environment", "LoadCredential")]
    wrong += [f"{key} twice" for key in {k for k in once if once.count(k) > 1}]
    started = [value.split()[-1] for _, key, value in found if key == "ExecStart"]
    wrong += [f"no verb {verb}" for verb in started if verb not in {v.name for v in VERBS}]
    return wrong if len(started) == 1 else [*wrong, "one ExecStart"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_says_what_systemd_knows_and_starts_a_verb_that_exists(unit):
    """By our own reading, on every system; `test_systemd_takes_the_unit` asks systemd."""
    found = directives(unit.read_text())

    assert complaints(unit.read_text()) == []
    assert {section for section, _, _ in found} == {"Unit", "Service", "Install"}
    assert f"blendstream {unit.stem.rpartition('-')[2]}" in unit.read_text()
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
