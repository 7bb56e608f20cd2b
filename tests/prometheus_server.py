"""Debian's Prometheus as a test's own server, with the shipped rules sixty times as fast."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx

from blendstream.agents.local.ports import free_port
from tests.prometheus_rules import ALERTS, scaled
from tests.service.waiting import wait_for

__all__ = ["Prometheus"]


FACTOR = 1 / 60


class Prometheus:
    """A Prometheus server that watches the service."""

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        (folder / "alerts.yml").write_text(scaled(ALERTS.read_text(), FACTOR))
        places = {name: address.split("/")[2] for name, address in targets.items()}
        jobs = "".join(
            f"  - job_name: {name}\n    static_configs: [{{targets: ['{place}']}}]\n"
            for name, place in places.items()
        )
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\n"
            f"rule_files: [alerts.yml]\nscrape_configs:\n{jobs}"
        )
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def ask(self, path: str, **query: str) -> dict[str, Any] | None:
        """The answer's data, or `None` while the server starts or is too busy."""
        try:
            answer = httpx.get(f"{self._url}/api/v1/{path}", params=query, timeout=10)
        except httpx.HTTPError:
            return None
        return answer.json()["data"] if answer.status_code == 200 else None

    def firing(self) -> set[tuple[str, str]] | None:
        """(alert, job) of what fires."""
        data = self.ask("alerts")
        return data and {
            (alert["labels"]["alertname"], alert["labels"].get("job", ""))
            for alert in data["alerts"]
            if alert["state"] == "firing"
        }

    def all_up(self) -> bool:
        """Whether every process was scraped."""
        data = self.ask("query", query="sum(up) == 3")
        return data is not None and bool(data["result"])

    def wait_for(self, alert: tuple[str, str], *, firing: bool, within_s: float = 60) -> None:
        def changed() -> bool:
            found = self.firing()
            return found is not None and (alert in found) is firing

        wait_for(changed, f"{alert} firing={firing}", within_s)
