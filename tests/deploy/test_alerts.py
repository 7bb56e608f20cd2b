"""Somebody is told, in time, about the right thing, and finds out what to do."""

import re
import subprocess

import pytest
import yaml

from tests.prometheus_rules import ALERTS, ROOT, alerts, scaled

pytestmark = pytest.mark.long

RUNBOOK = ROOT / "docs/runbook.md"


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


def cases(alert: str) -> list[list[dict[str, str]]]:
    """What each case of the unit tests expects of an alert: the labels of those that fire."""
    return [
        [fires["exp_labels"] for fires in case["exp_alerts"]]
        for path in ALERTS.parent.glob("*_test.yml")
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]


@pytest.mark.parametrize(
    "rule", alerts(), ids=lambda rule: "-".join([rule["alert"], rule["labels"].get("stem", "")])
)
def test_every_rule_is_among_the_unit_tests_firing_and_silent(rule):
    """Of two rules with one name, one for each stem, one that never fires could hide."""
    expected = cases(rule["alert"])
    own = rule["labels"].items()

    assert [fires for case in expected for fires in case if own <= fires.items()]
    assert [case for case in expected if not any(own <= fires.items() for fires in case)]


def test_each_alert_has_its_entry_in_the_runbook_and_points_there():
    """At night nobody wants to search."""
    runbook = RUNBOOK.read_text().partition("\n## Alerts\n")[2]
    headings = re.findall(r"^### (\w+)$", runbook, flags=re.MULTILINE)

    assert headings == sorted(set(headings), key=headings.index), "one entry each"
    assert {alert["alert"] for alert in alerts()} == set(headings)
    for alert in alerts():
        where, _, page = alert["annotations"]["runbook_url"].partition(" }}")
        assert where == "{{ $externalLabels.docs", "a link where Prometheus knows where docs are"
        assert page == f"docs/runbook.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in ("page", "ticket")
        said = "Page" if alert["labels"]["severity"] == "page" else "Ticket"
        assert f"### {alert['alert']}\n*{said}.*" in runbook


def test_alerts_are_the_runbooks_last_section():
    """A reader who scrolls down in a hurry ends up in it."""
    sections = re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE)

    assert sections[-1] == "Alerts"


def test_scaling_reaches_every_duration():
    """The live tests run the same rules, only faster."""
    assert scaled("for: 2m\nexpr: rate(a[5m] offset 1d) > 5", 1 / 60) == (
        "for: 2000ms\nexpr: rate(a[5000ms] offset 1440000ms) > 5"
    )
    left = scaled(ALERTS.read_text(), 1 / 60)
    assert not re.search(r"\d+[mhd]\b(?!s)", re.sub(r"#.*", "", left))
