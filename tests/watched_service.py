"""The whole service as one would run it, with everything it was sent remembered.

Promises: every query, URL, user id and contributor that is sent has a text of its own, so that a
search for it in what the service wrote can only find what leaked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from blendstream.agents.local.demo.service import DemoService, EpochTimes
from blendstream.blender.registry import randomizer_for
from blendstream.blender.values.record import Record
from blendstream.streams.wire.head_list_document import HeadListDocument
from tests.service.waiting import wait_for

T = TypeVar("T")

WINDOW_S = 12
USERS = 400
DEVICES = 300
REPEATED = 20
BROKEN_FRAMES = 3
ATTEMPTS = 3
EPOCH_PATIENCE_S = 90


@dataclass
class Sent:
    """Texts that must stay between the sender and the counts, and the answers to refusals."""

    personal: set[str] = field(default_factory=set)
    answers: list[str] = field(default_factory=list)

    def text(self, kind: str) -> str:
        """A new text that nothing else contains."""
        made = f"{kind}{secrets.token_hex(6)}"
        self.personal.add(made)
        return made


class Watched:
    """A running service and one published epoch."""

    def __init__(self, service: DemoService) -> None:
        self.service = service
        self.sent = Sent()
        self.accepted = {"optin_records": 0, "client_reports": 0}
        self.refused_sent = False
        self.http = httpx.Client(base_url=service.gateway, timeout=30)
        self.records = [
            Record(f"{self.sent.text('query')} words", f"https://{self.sent.text('site')}.example/")
            for _ in range(4)
        ]

    def run_epoch(self) -> dict[str, Any]:
        """People search, devices report, and the epoch is published.

        On a very busy machine an epoch's times may pass before anybody got there; it is then
        published empty or incomplete, as it should be, and the next one is tried.
        """
        for _ in range(ATTEMPTS):
            epoch = self._until(self._collecting, "an epoch that collects")
            self._opt_in(epoch)
            if not self.refused_sent:
                self._send_what_is_refused(epoch)
            head_list = self._until(lambda e=epoch: self._head_list(e), "the head list")
            if isinstance(head_list, HeadListDocument) and self._report(head_list):
                return self._until(lambda e=epoch: self.published(e), "the publication")
        raise TimeoutError(f"no epoch in {ATTEMPTS} could be reported on in time")

    def _collecting(self) -> int | None:
        now = self.http.get("/v1/epochs").json()["collecting"]
        # The records must arrive within the window.
        if now is None or now["window_end_s"] - time.time() < WINDOW_S / 2:
            return None
        return int(now["epoch"])

    def _opt_in(self, epoch: int) -> None:
        records = [
            {
                "epoch": epoch,
                "user_id": self.sent.text("user"),
                "slot": 0,
                "query": self.records[i % 4].query,
                "url": self.records[i % 4].url,
            }
            for i in range(USERS)
        ]
        self._post_records(records)
        self._post_records(records[:REPEATED])  # a retry, which counts once

    def _tally(self, stem: str, answer: httpx.Response) -> int:
        self.sent.answers.append(answer.text)
        verdicts = answer.json().get("verdicts", ())
        accepted = sum(verdict["status"] == "accepted" for verdict in verdicts)
        self.accepted[stem] += accepted
        return accepted

    def _post_records(self, records: Any, **headers: str) -> None:
        sender = {"authorization": f"Bearer {self.service.token}", **headers}
        answer = self.http.post("/v1/optin-records", json=records, headers=sender)
        self._tally("optin_records", answer)

    def _send_what_is_refused(self, epoch: int) -> None:
        """Every way of being refused that comes to mind, each with texts of its own."""
        self.refused_sent = True
        text = self.sent.text
        good = {"epoch": epoch, "slot": 0}
        record = {
            "user_id": text("user"),
            "query": text("query"),
            "url": f"https://{text('site')}/",
        }
        for wrong in (
            {**good, **record, "slot": 99},
            {**good, **record, "epoch": 10**6},
            {**good, **record, "query": text("query") * 2000},
            {**good, **record, "url": text("notaurl")},
            {**good, **record, text("field"): text("value")},
            {**good, **record, "user_id": [text("user")]},
            {**good, **record, "query": f"{text('query')}\u0000\ud800"[:-1]},
            text("query"),
            [[text("query")]],
        ):
            self._post_records(wrong)
        self._post_records(record, authorization=f"Bearer {text('token')}")
        for body in (text("body"), f'{{"query":"{text("query")}', f'{{"{text("k")}":1}}'):
            for path in ("/v1/reports", "/v1/optin-records"):
                answer = self.http.post(
                    path,
                    content=body,
                    headers={
                        "content-type": "application/json",
                        "authorization": f"Bearer {self.service.token}",
                    },
                )
                self.sent.answers.append(answer.text)
        for path in (
            f"/{text('path')}",
            f"/v1/estimates/{text('e')}",
            f"/v1/head-lists/{text('h')}",
        ):
            self.sent.answers.append(self.http.get(path, params={"q": text("query")}).text)
        self._write_broken_frames()

    def _write_broken_frames(self) -> None:
        """What no gateway of ours writes: it becomes dead letters."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for stem in ("optin-records", "client-reports"):
            for _ in range(BROKEN_FRAMES):
                producer.produce(
                    f"{self.service.prefix}.{stem}.v1",
                    self.sent.text("frame").encode(),
                    partition=0,
                )
        assert producer.flush(30) == 0

    def _head_list(self, epoch: int) -> HeadListDocument | str | None:
        """The epoch's head list, "none" when it ended without one, `None` while it may come."""
        (state,) = [s for s in self.http.get("/v1/epochs").json()["epochs"] if s["epoch"] == epoch]
        if state.get("head_list") is None:
            return "none" if state["state"] in ("published", "abandoned") else None
        answer = self.http.get(f"/v1/head-lists/{state['head_list']}")
        return HeadListDocument.from_bytes(answer.content)

    def _report(self, document: HeadListDocument) -> bool:
        """Whether all reports came in time."""
        head_list, rng = document.head_list, np.random.default_rng(7)
        randomizer = randomizer_for(head_list)
        cells = np.array([head_list.cells.number(self.records[i % 4]) for i in range(DEVICES)])
        answers = [
            randomizer.answer_batch(cells, rng).tolist()
            for _ in range(head_list.randomizer.answers)
        ]
        reports = []
        for each in zip(*answers, strict=True):
            contributor = secrets.token_hex(16)
            self.sent.personal.add(contributor)
            reports.append(
                {"head_list": document.id, "contributor": contributor, "answers": list(each)}
            )
        answer = self.http.post("/v1/reports", json=reports)
        accepted = self._tally("client_reports", answer)
        unknown = {**reports[0], "head_list": "ab" * 32, "contributor": self.sent.text("device")}
        self.sent.answers.append(self.http.post("/v1/reports", json=unknown).text)
        return accepted == DEVICES

    def published(self, epoch: int) -> dict[str, Any] | None:
        """An epoch's publication, once the gateway has it."""
        answer = self.http.get(f"/v1/estimates/{epoch}")
        return dict(answer.json()) if answer.status_code == 200 else None

    # --- what it wrote ----------------------------------------------------------------------------

    def scrape(self) -> dict[str, str]:
        """The metrics of each process."""
        return {
            name: httpx.get(address, timeout=10).raise_for_status().text
            for name, address in self.service.metrics.items()
        }

    def logs(self) -> dict[str, str]:
        """Everything that the processes, Kafka and Redis printed."""
        written = {name: p.log.read_text() for name, p in self.service.processes.items()}
        for part in (self.service.stack.kafka, self.service.stack.redis):
            written[part.name] = part.server.log.read_text(errors="replace")
        return written

    def dead_letters(self) -> list[str]:
        """Every dead letter."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": secrets.token_hex(8),
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(f"{self.service.prefix}.dead-letters", 0, 0)])
        letters, deadline = [], time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is not None and message.error() is not None:
                    break  # the end
                if message is not None:
                    letters.append(message.value().decode())
        finally:
            consumer.close()
        return letters

    @property
    def _bootstrap(self) -> str:
        return self.service.stack.kafka.bootstrap

    def _until(self, ask: Callable[[], T | None], what: str) -> T:

        def words() -> str:
            said = [p.last_words(20) for p in self.service.processes.values()]
            return "\n".join([self.http.get("/v1/epochs").text, *said])

        def asked() -> tuple[T] | None:
            self.service.check()
            found = ask()
            return None if found is None else (found,)

        return wait_for(asked, what, EPOCH_PATIENCE_S, about=words)[0]


@contextmanager
def watched_service() -> Iterator[Watched]:
    """Start it on servers of its own, end it."""
    with pytest.MonkeyPatch.context() as patch:
        for given in ("KAFKA_URL", "REDIS_URL"):
            patch.delenv(given, raising=False)
        service = DemoService.start(EpochTimes(WINDOW_S), "sharp", lambda _line: None)
    try:
        yield Watched(service)
    finally:
        service.close()
