"""Write tests/vectors/frames.json anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import NORMALISATION_VERSION, normalise
from blendstream.streams.epoch_keys import EpochKeys, account
from blendstream.streams.tables.fingerprints import siphash
from blendstream.streams.wire.frames import (
    FrameKind,
    OptinEntry,
    encode_marker,
    encode_optin_records,
)
from tests.report_frames import encode_reports

MASTER = bytes(range(32))
#: Spaces of user ids and ids in them: where one ends and the other begins must show.
ACCOUNTS = [
    ("news-app", "17"),
    ("maps-app", "17"),
    ("a", "bc"),
    ("ab", "c"),
    ("a", "\u00e9"),
    ("x" * 63, "alice"),
]
URL = "https://example.org/"
#: One for each sentence of the rule in docs/wire-format.md.
TEXTS = [
    ("  Weather\tTODAY ", " https://Weather.example/A?b=C "),
    ("e\u0301tude", "https://example.org/e\u0301"),  # composed; a URL is not
    ("Stra\u00dfe \u1e9e \ufb01sh \u03a3\u03c2", URL),  # full case folding
    ("\u0130stanbul I", URL),  # not the Turkic one
    ("\u01f0", URL),  # composed again after folding
    ("a\u00a0\u2003\u3000b\u0085c\x1cd", URL),  # white space
    ("a\u200bb", "https://example.org/a b"),  # none, and inside a URL
    ("x" * 256, "u" * 1024),
    ("x" * 257, URL),
    ("\u00e9" * 129, URL),  # bytes, not characters
    ("x", "u" * 1025),
    (" \t ", URL),
    ("x", "\u2003"),
    ("a\x00b", URL),
    ("a\u009fb", URL),
    ("x", "https://example.org/\ta"),
    # Raw text has a limit of its own.
    (" " * 512 + "x" * 256 + " " * 256, "\t" * 2048 + "u" * 1024 + " " * 1024),
    (" " * 1023 + "xx", URL),
    ("x", URL + " " * (4097 - len(URL))),
    ("\u2003" * 341 + "x", URL),  # 1024 bytes
    ("\u2003" * 341 + "xx", URL),  # bytes, not characters
    ("\u0315\u0300" * 256, URL),  # 1024 bytes of marks, and more than 256 when composed
    ("\u0315\u0300" * 256 + " ", URL),
    ("\u1112\u1161\u11ab" * 85, URL),  # 765 bytes become 255
]


def normalised(query: str, url: str) -> dict[str, object]:
    """What becomes of a text: null where it can stand for no record."""
    try:
        record = normalise(query, url)
    except ParameterError:
        return {"query": query, "url": url, "record": None}
    return {"query": query, "url": url, "record": record._asdict()}


def hashed(key: bytes, data: bytes) -> bytes:
    words = np.frombuffer(data, "<u8").reshape(1, -1)
    return int(siphash(key, words)[0]).to_bytes(8, "little")


def main() -> None:
    keys = EpochKeys.derive(MASTER, 41)
    people = [keys.contributor_of(name) for name in (b"alice", b"bob", b"carol")]
    head_list = bytes(range(100, 132))
    narrow = np.array([[0, 3], [1, 2], [0, 255]])
    wide = np.array([[70_000], [1], [2]])
    records = [
        OptinEntry(people[0], 0, b"weather", b"https://weather.example/"),
        OptinEntry(people[1], 1, "zürich".encode(), b"https://example.org/z"),
    ]
    none = [OptinEntry(people[2], 0, b"", b"")]
    reports = encode_reports(41, head_list, people, narrow, 1, log_position=1234)

    def with_version(version: int) -> bytes:
        return reports[:2] + bytes([version]) + reports[3:]

    def described(entries: list[OptinEntry]) -> list[dict[str, object]]:
        return [
            {
                "contributor": e.contributor.hex(),
                "slot": e.slot,
                "query": e.query.decode(),
                "url": e.url.decode(),
            }
            for e in entries
        ]

    document = {
        "about": "Frames, the epoch keys behind them, and text before and "
        "after normalising. Bytes are hexadecimal; 64-bit hashes are their 8 bytes, little-endian.",
        "keys": {
            "master": MASTER.hex(),
            "epoch": 41,
            "contributor": keys.contributor.hex(),
            "partition": keys.partition.hex(),
            "share": keys.share.hex(),
            "fingerprint": keys.fingerprint.hex(),
            "record": keys.record.hex(),
            "people": {
                name: {
                    "contributor": key.hex(),
                    "partition_of_64": keys.partition_of(key, 64),
                    "partition_of_1000": keys.partition_of(key, 1000),
                    "share_hash": hashed(keys.share, key).hex(),
                    "share_part": int.from_bytes(hashed(keys.share, key), "little") % 1_000_000,
                    "fingerprint": hashed(keys.fingerprint, key).hex(),
                    "fingerprint_of_slot_2": hashed(
                        keys.fingerprint, key + (2).to_bytes(8, "little")
                    ).hex(),
                    "record_of_a_tab_b": keys.record_of(key, b"a\tb"),
                }
                for name, key in zip(("alice", "bob", "carol"), people, strict=True)
            },
            "accounts": [
                {
                    "space": space,
                    "user_id": user_id,
                    "account": account(space, user_id.encode()).hex(),
                    "contributor": keys.contributor_of(account(space, user_id.encode())).hex(),
                }
                for space, user_id in ACCOUNTS
            ],
        },
        "frames": [
            {
                "name": "three reports of two cells, one byte a cell",
                "epoch": 41,
                "log_position": 1234,
                "head_list_id": head_list.hex(),
                "contributors": [key.hex() for key in people],
                "cells": narrow.tolist(),
                "bytes": reports.hex(),
            },
            {
                "name": "three reports of one cell, four bytes a cell",
                "epoch": 41,
                "log_position": 1234,
                "head_list_id": head_list.hex(),
                "contributors": [key.hex() for key in people],
                "cells": wide.tolist(),
                "bytes": encode_reports(41, head_list, people, wide, 4, log_position=1234).hex(),
            },
            {
                "name": "two opt-in records and a user who has none",
                "epoch": 41,
                "log_position": 1200,
                "records": described([*records, *none]),
                "without_record": [False, False, True],
                "bytes": encode_optin_records(41, [*records, *none], log_position=1200).hex(),
            },
        ],
        "markers": [
            {
                "name": f"a marker that bounds {kind.name.lower()}",
                "kind": int(kind),
                "epoch": 41,
                "id": bytes(range(16)).hex(),
                "bytes": encode_marker(kind, 41, bytes(range(16))).hex(),
            }
            for kind in (FrameKind.OPTIN_RECORDS, FrameKind.CLIENT_REPORTS)
        ],
        "other_messages": [
            {"name": "a report cut off", "bytes": reports[:-1].hex(), "taken_for": "malformed"},
            {"name": "version 0", "bytes": with_version(0).hex(), "taken_for": "malformed"},
            {"name": "version 1", "bytes": with_version(1).hex(), "taken_for": "malformed"},
            {"name": "a newer version", "bytes": with_version(3).hex(), "taken_for": "newer"},
            {
                "name": "a newer version cut off",
                "bytes": with_version(3)[:-1].hex(),
                "taken_for": "malformed",
            },
            {
                "name": "position 0 in the release log",
                "bytes": (reports[:16] + bytes(8) + reports[24:]).hex(),
                "taken_for": "malformed",
            },
            {
                "name": "an epoch above 2^53 - 1",
                "bytes": (reports[:8] + (2**53).to_bytes(8, "little") + reports[16:]).hex(),
                "taken_for": "malformed",
            },
        ],
        "normalisation": NORMALISATION_VERSION,
        "normalise": [normalised(query, url) for query, url in TEXTS],
    }
    path = Path(__file__).parent / "frames.json"
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
