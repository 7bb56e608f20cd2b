"""JSON schemas of everything that is published, for readers in any language."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["NAMES", "schema"]

NAMES = ("head-list", "estimates", "click-graph")


def schema(name: str) -> dict[str, Any]:
    """One of `NAMES`, as JSON Schema 2020-12."""
    text = (
        files("blendstream.streams.wire.schemas").joinpath(f"{name}.schema.json").read_text("utf-8")
    )
    body: dict[str, Any] = json.loads(text)
    return body
