"""Where the gateway listens: a unix socket for an edge, or an address."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from blendstream.agents.gateway.http.listening import listen, listening_address, needs_edge
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings.sections import GatewaySettings

_LISTEN_AND_WAIT = """
import signal, sys
from pathlib import Path
from blendstream.agents.gateway.http.listening import listen
from blendstream.streams.settings.sections import GatewaySettings
opened = listen(GatewaySettings(unix_socket=Path(sys.argv[1])))
print("listening", flush=True)
signal.pause()
"""


def test_the_socket_file_admits_its_group_and_nobody_else(tmp_path: Path) -> None:
    """The edge runs as another user, in the gateway's group."""
    file = tmp_path / "gateway.sock"
    with listen(GatewaySettings(unix_socket=file)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as edge:
            edge.connect(str(file))


def test_a_killed_gateway_does_not_prevent_the_next_start(tmp_path: Path) -> None:
    """`kill -9` leaves the file behind, and nobody is there to delete it by hand."""
    file = tmp_path / "gateway.sock"
    killed = subprocess.Popen(
        [sys.executable, "-c", _LISTEN_AND_WAIT, str(file)], stdout=subprocess.PIPE
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"listening\n"

    # While it lives, its socket is not taken from it.
    with pytest.raises(SettingsError, match="Address already in use"):
        listen(GatewaySettings(unix_socket=file))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(10)
    killed.stdout.close()

    assert file.is_socket()
    with listen(GatewaySettings(unix_socket=file)), socket.socket(socket.AF_UNIX) as edge:
        edge.connect(str(file))


@pytest.mark.parametrize("name", ["a-file", "missing/gateway.sock", f"{'long' * 40}.sock"])
def test_a_path_that_cannot_be_listened_on_is_one_clear_line(name: str, tmp_path: Path) -> None:
    """A wrong setting must not delete a file, nor end in a traceback."""
    (tmp_path / "a-file").write_text("kept")

    with pytest.raises(SettingsError, match=r"gateway\.unix_socket must be") as refused:
        listen(GatewaySettings(unix_socket=tmp_path / name))

    assert "None" not in str(refused.value)
    assert (tmp_path / "a-file").read_text() == "kept"


@pytest.mark.parametrize(
    ("where", "address", "exposed"),
    [
        ({}, "http://127.0.0.1:8080/", False),
        ({"host": "::1"}, "http://[::1]:8080/", False),
        ({"host": "localhost"}, "http://localhost:8080/", False),
        ({"host": "0.0.0.0"}, "http://0.0.0.0:8080/", True),
        ({"host": "gateway.internal"}, "http://gateway.internal:8080/", True),
        ({"host": "0.0.0.0", "unix_socket": Path("/run/g.sock")}, "unix:/run/g.sock", False),
    ],
)
def test_a_gateway_knows_whether_other_machines_can_reach_it(
    where: dict[str, object], address: str, exposed: bool
) -> None:
    """Slow senders hold its memory unless an edge waits for whole requests."""
    settings = GatewaySettings(**where)  # type: ignore[arg-type]

    assert (listening_address(settings), needs_edge(settings)) == (address, exposed)
