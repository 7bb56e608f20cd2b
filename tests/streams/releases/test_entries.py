"""Entries of the release log are written in one spelling and read as they were written."""

from __future__ import annotations

import pytest

from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases import entries


def test_a_reason_is_kept_as_an_operator_typed_it() -> None:
    """Whoever reads the log or the publication later must understand it."""
    entry = entries.epoch_abandoned(3, "Störung: ε")

    assert entries.decode(entries.encode([entry])) == [entry]
    assert "Störung: ε".encode() in entries.encode([entry])


def test_a_reason_that_is_no_text_does_not_stop_the_commit() -> None:
    """A terminal in another encoding hands over bytes that UTF-8 has no letters for."""
    entry = entries.epoch_abandoned(3, "caf\udce9 " + "x" * 300)

    assert entry["reason"] == "caf? " + "x" * 195
    assert entries.decode(entries.encode([entry])) == [entry]


def test_entries_with_escapes_are_read_as_before() -> None:
    """Version 0.2.0 wrote letters beyond ASCII as escapes, and half a pair where it was given."""
    assert entries.decode(rb'[{"reason":"St\u00f6rung \udce9"}]') == [{"reason": "Störung \udce9"}]


@pytest.mark.parametrize("value", [b"", b"[]", b"[1]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_entry_is_refused(value: bytes) -> None:
    with pytest.raises(StoreMismatch, match="must be a JSON array of objects"):
        entries.decode(value)
