"""Write the vectors of docs/device-protocol.md anew. What is in them must hold: only add to it.

python -m tests.vectors.device.make
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.vectors.device import (
    budget_entries,
    conversations,
    documents,
    mechanisms,
    searches,
    sent_logs,
    texts,
)

FOLDER = Path(__file__).parent
FILES: Mapping[str, Callable[[], dict[str, object]]] = {
    "normalise": texts.vectors,
    "documents": documents.vectors,
    "exponents": mechanisms.exponents,
    "widths": mechanisms.widths,
    "channels": mechanisms.channels,
    "reports": mechanisms.reports,
    "budget": budget_entries.vectors,
    "conversations": conversations.vectors,
    "search": searches.vectors,
    "sent": sent_logs.vectors,
}


def written(name: str) -> str:
    """The contents of one file: a line for each vector, so that changes can be read."""
    parts = []
    for key, value in FILES[name]().items():
        text = json.dumps(value)
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            text = f"[\n{rows}\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    for name in FILES:
        (FOLDER / f"{name}.json").write_text(written(name))


if __name__ == "__main__":
    main()
