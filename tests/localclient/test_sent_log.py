"""What a device shows its owner of what it sent. tests/vectors/device/sent.json has more."""

from __future__ import annotations

import json
import math
import socket
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.blender.values.record import Record
from blendstream.localclient import LocalClient, ResultCode
from blendstream.localclient.cli import main
from blendstream.localclient.sent_log import MAX_ANSWER_BYTES, note_submission
from blendstream.localclient.sent_words import (
    cell_in_words,
    describe_log,
    odds_in_words,
    posterior_in_words,
)
from blendstream.localclient.state import BudgetEntry, Mode, State, Submission
from tests.localclient.support import (
    DAY,
    LISTED,
    START,
    Gateway,
    ManualClock,
    device,
    head_list,
    limits,
    state_of,
)

OWN = ["--epsilon", "4", "--delta", "1e-5", "--period-epsilon", "8", "--period-delta", "1e-4"]


def search(client: LocalClient, clock: ManualClock, record: Record) -> None:
    """Search in the middle of the window, then let it end."""
    now_s, clock.now_s = clock.now_s, START + DAY // 2
    client.record(*record)
    clock.now_s = now_s


def test_a_person_reads_what_was_sent_what_it_can_reveal_and_what_follows(
    gateway: Gateway, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sentences, and without a network."""
    client = device(gateway, tmp_path, clock)
    search(client, clock, LISTED[0])
    gateway.show(head_list())
    assert client.report_now().code is ResultCode.SENT
    monkeypatch.setattr(socket, "socket", None)
    shown = describe_log(client.sent_log())

    assert "epoch 7: accepted by the service" in shown
    (entry,) = state_of(tmp_path).budget_entries
    assert entry.submission is not None
    assert entry.submission.answers is not None
    for _, query, url in entry.submission.answers[0]:
        assert query is None or f"    {query} → {url}" in shown
    assert "shift the odds about your searches by at most 55 to 1 (ε = 4)" in shown
    assert "can think it at most 36 % likely after seeing it" in shown
    assert f"Left of your budget: ε {limits().epsilon_per_period - 4:g} of" in shown
    assert "Next: nothing is scheduled" in shown


def test_the_command_prints_it_and_exports_it(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`localclient status --sent`; what is left takes the limits that only the caller knows."""
    folder = ["--folder", str(tmp_path / "device")]
    assert main(["status", "--sent", *folder]) == 0
    said = capsys.readouterr().out
    assert "Nothing.\n" in said
    assert "To see what is left, add the limits" in said
    assert main(["status", "--sent", *folder, *OWN]) == 0
    assert (
        "Left of your budget: ε 8 of 8, δ 0.0001 of 0.0001 (in 28 days)" in capsys.readouterr().out
    )
    assert main(["status", "--json", *folder]) == 2
    assert "add --epsilon and --period-epsilon" in capsys.readouterr().err
    assert main(["status", "--json", *folder, *OWN]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "blendstream/sent/1"
    assert gateway.posted == []


def test_no_search_of_this_person_is_in_the_log(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """It has published records only; a search that is not listed is nowhere on the disk."""
    client = device(gateway, tmp_path, clock)
    search(client, clock, Record("a private matter", "https://private.example/"))
    gateway.show(head_list())
    assert client.report_now().code is ResultCode.SENT

    assert all(b"private" not in path.read_bytes() for path in tmp_path.iterdir())
    assert "private" not in client.sent_log().to_json()


def test_published_text_is_harmless_on_a_terminal() -> None:
    sent = Submission("randomized-response", 1, 2, (((0, "a\x1b[2J\u202eb", "c\u200b"),),), 0)
    state = State(budget_entries=(entry_with(sent),))

    assert sent.answers is not None
    shown = cell_in_words(sent.answers[0][0])
    assert shown == "a�[2J�b → c�"
    assert "\x1b" not in repr(state)


def entry_with(submission: Submission | None, at_s: int = 0) -> BudgetEntry:
    return BudgetEntry(Mode.REPORT, 1, "", 0, 0, at_s, 1.0, 0.0, submission)


def test_the_oldest_answers_go_first_when_they_are_too_large() -> None:
    """What was sent must not fill a device; the entry, its cost and its time stay."""
    cells = 100
    text = "é" * ((MAX_ANSWER_BYTES // cells - 16) // 4)
    large = Submission("", 1, 2, (tuple((i, text, text) for i in range(cells)),), 0)
    one = note_submission(State(budget_entries=(entry_with(None),)), large)
    (kept,) = one.budget_entries
    assert kept.submission == large
    two = State(budget_entries=(*one.budget_entries, entry_with(None, 1)))
    first, second = note_submission(two, large).budget_entries

    assert first.submission is not None
    assert first.submission.answers is None
    assert second.submission == large


@given(st.floats(1e-3, 13), st.sampled_from([0.001, 0.01, 0.3]))
def test_no_sentence_promises_more_than_epsilon(epsilon: float, prior: float) -> None:
    """A bound that is rounded down is no bound."""
    odds = Fraction(odds_in_words(epsilon).removesuffix(" to 1"))
    assert Fraction(math.exp(epsilon)) <= odds <= Fraction(math.exp(epsilon)) * Fraction(11, 10)
    shown = posterior_in_words(epsilon, prior)
    exact = math.exp(epsilon) * prior / (1 - prior + math.exp(epsilon) * prior)
    if shown == "almost 100 %":
        assert exact > 0.99
    else:
        assert exact - 1e-12 <= float(shown.removesuffix(" %")) / 100 <= exact + 0.01
