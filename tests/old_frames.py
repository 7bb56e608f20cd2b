"""Frames as earlier releases wrote them: they lie in Kafka when workers are upgraded."""

from __future__ import annotations


def as_version_1(frame: bytes) -> bytes:
    """The same entries as version 1 has them: without the position in the release log."""
    data = frame[:16] + frame[24:]
    return data[:2] + b"\x01" + data[3:4] + len(data).to_bytes(4, "little") + data[8:]
