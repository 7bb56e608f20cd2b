"""e^ε, widths, channels and reports: what a device computes from a head list and its dice."""

from __future__ import annotations

import struct
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import combinations

from blendstream.blender.paper.local import local_alg
from blendstream.blender.randomizers.subset_or_none import best_named_size
from blendstream.blender.randomizers.subset_selection import best_subset_size
from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.interfaces import LocalRandomizer
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record
from blendstream.localclient.store import draw_for_answers
from blendstream.streams.wire.submissions import write_report
from tests.doubles import SeededDice

EPSILONS = [
    *(0.0, 2.0**-32, 1e-9, 1e-6, 0.001, 0.01, 0.1, 0.25, 0.3, 0.5, 2 / 3, 0.6931471805599453),
    *(0.6931471805599454, 1.0, 1.5, 2.0, 2.5, 3.0, 3.4, 4.0, 4.000000000000001, 5.0, 6.0, 7.5),
    *(8.0, 10.0, 12.34567890123, 16.0, 20.0, 22.18, 32.0, 50.0, 100.0, 200.0, 709.0, 1000.0),
]
ANSWERS = (1, 2, 3, 10)


def exponents() -> dict[str, object]:
    """The contents of exponents.json."""
    rows = []
    for epsilon in EPSILONS:
        for answers in ANSWERS if epsilon in (0.1, 1.0, 4.0) else (1,):
            e = exp_rounded_down(Fraction(epsilon) / answers)
            rows.append(
                {
                    "epsilon": epsilon,
                    "bits": struct.pack(">d", epsilon).hex(),
                    "answers": answers,
                    "numerator": str(e * 2**32),
                }
            )
    return {
        "about": "E = numerator / 2^32, the device's e^(epsilon/answers), rounded down. `bits` is "
        "the float epsilon, its 8 bytes in hexadecimal, big-endian.",
        "exponents": rows,
    }


def widths() -> dict[str, object]:
    """The contents of widths.json."""
    rows = []
    for epsilon in (0.01, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 10.0):
        e = exp_rounded_down(Fraction(epsilon))
        for records in (0, 1, 2, 3, 5, 10, 50, 51, 100, 200, 500, 1_000, 5_000, 50_000):
            for cap in (1, 2, 8, 32, 1_024):
                rows.append(
                    [
                        epsilon,
                        records,
                        cap,
                        best_subset_size(records + 1, e, cap),
                        best_named_size(records, e, cap),
                    ]
                )
    return {
        "about": "Cells in an answer. Each row: epsilon of one answer, M listed records, "
        "max_cells_per_answer, the width of subset-selection, the width of subset-or-none.",
        "widths": rows,
        "about_shares": "Each row: epsilon, M, max_cells_per_answer, listed_64ths, the width of "
        "subset-or-none.",
        "by_share": [
            [epsilon, records, cap, share, best_named_size(records, e, cap, share)]
            for epsilon in (0.5, 1.0, 4.0)
            for e in (exp_rounded_down(Fraction(epsilon)),)
            for records in (1, 5, 50, 500, 5_000)
            for cap in (4, 1_024)
            for share in (1, 4, 15, 16, 17, 32, 48, 63)
        ],
    }


def listed(*per_query: int) -> tuple[Record, ...]:
    """Records of several queries, one of each in turn, as far as they go."""
    return tuple(
        Record(f"q{query}", f"u{place}")
        for place in range(max(per_query, default=0))
        for query, size in enumerate(per_query)
        if place < size
    )


def built(records: tuple[Record, ...], spec: RandomizerSpec) -> LocalRandomizer:
    """The randomizer that a head list of these records would have."""
    heads = HeadList(records, len(records), spec, RANDOMIZERS[spec.name].query_wildcards)  # type: ignore[attr-defined]
    return RANDOMIZERS[spec.name](heads.cells, spec)


def shapes() -> list[tuple[tuple[int, ...], RandomizerSpec]]:
    """Every small shape: up to five cells and every width, or up to four records in stages."""
    found = []
    for name in ("randomized-response", "subset-selection", "subset-or-none"):
        for records in range(5):
            for epsilon, answers in ((0.3, 1), (1.0, 1), (1.0, 2), (4.0, 1)):
                for cap in range(1, 4) if name != "randomized-response" else (1,):
                    spec = RandomizerSpec(name, epsilon, answers=answers, max_cells_per_answer=cap)
                    found.append(((1,) * records, spec))
    for per_query in ((), (1,), (2,), (3,), (1, 1), (2, 1), (1, 3), (2, 2), (1, 1, 1), (1, 1, 2)):
        for epsilon, delta, answers in ((4.0, 0.0, 1), (4.0, 1e-5, 1), (1.0, 0.01, 2)):
            found.append((per_query, RandomizerSpec("two-stage", epsilon, delta, answers)))
    for records, share in ((4, 1), (4, 63), (3, 40), (0, 16), (1, 5)):
        for epsilon, answers in ((0.3, 1), (1.0, 2), (4.0, 1)):
            spec = RandomizerSpec("subset-or-none", epsilon, answers=answers, listed_64ths=share)
            found.append(((1,) * records, spec))
    return [(per_query, stating(listed(*per_query), spec)) for per_query, spec in found]


def stating(records: tuple[Record, ...], spec: RandomizerSpec) -> RandomizerSpec:
    """The same as a head list describes it."""
    return replace(spec, cells_per_answer=built(records, spec).cells_per_answer)


def channels() -> dict[str, object]:
    """The contents of channels.json."""
    rows = []
    seen = set()
    for per_query, spec in shapes():
        records = listed(*per_query)
        randomizer = built(records, spec)
        width = randomizer.cells_per_answer
        of = (spec.epsilon, spec.delta, spec.answers, width, spec.listed_64ths)
        key = (per_query, spec.name, *of)
        if key in seen:
            continue  # a cap that changes nothing
        seen.add(key)
        cells = randomizer.cells
        answers = list(combinations(range(len(cells)), width))
        held = [cells.cell(number) for number in range(len(cells))]
        matrix = {}
        for number, cell in enumerate(held):
            record = None if cell.query is None else Record(cell.query, cell.url or "")
            assert cells.number(record) == number
            chances = {a: randomizer.report_probability(record, a) for a in answers}
            assert sum(chances.values()) == 1
            matrix[number] = {
                ",".join(map(str, a)): str(chance) for a, chance in chances.items() if chance
            }
        rows.append(
            {
                "records": [list(record) for record in records],
                "randomizer": asdict(spec),
                "cells": len(cells),
                "cells_per_answer": width,
                "probability": list(matrix.values()),
            }
        )
    return {
        "about": "Exact channels: `probability[held cell][answer]`, a fraction in lowest terms; "
        "answers that are not there never come.",
        "channels": rows,
    }


class NotingDice:
    """Dice that note what was asked for and thrown."""

    def __init__(self, seed: int) -> None:
        self._dice = SeededDice(seed)
        self.throws: list[list[str]] = []

    def below(self, bound: int) -> int:
        thrown = self._dice.below(bound)
        self.throws.append([str(bound), str(thrown)])
        return thrown


def reports() -> dict[str, object]:
    """The contents of reports.json."""
    head_list = "ab" * 32
    rows = []
    big = tuple(Record(f"q{i // 3}", f"u{i % 3}") for i in range(300))
    unlisted = Record("q0", "not listed")
    cases: list[tuple[str, tuple[Record, ...], RandomizerSpec, list[Record]]] = []
    for name in RANDOMIZERS:
        for cap, answers in ((1, 1), (32, 1), (32, 3)):
            spec = RandomizerSpec(name, 4.0, answers=answers, max_cells_per_answer=cap)
            cases += [
                (f"{name}, no records", big, spec, []),
                (f"{name}, one listed", big, spec, [big[17]]),
                (f"{name}, not listed", big, spec, [unlisted, Record("other", "u0")]),
                (f"{name}, many and repeated", big, spec, [*big[:5], big[0], unlisted]),
            ]
        cases.append((f"{name}, an empty list", (), RandomizerSpec(name, 4.0), [big[0]]))
        cases.append((f"{name}, a list of one", big[:1], RandomizerSpec(name, 4.0), [big[0]]))
        cases.append((f"{name}, low", big[:9], RandomizerSpec(name, 0.5, answers=2), [big[4]]))
    for share in (1, 4, 48):
        spec = RandomizerSpec("subset-or-none", 4.0, listed_64ths=share)
        cases.append((f"subset-or-none, {share}/64 listed", big, spec, [big[17]]))
        cases.append((f"subset-or-none, {share}/64 listed, none held", big, spec, []))
    for seed, (name, records, silent, held) in enumerate(cases):
        spec, dice = stating(records, silent), NotingDice(seed)
        randomizer = built(records, spec)
        drawn = draw_for_answers(held, spec.answers, dice)
        contributor = f"{dice.below(1 << 128):032x}"
        answers = local_alg(drawn, randomizer, dice)
        body = write_report(head_list, contributor, answers, cells=len(randomizer.cells)).decode()
        rows.append(
            {
                "name": name,
                "records": len(records),
                "randomizer": asdict(spec),
                "held": [list(record) for record in held],
                "dice": dice.throws,
                "body": body,
            }
        )
    return {
        "about": "The body of a report on the head list abab…, listing the first `records` of "
        "[q0, u0], [q0, u1], [q0, u2], [q1, u0], … . `dice` are the bounds asked for and the "
        "numbers thrown, in order: which held record each of m answers is about (none held: no "
        "throw), the contributor, then each answer.",
        "head_list": head_list,
        "reports": rows,
    }
