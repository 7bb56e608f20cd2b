"""A log's users have the records of their clicks, window by window, and these are the truth."""

from __future__ import annotations

import argparse
from pathlib import Path

import httpx
import numpy as np
import pytest

from blendstream.agents.commands.simulate_log import read_log
from blendstream.agents.local.demo.log_replay import LogClicks, LogReplay
from blendstream.agents.local.demo.people import NO_RECORD
from blendstream.blender.values.cells import Cells
from blendstream.blender.values.errors import BlenderError
from blendstream.blender.values.record import Record

TEA, MILK, RICE = (Record(query, "x.example") for query in ("tea", "milk", "rice"))
DAY = 86_400


def clicks(*rows: tuple[float, int, int], users: int) -> LogClicks:
    table = np.array(sorted(rows))
    return LogClicks(
        table[:, 0], table[:, 1].astype(int), table[:, 2].astype(int), [TEA, MILK, RICE], users
    )


def collecting(epoch: int, start_s: float = 1_000.0, length_s: float = 10.0) -> dict[str, float]:
    begins_s = start_s + epoch * length_s
    return {"epoch": epoch, "window_start_s": begins_s, "window_end_s": begins_s + length_s}


async def drawn(replay: LogReplay, epoch: int) -> dict[str, object]:
    """Who has which record in this epoch, and what is held to be the truth."""
    found = replay._next_window(collecting(epoch))
    assert found is not None
    records, window = found
    people = np.concatenate([window.optin, window.clients]).tolist()
    texts = [None if number == NO_RECORD else records.records[number] for number in people]
    return {"texts": texts, "truth": window.truth, "records": records, "window": window}


async def test_an_epoch_has_the_clicks_of_its_part_of_the_log() -> None:
    """By default a day per epoch: three people one day, one the next, then the end."""
    log = clicks((0, 0, 0), (5, 1, 0), (DAY - 1, 2, 1), (DAY, 0, 2), users=5)
    async with httpx.AsyncClient() as http:
        replay = LogReplay(http, "token", log, optin_share=0.4, speed=None, seed=1)
        first, second = await drawn(replay, 0), await drawn(replay, 1)

        assert sorted(map(str, first["texts"])) == sorted(map(str, [TEA, TEA, MILK, None, None]))
        assert first["truth"] == {TEA: 2 / 5, MILK: 1 / 5}
        assert second["truth"] == {RICE: 1 / 5}
        assert len(first["window"].optin) == 2  # type: ignore[attr-defined]
        assert replay.replayed[1].searchers == 1
        assert not replay.finished
        assert replay._next_window(collecting(2)) is None
        assert replay.finished


async def test_a_slower_replay_takes_more_epochs() -> None:
    """`--speed 1`: ten seconds of the log per window of ten seconds."""
    log = clicks((0, 0, 0), (9.9, 1, 1), (10, 2, 2), users=3)
    async with httpx.AsyncClient() as http:
        replay = LogReplay(http, "token", log, optin_share=0.5, speed=1, seed=1)

        assert (await drawn(replay, 7))["truth"] == {TEA: 1 / 3, MILK: 1 / 3}
        assert (await drawn(replay, 8))["truth"] == {RICE: 1 / 3}


async def test_everyone_keeps_their_place_and_one_click_is_drawn_from_many() -> None:
    """An opt-in user who became a device would be two people. Of nine clicks, each is as likely:
    five standard errors for three numbers, so one seed in 500 000 would fail."""
    rows = [(day * DAY + i, 0, i % 3) for day in range(900) for i in range(9)]
    log = clicks(*rows, *((day * DAY, 1, 0) for day in range(900)), users=2)
    places, texts = set(), []
    async with httpx.AsyncClient() as http:
        replay = LogReplay(http, "token", log, optin_share=0.5, speed=None, seed=1)
        for epoch in range(900):
            one, two = (await drawn(replay, epoch))["texts"]  # type: ignore[misc]
            texts += [one, two]
            if MILK in (one, two) or RICE in (one, two):
                places.add(0 if one in (MILK, RICE) else 1)

    assert len(places) == 1
    assert abs(texts.count(RICE) - 300) < 5 * (900 * 2 / 9) ** 0.5


async def test_who_has_no_record_reports_the_star() -> None:
    log = clicks((0, 0, 0), users=2)
    async with httpx.AsyncClient() as http:
        found = await drawn(LogReplay(http, "token", log, optin_share=0, speed=1, seed=1), 0)

    cells = found["records"].cell_of_number(Cells((TEA,), False))  # type: ignore[attr-defined]
    assert sorted(cells[found["window"].clients].tolist()) == [0, 1]  # type: ignore[attr-defined]


def arguments(log: Path, **options: object) -> argparse.Namespace:
    usual = {"log_columns": None, "people": None, "seed": 1, "speed": None, "save": log / "none"}
    return argparse.Namespace(log=log, **{**usual, **options})


def test_a_log_is_read_in_order_of_time_and_some_of_its_users_may_be_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The AOL release is in order of users. `--people` takes some, with all their clicks."""
    lines = [f"{user}\tq{user}\tx\t{100 - user - i}" for user in range(50) for i in range(2)]
    log = tmp_path / "a.tsv"
    log.write_text("\n".join(["user\tquery\turl\ttime", *lines, "9\tq\t\t5", "9\tq\tx\tnoon"]))

    found = read_log(arguments(log))
    assert (np.diff(found.time_s) >= 0).all()
    assert (found.users, len(found.user)) == (50, 100)
    said = capsys.readouterr().out
    assert "a.tsv: 102 rows: 100 clicks of 50 users; skipped: 1 rows without a click" in said
    assert "1 malformed (line 103: its time must be ISO 8601" in said

    some = read_log(arguments(log, people=20))
    assert (some.users, len(some.user)) == (20, 40)
    assert np.bincount(some.user).tolist() == [2] * 20
    queries = {
        (user, some.records[n].query) for user, n in zip(some.user, some.number, strict=True)
    }
    assert len(queries) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 0.0}, "--speed must be above 0, got 0.0"),
        ({"log_columns": "user,query,url"}, "must name four columns, USER,QUERY,URL,TIME"),
        ({"log_columns": "user,query,url,when"}, "the time is needed here"),
        ({"save": Path(__file__)}, "is there already; name another file with --save"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_anything_is_sent(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    log = tmp_path / "a.tsv"
    log.write_text("user\tquery\turl\ttime\n1\ta\tx\t5\n")
    with pytest.raises(BlenderError, match=message):
        read_log(arguments(log, **options))
