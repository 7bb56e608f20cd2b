"""Search logs: each row is a click, a row without one, or malformed and counted; a fair draw."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import Record, normalise
from blendstream.evaluation.search_logs import (
    LogColumns,
    LogTally,
    _text,
    draw_records_of_users,
    read_clicks,
    record_of,
)
from tests.evaluation.aol_log import BUSY, HEADER, USERS, row, write_aol_log


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_row_of_an_aol_file_is_counted_once(tmp_path: Path) -> None:
    """Rows without a click are two fifths of the release; one malformed row must not end it."""
    path = tmp_path / "user-ct-test.txt.gz"
    expected = write_aol_log(path)

    drawn = draw_records_of_users(path)
    tally = drawn.tally

    counted = {"clicks", "without_click", "malformed", "users"}
    assert {name: getattr(tally, name) for name in counted} == {n: expected[n] for n in counted}
    first = expected["first"]
    assert tally.first_malformed == [
        (first, "it must have 5 columns, got 6"),
        (first + 1, "query must not be empty after trimming white space"),
        (first + 2, "url must be valid Unicode, got an unpaired surrogate"),
    ]
    assert [len(slot) for slot in drawn.texts] == [USERS + 1]


def test_text_is_normalised_as_devices_do_it(tmp_path: Path) -> None:
    """Else one query would be two records."""
    log = write(tmp_path / "a.txt", HEADER, row(1, "  Straße   ΟΔΌΣ", "1", " http://ä.example/X "))
    (click,) = read_clicks(log, None, LogTally())

    assert record_of(click.text) == normalise("  Straße   ΟΔΌΣ", " http://ä.example/X ")


@given(query=st.text(max_size=300), url=st.text(max_size=300))
def test_the_short_cut_for_plain_text_is_normalise(query: str, url: str) -> None:
    """It is there for speed alone."""

    def outcome(clean: Callable[[str, str], object]) -> object:
        try:
            return clean(query, url)
        except ParameterError as refused:
            return str(refused)

    assert outcome(lambda q, u: record_of(_text(q, u))) == outcome(normalise)


@pytest.mark.parametrize("slots", [1, 3])
def test_each_click_of_a_user_is_drawn_equally_often(tmp_path: Path, slots: int) -> None:
    """The first slot is the record that counts as the user's; a reservoir alone favours the first
    click there. Five standard errors for ten numbers: one seed in 100 000 would fail."""
    rows = [f"{user}\tquery {i}\tx{i}.example" for user in range(2_000) for i in range(5)]
    log = write(tmp_path / "a.tsv", "user\tquery\turl", *rows)

    drawn = draw_records_of_users(log, records_per_user=slots, seed=4)

    first, every = Counter(drawn.texts[0]), Counter(t for slot in drawn.texts for t in slot)
    for counts, p in ((first, 1 / 5), (every, slots / 5)):
        assert len(counts) == 5
        assert all(abs(n - 2_000 * p) < 5 * (2_000 * p * (1 - p)) ** 0.5 for n in counts.values())
    for records in zip(*drawn.texts, strict=True):
        assert len(set(records)) == slots  # without replacement


def test_a_user_with_fewer_clicks_than_slots_leaves_slots_empty(tmp_path: Path) -> None:
    log = write(tmp_path / "a.tsv", "user\tquery\turl", "1\ta\tx", "2\tb\tx", "2\tc\tx")
    drawn = draw_records_of_users(log, records_per_user=2)

    assert [slot[0] for slot in drawn.texts] == ["a\tx", None]
    assert {slot[1] for slot in drawn.texts} == {"b\tx", "c\tx"}


def test_the_seed_decides_the_draw(tmp_path: Path) -> None:
    """One record of the busy user's ten thousand."""
    path = tmp_path / "log.txt"
    write_aol_log(path, users=10)

    first, again, other = (draw_records_of_users(path, seed=seed).texts for seed in (1, 1, 2))
    assert first == again != other
    assert str(first[0][-1]).startswith("busy ")
    assert BUSY not in str(first[0][:-1])


def test_columns_may_have_other_names_and_any_order(tmp_path: Path) -> None:
    log = write(tmp_path / "a.csv", "link,who,asked", 'http://x/?a=1,p1,"tea, green"')
    (click,) = read_clicks(log, LogColumns("who", "asked", "link"), LogTally())

    assert (click.user, record_of(click.text)) == ("p1", Record("tea, green", "http://x/?a=1"))


def test_a_csv_row_that_is_broken_is_one_malformed_row(tmp_path: Path) -> None:
    """The csv module raises in the middle of a file."""
    lines = ["user,query,url", "1,a,x", f'2,"{"b" * 200_000}",y', "3,c,z"]
    tally = LogTally()
    clicks = list(read_clicks(write(tmp_path / "a.csv", *lines), None, tally))

    assert [click.user for click in clicks] == ["1", "3"]
    assert tally.malformed == 1


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("2006-03-01 00:00:10", 10), ("2006-03-01T01:00:10+01:00", 10), ("1141171210", 10)],
)
def test_times_are_iso_or_seconds(tmp_path: Path, time: str, seconds: float) -> None:
    """A time without an offset is UTC: the release states none."""
    log = write(tmp_path / "a.tsv", "user\tquery\turl\ttime", f"1\ta\tx\t{time}", "1\ta\tx\tnoon")
    tally = LogTally()
    (click,) = read_clicks(log, None, tally, with_times=True)

    assert click.time_s == 1_141_171_200 + seconds
    assert "its time must be ISO 8601" in tally.first_malformed[0][1]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Somebody gives a file of another kind."""
    log = write(tmp_path / "a.tsv", "user\tquery\turl", "1\ta\tx", "2\t" + "b" * 300_000, "3\tc\tx")
    tally = LogTally()

    assert [click.user for click in read_clicks(log, None, tally)] == ["1", "3"]
    assert tally.rows == 3


def test_no_text_of_a_log_is_in_what_is_reported(tmp_path: Path) -> None:
    """A log is about people."""
    log = write(
        tmp_path / "a.tsv", "user\tquery\turl", "secret\t\tsecret", "\tsecret\tsecret",
        f"{'secret' * 50}\tsecret\tsecret", "1\tsecret\tsecret\tsecret", "1\ta\tx",
    )  # fmt: skip
    tally = draw_records_of_users(log).tally

    assert tally.malformed == 4
    assert "secret" not in tally.describe()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.tsv",
            b"user\tquestion\turl\n1\ta\tx\n",
            "must name the columns AnonID, Query, ClickURL",
        ),
        ("a.tsv", b"", "it has 0 columns with other names"),
        ("a.tsv", b"user\tquery\turl\n1\ta\t\n", "must have rows with a click; found 1 rows"),
        ("a.tsv.gz", b"not a gzip file", "cannot read the log"),
        ("a.tsv.gz", gzip.compress(b"user\tquery\turl\n1\ta\tx\n" * 999)[:-9], "not a whole gzip"),
    ],
    ids=["other columns", "empty", "no click", "not gzip", "cut"],
)
def test_a_file_that_cannot_be_a_log_is_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    """With what must hold, and without its text."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ParameterError, match=message) as refused:
        draw_records_of_users(tmp_path / name)
    assert "question" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file"):
        draw_records_of_users(tmp_path / "none.txt")
