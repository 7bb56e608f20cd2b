"""A Kafka that speaks TLS and asks for a certificate and a password, a Redis that does likewise.

Kafka's second listener is SASL_SSL with mutual TLS; its plain one stays for the stack's own
questions. Redis has an ACL user, and TLS ends in a small relay before it, since not every server
that tests may run on was built with TLS.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from blendstream.agents.local import LocalKafka
from blendstream.agents.local.ports import free_port

USER, PASSWORD, KEY_PASSWORD = "blender", "of-nobody-else", "unlocks-the-key"


class Authority:
    """Signs certificates for this test run, each as PEM files in its folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(self._name, self._key.public_key(), authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, *, password: str | None = None) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, locked if a password is given."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(_pem(self._signed(subject, key.public_key(), authority=False)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode())
                if password
                else serialization.NoEncryption(),
            )
        )
        key_file.chmod(0o600)
        return certificate, key_file

    def _signed(self, subject: x509.Name, key: Any, *, authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=12))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(_usage(authority), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(here, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _usage(authority: bool) -> x509.KeyUsage:
    """Permitted uses of a key. Python 3.13 and newer reject an authority without them."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_encipherment=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class SecuredKafka(LocalKafka):
    """`secured` is the listener that asks who comes, by certificate and by password."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.secured_port = free_port()
        super().__init__()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            added = UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([added])[USER].result(20)

    @property
    def secured_url(self) -> str:
        return f"kafka+ssl://127.0.0.1:{self.secured_port}"

    def _properties(self) -> dict[str, str]:
        certificate, key = self._authority.issue("kafka")
        both = self._authority.folder / "kafka-both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        plain = super()._properties()
        listener = "listener.name.secured"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return plain | {
            "listeners": f"{plain['listeners']},SECURED://127.0.0.1:{self.secured_port}",
            "advertised.listeners": f"{plain['advertised.listeners']},"
            f"SECURED://127.0.0.1:{self.secured_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SECURED:SASL_SSL",
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(both),
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": str(self._authority.file),
            f"{listener}.ssl.client.auth": "required",
            f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{listener}.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
            f'PlainLoginModule required user_{USER}="{PASSWORD}";',
            f"{listener}.scram-sha-256.sasl.jaas.config": scram,
            f"{listener}.scram-sha-512.sasl.jaas.config": scram,
        }


class TlsRelay:
    """Takes TLS connections and passes what they carry to a port of this machine."""

    def __init__(self, certificate: Path, key: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with (
                self._context.wrap_socket(client, server_side=True) as near,
                socket.create_connection(("127.0.0.1", self._to)) as far,
            ):
                back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
                back.start()
                _pass_on(near, far)
                back.join()
        except OSError:
            pass  # Whoever came has left, or was not let in: theirs to tell.


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65_536):
            other.sendall(data)
    except OSError:
        pass
    finally:
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
