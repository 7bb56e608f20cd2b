"""The edge as it is deployed: bodies stay in memory, and no restart leaves it without a gateway."""

import os
import re
import signal
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from blendstream.agents.local.local_edge import LocalEdge, configuration, write_certificate
from blendstream.agents.local.ports import free_port
from blendstream.streams.settings import load_settings
from tests.deploy.deploy_folder import (
    CONTAINER,
    DEPLOY,
    REPOSITORY,
    deployments,
    kubernetes,
    run,
    secrets,
)
from tests.service.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.integration]

SYSTEMD = DEPLOY / "systemd"
SOCKETS = re.findall(r"server unix:(\S+) ", configuration())
FOLDERS = {Path(path).parts[2] for path in re.findall(r"_path (\S+)", configuration())}


def test_nginx_keeps_what_it_writes_in_one_folder():
    """It is the one that every deployment puts on a tmpfs."""
    assert {"blendstream-edge"} == FOLDERS
    assert [f"/run/blendstream/gateway-{number}.sock" for number in (1, 2)] == SOCKETS
    assert "access_log off;" in configuration()
    assert re.findall(r"error_log (\S+ \S+);", configuration()) == ["stderr emerg"]


def test_every_requirement_of_an_edge_names_a_test_that_exists():
    """Operators of another proxy read the test to learn what exactly is asked for."""
    page = (REPOSITORY / "docs" / "install.md").read_text()
    table = page.partition("| what any edge must do |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    written = "".join(file.read_text() for file in (REPOSITORY / "tests/edge").glob("test_*.py"))

    assert len(rows) == 14
    for row in rows:
        (name,) = re.findall(r"`(test_\w+)` \|$", row)
        assert f"def {name}(" in written, name


def test_the_sidecar_shares_a_socket_in_memory_and_stops_before_its_gateway():
    """A gateway that stops first would leave the edge's last requests without an answer."""
    pod = deployments()["gateway"]["spec"]["template"]["spec"]
    gateway, edge = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in edge["volumeMounts"]}
    for path in ("/run/blendstream", "/run/blendstream-edge"):
        assert volumes[mounts[path]]["emptyDir"]["medium"] == "Memory"
        assert volumes[mounts[path]]["emptyDir"]["sizeLimit"]
    variables = {variable["name"]: variable["value"] for variable in gateway["env"]}
    assert variables["BLENDSTREAM_GATEWAY_UNIX_SOCKET"] == SOCKETS[0]
    assert "BLENDSTREAM_GATEWAY_HOST" not in variables
    stops = [int(c["lifecycle"]["preStop"]["exec"]["command"][1]) for c in (edge, gateway)]
    settings = load_settings(DEPLOY / "settings" / "basic.toml", environment=secrets()).settings
    assert stops[0] + settings.gateway.delivery_deadline_s < stops[1]
    (service,) = [d for d in kubernetes() if d["kind"] == "Service"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["https"]
    assert edge["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.parametrize("name", ["compose.yaml", "compose-replicated.yaml"])
def test_compose_runs_two_gateways_behind_an_edge_and_nothing_else_is_reachable(name):
    """With one of them a restart is an outage."""
    compose = yaml.safe_load((CONTAINER / name).read_text())
    services = compose["services"]
    used = [services[n]["environment"]["BLENDSTREAM_GATEWAY_UNIX_SOCKET"] for n in
            ("gateway", "gateway-2")]  # fmt: skip
    assert used == SOCKETS
    assert compose["volumes"]["sockets"]["driver_opts"]["type"] == "tmpfs"
    assert [m.partition(":")[0] for m in services["edge"]["tmpfs"]] == ["/run/blendstream-edge"]
    assert not any("ports" in services[n] for n in ("gateway", "gateway-2"))
    assert services["edge"]["ports"] == ["127.0.0.1:8443:443"]


def test_systemd_shares_a_folder_that_only_nginx_and_gateways_enter():
    unit = (SYSTEMD / "blendstream-gateway@.service").read_text()
    folders = (SYSTEMD / "blendstream-edge.conf").read_text()
    assert "BLENDSTREAM_GATEWAY_UNIX_SOCKET=/run/blendstream/gateway-%i.sock\n" in unit
    assert "d /run/blendstream 2770 root www-data -\n" in folders
    assert "user www-data;" in configuration()
    assert "LimitCORE=0" in (SYSTEMD / "nginx-blendstream.conf").read_text()
    watched = re.findall(r"PathChanged=(.+)", (SYSTEMD / "edge-certificate.path").read_text())
    assert watched == re.findall(r"ssl_certificate (.+);", configuration())


@pytest.mark.parametrize("name", ["edge-certificate.path", "edge-certificate.service"])
def test_systemd_takes_what_reloads_nginx(name):
    """By our reading where there is no systemd."""
    text = (SYSTEMD / name).read_text()
    assert re.findall(r"^\[(\w+)\]", text, re.MULTILINE)[0] == "Unit"
    try:
        ended = run("systemd-analyze", "verify", "--man=no", SYSTEMD / name)
    except FileNotFoundError:
        return
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if name in line]
    assert [line for line in said if "is not executable" not in line] == []


def test_a_container_loads_a_renewed_certificate_and_stops_in_order(tmp_path):
    """Kubernetes replaces the file; nobody reloads nginx there but this script."""
    with LocalEdge(port=free_port()) as made:
        text = (made.folder / "nginx.conf").read_text()
        port = free_port()
        text = text.replace(str(made.folder), str(tmp_path)).replace(f":{made.port} ", f":{port} ")
        binary = str(made._binary.parent)
    (tmp_path / "nginx.conf").write_text(text)
    (tmp_path / "edge").mkdir()
    write_certificate(tmp_path)
    script = [DEPLOY / "edge/serve.sh", tmp_path / "nginx.conf", tmp_path / "tls.crt"]
    path = f"{os.environ['PATH']}:{binary}"
    served = subprocess.Popen(
        list(map(str, script)),
        env={**os.environ, "EDGE_FOLDER": str(tmp_path), "CHECK_S": "0.2", "PATH": path},
    )
    try:
        first = eventually(port, bool)
        write_certificate(tmp_path)
        eventually(port, lambda found: bool(found) and found != first)
        served.send_signal(signal.SIGTERM)
        assert served.wait(10) == 0
    finally:
        served.kill()


def eventually(port: int, holds) -> str:
    """The certificate that is served, once it is as wanted."""

    def served() -> str:
        found = ssl.get_server_certificate(("127.0.0.1", port))
        return found if holds(found) else ""

    return wait_for(served, "the certificate", 20, forgive=OSError)
