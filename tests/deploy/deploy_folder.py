"""The files of deploy/, and commands that look at them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
CONTAINER = DEPLOY / "container"
UNITS = sorted((DEPLOY / "systemd").glob("blendstream-*.service"))


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a linter that pip or the system brought."""
    first, *rest = map(str, command)
    beside = Path(sys.executable).with_name(first)
    return subprocess.run(
        [str(beside) if beside.exists() else first, *rest],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def kubernetes() -> list[dict]:
    """Every object of the Kubernetes files."""
    return [
        document
        for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]


def deployments() -> dict[str, dict]:
    """The containers by the verb that they run."""
    return {
        document["spec"]["template"]["spec"]["containers"][0]["args"][0]: document
        for document in kubernetes()
        if document["kind"] == "Deployment"
    }


def secrets() -> dict[str, str]:
    """What the samples leave to the environment on purpose."""
    pairs = ",".join(f"{name}={'00' * 32}" for name in ("first", "2026-a", "2025-b"))
    return {"BLENDSTREAM_KEYS_MASTER_SECRETS": pairs}
