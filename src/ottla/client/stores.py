"""What a client's stores have: the certificates to trust, or its own certificate and key."""

from __future__ import annotations

from ottla.client.security import SecurityFailure, Store
from ottla.config.secret import Secret
from ottla.security.key_stores import KeyStore, StoreError, key_store, pem_key_store, trusted_certificates

_PEM = b"-----BEGIN "


def trusted(store: Store) -> tuple[bytes, ...]:
    """Certificates in DER. Raises SecurityFailure, whose text names the file."""
    data = store.read()
    kind = _kind(store, data)
    try:
        return trusted_certificates(data, kind, None if kind == "PEM" else _text(store.password))
    except StoreError as error:
        raise SecurityFailure(f"the trust store {named(store)} cannot be used: {error}") from None


def identity(certificate: Store, key: Store, key_password: Secret | None) -> KeyStore:
    """The client's key and chain. Raises SecurityFailure, whose text names the file."""
    password = _text(key_password)
    try:
        if certificate == key:
            data = key.read()
            kind = _kind(key, data)
            return key_store(data, kind, None if kind == "PEM" else _text(key.password), password)
        return pem_key_store(_pem(key), _pem(certificate), password)
    except StoreError as error:
        raise SecurityFailure(f"the key store {named(key)} cannot be used: {error}") from None


def named(store: Store) -> str:
    return store.location or "of the settings"


def _kind(store: Store, data: bytes) -> str:
    """What the bytes say: Java's default is JKS, whatever the file is."""
    return "PEM" if store.kind == "PEM" or _PEM in data[:65536] else "JKS"


def _pem(store: Store) -> str:
    try:
        return store.read().decode()
    except UnicodeDecodeError:
        raise StoreError(f"{named(store)} is not PEM") from None


def _text(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
