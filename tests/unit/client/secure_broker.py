"""A broker of threads that asks for TLS and a login, and answers nothing else but ApiVersions and Metadata: for what a
client does before its first request, and when its session ends. Certificates of a CA made for the test."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from ottla.config.secret import Secret
from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import AuthenticationFailed, ServerMechanism
from ottla.security.sasl.plain import PlainServer
from ottla.security.sasl.scram import BY_NAME, NONCE_BYTES, ScramServer, Shape, credential, made_up, salted_password

DAY = datetime.timedelta(days=1)


@dataclass
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str | None = None) -> bytes:
        how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)

    def pkcs12(self, password: str) -> bytes:
        how = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, how)


def authority(name: str = "Test CA") -> Pair:
    return issued(None, name)


def issued(by: Pair | None, name: str, hosts: tuple[str, ...] = (), *, days: int = 1) -> Pair:
    """A certificate for `hosts`; without an issuer that of a CA. One of no more days has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if hosts:
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(key if by is None else by.key, hashes.SHA256()), key)


def server_context(own: Pair, directory: Path, client_ca: Pair | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = directory / f"{own.certificate.serial_number}.pem"
    path.write_bytes(own.pem + own.key_pem())
    context.load_cert_chain(path)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.pem.decode())
    return context


class BearerServer:
    """OAUTHBEARER of a broker that takes one token."""

    def __init__(self, tokens: set[str]) -> None:
        self.user: str | None = None
        self.expires_at_s: float | None = None
        self._tokens = tokens
        self._refused = False

    def takes_long(self, token: bytes) -> bool:
        return False

    def step(self, token: bytes) -> bytes:
        if self._refused:
            assert token == b"\x01", "RFC 7628: the client has heard of the refusal"
            raise AuthenticationFailed("Authentication failed")
        text = token.decode()
        if any(f"auth=Bearer {each}\x01" in text for each in self._tokens):
            self.user = "service"
            return b""
        self._refused = True
        return b'{"status":"invalid_token"}'


@dataclass
class SecureBroker:
    """Use it in a `with` statement; `seen` has what was asked on each connection."""

    tls: ssl.SSLContext | None = None
    users: dict[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ()
    """Empty: no login is wanted."""
    tokens: set[str] = field(default_factory=set)
    session_ms: int = 0
    on_session: Callable[[], None] = lambda: None
    seen: list[list[str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Users that have logged in."""

    def __enter__(self) -> SecureBroker:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._opened: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._opened:
            with suppress(OSError):
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self._opened.append(plain)
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        seen: list[str] = []
        self.seen.append(seen)
        with suppress(OSError), plain:
            opened = plain if self.tls is None else self.tls.wrap_socket(plain, server_side=True)
            self._answer(opened, seen)
            with suppress(OSError):
                opened.close()

    def _answer(self, opened: socket.socket, seen: list[str]) -> None:
        login: ServerMechanism | None = None
        is_known = not self.mechanisms
        while True:
            frame = _frame(opened)
            if frame is None:
                return
            try:
                header = messages.read_header(frame)
            except messages.MalformedRequest:
                return
            key = ApiKey(header.api_key)
            seen.append(key.name)
            if key is ApiKey.API_VERSIONS:
                answer: dict[str, Any] = {"error_code": ErrorCode.none, "api_keys": _VERSIONS}
            elif key is ApiKey.SASL_HANDSHAKE:
                name = messages.decode_request(key, header.api_version, frame, header.body_offset).mechanism
                login, code = self._mechanism(name)
                answer = {"error_code": code, "mechanisms": list(self.mechanisms)}
            elif key is ApiKey.SASL_AUTHENTICATE and login is not None:
                token = messages.decode_request(key, header.api_version, frame, header.body_offset).auth_bytes
                answer = self._step(login, bytes(token))
                is_known = login.user is not None
            elif not is_known:
                return  # as Kafka does
            else:
                answer = _METADATA | {"brokers": [{"node_id": 0, "host": "127.0.0.1", "port": self.port, "rack": None}]}
            version = 0 if key is ApiKey.API_VERSIONS and header.api_version > 5 else header.api_version
            body = messages.encode_response(key, version, header.correlation_id, answer)
            opened.sendall(len(body).to_bytes(4, "big") + body)

    def _mechanism(self, name: str) -> tuple[ServerMechanism | None, ErrorCode]:
        if not self.mechanisms:
            return None, ErrorCode.illegal_sasl_state
        if name not in self.mechanisms:
            return None, ErrorCode.unsupported_sasl_mechanism
        if name == "PLAIN":
            return PlainServer({user: Secret(text) for user, text in self.users.items()}), ErrorCode.none
        if name == "OAUTHBEARER":
            return BearerServer(self.tokens), ErrorCode.none
        mechanism, salt = BY_NAME[name], os.urandom(8)
        known = {
            user: credential(mechanism, salted_password(mechanism, text, salt, 4096), salt, 4096)
            for user, text in self.users.items()
        }
        server = ScramServer(
            mechanism, known.get, lambda user: made_up(mechanism, b"secret", user, Shape()), os.urandom(NONCE_BYTES)
        )
        return server, ErrorCode.none

    def _step(self, login: ServerMechanism, token: bytes) -> dict[str, Any]:
        try:
            sent = login.step(token)
        except AuthenticationFailed as error:
            return {
                "error_code": ErrorCode.sasl_authentication_failed,
                "auth_bytes": b"",
                "error_message": error.message or "Authentication failed during authentication",
            }
        if login.user is not None:
            self.names.append(login.user)
            self.on_session()
        lifetime = self.session_ms if login.user is not None else 0
        return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": sent, "session_lifetime": lifetime}


_VERSIONS = [
    {"api_key": key, "min_version": 0, "max_version": last}
    for key, last in ((ApiKey.API_VERSIONS, 5), (ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, 2), (3, 12))
]
_METADATA = {"cluster_id": "c", "controller_id": 0, "topics": []}


def _frame(opened: socket.socket) -> bytes | None:
    head = _exactly(opened, 4)
    if head is None or int.from_bytes(head, "big") > 1 << 20:
        return None  # such as the first message of TLS
    return _exactly(opened, int.from_bytes(head, "big"))


def _exactly(opened: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = opened.recv(count - len(data))
        if not part:
            return None
        data += part
    return data
