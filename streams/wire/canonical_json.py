"""The canonical JSON of documents, entries and submissions."""

from __future__ import annotations

import json

__all__ = ["canonical_json"]


def canonical_json(value: object) -> bytes:
    """Encode as UTF-8 with sorted keys, no white space, finite numbers: equal values, equal bytes.

    >>> canonical_json({"b": [1, 2.0], "a": "ε"}).decode()
    '{"a":"ε","b":[1,2.0]}'
    """
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()
