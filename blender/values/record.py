"""A record ⟨q,u⟩: a query and the URL that a person clicked for it.

Promises: devices and servers that call `normalise` with one text get one record, so both groups
count alike; every head list states the version of the rule.
Assumes: text arrives as Python strings. ⋆ is not text but `None` (see `blender.values.cells`), so a
person who types a star searches for a star and nothing else.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from blendstream.blender.values.errors import ParameterError

__all__ = [
    "MAX_QUERY_BYTES",
    "MAX_RAW_QUERY_BYTES",
    "MAX_RAW_URL_BYTES",
    "MAX_URL_BYTES",
    "NORMALISATION_VERSION",
    "Record",
    "normalise",
]

#: Raised by one whenever `normalise` changes what it returns for any input.
NORMALISATION_VERSION = 2

#: UTF-8 bytes after normalising. Smaller would cut real queries and links; larger would let one
#: record fill the frames and tables that thousands share.
MAX_QUERY_BYTES = 256
MAX_URL_BYTES = 1024

#: UTF-8 bytes of the raw text. Normalising makes a character at most
#: three times shorter, so that a smaller factor would refuse queries that fit; the fourth part is
#: for white space. NFC's time grows with the square of a run of combining marks: 1 KiB of them
#: takes 0.3 ms, 64 KiB more than a second.
_RAW_FACTOR = 4
MAX_RAW_QUERY_BYTES = _RAW_FACTOR * MAX_QUERY_BYTES
MAX_RAW_URL_BYTES = _RAW_FACTOR * MAX_URL_BYTES


class Record(NamedTuple):
    """A query and the URL clicked for it, both normalised.

    `normalise` checks outside text and makes a record of it. The constructor checks nothing: it is
    for text that was checked before, millions of times per epoch.

    >>> Record("weather", "https://weather.example/") < Record("weather", "https://x.example/")
    True
    """

    query: str
    url: str


def normalise(query: str, url: str) -> Record:
    """Return the record of this text; raise `ParameterError` if the text is not valid.

    Raw text over its limit is refused before any processing. Query: NFC, casefolded,
    NFC again (casefolding can leave text uncomposed), runs of white space made one space, ends
    trimmed. URL: ends trimmed, nothing else, because servers distinguish case and order in paths
    and parameters.

    >>> normalise("  Weather\\tTODAY ", " https://weather.example/ ")
    Record(query='weather today', url='https://weather.example/')
    """
    _check_size("query", query, MAX_RAW_QUERY_BYTES, " before it is normalised")
    _check_size("url", url, MAX_RAW_URL_BYTES, " before it is trimmed")
    clean_query = " ".join(_nfc(_nfc(query).casefold()).split())
    clean_url = url.strip()
    _check("query", clean_query, MAX_QUERY_BYTES)
    _check("url", clean_url, MAX_URL_BYTES)
    return Record(clean_query, clean_url)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _check(what: str, text: str, limit: int) -> None:
    if not text:
        raise ParameterError(f"{what} must not be empty after trimming white space")
    _check_size(what, text, limit)
    if any(unicodedata.category(c) == "Cc" for c in text):
        raise ParameterError(f"{what} must not contain control characters")


def _check_size(what: str, text: str, limit: int, when: str = "") -> None:
    # The messages contain lengths, never text: they appear in responses and logs.
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ParameterError(f"{what} must be valid Unicode, got an unpaired surrogate") from None
    if size > limit:
        raise ParameterError(f"{what} must be at most {limit} bytes of UTF-8{when}, got {size}")
