"""The dashboard asks for what the processes tell, and for nothing else."""

import json
import math
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from blendstream.agents.gateway.state.metrics import GATEWAY
from blendstream.agents.jobs.metrics import _LOG_REGISTRY, JOBS, REPORTS
from blendstream.agents.worker.metrics import WORKER
from tests.prometheus_rules import DASHBOARD, as_grafana_asks, expressions, metrics_in, panels
from tests.prometheus_server import Prometheus
from tests.service.waiting import wait_for


def declared() -> set[str]:
    """Every name that a scrape may hold."""
    names = {"up"}
    for registry in (WORKER, GATEWAY, JOBS, _LOG_REGISTRY):
        for family in registry.collect():
            suffixes = {
                "counter": ["_total"],
                "histogram": ["_bucket", "_sum", "_count"],
                "info": ["_info"],
            }.get(family.type, [""])
            names |= {family.name + suffix for suffix in suffixes}
    return names


def test_every_metric_of_a_panel_or_an_alert_exists():
    """A renamed metric would leave an empty panel, or an alert that never fires."""
    known = declared()
    unknown = {
        place: sorted(missing)
        for place, found in expressions().items()
        if (missing := set().union(*map(metrics_in, found)) - known)
    }

    assert not unknown


def test_a_metric_that_does_not_exist_would_be_noticed():
    assert metrics_in('sum(rate(blender_no_such_total{a="b"}[5m])) / up') == {
        "blender_no_such_total",
        "up",
    }
    assert "blender_no_such_total" not in declared()


def test_every_metric_is_on_the_dashboard():
    """What nobody looks at need not be measured."""
    shown = set().union(
        *(
            metrics_in(e)
            for place, found in expressions().items()
            for e in found
            if "panel" in place
        )
    )
    bases = {re.sub(r"_(total|bucket|sum|count|info)$", "", name) for name in shown}
    ours = {
        family.name
        for registry in (WORKER, GATEWAY, JOBS, _LOG_REGISTRY)
        for family in registry.collect()
        if family.name.startswith("blender_")
    }

    assert ours == {name for name in bases if name.startswith("blender_")}


def test_panels_are_told_apart_and_explained():
    text = DASHBOARD.read_text()
    found = panels()

    assert len({panel["id"] for panel in found}) == len(found)
    assert len({panel["title"] for panel in found}) == len(found)
    assert all(panel["description"].endswith(".") for panel in found)
    for row in ("Ingestion", "Counting", "Epochs", "Budget and quality", "Finalisation", "Health"):
        assert f'"title": "{row}"' in text


def test_no_panel_lies_on_another():
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_whoever_is_on_call_sees_first_what_fires():
    first = min(panels(), key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"]))

    assert [target["expr"] for target in first["targets"]] == ['ALERTS{alertstate="firing"}']


def test_bytes_and_other_numbers_have_axes_of_their_own():
    """Four late frames beside four million bytes are a flat line, or read as 4 B."""
    apart = 0
    for panel in panels():
        sizes = {
            target["legendFormat"]: "bytes" in target["expr"]
            for target in panel["targets"]
            if "legendFormat" in target
        }
        if len(set(sizes.values())) < 2:
            continue
        apart += 1
        fields = panel["fieldConfig"]
        assert fields["defaults"]["unit"] != "bytes", panel["title"]
        moved = {
            override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
            for override in fields["overrides"]
        }
        assert moved == {
            name: {"unit": "bytes", "custom.axisPlacement": "right"}
            for name, is_size in sizes.items()
            if is_size
        }, panel["title"]
    assert apart == 3


def test_who_holds_a_lease_is_told_by_name():
    (jobs,) = [panel for panel in panels() if panel["title"] == "Jobs"]

    assert "{{kind}} held by {{instance}}" in [t["legendFormat"] for t in jobs["targets"]]


def test_an_empty_panel_says_none():
    """Grafana's "No data" reads as if something were broken."""
    for panel in panels():
        said = panel["fieldConfig"]["defaults"]["noValue"]
        assert said in ("none", "No alert fires."), panel["title"]


def test_publications_are_marked_and_the_runbook_is_a_click_away():
    dashboard = json.loads(DASHBOARD.read_text())

    (marks,) = dashboard["annotations"]["list"]
    assert (marks["name"], marks["enable"]) == ("Publications", True)
    assert [link["url"] for link in dashboard["links"]] == ["${runbook}"]
    (alerts,) = [panel for panel in panels() if panel["title"] == "Firing alerts"]
    (link,) = alerts["fieldConfig"]["overrides"][0]["properties"]
    assert link["value"][0]["url"] == "${runbook}#${__value.text}"


def test_an_instance_can_be_chosen_where_panels_are_about_processes():
    """The other rows are about the service as a whole, whichever process tells it."""
    dashboard = json.loads(DASHBOARD.read_text())
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    row = ""
    for panel in dashboard["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        for target in panel.get("targets", ()):
            ours = metrics_in(target["expr"])
            chosen = target["expr"].count('{instance=~"$instance"')
            assert chosen == (len(ours) if row in ("Ingestion", "Counting", "Health") else 0)

    assert names == ["source", "instance", "runbook"]


# --- a service that nobody has sent anything to ---------------------------------------------------


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, with each process's metrics as they are before its first request."""
    REPORTS.set(math.nan)  # as a jobs process sets it while nothing is published
    processes = {"gateway": [GATEWAY], "worker": [WORKER], "jobs": [JOBS, _LOG_REGISTRY]}
    servers = {name: _serving(registries) for name, registries in processes.items()}
    places = {name: f"http://127.0.0.1:{s.server_port}/metrics" for name, s in servers.items()}
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), places)
    try:
        wait_for(prometheus.all_up, "Prometheus sees every process", 60)
        wait_for(
            lambda: (
                (prometheus.ask("query", query="rate(process_cpu_seconds_total[1m])") or {}).get(
                    "result"
                )
                or None
            ),
            "a rate has two samples",
            60,
        )
        yield prometheus
    finally:
        prometheus.close()
        for server in servers.values():
            server.shutdown()
            server.server_close()


def _serving(registries: list[CollectorRegistry]) -> ThreadingHTTPServer:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"".join(map(generate_latest, registries))
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.mark.long
def test_every_query_is_answered_while_nothing_happens(idle):
    """The first evening with a new service: zeros and "none", and nothing that looks broken."""
    wrong = {}
    for place, found in expressions().items():
        for expression in found:
            data = idle.ask("query", query=as_grafana_asks(expression))
            if data is None:
                wrong[place, expression] = "not answered"
            elif not place.startswith("alert ") and any(
                math.isnan(float(sample["value"][1])) for sample in data["result"]
            ):
                wrong[place, expression] = "NaN"
    assert wrong == {}


@pytest.mark.long
def test_no_publication_is_marked_while_nothing_happens(idle):
    """A mark that is always there says nothing; that it comes is shown by a service that runs."""
    (asked,) = expressions()["annotation Publications"]

    assert (idle.ask("query", query=asked) or {}).get("result") == []
