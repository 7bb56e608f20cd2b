"""What an operator may type after `blendstream epochs`, and what is answered to the rest."""

from __future__ import annotations

import pytest

from blendstream.agents.cli import build_parser, main


@pytest.fixture
def raw_settings(setting_values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The few settings that must be given, as an operator's shell has them."""
    for name, value in setting_values.items():
        text = "test=" + "00" * 32 if isinstance(value, dict) else str(value)
        monkeypatch.setenv(f"BLENDSTREAM_{name.replace('.', '_').upper()}", text)


@pytest.mark.parametrize(
    "words",
    [
        ["epochs", "abandon", "41", "--reason", "a drill"],
        ["epochs", "abandon", "--reason", "a drill", "41"],
        ["epochs", "abandon", "--reason=a drill", "41"],
    ],
)
def test_the_reason_may_come_before_the_epoch_or_after_it(words: list[str]) -> None:
    """In the night nobody should have to try both orders."""
    found = build_parser(words).parse_args(words)
    assert (found.action, found.epoch, found.reason) == ("abandon", 41, "a drill")


def test_without_an_action_the_epochs_are_listed() -> None:
    assert build_parser(["epochs"]).parse_args(["epochs"]).action is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["41"], "required: --reason"),
        (["--reason", "a drill"], "required: E"),
        (["first", "--reason", "a drill"], "invalid int value: 'first'"),
    ],
)
def test_what_cannot_be_an_order_to_abandon_is_answered_with_its_usage(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["epochs", "abandon", *words])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "told"),
    [(" ", "the reason must not be empty"), ("x" * 2000, "a reason must have at most")],
)
@pytest.mark.usefixtures("raw_settings")
def test_a_reason_that_says_nothing_or_too_much_is_refused(
    reason: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is kept for ever and shown to everyone. Nothing is asked of a server before."""
    assert main(["epochs", "abandon", "41", "--reason", reason]) == 1
    assert told in capsys.readouterr().err
