"""The webclient in Node."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "webclient"


def node(*arguments: str | Path) -> list[str]:
    """Node's command line; before version 20 it hid the browser's cryptography."""
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    major = int(version.stdout.lstrip("v").split(".")[0])
    more = ["--experimental-global-webcrypto"] if major < 20 else []
    return ["node", *more, *map(str, arguments)]
