"""Open the gateway's listening socket: a unix socket behind an edge, or a TCP address.

Devices reach the gateway through an edge (docs/decisions/0140-an-edge-in-front.md), which waits for
whole requests and closes slow connections. On a unix socket nobody else can connect: the file's
mode admits the gateway's user and group, so the edge's user must be in that group.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from pathlib import Path

from blendstream.agents.process import address_of, listening
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings.sections import GatewaySettings
from blendstream.streams.telemetry.structured_logs import SafeText

__all__ = ["BACKLOG", "SOCKET_MODE", "listen", "listening_address", "needs_edge"]

#: Connections that the kernel queues until the server accepts them.
BACKLOG = 4096
#: Connecting takes permission to write: for the gateway's user and group.
SOCKET_MODE = 0o660


def listen(gateway: GatewaySettings) -> socket.socket:
    """Return a listening socket, or raise `SettingsError` with the setting to change."""
    if gateway.unix_socket is not None:
        return _listen_on_file(gateway.unix_socket)
    family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
    with listening("gateway.host and gateway.port", f"{gateway.host}:{gateway.port}"):
        return socket.create_server((gateway.host, gateway.port), family=family, backlog=BACKLOG)


def listening_address(gateway: GatewaySettings) -> SafeText:
    """Return the address to log: `unix:PATH`, or a URL that a browser takes."""
    if gateway.unix_socket is not None:
        return SafeText(f"unix:{gateway.unix_socket}")
    return address_of(gateway.host, gateway.port, "/")


def needs_edge(gateway: GatewaySettings) -> bool:
    """Return True if other machines can connect without passing an edge on this one."""
    if gateway.unix_socket is not None or gateway.host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(gateway.host).is_loopback
    except ValueError:
        return True


def _listen_on_file(path: Path) -> socket.socket:
    with listening("gateway.unix_socket", str(path)):
        _remove_stale(path)
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.bind(str(path))
            # Before `listen`: until then the kernel refuses everyone, whatever the mode.
            path.chmod(SOCKET_MODE)
            opened.listen(BACKLOG)
        except BaseException:
            opened.close()
            raise
        return opened


def _remove_stale(path: Path) -> None:
    """Delete the file of a gateway that was killed; raise if a process still listens on it."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise SettingsError(
            [f"gateway.unix_socket must be free or a socket, got another kind of file, {path}"]
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a full backlog is an error, not a wait
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
