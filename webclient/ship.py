"""Note in lib/sources which sources lib/ was made of, so that a test can tell when it is stale.

The extension gets its copy of the client: a browser loads nothing from outside its folder.

`npm run ship` calls this last. It runs esbuild and TypeScript, which nothing else here needs.

Decision: docs/decisions/0043-a-client-for-browsers.md
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def digest() -> str:
    """One line for each module: its SHA-256 and name."""
    modules = sorted((HERE / "src").glob("*.js"))
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in modules)
    return "".join(line + "\n" for line in lines)


if __name__ == "__main__":
    (HERE / "lib" / "sources").write_text(digest())
    shutil.copyfile(HERE / "lib" / "index.js", HERE / "extension" / "client.js")
