"""Answers are taken in within bounds, packed or not."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from blendstream.localclient import HeadListRefused, ResultCode
from blendstream.localclient.bodies import BoundedBody, UnusableBody
from tests.localclient.support import Gateway, ManualClock, device, head_list, limits


def taken(encoding: str, data: bytes, step: int = 7) -> bytes:
    body = BoundedBody(encoding, max_bytes=1000)
    for start in range(0, len(data), step):
        body.add(data[start : start + step])
    return body.whole()


def test_packed_and_unpacked_answers_are_the_same() -> None:
    text = b"some text " * 100
    assert taken("", text) == taken("gzip", gzip.compress(text)) == taken("Identity", text) == text
    assert taken("", b"") == taken("gzip", b"") == b""


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(b"x" * 500, mtime=0)[:-3]),
        ("gzip", b"not packed at all"),
        ("br", b""),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0)),
    ],
)
def test_what_is_cut_short_or_oddly_packed_counts_as_no_answer(encoding: str, data: bytes) -> None:
    with pytest.raises(UnusableBody):
        taken(encoding, data)


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_of_what_is_too_long_nothing_is_kept(encoding: str) -> None:
    for length, too_large in ((1000, False), (1001, True)):
        body, text = BoundedBody(encoding, 1000), b"x" * length
        body.add(gzip.compress(text) if encoding else text)
        assert body.too_large is too_large
        assert body.whole() == (b"" if too_large else text)


def test_a_bomb_fills_neither_memory_nor_disk(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """50 kB on the wire that unpack to 50 MB."""
    bomb = gzip.compress(b" " * 50_000_000)
    gateway.answers["/v1/head-lists/current"] = (200, {"content-encoding": "gzip"}, bomb)
    client = device(gateway, tmp_path, clock, own=limits(max_head_list_bytes=100_000))
    tracemalloc.start()
    with pytest.raises(HeadListRefused, match="at most 100000 bytes long"):
        client.report_now()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_list_packed_by_the_gateway_is_answered(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    document = gateway.show(head_list())
    packed = (200, {"content-encoding": "gzip"}, gzip.compress(document.to_bytes()))
    for name in ("current", document.id):
        gateway.answers[f"/v1/head-lists/{name}"] = packed
    assert device(gateway, tmp_path, clock).report_now().code is ResultCode.SENT
