"""`localclient` as a program that tests/vectors/device/play.py runs: JSON lines in and out."""

from __future__ import annotations

import json
import struct
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from blendstream.blender.device_registry import device_randomizer_for
from blendstream.blender.paper.local import local_alg
from blendstream.blender.randomizers.subset_or_none import best_named_size
from blendstream.blender.randomizers.subset_selection import best_subset_size
from blendstream.blender.values.cells import HeadList, RandomizerSpec
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.interfaces import DeviceRandomizer
from blendstream.blender.values.rational import exp_rounded_down
from blendstream.blender.values.record import Record, normalise
from blendstream.localclient import (
    ClientRefused,
    LimitReached,
    Limits,
    MalformedDocument,
    OptIn,
    PublishedResult,
    RankedQuery,
    RankedUrl,
    StateUnreadable,
    forget,
)
from blendstream.localclient.budget import check_entry, total_spent
from blendstream.localclient.exchange import DeviceRequest, Outcome, Response
from blendstream.localclient.local_client import _Core, _Parts
from blendstream.localclient.state import BudgetEntry, Mode, State
from blendstream.localclient.store import draw_for_answers
from blendstream.streams.wire.head_list_document import HeadListDocument
from blendstream.streams.wire.submissions import write_report
from tests.localclient.support import UnsyncedFiles


def ask(line: dict[str, Any]) -> Any:
    """Write a line, and read the answer to it."""
    print(json.dumps(line), flush=True)
    return json.loads(sys.stdin.readline())


class Draws:
    """Random numbers are asked for."""

    def below(self, bound: int) -> int:
        return int(ask({"below": str(bound)})["drawn"])


def words(name: str) -> str:
    """HeadListRefused → head list refused."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


# -------------------------------------------------------------------------------- sections 1 to 5


def normalised(query: str, url: str) -> list[str] | None:
    try:
        return list(normalise(query, url))
    except ParameterError:
        return None


def read_head_list(step: dict[str, Any]) -> dict[str, Any] | None:
    try:
        document = HeadListDocument.from_bytes(bytes.fromhex(step["hex"]))
    except MalformedDocument:
        return None
    cells = document.head_list.cells
    return {"id": document.id, "cells": [list(cells.cell(n)) for n in range(len(cells))]}


def exponent(step: dict[str, Any]) -> str:
    (epsilon,) = struct.unpack(">d", bytes.fromhex(step["bits"]))
    return str(int(exp_rounded_down(Fraction(epsilon) / step["answers"]) * 2**32))


def width(step: dict[str, Any]) -> int:
    e, records, cap = exp_rounded_down(Fraction(step["epsilon"])), step["records"], step["cap"]
    if step["name"] == "subset-selection":
        return best_subset_size(records + 1, e, cap)
    return best_named_size(records, e, cap, step["listed_64ths"])


def randomizer(step: dict[str, Any]) -> DeviceRandomizer:
    records = tuple(Record(*pair) for pair in step["records"])
    spec = RandomizerSpec(**step["randomizer"])
    wildcards = spec.name == "two-stage"
    return device_randomizer_for(
        HeadList(
            records=records,
            listed=len(records),
            query_wildcards=wildcards,
            normalisation=2,
            randomizer=spec,
        )
    )


def written_report(step: dict[str, Any]) -> str:
    built, dice = randomizer(step), Draws()
    held = [Record(*pair) for pair in step["held"]]
    drawn = draw_for_answers(held, built.spec.answers, dice)
    contributor = f"{dice.below(1 << 128):032x}"
    answers = local_alg(drawn, built, dice)
    return write_report(step["head_list"], contributor, answers, cells=len(built.cells)).decode()


def judged(step: dict[str, Any]) -> dict[str, Any]:
    limits = Limits(**step["limits"])
    *earlier, new = (
        BudgetEntry(**{**entry, "mode": Mode(entry["mode"])})
        for entry in (*step["budget_entries"], step["entry"])
    )
    state = State(budget_entries=tuple(earlier))
    already = [float(part) for part in total_spent(state, limits, new.at_s)]
    verdict, free_at_s = "allowed", None
    try:
        check_entry(state, new, limits)
    except ClientRefused as refusal:
        verdict = words(type(refusal).__name__)
        free_at_s = refusal.free_at_s if isinstance(refusal, LimitReached) else None
    return {"result": verdict, "free_at_s": free_at_s, "spent": already}


def search(step: dict[str, Any]) -> dict[str, Any] | None:
    try:
        result = PublishedResult.load(step["text"].encode(), filtered=step["filtered"])
    except MalformedDocument:
        return None

    def row(found: RankedUrl | RankedQuery) -> list[Any]:
        numbers = [found.probability, found.low, found.high, found.disputed, found.estimate]
        if isinstance(found, RankedUrl):
            return [found.url, *numbers]
        return [found.query, *numbers, found.at_least]

    return {
        "read": result.read,
        "epoch": result.epoch,
        "empty": result.empty,
        "search": [[row(url) for url in result.search(query)] for query in step["search"]],
        "complete": [[r.query for r in result.complete(prefix)] for prefix in step["complete"]],
        "trends": [row(query) for query in result.trends(step["trends"])],
    }


# --------------------------------------------------------------------------------- section 6


class Life:
    """The device between two restarts."""

    def __init__(self, step: dict[str, Any]) -> None:
        self.folder = Path(step["folder"]) / "device"
        self.limits = Limits(**step["limits"])
        self.opt_in = OptIn(**step["opt_in"]) if step["opt_in"] else None
        self.now_s = 0
        if step["state"] == "lost":
            (self.folder / "state").unlink()
        elif step["state"] == "damaged":
            state = self.folder / "state"
            state.write_bytes(state.read_bytes()[:-9])
        self.core: _Core | None = None
        with suppress(StateUnreadable):  # each step says so
            self.core = self._made()

    def _made(self) -> _Core:
        parts = _Parts(lambda: self.now_s + 0.5, Draws(), UnsyncedFiles)
        return _Core(
            "https://gateway.example/", self.folder, self.limits, opt_in=self.opt_in, _parts=parts
        )

    def do(self, step: dict[str, Any]) -> Any:
        self.now_s = step["now_s"]
        if step["do"] == "forget":
            return forget(self.folder)
        try:
            core = self.core or self._made()
            if step["do"] == "record":
                return str(core.record(step["query"], step["url"]).code)
            if step["do"] == "sent":
                return core.sent_log().to_document()
            if step["do"] == "status":
                status = core.status()
                names = ("records_held", "epsilon_spent", "delta_spent", "windows_answered")
                return {"code": "status", **{name: getattr(status, name) for name in names}}
            return self._report(core, at_once=step["do"] == "report now")
        except ClientRefused as refusal:
            return {
                "code": words(type(refusal).__name__),
                "next_call_at_s": self.core and self.core._pause and self.core._pause.until_s,
                "free_at_s": getattr(refusal, "free_at_s", None),
            }

    def _report(self, core: _Core, *, at_once: bool) -> dict[str, Any]:
        exchange = core._exchange(at_once=at_once)
        if not isinstance(exchange, Outcome):
            end = core._advance(exchange, None)
            while isinstance(end, DeviceRequest):
                end = core._advance(exchange, _exchanged(end))
        else:
            end = exchange
        return {"code": str(end.code), "epoch": end.epoch, "next_call_at_s": end.next_call_at_s}


def _exchanged(request: DeviceRequest) -> Response | None:
    asked = {
        "method": request.method,
        "path": request.path,
        "headers": dict(request.headers),
        "body": None if request.body is None else request.body.decode(),
    }
    answer = ask({"request": asked})["response"]
    if answer is None:
        return None
    body = answer["body"].encode()
    too_large = len(body) > request.max_bytes
    return Response(answer["status"], answer["headers"], b"" if too_large else body, too_large)


def main() -> None:
    life: Life | None = None
    for line in iter(sys.stdin.readline, ""):
        step = json.loads(line)
        result: Any = None
        match step["do"]:
            case "normalise":
                result = [normalised(query, url) for query, url in step["texts"]]
            case "read head list":
                result = read_head_list(step)
            case "exponent":
                result = exponent(step)
            case "width":
                result = width(step)
            case "answer":
                result = randomizer(step).answer(step["held"], Draws())
            case "write report":
                result = written_report(step)
            case "check budget entry":
                result = judged(step)
            case "search":
                result = search(step)
            case "start":
                life = Life(step)
            case _:
                assert life
                result = life.do(step)
        print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
