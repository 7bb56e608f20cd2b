"""Alerts and dashboard as the tests read them: their expressions, names and durations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/dashboards/blendstream.json"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?<=for: )\d+[smhd]|(?<=\[)\d+[smhd](?=\])|(?<=offset )\d+[smhd]")
_METRIC = re.compile(r"\b(?:blender|process|python)_[a-z_]+\b|\bup\b")


def scaled(rules: str, factor: float) -> str:
    """The rules with every duration multiplied: how long they wait, and how far they look back."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[0][:-1]) * _SECONDS[found[0][-1]] * factor
        return f"{max(1, round(1000 * seconds))}ms"

    return _DURATION.sub(shorter, rules)


def alerts() -> list[dict[str, Any]]:
    """Every alert."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that shows something."""
    return [p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"]


def expressions() -> dict[str, list[str]]:
    """What each alert and panel asks for."""
    found: dict[str, list[str]] = {}
    for alert in alerts():
        found.setdefault(f"alert {alert['alert']}", []).append(alert["expr"])
    for panel in panels():
        found[f"panel {panel['title']}"] = [target["expr"] for target in panel["targets"]]
    for annotation in json.loads(DASHBOARD.read_text())["annotations"]["list"]:
        found[f"annotation {annotation['name']}"] = [annotation["expr"]]
    return found


def as_grafana_asks(expression: str) -> str:
    """With the dashboard's variables replaced, for all instances."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(_METRIC.findall(expression))
