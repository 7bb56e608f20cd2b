"""A report has the same verdict alone, in a batch of one and among others, whatever is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest

from blendstream.agents.gateway.state.publications import Publications
from blendstream.streams.settings.sections import GatewaySettings
from tests.agents.gateway.doubles import HEAD_LIST, TestGateway, make_gateway, report, report_target

PAST = "cd" * 32
HEADERS = {"content-type": "application/json"}


@dataclass
class Case:
    """One report, how it is sent, and the gateway that judges it."""

    entry: dict[str, Any] = field(default_factory=report)
    headers: dict[str, str] = field(default_factory=lambda: dict(HEADERS))
    target: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    after: list[Callable[[TestGateway], object]] = field(default_factory=list)

    def gateway(self) -> TestGateway:
        """A new gateway, so that no case sees the frames and rates of another."""
        gateway = make_gateway(
            targets={HEAD_LIST: report_target(**self.target)},
            limits=GatewaySettings(batch_entries=3, **self.limits),
            frame_limits=GatewaySettings(
                **{"linger_s": 0.001, "delivery_deadline_s": 0.02, **self.frames}
            ),
            **self.options,
        )
        for change in self.after:
            change(gateway)
        return gateway

    async def sent(self, *entries: Any) -> tuple[int, dict[str, Any]]:
        body: Any = entries[0] if len(entries) == 1 else list(entries)
        reply = await self.gateway().ask("POST", "/v1/reports", body, self.headers)
        return reply.status, reply.json()


class _Refuses:
    async def refusal(self, headers: Mapping[bytes, bytes], body: bytes) -> str | None:
        return "not today"


def _set(part: str, **values: Any) -> Callable[[Case], object]:
    return lambda case: getattr(case, part).update(values)


def _then(change: Callable[[TestGateway], object]) -> Callable[[Case], object]:
    return lambda case: case.after.append(change)


def _drain(gateway: TestGateway) -> None:
    rate = gateway.app._submitting._report_rate
    assert rate is not None
    rate.take(3, now=time.monotonic())


def _rate(case: Case) -> None:
    case.limits["reports_per_s"] = 0.001
    case.after.append(_drain)


def _past(gateway: TestGateway) -> None:
    gateway.publications.past_head_lists = frozenset({PAST})


async def _unread() -> bool:
    return False


def _behind(publications: Publications) -> None:
    publications.read_to_end = _unread


#: Everything that can be wrong with a report, its request or the gateway that it reaches.
FAULTS: dict[str, Callable[[Case], object]] = {
    "content_type": _set("headers", **{"content-type": "text/plain"}),
    "compressed": _set("headers", **{"content-encoding": "gzip"}),
    "body_too_large": _set("limits", body_bytes=10),
    "wrong_length": _set("headers", **{"content-length": "7"}),
    "refused_by_hook": _set("options", admission=_Refuses()),
    "clock": _set("options", clock_compared=False),
    "rate": _rate,
    "missing_field": lambda case: case.entry.pop("answers"),
    "unknown_field": _set("entry", extra=1),
    "wrong_type": _set("entry", answers="3"),
    "short_id": _set("entry", contributor="ab"),
    "id_in_capitals": _set("entry", contributor="AB" * 16),
    "unknown_head_list": _set("entry", head_list="ef" * 32),
    "log_not_read": _then(lambda gateway: _behind(gateway.publications)),
    "past_head_list": lambda case: (case.entry.update(head_list=PAST), case.after.append(_past)),
    "wrong_shape": _set("target", answers=2),
    "cell_too_high": _set("entry", answers=[[51]]),
    "late": _set("target", late_from_ms=0),
    "no_admission": _set("target", admitted=False),
    "busy": _set("frames", buffer_bytes=1),
    "late_at_the_broker": _then(lambda gateway: setattr(gateway.producer, "append_ms", 1 << 60)),
    "not_acknowledged": _then(lambda gateway: setattr(gateway.producer, "holding", True)),
}
PAIRS = [(name,) for name in FAULTS] + list(combinations(FAULTS, 2))


@pytest.mark.parametrize("faults", PAIRS, ids="+".join)
async def test_every_pair_of_faults_has_one_verdict_however_the_report_is_sent(faults):
    """A sender repeats or drops a report by its verdict, which must not depend on its company."""
    case = Case()
    for fault in faults:
        FAULTS[fault](case)
    good = report(contributor=2)

    alone = await case.sent(case.entry)
    large = await case.sent(b" " * 3000 + json.dumps(case.entry).encode())
    batch_of_one = await case.gateway().ask(
        "POST", "/v1/reports", json.dumps([case.entry]).encode(), case.headers
    )
    status, among = await case.sent(good, case.entry, report(contributor=3))

    assert alone[0] != 202 or faults == ("log_not_read",)
    assert large == alone
    assert (batch_of_one.status, batch_of_one.json()) == alone
    if "verdicts" in alone[1] and "verdicts" in among:
        assert among["verdicts"][1] == alone[1]["verdicts"][0]
    else:
        assert (status, among) == alone
