"""Security of a connection: its protocol, certificates and login, as `security_settings.py` reads them from settings.

Immutable, hashable and picklable: a `ClientConfig` has one, travels to Spark's tasks with it, and is the key of kept
connections. No repr shows a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from ottla.config.secret import Secret
from ottla.errors import ErrorCode, KafkaError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
STORE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit of a file of certificates: the bundle of all public CAs has a fifth of a megabyte."""


class SecurityFailure(KafkaError):
    """A connection that security forbids. Its text is a sentence that says what to do; trying again does not help."""

    def __init__(self, sentence: str, code: ErrorCode = ErrorCode.sasl_authentication_failed) -> None:
        super().__init__(code, sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence

    def __reduce__(self) -> tuple[type[SecurityFailure], tuple[str, ErrorCode]]:
        return SecurityFailure, (self.sentence, self.code)


@dataclass(frozen=True)
class Store:
    """Certificates or keys: PEM, PKCS12 or JKS, in a file or at hand."""

    location: str | None = None
    content: bytes | None = field(default=None, repr=False)
    """What the setting itself holds, or what the driver of a Spark job read at `location`."""
    password: Secret | None = None
    kind: str = ""
    """PEM, PKCS12, JKS; empty: what the bytes say."""

    def read(self) -> bytes:
        """The file as it is now; where this machine has none, what another machine read. Raises SecurityFailure."""
        if self.location is None:
            return self.content or b""
        try:
            with Path(self.location).open("rb") as file:
                found = file.read(STORE_BYTES_MAX + 1)
        except OSError as error:
            if self.content is not None:
                return self.content
            raise SecurityFailure(f"{self.location} cannot be read: {error.strerror or error}") from None
        if len(found) > STORE_BYTES_MAX:
            raise SecurityFailure(
                f"{self.location} has more than {STORE_BYTES_MAX} bytes: it is no file of certificates"
            )
        return found

    def stamp(self) -> tuple[int, int]:
        """Changes when the file does: its time of change in nanoseconds and its size."""
        if self.location is not None:
            try:
                found = Path(self.location).stat()
            except OSError:
                return 0, 0
            return found.st_mtime_ns, found.st_size
        return 0, 0

    def carried(self) -> Store:
        """The store with its bytes, for machines that do not have the file. Raises SecurityFailure."""
        return replace(self, content=self.read())


@dataclass(frozen=True)
class Tls:
    """Settings `ssl.*`."""

    trusted: Store | None = None
    """Certificates of CAs; None: those of the system."""
    certificate: Store | None = None
    """The client's own chain, its certificate first."""
    key: Store | None = None
    """The key of the certificate; often the same store."""
    key_password: Secret | None = None
    is_verified: bool = True
    """Whether the broker's certificate must be signed by a trusted CA."""
    is_name_checked: bool = True
    """Whether the certificate must have the name that was connected to."""
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names, for TLS 1.2; empty: OpenSSL's default."""

    def carried(self) -> Tls:
        return replace(
            self,
            trusted=self.trusted and self.trusted.carried(),
            certificate=self.certificate and self.certificate.carried(),
            key=self.key and self.key.carried(),
        )


@dataclass(frozen=True)
class TokenEndpoint:
    """Where OAUTHBEARER gets its tokens: the grant `client_credentials` of OAuth 2 (KIP-768, KIP-1139)."""

    url: str
    """https, or http of a loopback address."""
    client_id: str
    client_secret: Secret
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """SASL extensions (KIP-342) that go with the token."""
    trusted: Store | None = None
    """Certificates of the endpoint's CA; None: those of the system."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0


@dataclass(frozen=True)
class Kerberos:
    """Tickets of GSSAPI: their owner, and the service that they are for. Files, and krb5.conf, are those of the machine
    that connects: Spark's executors need them too."""

    service: str = "kafka"
    """The first part of the brokers' principal."""
    keytab: str | None = None
    """A file of keys; None: tickets are in a cache that kinit fills."""
    principal: str | None = None
    cache: str | None = None
    """A file of tickets; None: the system's default (KRB5CCNAME)."""
    window_factor: float = 0.8
    jitter: float = 0.05
    renewal_seconds_min: float = 60.0


class Bearer(Protocol):
    """A user's own token for OAUTHBEARER, which the console got when the user logged in."""

    def token(self) -> str:
        """The token as it is now. Raises SecurityFailure where it has ended."""
        ...


@dataclass(frozen=True)
class FixedBearer:
    """A token as it was, for a process that lives shorter than it does."""

    value: str = field(repr=False)

    def token(self) -> str:
        return self.value


NO_PASSWORD: Final = Secret("")


@dataclass(frozen=True)
class Login:
    """The mechanism and the credentials of SASL."""

    mechanism: str
    username: str = ""
    password: Secret = NO_PASSWORD
    endpoint: TokenEndpoint | None = None
    """Where OAUTHBEARER gets its tokens."""
    kerberos: Kerberos | None = None
    """Not None with GSSAPI."""
    bearer: Bearer | None = field(default=None, repr=False)
    """A user's own token, instead of an endpoint."""
    by_token: bool = False
    """Whether name and password are the id and the HMAC of a delegation token (KIP-48)."""


@dataclass(frozen=True)
class Security:
    """How to connect to a cluster."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    """Not None with the protocols SSL and SASL_SSL."""
    login: Login | None = None
    """Not None with the protocols SASL_PLAINTEXT and SASL_SSL."""

    def carried(self) -> Security:
        """The same with the bytes of all files in it: the driver of a Spark job reads them, its executors need none.
        Raises SecurityFailure for a file that cannot be read."""
        login = self.login
        if login is not None and login.endpoint is not None and login.endpoint.trusted is not None:
            login = replace(login, endpoint=replace(login.endpoint, trusted=login.endpoint.trusted.carried()))
        return replace(self, tls=self.tls and self.tls.carried(), login=login)

    def as_of_now(self) -> Security:
        """The same for a process that ends soon: with the user's token as it is now, which is not renewed there. Raises
        SecurityFailure where the token has ended."""
        if self.login is None or self.login.bearer is None:
            return self
        return replace(self, login=replace(self.login, bearer=FixedBearer(self.login.bearer.token())))


PLAINTEXT: Final = Security()
