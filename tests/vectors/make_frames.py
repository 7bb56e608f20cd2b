"""Write tests/vectors/frames.json anew. Only for a new frame version: the old vectors must hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from streams.keys import EpochKeys
from streams.records.frames import OptinEntry, encode_optin_records, encode_reports

MASTER = bytes(range(32))


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
    document = {
        "about": "Frames of version 1 and the epoch keys behind them, as hexadecimal bytes.",
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
                    "record_of_a_tab_b": keys.record_of(key, b"a\tb"),
                }
                for name, key in zip(("alice", "bob", "carol"), people, strict=True)
            },
        },
        "frames": [
            {
                "name": "three reports of two cells, one byte a cell",
                "epoch": 41,
                "head_list_id": head_list.hex(),
                "contributors": [key.hex() for key in people],
                "cells": narrow.tolist(),
                "bytes": encode_reports(41, head_list, people, narrow, 1).hex(),
            },
            {
                "name": "three reports of one cell, four bytes a cell",
                "epoch": 41,
                "head_list_id": head_list.hex(),
                "contributors": [key.hex() for key in people],
                "cells": wide.tolist(),
                "bytes": encode_reports(41, head_list, people, wide, 4).hex(),
            },
            {
                "name": "two opt-in records",
                "epoch": 41,
                "records": [
                    {
                        "contributor": e.contributor.hex(),
                        "slot": e.slot,
                        "query": e.query.decode(),
                        "url": e.url.decode(),
                    }
                    for e in records
                ],
                "bytes": encode_optin_records(41, records).hex(),
            },
        ],
    }
    path = Path(__file__).parent / "frames.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
