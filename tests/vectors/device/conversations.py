"""Whole conversations of a device with a server: clock, request, response, outcome.

The dice of a conversation always throw the same fraction of what is asked for, so that the order in
which a client throws them does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from blendstream.localclient import (
    ClientRefused,
    LimitReached,
    Limits,
    OptIn,
    StateUnreadable,
    forget,
)
from blendstream.localclient.exchange import DeviceRequest, Outcome, Response
from blendstream.localclient.local_client import _Core, _Parts
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.localclient.support import UnsyncedFiles
from tests.vectors.device.budget_entries import DAY
from tests.vectors.device.documents import head_list

HOUR = 3_600
START, END, UNTIL = 100 * DAY, 101 * DAY, 102 * DAY
LIMITS: dict[str, Any] = {
    "epsilon_per_report": 4.0,
    "delta_per_report": 1e-5,
    "epsilon_per_period": 8.0,
    "delta_per_period": 1e-4,
    "period_s": 30 * DAY,
}
ACCEPTED = b'{"verdicts":[{"status":"accepted"}]}'

Answer = Response | None


class FractionDice:
    """Every throw is the same fraction of its bound, rounded down."""

    def __init__(self, numerator: int, denominator: int) -> None:
        self.fraction = (numerator, denominator)

    def below(self, bound: int) -> int:
        return bound * self.fraction[0] // self.fraction[1]


@dataclass
class Talker:
    """Runs a device and writes down what was said."""

    folder: Path
    name: str
    dice: tuple[int, int] = (1, 2)
    limits: dict[str, Any] = field(default_factory=dict)
    opt_in: dict[str, str] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    now_s: int = 0

    def __post_init__(self) -> None:
        limits = {**LIMITS, **self.limits}
        self._at_first = {"limits": limits, "opt_in": self.opt_in, "dice": list(self.dice)}
        self.start()

    def start(self) -> None:
        parts = _Parts(lambda: self.now_s, FractionDice(*self.dice), UnsyncedFiles)
        trusting = OptIn(**self.opt_in) if self.opt_in else None
        own = Limits(**{**LIMITS, **self.limits})
        self._client = _Core(
            "https://gateway.example/", self.folder, own, opt_in=trusting, _parts=parts
        )

    def restart(
        self,
        opt_in: dict[str, str] | None = None,
        *,
        state: str = "kept",
        dice: tuple[int, int] | None = None,
        limits: dict[str, Any] | None = None,
    ) -> None:
        """The application ends and starts again, perhaps with another mind, or without its state.

        Other dice tell what was kept from what is drawn again.
        """
        step: dict[str, Any] = {"do": "restart", "opt_in": opt_in}
        file = self.folder / "state"
        if state == "lost":
            file.unlink()
        elif state == "damaged":
            file.write_bytes(file.read_bytes()[:-9])
        if state != "kept":
            step["state"] = state
        if dice:
            self.dice = step["dice"] = dice
        if limits:
            self.limits = limits
            step["limits"] = {**LIMITS, **limits}
        self.opt_in = opt_in
        with suppress(StateUnreadable):
            self.start()
        self.steps.append(step)

    def record(self, now_s: int, query: str, url: str) -> None:
        self.now_s = now_s
        what = self._client.record(query, url).code
        step = {"do": "record", "now_s": now_s, "query": query, "url": url, "outcome": what}
        self.steps.append(step)

    def forget(self, now_s: int) -> None:
        self.now_s = now_s
        forget(self.folder)
        self.steps.append({"do": "forget", "now_s": now_s})

    def status(self, now_s: int) -> dict[str, Any]:
        """What is on the device and what was spent."""
        self.now_s = now_s
        try:
            status = self._client.status()
            names = ("records_held", "epsilon_spent", "delta_spent", "windows_answered")
            outcome = {"code": "status", **{name: getattr(status, name) for name in names}}
        except StateUnreadable:
            outcome = {"code": "state unreadable"}
        self.steps.append({"do": "status", "now_s": now_s, "outcome": outcome})
        return outcome

    def sent(self, now_s: int) -> dict[str, Any]:
        """The document that the device shows its owner."""
        self.now_s = now_s
        try:
            outcome = json.loads(self._client.sent_log().to_json())
        except StateUnreadable:
            outcome = {"code": "state unreadable"}
        self.steps.append({"do": "sent", "now_s": now_s, "outcome": outcome})
        return outcome  # type: ignore[no-any-return]

    def report(self, now_s: int, *answers: Answer, at_once: bool = False) -> str:
        """`maybe_report`, answered so; every answer must be asked for. Returns what it came to."""
        self.now_s = now_s
        left, said = list(answers), []
        try:
            step = self._client._exchange(at_once=at_once)
            if not isinstance(step, Outcome):
                exchange = step
                step = self._client._advance(exchange, None)  # type: ignore[assignment]
                while isinstance(step, DeviceRequest):
                    answer = left.pop(0)
                    said.append({"request": _request(step), "response": _response(answer)})
                    step = self._client._advance(exchange, answer)  # type: ignore[assignment]
            assert isinstance(step, Outcome)
            outcome = {
                "code": str(step.code),
                "epoch": step.epoch,
                "next_call_at_s": step.next_call_at_s,
            }
        except StateUnreadable:
            outcome = {"code": "state unreadable"}
        except ClientRefused as refusal:
            outcome = {
                "code": _words(type(refusal).__name__),
                "next_call_at_s": self._paused_until_s(),
            }
            if isinstance(refusal, LimitReached):
                outcome["free_at_s"] = refusal.free_at_s
        assert not left, (self.name, "not asked for", left)
        self.steps.append(
            {
                "do": "report now" if at_once else "report",
                "now_s": now_s,
                "exchanges": said,
                "outcome": outcome,
            }
        )
        return str(outcome["code"])

    def _paused_until_s(self) -> int:
        assert self._client._pause is not None
        return self._client._pause.until_s

    def vector(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self._at_first,
            "steps": self.steps,
        }


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _request(request: DeviceRequest) -> dict[str, Any]:
    return {
        "method": request.method,
        "path": request.path,
        "headers": dict(request.headers),
        "body": None if request.body is None else request.body.decode(),
    }


def _response(answer: Answer) -> dict[str, Any] | None:
    if answer is None:
        return None
    body = {"too_large": True} if answer.too_large else {"body": answer.body.decode()}
    return {"status": answer.status, "headers": dict(answer.headers), **body}


def answer(status: int = 200, body: bytes | str = b"", **headers: str) -> Response:
    """What the server says; header names with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, body.encode() if isinstance(body, str) else body)


def shown(document: HeadListDocument, **headers: str) -> Response:
    return answer(200, document.to_bytes(), **headers)


def date(seconds: int) -> dict[str, str]:
    return {"date": formatdate(seconds, usegmt=True)}


def problem(status: int, **headers: str) -> Response:
    return answer(status, b"{}", content_type="application/problem+json", **headers)


def day(number: int, **changes: Any) -> HeadListDocument:
    """The list of the window of one day, to be reported on until the end of the next."""
    times = {
        "window_start_s": number * DAY,
        "window_end_s": (number + 1) * DAY,
        "reports_until_s": (number + 2) * DAY,
    }
    return head_list(**{"epoch": number - 93, **times, **changes})


def collecting(number: int, records: int = 2, **changes: Any) -> Response:
    epoch = {
        "epoch": number - 93,
        "window_start_s": number * DAY,
        "window_end_s": (number + 1) * DAY,
        "optin_until_s": (number + 1) * DAY + HOUR,
        "records_per_user": records,
    }
    return answer(200, json.dumps({"collecting": {**epoch, **changes}, "other": []}))


USER = {"user_id": "account-17", "token": "secret"}


def vectors() -> dict[str, object]:
    """The contents of conversations.json."""
    from tests.vectors.device.scenes import SCENES

    return {
        "about": "Conversations; README.md describes their steps and outcomes. Every throw of "
        "`dice` [n, d] below b is b*n/d, rounded down. A response of null: no answer; too_large: "
        "longer than was asked for. Refusals are outcomes.",
        "conversations": [run(scene) for scene in SCENES],
    }


def run(scene: Callable[[Callable[..., Talker]], Talker]) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        name = scene.__name__.replace("_", " ")
        talker = scene(lambda **how: Talker(Path(folder) / "device", name, **how))
        return talker.vector()
