"""Publications for gateways to serve."""

from __future__ import annotations

from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatedShare,
    EstimatesDocument,
    Participants,
)


def estimates(epoch: int, query: str = "weather, today") -> bytes:
    """One record and the wildcard."""
    figure = EstimatedShare(0.25, 0.0001, 0.2, 0.3)
    return _document(
        epoch,
        EstimatedCell(query, "https://w.example/", figure, None, figure, 1.0, 0.25),
        EstimatedCell(None, None, None, None, None, None, 0.75),
    )


def large_estimates(records: int) -> bytes:
    """So many records of epoch 1."""
    figure = EstimatedShare(0.25123456789, 0.000123456789, 0.2123456789, 0.3123456789)
    return _document(
        1,
        *(
            EstimatedCell(f"query {i}", f"https://{i}.example/", figure, figure, figure, 0.5, 0.25)
            for i in range(records)
        ),
    )


def _document(epoch: int, *records: EstimatedCell) -> bytes:
    return EstimatesDocument(
        epoch=epoch,
        window_start_s=epoch * 100,
        window_end_s=epoch * 100 + 100,
        reports_until_s=None,
        outcome="complete",
        reasons=(),
        head_list_id=None,
        parameters={},
        mechanisms={},
        participants=Participants(10, 5, 100),
        records=records,
        queries=(),
        agreement=None,
        privacy={},
        versions={},
        quantity="Shares of people.",
    ).to_bytes()
