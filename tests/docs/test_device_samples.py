"""The limits that pages and the command line suggest for devices: one report of a default service.

A team copies them before it thinks about them, so they must not allow more than the service uses.
"""

import re
from dataclasses import MISSING, fields, replace

import pytest

from blendstream.blender.values.parameters import PERIOD_EPOCHS
from blendstream.localclient import LimitReached, Limits
from blendstream.localclient.budget import add_entry, check_entry
from blendstream.localclient.cli import main
from blendstream.localclient.state import BudgetEntry, Mode, State
from blendstream.streams.settings.sections import EpochSettings, PrivacySettings
from tests.docs.pages import REPOSITORY

PRIVACY = PrivacySettings()
DAY_S = EpochSettings().window_s
SAMPLES = {
    "localclient.md": r"Limits\((.*?)\n\)",
    "webclient.md": r"limits: \{(.*?)\n  \}",
}


def sample(page: str) -> Limits:
    """The limits in a page's first block of code."""
    (shown,) = re.findall(SAMPLES[page], (REPOSITORY / "docs" / page).read_text(), re.DOTALL)
    values = {}
    for name, number in re.findall(r"(\w+)[=:] ?([\w.*\- ]+),", shown):
        snake = re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
        factors = [float(factor) for factor in number.split("*")]
        product = factors[0] * (factors[1] if len(factors) == 2 else 1.0)
        values[snake] = int(product) if snake == "period_s" else product
    return Limits(**values)


def claim(epoch: int, at_s: int) -> BudgetEntry:
    """A report of a default service's device on a daily epoch."""
    start_s = epoch * DAY_S
    privacy = (PRIVACY.epsilon, PRIVACY.delta)
    return BudgetEntry(
        Mode.REPORT, epoch, f"list-{epoch}", start_s, start_s + DAY_S, at_s, *privacy
    )


@pytest.mark.parametrize("page", SAMPLES)
def test_a_sample_allows_one_report_in_its_period_and_no_more(page):
    """ε = 28 stood here: seven reports, where a default service asks for one in 30 epochs."""
    limits = sample(page)
    first = claim(0, DAY_S)
    once = add_entry(State(), first, limits)
    second = claim(1, first.at_s + limits.period_s - 1)

    assert (limits.epsilon_per_period, limits.delta_per_period) == (PRIVACY.epsilon, PRIVACY.delta)
    with pytest.raises(LimitReached):
        check_entry(once, second, limits)
    # Nor a cheaper one: the period has nothing left.
    with pytest.raises(LimitReached):
        check_entry(once, replace(second, epsilon=0.001, delta=0.0), limits)


@pytest.mark.parametrize("page", SAMPLES)
def test_a_sample_refuses_no_turn_of_a_default_service(page):
    """The last second of one turn and the first of the next are 29 days apart, not 30."""
    limits, turns = sample(page), PERIOD_EPOCHS["sharp"]
    late = claim(0, 2 * DAY_S - 1)
    early = claim(turns, (turns + 1) * DAY_S)
    once = add_entry(State(), late, limits)

    check_entry(once, early, limits)
    with pytest.raises(LimitReached):
        check_entry(once, early, replace(limits, period_s=turns * DAY_S))


def test_the_command_line_suggests_the_same(capsys):
    """Its help is a sample too."""
    limits = sample("localclient.md")
    with pytest.raises(SystemExit):
        main(["--help"])
    about = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    report = capsys.readouterr().out

    assert f"--epsilon {limits.epsilon_per_report:g} --period-epsilon 4\n" in about
    assert f"(default {limits.period_s // DAY_S})" in report


def test_the_protocol_page_has_every_limit_by_its_name_and_default():
    """Vectors, refusals and whoever writes a client use these names."""
    section = (REPOSITORY / "docs" / "device-protocol.md").read_text().split("## 5. ")[1]
    table = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", section, re.MULTILINE)
    stated = {}
    for names, defaults in table:
        listed = re.findall(r"`(\w+)`", names)
        values = [_number(value) for value in defaults.split(", ")]
        stated |= dict(
            zip(listed, values if len(values) > 1 else values * len(listed), strict=True)
        )

    assert stated == {
        field.name: None if field.default is MISSING else field.default for field in fields(Limits)
    }


def _number(text: str) -> int | None:
    """Read "8 MiB", "45 days" or "3 600"; "none" is None."""
    digits, unit = re.fullmatch(r"([\d ]*?) ?(days|MiB|none)?", text.strip()).groups()
    if unit == "none":
        return None
    return int(digits.replace(" ", "")) * {"days": 86_400, "MiB": 1 << 20, None: 1}[unit]
