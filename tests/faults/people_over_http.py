"""People who send records and reports to gateways over HTTP, and remember what became of each.

An entry that is not settled is sent again, the same bytes, to any gateway, as devices do: until it
is accepted, refused, or its time is over. Three fates:

    accepted   some gateway said so: must be published
    refused    the first answer said so: must not be published
    in doubt   never accepted, but an attempt may have reached Kafka: may count, once
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from blendstream.agents.worker.entry_checks import _subgroups as subgroups_of_contributors
from blendstream.blender.registry import randomizer_for
from blendstream.streams.epoch_keys import EpochKeys, PeriodSubgroups, account
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases.epoch_state import EpochState
from tests.faults.modelled_service import ModelledService, now_ms
from tests.service.builder import APPLICATION
from tests.service.settings import MASTER

#: New ones in every round, of records and of reports.
PEOPLE = 40
EVERY_S = 0.5
#: Longer than a gateway takes to say that Kafka did not acknowledge.
TIMEOUT_S = 4.0
#: How many unsettled ones are sent again in one round.
AGAIN = 400
#: Nothing new is sent so shortly before the end: it would be late.
MARGIN_MS = 1_500


@dataclass(eq=False, slots=True)
class Submission:
    """One person's entry."""

    path: str
    epoch: int
    share: OptinSubgroup | None
    body: dict[str, Any]
    ends_ms: int
    #: An earlier attempt may have reached Kafka.
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One request, by the monotonic clock. `whole`: every entry of it was accepted."""

    begun_s: float
    ended_s: float
    whole: bool


@dataclass
class PeopleOverHttp:
    """Sends rounds until stopped. `gateways`: where, asked before every request."""

    model: ModelledService
    token: str
    gateways: Callable[[], list[str]]
    rng: np.random.Generator
    #: Epochs to send into, as the test knows them.
    epochs: Callable[[], Iterable[EpochState]]
    #: Head lists by epoch, as the test has read them: answers and the id.
    head_lists: dict[int, tuple[Any, str]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    waiting: list[Submission] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    #: Everyone's fate is known.
    done: bool = False
    _turn: int = 0

    async def feed(self, stop: asyncio.Event) -> None:
        """New people in every round, and those whose entries are not settled, until stopped."""
        await self._feed(stop)
        for one in self.waiting:
            self._settle_unaccepted(one)
        self.waiting.clear()
        self.done = True

    async def _feed(self, stop: asyncio.Event) -> None:
        limits = httpx.Limits(max_keepalive_connections=4)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
            under_way: set[asyncio.Task[None]] = set()
            while not stop.is_set():
                for path in ("/v1/optin-records", "/v1/reports"):
                    batch = self._batch(path)
                    if batch:
                        task = asyncio.create_task(self._send(client, path, batch))
                        under_way.add(task)
                        task.add_done_callback(under_way.discard)
                await asyncio.sleep(EVERY_S)
            if under_way:
                await asyncio.gather(*under_way)
            # What is still unsettled gets a few more chances while it is in time.
            for _ in range(10):
                self._give_up()
                for path in ("/v1/optin-records", "/v1/reports"):
                    batch = self._again(path)
                    if batch:
                        await self._send(client, path, batch)
                if not self.waiting:
                    return
                await asyncio.sleep(EVERY_S)

    def _batch(self, path: str) -> list[Submission]:
        self._give_up()
        batch = self._again(path)
        for state in self.epochs():
            batch += self._new_records(state) if "optin" in path else self._new_reports(state)
        return batch

    def _again(self, path: str) -> list[Submission]:
        mine = [one for one in self.waiting if one.path == path][:AGAIN]
        taken = set(map(id, mine))
        self.waiting = [one for one in self.waiting if id(one) not in taken]
        return mine

    def _give_up(self) -> None:
        """An entry whose time is over is not sent again."""
        over = [one for one in self.waiting if now_ms() >= one.ends_ms]
        self.waiting = [one for one in self.waiting if now_ms() < one.ends_ms]
        for one in over:
            self._settle_unaccepted(one)

    def _settle_unaccepted(self, one: Submission) -> None:
        if one.doubt:
            self.model.doubtful[one.epoch, one.share] += 1
            self.verdicts["in doubt"] += 1
        else:
            self.verdicts["not sent"] += 1

    # --- new people -----------------------------------------------------------------------------

    def _new_records(self, state: EpochState) -> list[Submission]:
        begin, end = state.parameters.window_start_ms, state.parameters.window_end_ms
        if not begin <= now_ms() < end - MARGIN_MS:
            return []
        epoch, keys = state.epoch, EpochKeys.derive(MASTER, state.epoch)
        users = [self.rng.bytes(12).hex() for _ in range(PEOPLE)]
        if (period := state.parameters.period) is not None:
            of_period = PeriodSubgroups(MASTER, period)
            shares = np.array([of_period.of(user.encode()) for user in users])
        else:
            contributors = [keys.contributor_of(account(APPLICATION, u.encode())) for u in users]
            columns = np.array([np.frombuffer(c, "<u8") for c in contributors])
            shares = subgroups_of_contributors(state, keys, columns)
        numbers = np.minimum(self.rng.zipf(1.6, PEOPLE), 40).tolist()
        return [
            Submission(
                "/v1/optin-records",
                epoch,
                list(OptinSubgroup)[share],
                {
                    "user_id": user,
                    "slot": 0,
                    "epoch": epoch,
                    "query": f"query {epoch} {number:03}",
                    "url": f"https://site-{number:03}.example/{epoch}",
                },
                end,
            )
            for user, share, number in zip(users, shares, numbers, strict=True)
        ]

    def _new_reports(self, state: EpochState) -> list[Submission]:
        if state.epoch not in self.head_lists or state.head_list is None:
            return []
        end = state.head_list.reports_until_ms
        if now_ms() >= end - MARGIN_MS:
            return []
        head_list, head_list_id = self.head_lists[state.epoch]
        truth = self.rng.integers(0, len(head_list.cells), PEOPLE)
        answers = np.asarray(randomizer_for(head_list).answer_batch(truth, self.rng))
        shape = (PEOPLE, state.head_list.answers, state.head_list.cells_per_answer)
        return [
            Submission(
                "/v1/reports",
                state.epoch,
                None,
                {
                    "head_list": head_list_id,
                    "contributor": self.rng.bytes(16).hex(),
                    "answers": cells,
                },
                end,
            )
            for cells in answers.reshape(shape).tolist()
        ]

    # --- sending --------------------------------------------------------------------------------

    async def _send(self, client: httpx.AsyncClient, path: str, batch: list[Submission]) -> None:
        begun = time.monotonic()
        verdicts = await self._ask(client, path, batch)
        self.rounds.append(
            Round(begun, time.monotonic(), all(v["status"] == "accepted" for v in verdicts))
        )
        for one, verdict in zip(batch, verdicts, strict=True):
            self._judge(one, verdict)

    async def _ask(
        self, client: httpx.AsyncClient, path: str, batch: list[Submission]
    ) -> list[dict[str, str]]:
        """One verdict for each, also where no gateway gave one."""
        gateways = self.gateways()
        if not gateways:
            return [{"status": "retry", "reason": "nobody_there"}] * len(batch)
        self._turn += 1
        url = gateways[self._turn % len(gateways)] + path
        headers = {"authorization": f"Bearer {self.token}"}
        try:
            answer = await client.post(url, json=[one.body for one in batch], headers=headers)
        except httpx.ConnectError:
            return [{"status": "retry", "reason": "nobody_there"}] * len(batch)
        except httpx.TransportError:
            return [{"status": "retry", "reason": "no_answer"}] * len(batch)
        said = answer.json()
        if "verdicts" not in said:
            assert answer.status_code in (429, 503), answer.text
            return [{"status": "retry", "reason": said.get("reason", "busy")}] * len(batch)
        verdicts: list[dict[str, str]] = said["verdicts"]
        return verdicts

    def _judge(self, one: Submission, verdict: dict[str, str]) -> None:
        reason = verdict.get("reason")
        if verdict["status"] == "accepted":
            self.model.accepted[one.epoch, one.share] += 1
            self.verdicts["accepted"] += 1
        elif verdict["status"] == "retry":
            one.doubt = one.doubt or reason in ("not_acknowledged", "no_answer")
            self.verdicts[f"again: {reason}"] += 1
            self.waiting.append(one)
        elif one.doubt:
            self._settle_unaccepted(one)
        else:
            self.verdicts[f"refused: {reason}"] += 1
