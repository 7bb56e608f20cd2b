"""What the demo may be asked for, when its people begin to search, which epochs it counts."""

import re
from pathlib import Path

import pytest

from blendstream.agents.cli import build_parser
from blendstream.agents.commands.demo import LEAST_WINDOW_S
from blendstream.agents.local import GivenServer, Stack, StackError
from blendstream.agents.local.demo.population import time_to_search
from blendstream.agents.local.demo.run import check_results, client_steps, extension_steps
from blendstream.agents.local.demo.service import GUEST, EpochTimes, _settings
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import load_settings


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [(95, 16.0), (100, 12.0), (107.5, 6.0), (107.6, None), (114.4, None), (115, None), (116, None)],
)
def test_people_search_in_a_window_only_while_half_of_it_is_left(now_s, expected):
    """An epoch that opens in the last second of its window would be one of a handful of people."""
    collecting = {"window_start_s": 100, "window_end_s": 115}
    assert time_to_search(collecting, now_s) == expected


def test_with_epochs_asked_for_too_many_empty_ones_are_an_error_that_says_what_helps():
    """Else a demo that never has results would never end; without a number it may go on."""
    check_results(1, empty=5)
    check_results(None, empty=6)
    with pytest.raises(StackError, match=r"6 epochs .* empty, at most 5 .* a longer --window"):
        check_results(1, empty=6)


def test_the_demo_says_how_to_load_the_extension_where_it_is(tmp_path):
    """In the words of the options page. An installed package comes without the extension."""
    said = extension_steps("http://127.0.0.1:7")
    folder = Path(re.findall(r"^ +(/.+)$", said, re.MULTILINE)[0])
    options = (folder / "options.html").read_text()

    assert (folder / "manifest.json").exists()
    assert "http://127.0.0.1:7" in said
    assert "Fill in values for a trial" in options
    assert "Turn on" in options
    assert extension_steps("http://127.0.0.1:7", tmp_path) == ""


def test_the_demo_prints_what_the_guide_of_the_client_needs():
    guide = (Path(__file__).parents[4] / "docs/localclient.md").read_text()
    for name in re.findall(r"export (\w+)=", client_steps("http://127.0.0.1:7", "demo.x")):
        assert f"export {name}=" in guide
        assert f"--opt-in-user {GUEST}" in guide


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--window 8", "argument --window: must be at least 9 and at most 3600, got 8"),
        ("--window soon", "argument --window: invalid int value: 'soon'"),
        ("--optin 1.5", "argument --optin: must be at least 0 and at most 1, got 1.5"),
        ("--optin nan", "argument --optin: must be at least 0 and at most 1, got nan"),
        ("--people 0", "argument --people: must be at least 1, got 0"),
        ("--epochs 0", "argument --epochs: must be at least 1, got 0"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(words, complaint, capsys):
    """Later it would be about settings that nobody gave."""
    with pytest.raises(SystemExit, match="2"):
        build_parser(["demo"]).parse_args(["demo", *words.split()])

    assert complaint in capsys.readouterr().err


def test_the_shortest_window_is_the_shortest_that_the_settings_take(tmp_path):
    """Grace and skew must fit into half of it."""
    servers = Stack(GivenServer("kafka://127.0.0.1:1"), GivenServer("redis://127.0.0.1:1/0"))
    tokens = tmp_path / "tokens.txt"
    tokens.touch(mode=0o600)
    ports = {"http": 1, "gateway": 2, "worker": 3, "jobs": 4}
    for window_s in (LEAST_WINDOW_S, LEAST_WINDOW_S - 1):
        given = _settings(servers, EpochTimes(window_s), "sharp", ports, tokens, tmp_path)
        if window_s == LEAST_WINDOW_S:
            assert load_settings(environment=given).settings.epoch.window_s == window_s
        else:
            with pytest.raises(SettingsError, match="no time is left to report"):
                load_settings(environment=given)
