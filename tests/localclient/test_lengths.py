"""Whoever watches a device's traffic sees lengths; the lengths of its reports tell nothing.

TLS hides what a report says, not how long it is. Cell numbers have one digit or three, so reports
of one head list used to differ: with 500 records "none" was 182 bytes long and a set 201 to 207.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from blendstream.blender.registry import RANDOMIZERS, randomizer_for
from blendstream.blender.values.cells import HeadList
from blendstream.blender.values.interfaces import LocalRandomizer
from blendstream.blender.values.record import Record
from blendstream.localclient import ResultCode
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.submissions import write_report
from tests.localclient.support import (
    END,
    HOUR,
    START,
    Gateway,
    ManualClock,
    UnsyncedFiles,
    device,
    head_list,
)
from tests.localclient.support import spec as spec_with

HEAD_LIST, CONTRIBUTOR = "ab" * 32, "0" * 32


def listing(name: str, records: int, **changes: float) -> HeadListDocument:
    """A head list of that many records, three to a query, answered with this randomizer."""
    heads = HeadList(
        tuple(Record(f"query {i // 3}", f"https://{i}.example/") for i in range(records)),
        records,
        spec_with(name=name, delta=1e-5 if name == "two-stage" else 0.0, **changes),
        query_wildcards=name == "two-stage",
    )
    return head_list(head_list=heads)


def possible_answers(randomizer: LocalRandomizer) -> Iterator[tuple[int, ...]]:
    """Everything that some device may answer, one for each set of cells."""
    held = [*randomizer.cells.records, None]
    for answer in combinations(range(len(randomizer.cells)), randomizer.cells_per_answer):
        if any(randomizer.report_probability(record, answer) for record in held):
            yield answer


def length(answers: tuple[tuple[int, ...], ...], randomizer: LocalRandomizer) -> int:
    body = write_report(HEAD_LIST, CONTRIBUTOR, answers, cells=len(randomizer.cells))
    assert json.loads(body)["answers"] == [list(answer) for answer in answers]
    return len(body)


@pytest.mark.parametrize("name", RANDOMIZERS)
@pytest.mark.parametrize("records", [1, 2, 9, 10, 11, 13])
def test_every_answer_to_a_small_list_has_one_length(name: str, records: int) -> None:
    """9, 10 and 11 records lie on both sides of the first cell number of two digits."""
    for wide in (1, 3, 32):
        for epsilon in (0.5, 4.0):
            made = listing(name, records, max_cells_per_answer=wide, epsilon=epsilon)
            randomizer = randomizer_for(made.head_list)
            answers = list(possible_answers(randomizer))
            assert len(answers) >= 2
            assert len({length((answer,), randomizer) for answer in answers}) == 1


@pytest.mark.parametrize("name", RANDOMIZERS)
@pytest.mark.parametrize("records", [99, 500, 1_000, 12_345])
def test_the_extreme_answers_to_a_large_list_have_one_length(name: str, records: int) -> None:
    """The lowest cells, the highest, the ⋆ of those who hold nothing, and mixtures of them."""
    heads = listing(name, records, answers=2).head_list
    randomizer = randomizer_for(heads)
    wide, cells = randomizer.cells_per_answer, len(randomizer.cells)
    lowest = tuple(range(wide))
    highest = tuple(range(cells - wide, cells))
    none = (*range(wide - 1), cells - 1)
    extremes = (lowest, highest, none)
    assert len({length((a, b), randomizer) for a in extremes for b in extremes}) == 1


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_requests_of_one_head_list_are_alike_but_for_the_body_itself(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, name: str
) -> None:
    """As they leave the device: every header, Content-Length with them, and the body's length."""
    document = gateway.show(listing(name, 500))
    star = len(document.head_list.cells) - 1
    for seed in range(12):
        clock.now_s = START + HOUR
        client = device(gateway, tmp_path / str(seed), clock, seed=seed, files=UnsyncedFiles)
        if seed % 2:
            client.record(*document.head_list.records[seed])
        clock.now_s = END + HOUR
        assert client.report_now().code is ResultCode.SENT

    # Both kinds of answer were sent, or nothing was put to the test.
    said = [json.loads(body)["answers"][0][-1] == star for body in gateway.bodies]
    assert {True, False} == set(said)
    assert len({len(body) for body in gateway.bodies}) == 1
    sent = [{k.lower(): v for k, v in headers.items()} for _, _, headers in gateway.posted]
    assert all(headers == sent[0] for headers in sent)
    assert sent[0]["content-length"] == str(len(gateway.bodies[0]))
