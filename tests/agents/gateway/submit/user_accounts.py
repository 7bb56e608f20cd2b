"""Users of several applications, from the request to what a worker counts."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from blendstream.agents.tokens import ApplicationTokens, add_token
from blendstream.agents.worker.entry_checks import judge_optin_records
from blendstream.streams.epoch_keys import EpochKeys
from blendstream.streams.tables.batch_verdict import Delivery
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import decode
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.state.folded_log import Log
from tests.service.settings import MASTER
from tests.service.written_log import opened, plan

WINDOW_MS = 3_600_000
START_MS = 4_000_000_000_000


class Service:
    """A gateway with several applications, and the workers' judge behind it."""

    def __init__(self, folder: Path, **applications: str | None) -> None:
        """Applications by name, each with the space of its user ids, or none for its own."""
        self.log = Log()
        self.path = folder / f"tokens-{secrets.token_hex(4)}"
        self.bearers = {
            name: f"Bearer {add_token(self.path, name, user_ids)}"
            for name, user_ids in applications.items()
        }
        self.gateway: TestGateway = make_gateway(
            tokens=ApplicationTokens(self.path, clock=lambda: 0.0)
        )
        self.at(START_MS + 1000)

    def open(self, epoch: int, start_ms: int, *, old: bool = False) -> None:
        """Open an epoch, as code that knew of no spaces did if `old`."""
        entry = opened(epoch, start_ms, plan(window_ms=WINDOW_MS))
        if old:
            del entry["user_id_spaces"]
        self.log.commit(entry)
        self.gateway.publications.optin_targets = self.log.publications.optin_targets

    def at(self, now_ms: int) -> None:
        self.gateway.moment_s[0] = now_ms / 1000
        self.gateway.producer.append_ms = now_ms

    async def send(self, application: str, *ids: str, epoch: int = 8) -> None:
        """Send a record of each user; all must be accepted."""
        body = [record(user_id, epoch=epoch) for user_id in ids]
        header = {"authorization": self.bearers[application]}
        reply = await self.gateway.ask("POST", "/v1/optin-records", body, header)
        assert [v["status"] for v in reply.json()["verdicts"]] == ["accepted"] * len(ids)

    def counted(self, epoch: int = 8) -> tuple[int, int]:
        """How many records of the epoch the worker counts, and how many it refuses."""
        keys = {epoch: EpochKeys.derive(MASTER, epoch)}
        seen = {epoch: FingerprintTable()}
        counted = refused = 0
        for offset, (_, partition, value) in enumerate(self.gateway.producer.sent):
            frame = decode(value)
            if frame.epoch != epoch:  # type: ignore[union-attr]
                continue
            delivery = Delivery(offset, self.gateway.producer.append_ms or 0, frame, len(value))
            verdict = judge_optin_records(partition, [delivery], self.log.log_state, keys, seen)
            counted += verdict.summary()["counted"]
            refused += verdict.summary()["refused"]
        return counted, refused

    def contributors(self, epoch: int) -> list[bytes]:
        frames = self.gateway.producer.frames()
        return [e.contributor for frame in frames if frame.epoch == epoch for e in frame.entries()]


def record(user_id: str, **changes: Any) -> dict[str, Any]:
    return {"user_id": user_id, "slot": 0, "query": "q", "url": "https://u.example/"} | changes
