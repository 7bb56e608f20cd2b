"""Published text that would turn around the words beside it."""

from __future__ import annotations

from dataclasses import replace

from blendstream.streams.wire.estimates_document import EstimatesDocument

#: An override that would turn the rest of its line around, and an isolate that is never ended.
HOSTILE = "pay \u202emoc.knab\u2066 now"
SHOWN = "pay U+202Emoc.knabU+2066 now"
HEBREW = "מזג אוויר"
URL = "https://example.org/\u202egpj.exe"
CONTROLS = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def turned(document: EstimatesDocument) -> EstimatesDocument:
    """The same figures of hostile text, and of a language that is written from right to left."""
    names = {"weather tomorrow": HOSTILE, "train times": HEBREW}
    records = tuple(
        replace(
            row,
            query=names.get(row.query or "", row.query),
            url=URL if row.query == "weather tomorrow" and str(row.url).endswith("/0") else row.url,
        )
        for row in document.records
    )
    queries = tuple(
        replace(row, query=names.get(row.query or "", row.query)) for row in document.queries
    )
    return replace(document, records=records, queries=queries)
