"""Somebody is told, in time, about the right thing, and finds out what to do."""

import re
import subprocess

import pytest

from tests.prometheus_rules import ALERTS, ROOT, alerts, scaled

pytestmark = pytest.mark.long


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_prometheus_takes_the_rules():
    """A rule file with a mistake is not loaded, and nobody hears anything."""
    checked = promtool("check", "rules", ALERTS.name)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_when_it_should_and_only_then_at_its_real_duration():
    """An alert that never fires is worse than none; one that cries wolf is soon ignored."""
    tested = promtool("test", "rules", "alerts_test.yml", "alerts_day_test.yml")

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_among_the_unit_tests_firing():
    tests = "".join(path.read_text() for path in ALERTS.parent.glob("*_test.yml"))
    fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", tests))

    assert {alert["alert"] for alert in alerts()} == fired


def test_each_alert_has_its_entry_in_the_runbook_and_points_there():
    """At night nobody wants to search."""
    runbook = (ROOT / "docs/operations.md").read_text().partition("\n## Runbook\n")[2]
    headings = re.findall(r"^### (\w+)$", runbook, flags=re.MULTILINE)

    assert headings == sorted(set(headings), key=headings.index), "one entry each"
    assert {alert["alert"] for alert in alerts()} == set(headings)
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in ("page", "ticket")
        said = "Page" if alert["labels"]["severity"] == "page" else "Ticket"
        assert f"### {alert['alert']}\n*{said}.*" in runbook


def test_the_runbook_is_the_last_section():
    """Whoever scrolls down in a hurry ends up in it."""
    sections = re.findall(r"^## (.+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)

    assert sections[-1] == "Runbook"


def test_scaling_reaches_every_duration():
    """The live tests run the same rules, only faster."""
    assert scaled("for: 2m\nexpr: rate(a[5m] offset 1d) > 5", 1 / 60) == (
        "for: 2000ms\nexpr: rate(a[5000ms] offset 1440000ms) > 5"
    )
    left = scaled(ALERTS.read_text(), 1 / 60)
    assert not re.search(r"\d+[mhd]\b(?!s)", re.sub(r"#.*", "", left))
