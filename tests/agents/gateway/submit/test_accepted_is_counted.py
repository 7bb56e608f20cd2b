"""What the gateway calls accepted, the counters count: both judge by the broker's append time.

The gateway reads the same release log as the worker, then the worker's own judge is handed what
the gateway sent, appended at the moment the broker chose.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from blendstream.agents.tokens import ApplicationTokens, add_token
from blendstream.agents.worker.entry_checks import judge_optin_records, judge_reports
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.names import InputStream
from blendstream.streams.tables.batch_verdict import BatchVerdict, Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import decode
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.state.folded_log import Log
from tests.service.settings import MASTER

#: Epoch 8 follows epoch 7; five seconds of skew are allowed, sixty of grace.
WINDOW_MS, GRACE_MS, SKEW_MS = 3_600_000, 60_000, 5_000
#: Far off, so that this machine's own clock cannot pass for the broker's.
START_MS = 4_000_000_000_000
END_MS = START_MS + WINDOW_MS

#: Moments around everything that a rule could turn on, by the broker's clock.
TURNS = [START_MS, END_MS, END_MS + GRACE_MS]
moments = st.builds(int.__add__, st.sampled_from(TURNS), st.integers(-12_000, 12_000))
#: A gateway's clock within the allowed skew, and how long after a request its frame is appended.
skews = st.integers(-SKEW_MS, SKEW_MS)
delays = st.one_of(st.integers(0, 20), st.integers(0, GRACE_MS))
#: Whether the broker tells when it appended the frame; it nearly always does.
told = st.integers(0, 4).map(bool)


class Both:
    """A gateway, and the log state that the worker judges by, of one release log."""

    def __init__(self, folder: Path) -> None:
        log = Log()
        terms = {"window_ms": WINDOW_MS, "grace_ms": GRACE_MS, "skew_ms": SKEW_MS}
        log.open_epoch(7, START_MS - WINDOW_MS, **terms)
        log.open_epoch(8, START_MS, **terms)
        log.open_epoch(9, END_MS, **terms)
        self.head_list = log.release_head_list(7, reports_until_ms=END_MS).id
        self.publications = log.publications
        self.log_state = log.log_state
        self.tokens = folder / "tokens"
        self.header = {"authorization": f"Bearer {add_token(self.tokens, 'app')}"}

    def gateway(self) -> TestGateway:
        tokens = ApplicationTokens(self.tokens, clock=lambda: 0.0)
        made = make_gateway(tokens=tokens)
        for name in ("report_targets", "optin_targets", "epochs", "head_lists"):
            setattr(made.publications, name, getattr(self.publications, name))
        return made

    def counted(self, gateway: TestGateway, append_ms: int, stem: InputStream) -> int:
        """How many entries of what was sent the worker counts."""
        keys = {n: EpochKeys.derive(MASTER, n) for n in (7, 8, 9)}
        seen = {n: FingerprintTable() for n in keys}
        judge: Callable[..., BatchVerdict] = (
            judge_reports if stem is InputStream.CLIENT_REPORTS else judge_optin_records
        )
        total = 0
        for offset, (_, partition, value) in enumerate(gateway.producer.sent):
            delivery = Delivery(offset, append_ms, decode(value), len(value))
            total += judge(partition, [delivery], self.log_state, keys, seen).summary()["counted"]
        return total


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("both"))


def run(
    both: Both,
    now_ms: int,
    skew_ms: int,
    append_ms: int,
    ask: Callable[[TestGateway], Coroutine[Any, Any, Any]],
    stem: InputStream,
    *,
    append_known: bool = True,
) -> None:
    async def go() -> tuple[TestGateway, Any]:
        gateway = both.gateway()
        gateway.moment_s[0] = (now_ms + skew_ms) / 1000
        gateway.producer.append_ms = append_ms
        gateway.producer.append_known = append_known
        return gateway, await ask(gateway)

    gateway, reply = asyncio.run(go())
    accepted = [v["status"] for v in reply.json()["verdicts"]].count("accepted")
    event(f"{stem}: {reply.status} {reply.json().get('reason')}")
    assert accepted <= both.counted(gateway, append_ms, stem)
    if not append_known:
        assert accepted == 0


@given(moments, skews, delays, st.sampled_from([None, 7, 8, 9]), st.integers(1, 3), told)
@example(START_MS - 8_000, 4_000, 10, 8, 1, True).via("a gateway ahead, before the window")
@example(END_MS + GRACE_MS - 1_000, -4_000, 1_500, 8, 1, False).via("a gateway behind, too late")
def test_an_accepted_record_is_in_time_for_the_counters(
    both: Both, now_ms: int, skew_ms: int, delay_ms: int, epoch: int | None, users: int, known: bool
) -> None:
    """At both ends of an epoch, whatever the gateway's clock and however slow the broker."""
    body = [
        {"user_id": f"u{n}", "slot": 0, "query": "q", "url": "https://u.example/"}
        | ({} if epoch is None else {"epoch": epoch})
        for n in range(users)
    ]
    run(
        both, now_ms, skew_ms, now_ms + delay_ms,
        lambda gateway: gateway.ask("POST", "/v1/optin-records", body, both.header),
        InputStream.OPTIN_RECORDS, append_known=known,
    )  # fmt: skip


@given(moments, skews, delays, st.integers(1, 3), told)
@example(END_MS + GRACE_MS - 1_000, -4_000, 1_500, 1, False).via("a gateway behind, too late")
def test_an_accepted_report_is_in_time_for_the_counters(
    both: Both, now_ms: int, skew_ms: int, delay_ms: int, reports: int, known: bool
) -> None:
    """One alone and a batch take different paths to the same promise."""
    body = [
        {"head_list": both.head_list, "contributor": secrets.token_hex(16), "answers": [[n]]}
        for n in range(reports)
    ]
    run(
        both, now_ms, skew_ms, now_ms + delay_ms,
        lambda gateway: gateway.report(*body),
        InputStream.CLIENT_REPORTS, append_known=known,
    )  # fmt: skip
