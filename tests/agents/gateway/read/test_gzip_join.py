"""Documents packed once are served together without packing them again."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from agents.gateway.read.gzip_join import pack, pack_together

_bodies = st.one_of(
    st.binary(max_size=50),
    st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 9000)).map(lambda p: p[0] * p[1]),
)


def unpacked(packed: bytes) -> bytes:
    """As a browser does: it reads the first file of those in a row and drops the rest."""
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    body = inflate.decompress(packed)
    assert inflate.eof, "the file has an end"
    assert inflate.unused_data == b"", "it is one file"
    return body


@given(bodies=st.lists(st.tuples(_bodies, st.booleans()), max_size=6))
def test_pieces_put_together_are_one_file_of_all_they_hold(bodies):
    """Whether they were packed or not, and however long they are."""
    pieces = [(body, pack(body) if packed else None) for body, packed in bodies]

    assert unpacked(b"".join(pack_together(pieces))) == b"".join(body for body, _ in bodies)


@given(body=_bodies)
def test_what_is_packed_is_what_was_given(body):
    assert unpacked(pack(body)) == body
