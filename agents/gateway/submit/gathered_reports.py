"""Collect single reports from many requests, and validate them together.

    report ──▶ others on its head list ──(linger over)──▶ validate and pack in columns ──▶ verdict

A report waits for its frame anyway (`gateway.linger_s`), so validating it with the others at the
end of that time adds no latency, and needs less processor time than validating each on arrival.

Promises: one function validates reports, single or in a batch. Device ids are hashed at the end of
the linger, and freed before the gateway waits for Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from blendstream.agents.gateway.http.request_types import Report
from blendstream.agents.gateway.state.frame_writer import Delivered, FrameWriter
from blendstream.agents.gateway.state.submission_targets import ReportTarget
from blendstream.agents.gateway.state.verdicts import ACCEPTED, Verdict, VerdictRule
from blendstream.agents.gateway.submit.report_submissions import queue_on_one_head_list

__all__ = ["GatheredReports"]

#: Maximum number of reports to validate in one step, which takes about 2 ms.
_MAX_GATHERED: Final = 1000


class GatheredReports:
    """The reports that wait for the next frames of one writer."""

    def __init__(
        self,
        writer: FrameWriter,
        wall_clock: Callable[[], float],
        on_refused: Callable[[int], None],
    ) -> None:
        """Take the writer; `on_refused(n)` is called when n reports were not queued."""
        self._writer = writer
        self._wall_clock = wall_clock
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[ReportTarget, tuple[list[Report], list[asyncio.Future[Verdict]]]] = {}
        writer.before_sending = self._queue_all

    def add(self, report: Report, target: ReportTarget) -> asyncio.Future[Verdict]:
        """Add a report on the head list of `target`; return a future of its verdict."""
        gathered = self._gathered.get(target)
        if gathered is None:
            gathered = self._gathered[target] = [], []
            self._writer.linger()
        reports, verdicts = gathered
        verdict: asyncio.Future[Verdict] = self._loop.create_future()
        reports.append(report)
        verdicts.append(verdict)
        if len(reports) == _MAX_GATHERED:
            self._queue_all()
        return verdict

    def _queue_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for target, (reports, verdicts) in gathered.items():
            self._queue(target, reports, verdicts)

    def _queue(
        self, target: ReportTarget, reports: list[Report], verdicts: list[asyncio.Future[Verdict]]
    ) -> None:
        try:
            queued = queue_on_one_head_list(
                reports, target, self._writer, self._wall_clock() * 1000
            )
        except Exception as error:
            for verdict in verdicts:
                if not verdict.done():
                    verdict.set_exception(error)
            return
        for delivered, judge, rows in queued.waiting:
            delivered.add_done_callback(partial(_settle, judge, [verdicts[row] for row in rows]))
        refused = len(reports) - queued.verdicts.count(ACCEPTED)
        if refused:
            self._on_refused(refused)
            for verdict, found in zip(verdicts, queued.verdicts, strict=True):
                if found is not ACCEPTED and not verdict.done():
                    verdict.set_result(found)


def _settle(
    judge: VerdictRule, verdicts: list[asyncio.Future[Verdict]], delivered: Delivered
) -> None:
    found = judge.verdict(delivered.result())
    for verdict in verdicts:
        if not verdict.done():
            verdict.set_result(found)
