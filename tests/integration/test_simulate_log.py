"""`blendstream simulate --log` on a real service: a log goes in, and its truth comes out beside."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from blendstream.agents.cli import main
from tests.service.builder import service
from tests.service.settings import SHORT

USERS, DAYS = 1_500, 2
#: Of a day's searchers so many have the day's first, second and third query.
SHARES = (0.5, 0.3, 0.2)


def write_log(path: Path) -> int:
    """Two days, each with its own queries; four in five users click; rows in order of users.

    Returns how many users click: only these take part.
    """
    rng, users = np.random.default_rng(3), {0}
    lines = ["AnonID\tQuery\tQueryTime\tItemRank\tClickURL"]
    for user in range(USERS):
        for day in range(1, DAYS + 1):
            query = rng.choice(3, p=SHARES)
            at = f"2006-03-{day:02} {rng.integers(24):02}:00:{rng.integers(60):02}"
            clicked = rng.random() < 0.8
            users |= {user} if clicked else set()
            link = f"1\thttp://day{day}.example/{query}" if clicked else "\t"
            lines.append(f"{user}\tDay {day} question {query}\t{at}\t{link}")
    lines.insert(5, "broken")
    # The first click is at midnight, so that a day of the log is an epoch.
    lines.insert(1, "0\tDay 1 question 0\t2006-03-01 00:00:00\t1\thttp://day1.example/0")
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return len(users)


@pytest.mark.integration
@pytest.mark.timeout(300)
async def test_a_log_is_replayed_through_a_service_and_compared_with_its_truth(
    kafka, redis_server, tmp_path, monkeypatch, capsys
):
    """Opt-in users and devices, epoch by epoch as the log's time says, until the log has ended."""
    users = write_log(tmp_path / "searches.txt.gz")
    saved = tmp_path / "replay.json"
    async with service(kafka.url, redis_server.url, **SHORT) as made:
        made.start_worker()
        made.start_jobs()
        gateway = made.start_gateway().wait_ready()
        monkeypatch.setenv("TOKEN", made.token)
        words = ["--log", str(tmp_path / "searches.txt.gz"), "--optin", "0.4", "--save", str(saved)]
        verb = ["simulate", "--server", gateway.url, *words]
        assert await asyncio.to_thread(main, verb) == 0, made.logs()

    said = capsys.readouterr().out
    assert f"clicks of 1 {users - 1_000} users" in said
    assert "1 malformed (line 7: it must have 5 columns, got 1)" in said
    assert "intervals hold the truth" in said
    assert "question" not in said
    replayed = json.loads(saved.read_text(encoding="utf-8"))
    assert replayed["sent"]["optin_records"]["refused"] == 0
    assert [epoch["log_from"] for epoch in replayed["epochs"]] == [
        f"2006-03-{day:02} 00:00" for day in range(1, DAYS + 1)
    ]
    for day, epoch in enumerate(replayed["epochs"], start=1):
        assert epoch["optin_users"] == round(0.4 * users)
        assert epoch["devices"] == users - round(0.4 * users)
        assert epoch["searchers"] == pytest.approx(0.8 * USERS, rel=0.1)
        found = {row["query"]: row for row in epoch["records"]}
        for query, share in enumerate(SHARES):
            row = found[f"day {day} question {query}"]
            assert row["url"] == f"http://day{day}.example/{query}"
            assert row["truth"] == pytest.approx(0.8 * USERS / users * share, abs=0.05)
            # Both groups together: a standard error of about two hundredths.
            assert row["estimate"] == pytest.approx(row["truth"], abs=0.1)
        # Of the second day also what the first one listed, which nobody has any more.
        assert 0 < epoch["l1"] < 0.3
        assert epoch["ndcg"] > 0.9
