"""Run a real nginx on this machine with the configuration for production (`deploy/edge`).

Only addresses, paths and the user differ. The certificate is self-signed: clients must trust the
file `certificate`, for example with `curl --cacert`.
"""

import datetime
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from blendstream.agents.local.local_server import LocalPart
from blendstream.agents.local.ports import free_port
from blendstream.agents.local.process_guard import StackError

__all__ = ["LocalEdge", "configuration", "find_nginx", "write_certificate"]

#: Where packages install it; these folders may not be on a user's PATH.
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin")


class LocalEdge(LocalPart):
    """nginx on a port of 127.0.0.1, in front of gateways that may start later.

    - Gateways listen on the sockets in its folder (`socket`), or at the addresses in `gateways`,
      which have the form of nginx's `server`.
    - `plain_port` adds a listener without TLS, for tests that count bytes.
    - `changes` replaces text of the configuration, as an operator would.
    """

    name = "nginx"
    ready_within_s = 20.0
    in_memory = True

    def __init__(
        self,
        *,
        port: int | None = None,
        plain_port: int | None = None,
        gateways: Sequence[str] = (),
        changes: Sequence[tuple[str, str]] = (),
        days: float = 30,
    ) -> None:
        self.port = port or free_port()
        self.plain_port = plain_port
        self._gateways = gateways
        self._changes = changes
        self._days = days
        super().__init__(None)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def socket(self, number: int = 1) -> Path:
        """Return the socket for a gateway (`gateway.unix_socket`), number 1 or 2."""
        return self.folder / f"gateway-{number}.sock"

    @property
    def certificate(self) -> Path:
        return self.folder / "tls.crt"

    def _prepare(self) -> None:
        self._binary = find_nginx()
        (self.folder / "edge").mkdir()
        write_certificate(self.folder, days=self._days)
        listen = f"listen 127.0.0.1:{self.port} ssl http2 backlog=4096;"
        if self.plain_port:
            listen += f"\n        listen 127.0.0.1:{self.plain_port} backlog=4096;"
        changes = []
        if self._gateways:
            servers = "\n".join(f"        server {each} max_fails=0;" for each in self._gateways)
            changes = [("        keepalive 256;", f"{servers}\n        keepalive 256;")]
        text = configuration(
            # As root, nginx would give its folders to a user who has no access to this one.
            ("user www-data;", "user root;" if os.geteuid() == 0 else ""),
            ("listen 443 ssl http2 backlog=4096;", listen),
            ("/etc/blendstream/tls/", f"{self.folder}/"),
            ("/run/blendstream-edge/", f"{self.folder}/edge/"),
            ("unix:/run/blendstream/", f"unix:{self.folder}/"),
            *changes,
            *self._changes,
        )
        (self.folder / "nginx.conf").write_text(text)

    def _command(self) -> list[str]:
        own = f"daemon off; pid {self.folder}/nginx.pid;"
        return [str(self._binary), "-e", "stderr", "-p", str(self.folder), "-c", "nginx.conf",
                "-g", own]  # fmt: skip

    def _answers(self) -> bool:
        try:
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=2) as plain,
                self.trust().wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                return True
        except OSError:
            return False

    def trust(self) -> ssl.SSLContext:
        """Return a TLS context that trusts only this edge."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def reload(self) -> None:
        """Send SIGHUP: nginx rereads certificate and configuration, and completes open requests."""
        os.kill(self.server.pid, signal.SIGHUP)


def configuration(*changes: tuple[str, str]) -> str:
    """Return the shipped nginx.conf with these replacements; each must match some text."""
    installed = Path(__file__).with_name("nginx.conf")  # put there when the wheel is built
    here = Path(__file__).resolve().parents[2] / "deploy/edge/nginx.conf"
    text = (installed if installed.exists() else here).read_text()
    for old, new in changes:
        if old not in text:
            raise StackError(f"nginx.conf must contain {old!r} for this change, and does not")
        text = text.replace(old, new)
    return text


def find_nginx() -> Path:
    """Find nginx on the PATH or where system packages put it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_SBIN])
    if found := shutil.which("nginx", path=path):
        return Path(found)
    raise StackError(
        "nginx must be installed, and it is not on the PATH. Install it (Debian: apt-get install "
        "nginx; macOS: brew install nginx), or leave the edge out."
    )


def write_certificate(folder: Path, *, days: float = 30) -> None:
    """Write tls.crt and tls.key for 127.0.0.1, self-signed, each replaced as a whole."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A distinct name, by which clients distinguish several trusted certificates.
    title = f"blendstream on this machine, {secrets.token_hex(4)}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    now = datetime.datetime.now(datetime.UTC)
    addresses: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.DNSName("localhost"),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    for file, content in (("tls.key", private), ("tls.crt", public)):
        new = folder / f"{file}.new"
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.replace(folder / file)
