"""`doctor --edge` accepts the shipped edge and names what another one lacks."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from blendstream.agents.cli import main
from blendstream.agents.local.local_edge import LocalEdge
from blendstream.agents.operations import edge_checks

pytestmark = [pytest.mark.integration, pytest.mark.faults]


@pytest.fixture
def findings(monkeypatch, capsys):
    """Run the verb on an edge, which this machine trusts."""

    def run(edge: LocalEdge) -> tuple[int, dict[str, tuple[str, str]]]:
        monkeypatch.setenv("SSL_CERT_FILE", str(edge.certificate))
        code = main(["doctor", "--json", "--edge", edge.url])
        found = json.loads(capsys.readouterr().out)["findings"]
        return code, {one["what"]: (one["grade"], one["found"]) for one in found}

    return run


@contextlib.contextmanager
def changed_edge(behind_edge, *changes: tuple[str, str], days: float = 30) -> Iterator[LocalEdge]:
    gateways = [f"unix:{behind_edge.edge.socket()}"]
    with LocalEdge(gateways=gateways, changes=changes, days=days) as edge:
        yield edge


def test_the_shipped_edge_needs_no_fix(behind_edge, findings):
    """Otherwise nobody would believe it about another edge."""
    # Deadlines of 10 s are tested elsewhere; here nobody waits for them.
    with changed_edge(
        behind_edge,
        ("client_header_timeout 10s", "client_header_timeout 1s"),
        ("client_body_timeout 10s", "client_body_timeout 1s"),
    ) as edge:
        code, found = findings(edge)

    assert {grade for grade, _ in found.values()} == {"ok"}, found
    assert found.keys() == {"tls", "gateway", "body limit", "cache", "slow head", "slow body"}
    assert "expires in 29 days" in found["tls"][1]
    assert code == 0


def test_what_an_edge_lacks_is_named(behind_edge, findings, monkeypatch):
    """Each of them is a line that an operator of another proxy may have left out."""
    monkeypatch.setattr(edge_checks, "LONGEST_WAIT_S", 1.0)
    with changed_edge(
        behind_edge,
        ("server_tokens off;", "server_tokens on;"),
        ("client_max_body_size 512k;", "client_max_body_size 1m;"),
        ("proxy_cache publications;", ""),
    ) as edge:
        code, found = findings(edge)

    assert code == 1
    assert found["gateway"][0] == "fix"
    assert "Server must name no version, got 'nginx/" in found["gateway"][1]
    assert found["cache"][0] == "note"
    assert [found[what][0] for what in ("slow head", "slow body")] == ["fix", "fix"]


def test_a_certificate_that_ends_soon_is_to_be_fixed(behind_edge, findings):
    """It went unnoticed once, and every device stopped."""
    with changed_edge(behind_edge, days=9.5) as edge:
        code, found = findings(edge)
        assert (code, found["tls"][0]) == (1, "fix")
        assert "expires in 9 days" in found["tls"][1]


def test_what_is_no_edge_is_told_in_one_finding(capsys):
    for url, said in (
        ("http://127.0.0.1:1", "devices need https://HOST"),
        ("https://127.0.0.1:1", "must accept connections on port 1, got ConnectionRefusedError"),
    ):
        assert main(["doctor", "--edge", url]) == 1
        assert said in capsys.readouterr().out


def test_an_edge_whose_certificate_nobody_trusts_is_to_be_fixed(behind_edge, capsys):
    """An expired certificate fails in the same way."""
    assert main(["doctor", "--edge", behind_edge.edge.url]) == 1
    assert "must be one that devices trust, got: self-signed certificate" in capsys.readouterr().out
