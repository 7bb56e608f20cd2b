"""The published schemas with all keys listed: what we write has no other, readers allow more."""

from __future__ import annotations

from typing import Any

from blendstream.streams.wire.schemas import schema

__all__ = ["exact_schema"]


def exact_schema(name: str) -> dict[str, Any]:
    """Return the schema, which now refuses keys that it does not list."""
    closed: dict[str, Any] = _closed(schema(name))
    return closed


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    inner = {key: _closed(value) for key, value in part.items()}
    return (
        {"additionalProperties": False, **inner}
        if isinstance(part.get("properties"), dict)
        else inner
    )
