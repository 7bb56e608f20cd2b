"""The release log's entries fold into what counters must know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.releases.counted_epochs import ENTRY_KEY, EpochBook, LogEntryError
from streams.stems import Stem
from tests.agents.worker.test_entry_checks import HEAD_LIST, opened, published

OPTIN, REPORTS = Stem.OPTIN_RECORDS, Stem.CLIENT_REPORTS


def test_states_move_forward_and_folding_again_changes_nothing() -> None:
    entries: list[dict[str, Any]] = [
        opened(1), opened(2), {"entry": "records_sealed", "epoch": 1, "bounds": [3, 4]},
        published(1), {"entry": "reports_sealed", "epoch": 1, "bounds": [8, 9]},
        {"entry": "epoch_abandoned", "epoch": 2},
        opened(3), {"entry": "log_trimmed", "topic": "optin_records", "bounds": [3, 4]},
    ]  # fmt: skip
    for book in (EpochBook(entries), EpochBook(entries + entries)):
        first = book.epoch(1)
        assert first is not None
        assert first.released == {OPTIN}
        assert first.beyond_seal(OPTIN, 0, 3)
        assert not first.beyond_seal(OPTIN, 1, 3)
        assert first.beyond_seal(REPORTS, 2, 0)  # A partition that the seal does not know.
        assert [e.number for e in book.unreleased(OPTIN)] == [3]
        assert [e.number for e in book.unreleased(REPORTS)] == [1, 3]
        assert book.released_through(OPTIN) == 2
        assert book.released_through(REPORTS) == 0
        trimmed = [book.trimmed(stem, 1, p) for stem, p in ((OPTIN, 1), (REPORTS, 1), (OPTIN, 9))]
        assert trimmed == [4, 0, 0]
        found = book.head_list(HEAD_LIST)
        assert found is not None
        assert (found.epoch, found.cells_per_report) == (1, 4)


def test_an_epoch_is_forgotten_when_it_and_all_before_it_are_released() -> None:
    """From there on its number says that it is past; a lower one that is open still holds it."""
    entries: list[dict[str, Any]] = [
        opened(1), opened(2), published(2), {"entry": "estimate_released", "epoch": 2},
        published(1, head_list_id="aa" * 32),
    ]  # fmt: skip
    held = EpochBook(entries)
    assert len(held._epochs) == 2
    assert held.head_list(HEAD_LIST) is not None
    assert (held.released_through(OPTIN), held.released_through(REPORTS)) == (2, 0)
    entries.append({"entry": "estimate_released", "epoch": 1})
    for book in (EpochBook(entries), EpochBook(entries + entries)):
        assert book._epochs == {}
        assert book.epoch(2) is None
        assert book.head_list(HEAD_LIST) is None
        for stem in Stem:
            assert book.released_through(stem) == 2
            assert [book.is_past(n, stem) for n in (0, 1, 2, 3)] == [True, True, True, False]


def test_a_book_stays_small_however_long_the_log() -> None:
    """Each run of messages looks at every epoch held: 9 000 of them took 3.4 ms of every run."""
    book, longest = EpochBook(), 0
    for number in range(2_000):
        book.apply(opened(number))
        book.apply(published(number, head_list_id=number.to_bytes(32, "big").hex()))
        if number >= 2:
            book.apply({"entry": "estimate_released", "epoch": number - 2})
        longest = max(longest, len(book._epochs))
    assert longest == 2
    assert [e.number for e in book.unreleased(REPORTS)] == [1_998, 1_999]
    assert book.released_through(REPORTS) == 1_997
    assert len(book._head_lists) == 2


def test_a_copy_does_not_change_with_the_book() -> None:
    """Who judges holds one; the log is read on meanwhile."""
    book = EpochBook([opened(1)])
    copied = book.copy()
    book.apply(opened(2))
    book.apply({"entry": "epoch_abandoned", "epoch": 1})
    book.apply({"entry": "log_trimmed", "topic": "optin_records", "bounds": [3]})
    assert [e.number for e in copied.unreleased(OPTIN)] == [1]
    assert (copied.released_through(OPTIN), copied.trimmed(OPTIN, 1, 0)) == (0, 0)
    assert [e.number for e in book.copy().unreleased(OPTIN)] == [2]
    assert (book.copy().released_through(OPTIN), book.copy().trimmed(OPTIN, 1, 0)) == (1, 3)


def test_what_was_removed_from_one_version_of_a_topic_says_nothing_of_another() -> None:
    """Offsets begin again: what the new topic lost would pass for removed on purpose."""
    old = {"entry": "log_trimmed", "topic": "optin_records", "bounds": [5_000]}
    new = old | {"topic_version": 2, "bounds": [7]}
    book = EpochBook([old])
    assert [book.trimmed(OPTIN, version, 0) for version in (1, 2)] == [5_000, 0]
    book = EpochBook([old, new, old])  # A checkpoint repeats both.
    assert [book.trimmed(OPTIN, version, 0) for version in (1, 2)] == [5_000, 7]


def test_a_second_head_list_or_seal_of_an_epoch_is_not_taken() -> None:
    """What was committed first is what devices and workers have seen."""
    book = EpochBook([opened(1), published(1), published(1, head_list_id="ff" * 32, cells=99)])
    assert book.head_list(bytes.fromhex("ff" * 32)) is None
    found = book.epoch(1)
    assert found is not None
    assert found.head_list is not None
    assert found.head_list.cells == 10


def test_other_messages_are_passed_over() -> None:
    book = EpochBook()
    book.apply_message(b"document", b"\x00\x01")
    book.apply_message(None, None)
    book.apply_message(ENTRY_KEY, json.dumps({"entry": "ledger_charged"}).encode())
    assert book.unreleased(OPTIN) == []
    assert book.released_through(OPTIN) == -1


@pytest.mark.parametrize(
    "value",
    [
        b"{", b"[]",
        json.dumps(opened(-1)).encode(), json.dumps(opened(1, records_per_user=0)).encode(),
        json.dumps(opened(1, shares_ppm={"S": 1})).encode(),
        json.dumps(opened(1, shares_ppm={"X": 1_000_000})).encode(),
        json.dumps({"entry": "epoch_opened", "epoch": 1}).encode(),
        json.dumps({"entry": "log_trimmed", "topic": "x", "bounds": []}).encode(),
    ],
)  # fmt: skip
def test_an_entry_that_we_cannot_have_written_is_an_error(value: bytes) -> None:
    """The log is ours: guessing what a damaged entry meant could count what was released."""
    with pytest.raises(LogEntryError):
        EpochBook().apply_message(ENTRY_KEY, value)
