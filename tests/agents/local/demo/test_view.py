"""What a person sees of the demo: a block that stays in place, or lines that say what changed."""

import io

from blendstream.agents.local.demo.compare import Row, Score
from blendstream.agents.local.demo.in_process_broker import InProcessBroker
from blendstream.agents.local.demo.view import View, epoch_table
from blendstream.blender.values.record import Record


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_next_block_takes_the_place_of_the_last():
    """Else the screen would scroll twice a second."""
    screen = Terminal()
    view = View(screen)
    view.show(["one", "two"], summary="s")
    view.show(["three"], summary="s")
    view.say("for good")

    assert screen.getvalue() == "one\ntwo\n\x1b[2F\x1b[Jthree\n\x1b[1F\x1b[Jfor good\n"


def test_a_line_too_long_for_the_terminal_is_cut_and_not_wrapped(monkeypatch):
    """A wrapped line takes two rows; going up over one of them leaves the other on the screen."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    screen = Terminal()
    view = View(screen)
    view.show(["short", "x" * 500, "y" * 40], summary="s")
    view.show(["gone"], summary="s")

    first, _, second = screen.getvalue().partition("\x1b[3F\x1b[J")
    assert first.splitlines() == ["short", "x" * 38 + "…", "y" * 38 + "…"]
    assert second == "gone\n"


def test_a_block_higher_than_the_terminal_keeps_its_top(monkeypatch):
    """The cursor cannot go up beyond the first row."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "4")
    screen = Terminal()
    view = View(screen)
    view.show([str(number) for number in range(9)], summary="s")

    assert screen.getvalue().splitlines() == ["0", "1", "2"]


def test_without_a_terminal_a_line_comes_when_something_changed():
    """In a log file nothing can be redrawn, and the same line again says nothing."""
    file = io.StringIO()
    view = View(file)
    for summary in ("epoch 0 collecting", "epoch 0 collecting", "epoch 0 sealed"):
        view.show(["never", "printed"], summary=summary)

    lines = file.getvalue().splitlines()
    assert [line.partition("] ")[2] for line in lines] == ["epoch 0 collecting", "epoch 0 sealed"]
    assert "\x1b" not in file.getvalue()


def test_without_a_terminal_the_figures_come_every_ten_seconds():
    """Else a log file says nothing of rates and refusals, or nothing else."""
    file, now = io.StringIO(), [100.0]
    view = View(file, clock=lambda: now[0])
    for second in range(0, 50, 2):
        now[0] = 100.0 + second
        view.show([], summary="epoch 0 collecting", figures=f"{min(second, 24)} counted")

    assert file.getvalue().splitlines() == [
        "[  0.0 s] epoch 0 collecting",
        "[ 10.0 s] 10 counted",
        "[ 20.0 s] 20 counted",
        "[ 30.0 s] 24 counted",
    ]


def test_the_table_sets_both_profiles_beside_the_truth():
    """A record that one of them did not list is said to be missing, not zero."""
    a, b = Record("tea", "https://tea.example/1"), Record("milk", "https://milk.example/2")
    truth = {a: 0.5, b: 0.25}
    both = Score.of([Row(a, 0.5, 0.4, 0.6), Row(b, 0.25, 0.2, 0.3)], truth)
    one = Score.of([Row(a, 0.75, 0.7, 0.8)], truth)

    table = epoch_table(3, "2 people", [("sharp", both), ("paper", one)], truth)

    assert "tea → …/1                  50.00%  50.00%   40.00–60.00%  75.00%" in table
    assert "not listed" in table
    assert "sharp: 2 records listed, L1 0.0000, NDCG 1.0000, truth in the interval 2 of 2" in table
    assert "paper: 1 records listed, L1 0.2500" in table
    assert max(map(len, table.splitlines())) < 80, "whoever has 80 columns sees it whole"


def test_the_in_process_broker_is_for_where_there_is_no_kafka_to_get(monkeypatch, tmp_path):
    """Whoever has a Kafka, its jars or Maven gets the real one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert InProcessBroker.needed({})
    assert not InProcessBroker.needed({"KAFKA_URL": "kafka://a:1"})
    (tmp_path / "mvn").write_text("#!/bin/sh\n")
    (tmp_path / "mvn").chmod(0o755)
    assert not InProcessBroker.needed({})
