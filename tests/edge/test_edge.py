"""The rules of the edge: docs/install.md lists them, and names the test of each."""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest

from blendstream.agents.gateway.http.responses import _TITLES
from blendstream.agents.local.local_edge import LocalEdge, configuration, find_nginx
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import StackError
from blendstream.streams.wire.submissions import MAX_BODY_BYTES
from tests.edge.attacks import HONEST

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def check_problem(response: httpx.Response, status: int) -> None:
    """The edge's own errors have the form and the words of the gateway's."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    body = response.json()
    assert set(body) == {"title", "status", "detail"}
    assert body["status"] == status
    if status in _TITLES and status != 429:
        assert body["title"] == _TITLES[status]


def unfinished(port: int, size: int, source: str = "127.0.0.1", sent: int = 1) -> socket.socket:
    """A connection whose body of this size has begun."""
    connection = socket.create_connection(
        ("127.0.0.1", port), timeout=20, source_address=(source, 0)
    )
    head = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    connection.sendall(head % size + b" " * sent)
    return connection


def closed_after(connection: socket.socket) -> float:
    """Seconds until the other side closes, without another byte from here."""
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return time.monotonic() - began


def test_a_body_over_the_limit_is_refused_and_one_within_reaches_the_gateway(behind_edge):
    """The edge buffers bodies: without a limit one request would fill its memory."""
    assert f"client_max_body_size {MAX_BODY_BYTES // 1024}k;" in configuration()
    with behind_edge.client() as client:
        check_problem(client.post("/v1/reports", content=b" " * (MAX_BODY_BYTES + 1)), 413)
        within = client.post("/v1/reports", content=b" " * MAX_BODY_BYTES)
    assert "detail" in within.json()
    assert within.json()["detail"] not in configuration(), "the gateway answered"


def test_slow_handshakes_heads_and_bodies_are_closed_by_their_deadlines():
    """Each of them holds a connection; 10 s in production, 1 s here."""
    text = configuration()
    assert "client_header_timeout 10s;" in text
    assert "client_body_timeout 10s;" in text
    changes = [(f"client_{part}_timeout 10s", f"client_{part}_timeout 1s") for part in
               ("header", "body")]  # fmt: skip
    with LocalEdge(plain_port=free_port(), changes=changes) as edge:
        assert edge.plain_port is not None
        handshake = socket.create_connection(("127.0.0.1", edge.port), timeout=10)
        head = socket.create_connection(("127.0.0.1", edge.plain_port), timeout=10)
        head.sendall(b"GET / HTTP/1.1\r\nx: ")
        for connection in (handshake, head, unfinished(edge.plain_port, 100)):
            with connection:
                assert closed_after(connection) < 5


def test_one_address_has_a_hundred_requests_at_once_and_others_are_served(behind_edge):
    """One machine must not use up all connections to the gateway."""
    port = behind_edge.edge.plain_port
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(unfinished(port, 1000, "127.0.0.9"))
        time.sleep(0.5)
        local = httpx.HTTPTransport(local_address="127.0.0.9")
        with httpx.Client(transport=local, base_url=f"http://127.0.0.1:{port}") as client:
            refused = client.get("/healthz")
            check_problem(refused, 429)
            assert int(refused.headers["retry-after"]) > 0
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


def test_nobody_logs_an_address_a_path_or_a_query(behind_edge):
    """Who sent, when and what for is nobody's business; errors are where it slips out."""
    port = behind_edge.edge.plain_port
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), source_address=(HONEST, 0)) as rude,
    ):
        rude.sendall(b"GET /of-nobody HTTP/1.1\r\nhost: x\r\nx\0\r\n\r\n")
        rude.recv(100)
    with behind_edge.client() as client:
        client.post("/v1/reports?of-nobody", content=b" " * (MAX_BODY_BYTES + 1))
        client.get("/v1/of-nobody?of-nobody")
        client.get("/" + "of-nobody" * 2000)
    edge = behind_edge.edge
    assert edge.server.printed() == ""
    written = behind_edge.gateway.output()
    assert "of-nobody" not in written
    assert HONEST not in written
    assert "127.0.0.1" not in written.partition("gateway_started")[2]
    known = {"nginx.conf", "nginx.pid", "tls.crt", "tls.key", "server.log", "edge"}
    assert {file.name for file in edge.folder.iterdir()} == {*known, "gateway-1.sock"}


def test_a_gateway_never_learns_an_address():
    """It needs none, and what it does not know it cannot log."""
    with (
        socket.create_server(("127.0.0.1", 0)) as gateway,
        LocalEdge(
            plain_port=free_port(), gateways=[f"127.0.0.1:{gateway.getsockname()[1]}"]
        ) as edge,
        socket.create_connection(
            ("127.0.0.1", edge.plain_port or 0), source_address=(HONEST, 0)
        ) as device,
    ):
        device.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 10.9.8.7\r\n\r\n")
        gateway.settimeout(5)
        reached, _ = gateway.accept()
        with reached:
            head = reached.recv(4096)
    assert head.startswith(b"GET /healthz HTTP/1.1\r\n")
    assert HONEST.encode() not in head
    assert b"10.9.8.7" not in head


def test_publications_are_cached_under_few_addresses_and_never_confused(behind_edge):
    """Varied arguments, escapes or headers would fill the tmpfs; a wrong key mixes up readers."""
    folder = behind_edge.edge.folder / "edge" / "cache"

    def hit(path: str, **headers: str) -> bool:
        name = {key.replace("_", "-"): value for key, value in headers.items()}
        for _ in range(2):
            response = client.get(path, headers=name)
            assert response.status_code == 200
        return response.headers.get("cache-status") == "edge; hit"

    with behind_edge.client() as client:
        assert hit("/openapi.json")
        assert hit("/v1/epochs")
        assert hit("/v1/estimates/latest")
        csv = "/v1/estimates/latest?format=csv"
        assert hit(csv)
        assert client.get(csv).headers["content-type"].startswith("text/csv")
        assert hit("/v1/estimates/latest", accept="text/csv")
        kinds = {
            accept: client.get("/v1/estimates/latest", headers={"accept": accept})
            .headers["content-type"]
            .partition(";")[0]
            for accept in ("application/json", "text/csv", "text/csv;q=0.1, application/json")
        }
        assert kinds == {
            "application/json": "application/json",
            "text/csv": "text/csv",
            "text/csv;q=0.1, application/json": "application/json",
        }
        tag = client.get("/v1/estimates/latest").headers["etag"]
        again = client.get("/v1/estimates/latest", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        stored = len([file for file in folder.rglob("*") if file.is_file()])
        for number in range(20):
            assert not hit(f"/openapi.json?{number}")
            assert not hit("/openapi.json", accept=f"*/*, x/y{number}")
            assert not hit("/openapi.json", origin=f"https://{number}.example")
        assert not hit("/%6fpenapi.json")
        assert not hit("/v1/epochs?")
        assert not hit("/v1/estimates/1")
        client.get("/v1/estimates/999")
        client.get("/v1/head-lists/" + "0" * 64)
        assert len([file for file in folder.rglob("*") if file.is_file()]) == stored


def test_http2_tls_compression_and_no_version(behind_edge):
    """Devices' libraries choose HTTP/2 where it is offered; a version invites its known holes."""
    edge = behind_edge.edge
    trust = edge.trust()
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", edge.port)) as plain,
        trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.selected_alpn_protocol() == "h2"
        assert connection.version() in {"TLSv1.2", "TLSv1.3"}
    with behind_edge.client() as client:
        packed = client.get("/v1/estimates/1", headers={"accept-encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        plain_text = client.get("/v1/estimates/1", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain_text.headers
        assert packed.content == plain_text.content
        for response in (packed, client.get("/", headers={"x": "y" * 9000})):
            assert response.headers["server"] == "nginx"


def test_errors_of_the_edge_are_problems_with_advice(behind_edge):
    """A device reads one form of error, whoever refuses."""
    with behind_edge.client() as client:
        check_problem(client.get("/" + "x" * 9000), 414)
        check_problem(client.get("/", headers={"x": "y" * 9000}), 431)
        check_problem(client.request("TRACE", "/"), 405)
    check_problem(httpx.get(f"http://127.0.0.1:{behind_edge.edge.port}/"), 400)  # no TLS
    with LocalEdge() as nobody_behind:
        answer = httpx.get(nobody_behind.url, verify=nobody_behind.trust())
        check_problem(answer, 502)
        assert answer.headers["retry-after"] == "5"


class SmallTmpfs(LocalEdge):
    """Its bodies have one MiB."""

    def _command(self) -> list[str]:
        mount = f'mount -t tmpfs -o size=1m none {self.folder}/edge && exec "$@"'
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--mount", "sh", "-c", mount, "sh", *super()._command()]


@pytest.fixture
def nearly_full(behind_edge) -> Iterator[LocalEdge]:
    gateways = [f"unix:{behind_edge.edge.socket()}"]
    with SmallTmpfs(plain_port=free_port(), gateways=gateways) as edge:
        yield edge


def test_a_full_tmpfs_refuses_large_bodies_and_writes_nothing_to_a_disk(behind_edge, nearly_full):
    """Bodies of opt-in records are raw text. Small ones fit the memory and pass."""
    port = nearly_full.plain_port
    master = psutil.Process(nearly_full.server.pid)
    processes = [master, *master.children(recursive=True)]
    # At its start nginx writes the file with its process id.
    at_start = [process.io_counters().write_bytes for process in processes]
    size = 500_000
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(unfinished(port, size, sent=size - 10))
        time.sleep(0.5)
        with unfinished(port, size, sent=size) as whole:
            answer = b""
            with contextlib.suppress(ConnectionError):
                while received := whole.recv(1 << 16):
                    answer += received
        head, _, body = answer.partition(b"\r\n\r\n")
        text = head.decode() + "\r\n"
        response = httpx.Response(
            int(text[9:12]),
            headers=[line.split(": ", 1) for line in text.split("\r\n")[1:] if line],
            content=body,
        )
        check_problem(response, 503)
        assert response.headers["retry-after"] == "5"
        report = behind_edge.report()
        small = httpx.post(f"http://127.0.0.1:{port}/v1/reports", json=report)
        assert small.status_code == 202
    assert [process.io_counters().write_bytes for process in processes] == at_start
    assert nearly_full.server.printed() == ""


def test_a_machine_without_nginx_is_told_in_one_line_what_to_install(monkeypatch, tmp_path):
    """`stack --edge` and tests need it; the demo and the first service do not."""
    monkeypatch.setattr("blendstream.agents.local.local_edge._SBIN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("nginx") is None
    with pytest.raises(
        StackError, match=r"^nginx must be installed.*apt-get install nginx"
    ) as said:
        find_nginx()
    assert "\n" not in str(said.value)
