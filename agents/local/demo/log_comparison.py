"""Compare the published epochs of a replayed search log with the truth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from blendstream.agents.local.demo.compare import published
from blendstream.agents.local.demo.log_replay import LogReplay
from blendstream.agents.local.demo.participation import take_part

__all__ = ["Comparison", "replay"]


async def replay(
    http: httpx.AsyncClient, users: LogReplay, save: Path, *, epochs: int | None
) -> None:
    """Replay the search log until it ends or is interrupted; print and save the comparison."""
    comparison = Comparison()
    try:
        await take_part(
            http, users, epochs=epochs, published=lambda document: comparison.add(document, users)
        )
    finally:
        print("\n".join(comparison.table()), flush=True)
        comparison.save(save, users)
        print(f"the comparison is in {save}", flush=True)


@dataclass(frozen=True, slots=True)
class ComparedEpoch:
    """Comparison of one published epoch with the truth."""

    epoch: int
    outcome: str
    log_from: str
    log_to: str
    searchers: int
    optin_users: int
    devices: int
    listed: int
    l1: float
    ndcg: float
    intervals_with_truth: int
    records: list[dict[str, Any]]

    def line(self) -> str:
        """Return its row of the table."""
        return (
            f"{self.epoch:>6}  {self.log_from:>16}  {self.searchers:>9,}  {self.listed:>7}  "
            f"{self.l1:>7.4f}  {self.ndcg:>6.3f}  {self.intervals_with_truth:>5} of {self.listed}"
        )


@dataclass(slots=True)
class Comparison:
    """Comparison of all published epochs of a replay with the truth."""

    epochs: list[ComparedEpoch] = field(default_factory=list)

    def add(self, document: Mapping[str, Any], people: LogReplay) -> None:
        """Compare one published epoch with the records that its users really had."""
        epoch = int(document["epoch"])
        window, replayed = people.windows[epoch], people.replayed[epoch]
        if window is None:
            return
        score, took_part = published(document, window.truth), document["participants"]
        self.epochs.append(
            ComparedEpoch(
                epoch=epoch,
                outcome=document["outcome"],
                log_from=_moment(replayed.start_s),
                log_to=_moment(replayed.end_s),
                searchers=replayed.searchers,
                optin_users=took_part["selection"] + took_part["estimation"],
                devices=took_part["clients"],
                listed=len(score.rows),
                l1=score.l1,
                ndcg=score.ndcg,
                intervals_with_truth=score.within,
                records=[
                    {
                        "query": row.record.query, "url": row.record.url,
                        "estimate": row.estimate, "low": row.low, "high": row.high,
                        "truth": window.truth.get(row.record, 0.0),
                    }
                    for row in score.rows
                ],
            )
        )  # fmt: skip

    def table(self) -> Iterator[str]:
        """Yield the lines of the table that is printed at the end."""
        yield (
            f"{'epoch':>6}  {'log from':>16}  {'searchers':>9}  {'records':>7}  {'L1':>7}  "
            f"{'NDCG':>6}  intervals with the truth"
        )
        yield from (epoch.line() for epoch in self.epochs)
        listed = sum(epoch.listed for epoch in self.epochs)
        within = sum(epoch.intervals_with_truth for epoch in self.epochs)
        some = [epoch.l1 for epoch in self.epochs if epoch.listed]
        if some:
            yield (
                f"{len(some)} epochs with records, L1 {sum(some) / len(some):.4f} on average; "
                f"{within} of {listed} intervals hold the truth ({within / listed:.1%})"
            )

    def save(self, path: Path, people: LogReplay) -> None:
        """Write the whole comparison to a file; it contains only published queries and URLs."""
        content = {
            "schema": "blendstream/replay/1",
            "sent": {"optin_records": asdict(people.sender.optin),
                     "client_reports": asdict(people.sender.reports)},
            "epochs": [asdict(epoch) for epoch in self.epochs],
        }  # fmt: skip
        path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_s))
