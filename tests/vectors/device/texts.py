"""Texts that tell a right normalisation from a wrong one; `normalised` says what becomes of them.

Each line of `TEXTS` is here because some implementation gets it wrong. Only add to it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import NORMALISATION_VERSION, normalise

URL = "https://example.org/"
#: Newer versions assign more characters; what becomes of these does not change.
UNICODE = "14.0.0"

QUERIES = [
    # Composed first, folded, composed again.
    "\u03b1\u0345\u0301",  # folding first would move the accent to the other letter
    "\u1fb3\u0301",
    "\u0391\u0301\u0345",
    "\u01f0",
    "J\u030c",
    "e\u0301",
    "A\u030a\u0301",
    "q\u0323\u0307",  # marks in the other order
    "q\u0307\u0323",
    "\u1e9b\u0323",
    "\u212b \u2126 \u212a",  # Angstrom, Ohm and Kelvin signs
    "\u0958",  # never composed again
    "\u1100\u1161\u11a8",  # Hangul
    "\uac00\u11a8",
    "\u0344",
    "\U0001d15e",
    # A starter beyond U+FFFF, and a mark that composes with it, or does not.
    "\U00011099\U000110ba",
    "\U00011131\U00011127 \U00011347\U0001133e",
    "\U000115b8\U000115af\u0323\u0301",
    "\U00010400\u0301 \U00010400\u0323\u0307",
    "\U0001d157\U0001d165",
    "\U0001f600\u0301e\u0301",
    # More marks than stream-safe text has: they stay with their letter.
    "a" + "\u0300" * 31 + "\u0323",
    "e" + "\u0323" * 40 + "\u0301",
    # Cherokee folds to its capitals.
    "\uab70\uab71 \u13f8 \u13a0",
    # Compatibility forms are other text.
    "\uff21\uff22",
    "\u2460",
    "x\u00b2",
    "\u2122",
    "\u3392",
    "\ufe31",
    # Full case folding.
    "Stra\u00dfe",
    "STRASSE",
    "\u1e9e",
    "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06",
    "\u0149",
    "\u0390 \u03b0",
    "\u1f50 \u1f88 \u1fbc \u1ff7",
    "\u0587 \ufb13 \ufb17",
    "\u03a3\u03c3\u03c2 \u039f\u0394\u039f\u03a3",  # final sigma folds as every sigma
    "\u017f",
    "\u0345",
    "\u00b5",
    "\u03d0\u03d1\u03d5\u03d6\u03f0\u03f1\u03f5",
    "\u1e9b",
    "\u0130",
    "I \u0131 i",
    "\u13a0\u13f5 \u13f8\u13fd \uab70\uabbf",  # Cherokee folds to capitals
    "\u1c80\u1c88",
    "\u10a0\u10c5 \u10d0 \u1c90\u1cbf",  # Georgian
    "\u2c00\u2c2f \ua640 \ua7ae",
    "\ua7c0 \ua7d0 \ua7f5",  # new in Unicode 14 and 13
    # Beyond the basic plane.
    "\U00010400\U00010427",
    "\U000104b0\U000104d3",
    "\U00010570 \U00010594",  # new in Unicode 14
    "\U00010c80\U00010cb2",
    "\U000118a0\U000118bf",
    "\U00016e40\U00016e5f",
    "\U0001e900\U0001e921",
    "\U0001f600 \U0001f3fd",
    # White space, one of each kind, inside and at the ends.
    *(
        f"{space}a{space}{space}b{space}"
        for space in "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004"
        "\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    ),
    # No white space, though some libraries say so.
    *(f"{mark}a{mark}b{mark}" for mark in "\ufeff\u200b\u180e\u2060\u200d\u00ad\u2800"),
    # Control characters, and what is not one.
    "a\x00b",
    "a\x08b",
    "a\x0eb",
    "a\x1bb",
    "a\x7fb",
    "a\x80b",
    "a\x84b",
    "a\x86b",
    "a\x9fb",
    "a\u200eb\u202eb",
    "a\ufffdb\uffff",
    "a\ue000b",
    # Unpaired surrogates.
    "a\ud800b",
    "a\udc00b",
    "a\udbff",
    "\udc00\ud800",
    # Lengths: bytes of UTF-8, after normalising and before.
    "",
    " \t\u3000",
    "x" * 256,
    "x" * 257,
    "\u00e9" * 128,
    "\u00e9" * 128 + "x",
    "\u20ac" * 85,
    "\u20ac" * 86,
    "\U0001f600" * 64,
    "\U0001f600" * 64 + "x",
    "\u1e9e" * 86,  # 258 bytes that fold to 172
    "\ufb03" * 85,
    "\ufb03" * 86,
    "\u0390" * 43,
    "\u0390" * 42 + "x" * 100,  # 6 bytes fold to 6, composed again to 2
    "e\u0301" * 128,  # 384 bytes that compose to 256
    " " * 384 + "x" * 256 + " " * 384,
    " " * 385 + "x" * 256 + " " * 384,
    "x" * 1024,
    "x" * 1025,
    "a" + "\u0301" * 127,
    "a" + "\u0301" * 600,
    # What people type.
    "  Weather\tTODAY ",
    "ZÜRICH  HB",
    "東京　天気",
    "МОСКВА погода",
    "ΑΘΗΝΑ",
    "C++ vs. C#",
    "what's \u201cthat\u201d?",
    "*",
    "\u22c6",
]

URLS = [
    " https://Weather.example/A?b=C ",
    "https://example.org/e\u0301",
    "https://example.org/\u212b",
    "HTTPS://EXAMPLE.ORG/\u00df",
    "https://example.org/a  b",
    "https://example.org/a\u3000b",
    "\u2003\u1680\x85https://example.org/\x1f\u2029",
    "\ufeffhttps://example.org/",
    "https://example.org/\u200b",
    "https://example.org/a\tb",
    "https://example.org/a\x9fb",
    "https://example.org/a\x7f",
    "https://example.org/\ud83d",
    "",
    "\u2003",
    "u" * 1024,
    "u" * 1025,
    "\u00e9" * 512,
    "\u00e9" * 512 + "u",
    " " * 3072 + "u" * 1024,
    " " * 3073 + "u" * 1024,
    "javascript:alert(1)",
    "not a URL",
]

TEXTS = [*((query, URL) for query in QUERIES), *(("weather", url) for url in URLS)]


def outcome(query: str, url: str) -> list[str] | None:
    """What becomes of a text, or `None` where it can stand for no record."""
    try:
        return list(normalise(query, url))
    except ParameterError:
        return None


def vectors() -> dict[str, object]:
    """The contents of normalise.json."""
    assigned = _assigned()
    return {
        "about": "Text before and after normalising, version 2. null: it stands for no record. "
        "`all` is the SHA-256 of the lines `number query` (UTF-8, each ended by a line feed; an "
        "empty query where there is no record) of every character between these ranges' ends, as "
        "a query of its own between two letters: x?x. They are those that Unicode 14 assigns, but "
        "for private use.",
        "normalisation": NORMALISATION_VERSION,
        "unicode": UNICODE,
        "texts": [
            {"query": query, "url": url, "record": outcome(query, url)} for query, url in TEXTS
        ],
        "all": {"ranges": assigned, "sha256": _all(assigned)},
    }


def _assigned() -> list[list[int]]:
    if unicodedata.unidata_version == UNICODE:
        return list(_ranges())
    path = Path(__file__).parent / "normalise.json"
    ranges: list[list[int]] = json.loads(path.read_text())["all"]["ranges"]
    return ranges


def _ranges() -> Iterator[list[int]]:
    start = None
    for point in range(0x110001):
        there = point < 0x110000 and unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
        if there and start is None:
            start = point
        elif not there and start is not None:
            yield [start, point - 1]
            start = None


def _all(ranges: list[list[int]]) -> str:
    digest = hashlib.sha256()
    for first, last in ranges:
        for point in range(first, last + 1):
            record = outcome(f"x{chr(point)}x", URL)
            digest.update(f"{point} {record[0] if record else ''}\n".encode())
    return digest.hexdigest()
