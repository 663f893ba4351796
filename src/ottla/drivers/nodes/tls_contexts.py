"""OpenSSL's contexts out of `ssl.*` settings and the bytes of the stores that they name.

Keys go to OpenSSL through memory that only this process can open (`ottla.tls_handshakes.load_identity`), never through
a file of their own.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.security.certificates import Certificate, read_certificate
from ottla.security.key_stores import (
    STORE_BYTES_MAX,
    KeyStore,
    StoreError,
    key_store,
    pem_certificates,
    pem_key_store,
    trusted_certificates,
)
from ottla.security.tls_settings import TlsSettings
from ottla.tls_handshakes import TlsContexts, load_identity, reason_of, shake_hands

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Stores(NamedTuple):
    """What the settings name, as it was read."""

    settings: TlsSettings
    files: Mapping[str, bytes]
    """Content by path."""

    def __repr__(self) -> str:
        return f"Stores({', '.join(self.files)})"


class Loaded(NamedTuple):
    """A listener's contexts and where they come from."""

    stores: Stores
    contexts: TlsContexts
    certificate: Certificate | None
    """The node's own."""
    untrusted: str | None
    """Why the node's own certificate is not accepted by its own trust store; None if it is."""


def read_stores(settings: TlsSettings, read: Callable[[str], bytes]) -> Stores:
    """Raises OttlaError for a file that cannot be read."""
    files: dict[str, bytes] = {}
    for path in settings.files:
        try:
            files[path] = read(path)
        except OSError as error:
            raise OttlaError(f"{path} cannot be read: {error.strerror or error}") from None
        if len(files[path]) > STORE_BYTES_MAX:
            raise OttlaError(f"{path} has more than {STORE_BYTES_MAX} bytes: it is no key store or trust store")
    return Stores(settings, files)


def load(stores: Stores, *, serves: bool) -> Loaded:
    """`serves`: whether a listener uses them, which needs a key. Raises OttlaError for stores that are not usable."""
    settings = stores.settings
    identity = _identity(stores)
    trusted = _trusted(stores)
    if serves and identity is None:
        raise OttlaError(
            "ssl.keystore.location is missing: give a file with the node's key and certificate, or with "
            "ssl.keystore.type=PEM both as ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    client = _client(settings, identity, trusted)
    server = _server(settings, identity, trusted) if identity is not None else None
    certificate = None if identity is None else _read(identity.chain[0])
    untrusted = None if server is None else refusal(server, _unnamed(settings, identity, trusted))
    return Loaded(stores, TlsContexts(server, client, settings.suites), certificate, untrusted)


def refusal(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Why these two would not connect to each other; None if they would."""
    try:
        shake_hands(server, client)
    except (ssl.SSLError, ValueError) as error:
        return reason_of(error)
    return None


def _read(certificate: bytes) -> Certificate:
    try:
        return read_certificate(certificate)
    except ValueError as error:
        raise OttlaError(f"the certificate cannot be read: {error}") from None


def _identity(stores: Stores) -> KeyStore | None:
    store = stores.settings.key_store
    password = stores.settings.key_password
    try:
        if store.location is not None:
            return key_store(stores.files[store.location], store.kind, store.password, password)
        if store.key is not None and store.certificates is not None:
            return pem_key_store(store.key, store.certificates, password)
    except StoreError as error:
        raise OttlaError(f"the key store {store.location or 'of the settings'} cannot be used: {error}") from None
    return None


def _trusted(stores: Stores) -> tuple[bytes, ...] | None:
    """None: the authorities that the system trusts."""
    store = stores.settings.trust_store
    try:
        if store.location is not None:
            return trusted_certificates(stores.files[store.location], store.kind, store.password)
        if store.certificates is not None:
            return pem_certificates(store.certificates)
    except StoreError as error:
        raise OttlaError(f"the trust store {store.location or 'of the settings'} cannot be used: {error}") from None
    return None


def _server(settings: TlsSettings, identity: KeyStore, trusted: tuple[bytes, ...] | None) -> ssl.SSLContext:
    context = _common(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings, identity)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = _VERIFY[settings.client_auth]
    if trusted is not None:
        _trust(context, trusted)
    return context


def _client(settings: TlsSettings, identity: KeyStore | None, trusted: tuple[bytes, ...] | None) -> ssl.SSLContext:
    context = _common(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings, identity)
    context.check_hostname = settings.checks_names
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted)
    return context


def _unnamed(settings: TlsSettings, identity: KeyStore | None, trusted: tuple[bytes, ...] | None) -> ssl.SSLContext:
    return _client(settings._replace(checks_names=False), identity, trusted)


def _common(context: ssl.SSLContext, settings: TlsSettings, identity: KeyStore | None) -> ssl.SSLContext:
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # A trusted certificate need not be a root, as in Java: a company's own authority often has one above it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.ciphers:
        for each in settings.ciphers:
            _set_ciphers(context, each, each)
        _set_ciphers(context, ":".join(settings.ciphers), "")
    if identity is not None:
        _identify(context, identity)
    return context


def _set_ciphers(context: ssl.SSLContext, names: str, shown: str) -> None:
    try:
        context.set_ciphers(names)
    except ssl.SSLError:
        raise OttlaError(f"ssl.cipher.suites has {shown or names}, which OpenSSL does not know or allow") from None


def _identify(context: ssl.SSLContext, identity: KeyStore) -> None:
    try:
        load_identity(context, identity.pem, identity.password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OttlaError("the private key does not belong to the certificate") from None
        if identity.password is not None:
            raise OttlaError("the private key cannot be decrypted: ssl.key.password is wrong") from None
        raise OttlaError(f"the private key or the certificate cannot be used: {reason_of(error)}") from None


def _trust(context: ssl.SSLContext, trusted: tuple[bytes, ...]) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise OttlaError(f"the trust store has a certificate that cannot be used: {reason_of(error)}") from None
