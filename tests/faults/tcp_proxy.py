"""A proxy between Kafka clients and a broker that can lose a reply at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Mapping

from blendstream.agents.local.ports import free_port

#: Kafka's number for the request that ends a transaction.
END_TXN = 26


class CuttingProxy:
    """Passes everything on; once armed, forwards the next EndTxn, drops its reply and every
    connection, and takes no new one until `mend`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.broker_port = free_port()
        self._armed = threading.Event()
        self._down = threading.Event()
        self.cut = threading.Event()
        self._connections: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def broker_options(self, kafka_port: int, controller_port: int) -> Mapping[str, str]:
        """A second listener of the broker, which advertises this proxy's address to its clients."""
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka_port},"
            f"PROXIED://127.0.0.1:{self.broker_port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka_port},"
            f"PROXIED://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }

    def arm(self) -> None:
        self.cut.clear()
        self._armed.set()

    def mend(self) -> None:
        self._down.clear()

    def close(self) -> None:
        self._server.close()
        self._drop_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._down.is_set():
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                client.close()
                continue
            self._connections |= {client, broker}
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._replies, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        try:
            while True:
                head = _exactly(client, 4)
                body = _exactly(client, struct.unpack(">i", head)[0])
                ends = struct.unpack(">h", body[:2])[0] == END_TXN
                if ends and self._armed.is_set():
                    self._armed.clear()
                    self._down.set()  # The replies' side stops passing anything on.
                    broker.sendall(head + body)
                    time.sleep(1.0)  # The broker commits.
                    self._drop_all()
                    self.cut.set()
                    return
                broker.sendall(head + body)
        except OSError:
            _shut(client, broker)

    def _replies(self, broker: socket.socket, client: socket.socket) -> None:
        try:
            while data := broker.recv(65536):
                if self._down.is_set():
                    continue
                client.sendall(data)
        except OSError:
            pass
        _shut(client, broker)

    def _drop_all(self) -> None:
        held, self._connections = self._connections, set()
        _shut(*held)


def _exactly(source: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = source.recv(n - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
