"""The `ssl.*` settings of a listener, checked: which stores, which versions and cipher suites, who must show what.

What Kafka hands to Java is translated for OpenSSL, and refused where OpenSSL has nothing of the kind: a setting that
asks for protection is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.errors import OttlaError
from ottla.security.key_stores import TYPES

VERSIONS = ("TLSv1.2", "TLSv1.3")
OLD_VERSIONS = ("SSLv3", "TLSv1", "TLSv1.1")
PROTOCOLS = ("TLS", *VERSIONS)

SUITES_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""What OpenSSL offers for TLS 1.3, best first. Python has no way to leave one out."""

CLASSES = ("ssl.engine.factory.class", "ssl.provider")
"""Settings that name a class of Java."""


class StoreSettings(NamedTuple):
    """Where a key store or a trust store is."""

    kind: str
    location: str | None
    password: str | None
    key: str | None = None
    """Inline PEM, of a key store."""
    certificates: str | None = None
    """Inline PEM: the chain, or the trusted ones."""

    def __repr__(self) -> str:
        return f"StoreSettings({self.kind}, {self.location})"

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.certificates is not None or self.key is not None


class TlsSettings(NamedTuple):
    key_store: StoreSettings
    key_password: str | None
    trust_store: StoreSettings
    client_auth: str
    versions: tuple[str, ...]
    """TLSv1.2, TLSv1.3 or both."""
    ciphers: tuple[str, ...]
    """OpenSSL's names for TLS 1.2; empty for its own choice."""
    suites: frozenset[str]
    """Suites of TLS 1.3; empty for all."""
    checks_names: bool
    """Whether a server must prove that it has the name that it was reached by."""
    allows_name_changes: bool
    """Whether a new certificate may have another subject."""
    allows_alternative_name_changes: bool
    """Whether a new certificate may lack an alternative name of the old one."""

    def __repr__(self) -> str:
        return f"TlsSettings({self.key_store!r}, {self.trust_store!r}, {self.client_auth})"

    @property
    def files(self) -> tuple[str, ...]:
        """Files that may change."""
        return tuple(each.location for each in (self.key_store, self.trust_store) if each.location is not None)


Get = Callable[[str], Any]
"""The typed value of a setting, for a listener."""


def tls_settings(get: Get) -> TlsSettings:
    """Raises OttlaError for what cannot be."""
    for name in CLASSES:
        if get(name):
            raise OttlaError(f"{name} is {get(name)}: Ottla loads no classes; omit it, the TLS is OpenSSL's")
    names = get("ssl.endpoint.identification.algorithm") or ""
    if names.lower() not in ("", "https"):
        raise OttlaError(f"ssl.endpoint.identification.algorithm is {names}: allowed is https, or empty for no check")
    versions = _versions(get)
    ciphers, suites, versions = _suites(get("ssl.cipher.suites") or (), versions)
    client_auth = get("ssl.client.auth")
    settings = TlsSettings(
        _key_store(get),
        get("ssl.key.password"),
        _trust_store(get),
        client_auth,
        versions,
        ciphers,
        suites,
        bool(names),
        get("ssl.allow.dn.changes"),
        get("ssl.allow.san.changes"),
    )
    if client_auth != "none" and not settings.trust_store.is_given:
        raise OttlaError(
            f"ssl.client.auth is {client_auth}, but there is no ssl.truststore.location or "
            f"ssl.truststore.certificates: whoever has a certificate of any public authority could connect; name the "
            f"authority of your clients"
        )
    return settings


def _versions(get: Get) -> tuple[str, ...]:
    protocol = get("ssl.protocol")
    if protocol not in PROTOCOLS:
        raise OttlaError(f"ssl.protocol is {protocol}: allowed is one of {', '.join(PROTOCOLS)}")
    enabled = get("ssl.enabled.protocols") or VERSIONS
    for each in enabled:
        if each in OLD_VERSIONS:
            raise OttlaError(f"ssl.enabled.protocols has {each}, which is not safe (RFC 8996); use TLSv1.2 or TLSv1.3")
        if each not in VERSIONS:
            raise OttlaError(f"ssl.enabled.protocols has {each}: allowed are {' and '.join(VERSIONS)}")
    return tuple(each for each in VERSIONS if each in enabled)


def _suites(
    given: tuple[str, ...], versions: tuple[str, ...]
) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...]]:
    """OpenSSL's names for TLS 1.2, those of TLS 1.3, and the versions for which there are any."""
    if not given:
        return (), frozenset(), versions
    newer = [each for each in given if each in SUITES_1_3]
    older = [openssl_name(each) for each in given if each not in SUITES_1_3]
    left = tuple(each for each in versions if (newer if each == "TLSv1.3" else older))
    if not left:
        raise OttlaError(f"ssl.cipher.suites has none for {' or '.join(versions)}: {', '.join(given)}")
    if "TLSv1.3" in left and SUITES_1_3[0] not in newer:
        raise OttlaError(
            f"ssl.cipher.suites has {', '.join(newer)} without {SUITES_1_3[0]}, which OpenSSL chooses first and "
            f"cannot be kept from: add it, or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    return tuple(older), frozenset(newer) if len(newer) < len(SUITES_1_3) else frozenset(), left


_EXCHANGES = {"ECDHE_RSA": "ECDHE-RSA-", "ECDHE_ECDSA": "ECDHE-ECDSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}


def openssl_name(suite: str) -> str:
    """`ECDHE-RSA-AES256-GCM-SHA384` of Java's `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`. Raises OttlaError."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if exchange not in _EXCHANGES or not cipher:
        raise OttlaError(f"ssl.cipher.suites has {suite}, which is unknown or not safe")
    if cipher.startswith("CHACHA20"):
        return f"{_EXCHANGES[exchange]}CHACHA20-POLY1305"
    name, _, rest = cipher.partition("_")
    bits, _, mode = rest.partition("_")
    return f"{_EXCHANGES[exchange]}{name}{bits}-{mode.removeprefix('CBC_').replace('_', '-')}"


def _kind(get: Get, name: str) -> str:
    kind = str(get(name)).upper()
    if kind not in TYPES:
        raise OttlaError(f"{name} is {get(name)}: allowed is one of {', '.join(TYPES)}")
    return kind


def _key_store(get: Get) -> StoreSettings:
    kind = _kind(get, "ssl.keystore.type")
    key, chain = get("ssl.keystore.key"), get("ssl.keystore.certificate.chain")
    location, password = get("ssl.keystore.location"), get("ssl.keystore.password")
    if key is not None or chain is not None:
        _inline(kind, "ssl.keystore", location, password, "ssl.keystore.key and ssl.keystore.certificate.chain")
        if key is None or chain is None:
            missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
            raise OttlaError(f"{missing} is missing: a key and its certificates are given together")
    return StoreSettings(kind, location or None, password, key, chain)


def _trust_store(get: Get) -> StoreSettings:
    kind = _kind(get, "ssl.truststore.type")
    certificates = get("ssl.truststore.certificates")
    location, password = get("ssl.truststore.location"), get("ssl.truststore.password")
    if certificates is not None:
        _inline(kind, "ssl.truststore", location, password, "ssl.truststore.certificates")
    return StoreSettings(kind, location or None, password, None, certificates)


def _inline(kind: str, prefix: str, location: str | None, password: str | None, what: str) -> None:
    if kind != "PEM":
        raise OttlaError(f"{what} can be given only with {prefix}.type=PEM, but it is {kind}")
    if location:
        raise OttlaError(f"{prefix}.location and {what} are both given: remove one")
    if password is not None:
        hint = "; ssl.key.password decrypts the key" if prefix == "ssl.keystore" else ""
        raise OttlaError(f"{prefix}.password is given, but PEM has none{hint}")
