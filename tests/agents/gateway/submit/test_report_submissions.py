"""POST /v1/reports: what is accepted, what is refused, and what leaves for Kafka."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.registry import RANDOMIZERS
from blendstream.blender.values.cells import Cells, RandomizerSpec
from blendstream.blender.values.record import Record
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.wire import submissions
from tests.agents.gateway.doubles import HEAD_LIST, make_gateway, report, report_target
from tests.service.settings import MASTER

ACCEPTED = {"verdicts": [{"status": "accepted"}]}


async def test_an_accepted_report_is_in_a_frame_under_its_contributor_key():
    """The device's id itself must never reach Kafka."""
    gateway = make_gateway()

    reply = await gateway.report(report(contributor=5, cell=7))

    assert (reply.status, reply.json()) == (202, ACCEPTED)
    [(topic, partition, value)] = gateway.producer.sent
    [frame] = gateway.producer.frames()
    keys = EpochKeys.derive(MASTER, 7)
    identity = (5).to_bytes(16, "big")
    contributor = keys.contributor_of(identity)
    assert frame.contributors.tobytes() == contributor
    assert frame.cells.tolist() == [[7]]
    assert (frame.epoch, frame.head_list_id.hex()) == (7, HEAD_LIST)
    assert (topic, partition) == ("reports", keys.partition_of(contributor, 4))
    assert identity not in value


async def test_reports_that_no_hook_admits_are_sent_again_where_the_epoch_asks_for_one():
    """Published values would rest on them as on checked ones; another gateway may have the hook."""
    gateway = make_gateway(targets={HEAD_LIST: report_target(admitted=False)})

    one = await gateway.report(report(contributor=1))
    many = await gateway.report(report(contributor=1), report(contributor=2))

    for reply in (one, many):
        assert (reply.status, reply.json()["reason"]) == (503, "no_admission")
        assert {verdict["status"] for verdict in reply.json()["verdicts"]} == {"retry"}
        assert "gateway.admission" in reply.json()["detail"]
    assert gateway.producer.sent == []


@st.composite
def _entries(draw):
    """Reports that are right, nearly right and wrong, for a list of 51 cells with 2 × 3 cells."""
    good = st.lists(st.integers(0, 50), min_size=3, max_size=3, unique=True).map(sorted)
    odd = st.lists(st.integers(0, 60), min_size=1, max_size=4)
    answer = st.one_of(good, good, good, odd)
    contributor = st.one_of(
        st.integers(0, 2**128 - 1).map(lambda n: f"{n:032x}"),
        st.sampled_from(["g" * 32, "0 " * 16, "é" * 32]),
    )
    one = st.builds(
        lambda c, a, h: {"head_list": h, "contributor": c, "answers": a},
        contributor,
        st.one_of(
            st.lists(answer, min_size=2, max_size=2), st.lists(answer, min_size=1, max_size=3)
        ),
        st.sampled_from([HEAD_LIST, HEAD_LIST, HEAD_LIST, "cd" * 32]),
    )
    return draw(st.lists(one, min_size=2, max_size=30))


@pytest.mark.long
@given(entries=_entries(), wildcard_alone=st.booleans())
async def test_a_batch_is_judged_as_its_entries_would_be_one_by_one(entries, wildcard_alone):
    """The columns of a batch are an optimisation; no verdict and no byte may depend on it."""
    shape = {"cells_per_answer": 3, "answers": 2, "wildcard_alone": wildcard_alone}
    together = make_gateway(targets={HEAD_LIST: report_target(**shape)})
    alone = make_gateway(targets={HEAD_LIST: report_target(**shape)})

    reply = (await together.report(*entries)).json()
    each = [(await alone.report(entry)).json() for entry in entries]

    assert reply["verdicts"] == [one["verdicts"][0] for one in each]

    def contents(producer):
        return sorted(
            (partition, frame.contributors[i].tobytes(), frame.cells[i].tolist())
            for (_, partition, _), frame in zip(producer.sent, producer.frames(), strict=True)
            for i in range(len(frame))
        )

    assert contents(together.producer) == contents(alone.producer)


async def test_a_bad_entry_in_a_batch_spoils_only_itself():
    """A relay's other thousand devices did nothing wrong."""
    gateway = make_gateway()

    reply = await gateway.report(report(1), {"head_list": 5}, report(2, cell=51), report(3))

    assert reply.status == 202
    verdicts = reply.json()["verdicts"]
    assert [v["status"] for v in verdicts] == ["accepted", "refused", "refused", "accepted"]
    assert [v.get("reason") for v in verdicts] == [None, "malformed", "wrong_shape", None]
    assert gateway.producer.entries() == 2
    assert submissions.read_verdicts(reply.body) == [
        (v["status"], v.get("reason")) for v in verdicts
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"head_list": "cd" * 32}, "unknown_head_list"),
        ({"answers": [[51]]}, "wrong_shape"),
        ({"answers": [[1], [2]]}, "wrong_shape"),
        ({"answers": [[1, 2]]}, "wrong_shape"),
        ({"answers": [[]]}, "malformed"),
        ({"answers": {"0": 1}}, "malformed"),
        ({"answers": [[-1]]}, "malformed"),
        ({"answers": [[1.5]]}, "malformed"),
        ({"answers": [[True]]}, "malformed"),
        ({"answers": [["1"]]}, "malformed"),
        ({"answers": [[1 << 32]]}, "malformed"),
        ({"head_list": HEAD_LIST.upper()}, "unknown_head_list"),
        ({"head_list": None}, "malformed"),
        ({"contributor": "0f" * 15 + "\n\n"}, "malformed"),
        ({"contributor": "zz" * 16}, "malformed"),
        ({"contributor": "00"}, "malformed"),
        ({"answers": []}, "malformed"),
        ({"surprise secret text": 1}, "malformed"),
    ],
)
async def test_a_refusal_says_why_and_quotes_nothing(change, reason):
    """Error messages end up in other people's logs."""
    gateway = make_gateway()

    reply = await gateway.report(report() | change)

    problem = reply.json()
    assert reply.status == 422
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["reason"] == reason
    assert len(problem["detail"]) > 20
    assert "secret" not in reply.body.decode()
    assert "cd" * 32 not in reply.body.decode()
    assert gateway.producer.sent == []


async def test_a_head_list_that_another_gateway_served_is_looked_for_before_it_is_unknown():
    """This gateway may be a moment behind the log; the device must not pay for that."""
    gateway = make_gateway(targets={})

    async def read():
        gateway.publications.report_targets = {HEAD_LIST: report_target()}
        return True

    gateway.publications.read_to_end = read

    assert (await gateway.report(report())).status == 202


async def test_a_log_that_cannot_be_read_is_no_proof_that_a_head_list_is_unknown():
    """A refusal is for good; so it is not given on a guess."""
    gateway = make_gateway(targets={})

    async def read():
        return False

    gateway.publications.read_to_end = read
    reply = await gateway.report(report())

    assert reply.status == 503
    assert reply.json()["verdicts"][0]["status"] == "retry"
    assert int(reply.headers["retry-after"]) >= 1


async def test_reports_are_late_by_the_brokers_clock_whatever_this_one_says():
    """Accepted must mean counted, and the counters judge by append time."""
    target = report_target(late_from_ms=1_000_000_000)
    gateway = make_gateway(targets={HEAD_LIST: target})
    gateway.moment_s[0] = 999_999.0
    gateway.producer.append_ms = 999_999_999
    assert (await gateway.report(report())).status == 202
    gateway.producer.append_ms = 1_000_000_000
    assert (await gateway.report(report())).json()["reason"] == "late"
    batch = await gateway.report(report(1), report(2))
    assert [v["reason"] for v in batch.json()["verdicts"]] == ["late", "late"]

    gateway.producer.sent.clear()
    gateway.moment_s[0] = 1_000_000.0
    assert (await gateway.report(report())).json()["reason"] == "late"
    assert gateway.producer.sent == []


async def test_a_broker_that_does_not_answer_is_503_and_the_next_sender_does_not_wait():
    """Senders repeat the same bytes; a queue of them waiting for a deadline each helps nobody."""
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=0.05, buffer_bytes=1 << 20)
    )
    gateway.producer.holding = True

    first = await gateway.report(report(1))
    second = await gateway.report(report(1))

    assert (first.status, first.json()["reason"]) == (503, "not_acknowledged")
    assert (second.status, second.json()["reason"]) == (503, "busy")
    assert "retry-after" in first.headers
    gateway.producer.release()


async def test_part_of_a_batch_may_have_to_be_sent_again():
    """The partitions whose leader is away answer `retry`, the others are accepted."""
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=0.05, buffer_bytes=1 << 20)
    )
    gateway.producer.holding = True
    stuck = await gateway.report(report(1))
    assert stuck.status == 503
    gateway.producer.holding = False

    reply = await gateway.report(*(report(n) for n in range(100)))

    statuses = [v["status"] for v in reply.json()["verdicts"]]
    assert reply.status == 202
    assert set(statuses) == {"accepted", "retry"}
    assert statuses.count("accepted") == gateway.producer.entries() - 1
    assert "retry-after" in reply.headers


async def test_memory_for_waiting_entries_is_bounded():
    """A slow broker must not make the gateway grow."""
    gateway = make_gateway(
        frame_limits=GatewaySettings(linger_s=0.001, delivery_deadline_s=0.05, buffer_bytes=1000)
    )
    gateway.producer.holding = True

    reply = await gateway.report(*(report(n) for n in range(1000)))

    assert reply.status == 503
    assert gateway.writer.held_bytes < 1300
    gateway.producer.release()


async def test_a_clock_that_nothing_was_compared_with_yet_takes_no_submissions():
    """It may be hours off. It would put records without an epoch into any that is open."""
    gateway = make_gateway(clock_compared=False)

    reply = await gateway.report(report())
    ready = await gateway.ask("GET", "/readyz")

    assert (reply.status, reply.json()["reason"]) == (503, "clock")
    assert int(reply.headers["retry-after"]) >= 1
    assert gateway.producer.sent == []
    assert ready.status == 503
    assert "not been compared" in ready.json()["reasons"][0]
    # A minute between sending and acknowledgement says nothing about five seconds.
    gateway.clock.appended(sent_s=100, append_s=130, acknowledged_s=160)
    assert (await gateway.report(report())).status == 503
    gateway.clock.appended(sent_s=200, append_s=200, acknowledged_s=200.1)
    assert (await gateway.report(report())).status == 202
    assert (await gateway.ask("GET", "/readyz")).status == 200


async def test_a_wrong_clock_takes_no_submissions_and_is_unready():
    """A gateway whose now is not now would put records into the wrong epoch."""
    gateway = make_gateway()
    gateway.clock.appended(
        sent_s=100, append_s=90, acknowledged_s=100.1, place=("blender.client-reports.v1", 7)
    )

    reply = await gateway.report(report())
    ready = await gateway.ask("GET", "/readyz")

    assert (reply.status, reply.json()["reason"]) == (503, "clock")
    assert ready.status == 503
    assert "NTP" in ready.json()["reasons"][0]
    assert "partition 7 of blender.client-reports.v1" in ready.json()["reasons"][0]
    assert gateway.producer.sent == []


async def test_limits_on_batch_and_rate():
    """One sender must not take what thousands share."""
    gateway = make_gateway(limits=GatewaySettings(batch_entries=10, reports_per_s=5))

    too_many = await gateway.report(*(report(n) for n in range(11)))
    fine = await gateway.report(*(report(n) for n in range(10)))
    too_fast = await gateway.report(report(11))

    assert (too_many.status, fine.status, too_fast.status) == (413, 202, 429)
    assert "at most 10 entries" in too_many.json()["detail"]
    assert int(too_fast.headers["retry-after"]) >= 1


async def test_a_full_batch_passes_a_low_rate_and_makes_nobody_wait_long():
    """It once left the rate in debt: the next device waited 39 s for its single report."""
    gateway = make_gateway(limits=GatewaySettings(reports_per_s=1))

    full = await gateway.report(*(report(n) for n in range(1000)))
    soon = await gateway.report(report(1000))

    assert (full.status, soon.status) == (202, 429)
    assert soon.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    "junk",
    [
        [1] * 1000,
        [report(n, cell=51) for n in range(1000)],
        [report(n, head_list="cd" * 32) for n in range(1000)],
        report(cell=51),
        b"{",
    ],
    ids=["no entries", "wrong shape", "unknown head list", "a single one", "no JSON"],
)
async def test_entries_that_are_refused_use_nothing_of_the_rate(junk):
    """Or one anonymous batch would keep the honest out."""
    gateway = make_gateway(limits=GatewaySettings(reports_per_s=25))

    for _ in range(3):
        assert (await gateway.ask("POST", "/v1/reports", junk)).status in (400, 422)

    assert (await gateway.report(*(report(n) for n in range(1000)))).status == 202


class _Doorkeeper:
    async def refusal(self, headers, body):
        return None if headers.get(b"attestation") == b"good" else "show an attestation"


async def test_the_admission_hook_decides_before_anything_is_read():
    """The place for attestation or anonymous tokens."""
    gateway = make_gateway(admission=_Doorkeeper())
    body = report()

    refused = await gateway.ask("POST", "/v1/reports", body)
    admitted = await gateway.ask("POST", "/v1/reports", body, {"attestation": "good"})

    assert (refused.status, refused.json()["detail"]) == (403, "show an attestation")
    assert admitted.status == 202


@given(
    cells=st.integers(1, 70_000),
    wide=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
async def test_every_legal_report_is_accepted_whatever_its_head_lists_shape(cells, wide, seed):
    """Widths of one, two and four bytes, and answers up to the whole list."""
    wide = min(wide, cells)
    target = report_target(cells=cells, cells_per_answer=wide)
    gateway = make_gateway(targets={HEAD_LIST: target})
    rng = np.random.default_rng(seed)
    answer = sorted(rng.choice(cells, size=wide, replace=False).tolist())

    one = await gateway.report({**report(), "answers": [answer]})
    two = await gateway.report(
        {**report(2), "answers": [answer]}, {**report(3), "answers": [answer]}
    )

    assert (one.status, two.status) == (202, 202)
    assert {tuple(row) for f in gateway.producer.frames() for row in f.cells.tolist()} == {
        tuple(answer)
    }


@pytest.mark.parametrize("name", ["subset-selection", "subset-or-none"])
async def test_an_answer_that_no_device_can_give_is_refused(name):
    """⋆ with records of a liar's choice weighs against the top records like nothing honest could.

    Whatever the channel gives no probability, alone and in a batch.
    """
    cells = Cells([Record(f"q{i}", "u") for i in range(100)], query_wildcards=False)
    randomizer = RANDOMIZERS[name](cells, RandomizerSpec(name, 2.0, max_cells_per_answer=3))
    assert randomizer.cells_per_answer > 1
    wide = randomizer.cells_per_answer
    first = list(range(wide - 1))
    answers = [[*first, 100], [*first, 99], [*range(90, 90 + wide - 1), 100], list(range(wide))]
    target = report_target(
        cells=101, cells_per_answer=wide, wildcard_alone=randomizer.wildcard_alone
    )
    gateway = make_gateway(targets={HEAD_LIST: target})

    batch = [{**report(i), "answers": [answer]} for i, answer in enumerate(answers)]
    together = (await gateway.report(*batch)).json()["verdicts"]

    possible = [randomizer.report_probability(None, tuple(answer)) > 0 for answer in answers]
    assert possible == [True, True, not randomizer.wildcard_alone, True]
    assert [v["status"] == "accepted" for v in together] == possible
    for entry, fits in zip(batch, possible, strict=True):
        reply = await gateway.report(entry)
        assert (reply.status == 202) is fits
        if not fits:
            assert reply.json()["verdicts"][0]["reason"] == "wrong_shape"


async def test_what_devices_write_is_what_gateways_read():
    """One side writes without the other's types; this fails when they drift apart."""
    gateway = make_gateway()
    written = submissions.write_report(HEAD_LIST, "0" * 32, ((3,),), cells=51)

    one = await gateway.ask("POST", "/v1/reports", written)
    many = await gateway.ask("POST", "/v1/reports", b"[" + written + b"," + written + b"]")

    assert (one.status, many.status) == (202, 202)


@pytest.mark.parametrize("name", RANDOMIZERS)
async def test_a_report_is_accepted_with_the_spaces_that_hide_its_length(name):
    """Devices fill their bodies up; gateways must take the lowest cells so filled."""
    cells = Cells(tuple(Record(str(i), "u") for i in range(1_200)), name == "two-stage")
    randomizer = RANDOMIZERS[name](cells, RandomizerSpec(name, epsilon=4.0, answers=3))
    wide, alone = randomizer.cells_per_answer, randomizer.wildcard_alone
    shape = {"cells": len(cells), "cells_per_answer": wide, "answers": 3, "wildcard_alone": alone}
    gateway = make_gateway(targets={HEAD_LIST: report_target(**shape)})
    lowest = (tuple(range(wide)),) * 3
    body = submissions.write_report(HEAD_LIST, "0" * 32, lowest, cells=len(cells))

    reply = await gateway.ask("POST", "/v1/reports", body)

    assert b"}   " in body
    assert (reply.status, reply.json()) == (202, ACCEPTED)


@pytest.mark.parametrize("others", [0, 3])
async def test_a_contributor_in_capitals_is_refused_as_the_description_says(others):
    """Or one id would have as many spellings, and a strict edge would refuse what we take."""
    capitals = report() | {"contributor": "AB" * 16}
    gateway = make_gateway()

    reply = await gateway.report(capitals, *(report(n) for n in range(others)))

    verdicts = reply.json()["verdicts"]
    assert (verdicts[0]["status"], verdicts[0]["reason"]) == ("refused", "malformed")
    assert "lower-case" in verdicts[0]["detail"]
    assert gateway.producer.entries() == others


async def test_an_empty_batch_is_told_the_limit_that_holds_here():
    gateway = make_gateway(limits=GatewaySettings(batch_entries=7))

    reply = await gateway.ask("POST", "/v1/reports", [])

    assert reply.status == 400
    assert reply.json()["detail"] == "a batch must hold 1 to 7 entries, got none"
