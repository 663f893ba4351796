"""Keys and certificates out of PEM, PKCS12 and JKS, as bytes that OpenSSL takes. Which one a store is its bytes say:
most files that are called JKS are PKCS12 since Java 9.

JKS is read here and never written: magic FEEDFEED, entries, and a digest that shows whether the password is right
(Java's `JavaKeyStore`, `KeyProtector`). PKCS12 needs the package `cryptography`. A key that is PEM with a password
stays as it is: OpenSSL decrypts it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.security import der

TYPES = ("JKS", "PKCS12", "PEM")

STORE_BYTES_MAX = 4 << 20
"""A store of all public certificate authorities has a twentieth of it."""

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
_WHITENER = b"Mighty Aphrodite"
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
"""Algorithm of keys in a JKS file."""
_SALT_BYTES = 20

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class StoreError(Exception):
    """A store that cannot be read. The message says why, without the store's name or any of its content."""


class KeyStore(NamedTuple):
    """A node's identity."""

    key: str
    """PEM."""
    chain: tuple[bytes, ...]
    """Certificates in DER: the node's own, then those of its authorities."""
    password: str | None
    """What decrypts the key, if anything."""

    def __repr__(self) -> str:
        return "KeyStore([hidden])"

    @property
    def pem(self) -> str:
        """As `SSLContext.load_cert_chain` takes it."""
        return self.key + "".join(map(certificate_pem, self.chain))


def key_store(data: bytes, kind: str, password: str | None, key_password: str | None) -> KeyStore:
    """The key and its certificates in a file of the type `kind`. Raises StoreError."""
    if kind == "PEM":
        if password is not None:
            raise StoreError("a PEM file has no password of its own: give ssl.key.password for its key")
        text = _text(data)
        return pem_key_store(text, text, key_password)
    if data.startswith(JKS_MAGIC):
        keys, _ = _jks(data, password)
        if not keys:
            raise StoreError("it has no private key")
        protected, chain = keys[0]
        secret = key_password if key_password is not None else password
        if secret is None:
            raise StoreError("its password is needed: it protects the private key")
        return KeyStore(_pem("PRIVATE KEY", _jks_key(protected, secret)), chain, None)
    _refuse_others(data)
    return _pkcs12_key(data, password, key_password)


def pem_key_store(key_text: str, chain_text: str, key_password: str | None) -> KeyStore:
    """A key and certificates in PEM. Raises StoreError."""
    keys = [(kind, body) for kind, body in _blocks(key_text) if kind.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise StoreError(f"{'no' if not keys else 'more than one'} private key is in it")
    kind, body = keys[0]
    chain = pem_certificates(chain_text)
    encrypted = kind == "ENCRYPTED PRIVATE KEY" or "ENCRYPTED" in body
    if encrypted and key_password is None:
        raise StoreError("the private key is encrypted: give ssl.key.password")
    return KeyStore(_block(kind, body), chain, key_password if encrypted else None)


def trusted_certificates(data: bytes, kind: str, password: str | None) -> tuple[bytes, ...]:
    """Certificates in DER that a trust store trusts. Raises StoreError."""
    if kind == "PEM":
        if password is not None:
            raise StoreError("a PEM file has no password")
        return pem_certificates(_text(data))
    if data.startswith(JKS_MAGIC):
        _, certificates = _jks(data, password)
    else:
        _refuse_others(data)
        certificates = _pkcs12_certificates(data, password)
    if not certificates:
        raise StoreError("it has no trusted certificate")
    return certificates


def pem_certificates(text: str) -> tuple[bytes, ...]:
    """All certificates of a PEM text, in DER. Raises StoreError."""
    found = tuple(_decoded(body) for kind, body in _blocks(text) if kind in ("CERTIFICATE", "X509 CERTIFICATE"))
    if not found:
        raise StoreError("no certificate is in it")
    return found


def certificate_pem(certificate: bytes) -> str:
    return _pem("CERTIFICATE", certificate)


# PEM.


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise StoreError("it is not PEM") from None


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    for match in _PEM.finditer(text):
        yield match[1], match[2]


def _block(kind: str, body: str) -> str:
    """A block as OpenSSL takes it: settings of one line have spaces where a file has line ends."""
    if ":" in body:  # headers of an old encrypted key
        return f"-----BEGIN {kind}-----{body}-----END {kind}-----\n"
    return _pem(kind, _decoded(body))


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise StoreError("it is not valid PEM") from None


def _pem(kind: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


# PKCS12.


def _refuse_others(data: bytes) -> None:
    if data.startswith(JCEKS_MAGIC):
        raise StoreError("it is a JCEKS file: convert it with keytool -importkeystore -deststoretype PKCS12")
    if data.lstrip()[:11] == b"-----BEGIN ":
        raise StoreError("it is a PEM file: set its type to PEM")
    if not data.startswith(b"\x30"):
        raise StoreError("it is neither a JKS nor a PKCS12 file")


def _pkcs12(data: bytes, password: str | None) -> tuple[object | None, bytes | None, tuple[bytes, ...]]:
    """The key, its certificate, and the other certificates."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
    except ImportError:
        raise StoreError("PKCS12 needs a package that is not installed: pip install 'ottla[security]'") from None
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if password is None:
            raise StoreError("its password is needed, or it is damaged") from None
        wrong = "password" in str(error).lower()
        raise StoreError("its password is wrong, or it is damaged" if wrong else f"it is damaged: {error}") from None
    own = None if found.cert is None else found.cert.certificate.public_bytes(Encoding.DER)
    others = tuple(each.certificate.public_bytes(Encoding.DER) for each in found.additional_certs)
    return found.key, own, others


def _pkcs12_key(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if key_password is not None and key_password != password:
        raise StoreError("a PKCS12 file has one password: make ssl.key.password the same, or leave it out")
    key, own, others = _pkcs12(data, password)
    if key is None or own is None:
        raise StoreError("it has no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(  # type: ignore[attr-defined]
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return KeyStore(text.decode(), _ordered(own, others), None)


def _pkcs12_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    _, _, others = _pkcs12(data, password)
    return others


def _ordered(own: bytes, others: Iterable[bytes]) -> tuple[bytes, ...]:
    """The certificate, its issuer's, that one's issuer's: PKCS12 keeps no order, and clients want it."""
    from ottla.security.certificates import read_certificate

    rest = {each: read_certificate(each) for each in others if each != own}
    chain, issuer = [own], read_certificate(own).issuer
    while True:
        following = next((each for each, found in rest.items() if found.subject == issuer), None)
        if following is None:
            return tuple(chain)
        chain.append(following)
        issuer = rest.pop(following).issuer


# JKS.


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        found = self._data[self._position : self._position + count]
        if len(found) != count:
            raise StoreError("it is damaged: it ends in the middle")
        self._position += count
        return found

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> bytes:
        return self.take(self.number(2))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()
        return self.take(self.number())


def _jks(data: bytes, password: str | None) -> tuple[list[tuple[bytes, tuple[bytes, ...]]], tuple[bytes, ...]]:
    """Protected keys with their chains, and trusted certificates."""
    if password is not None:
        digest = hashlib.sha1(_wide(password) + _WHITENER + data[:-_SALT_BYTES], usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_SALT_BYTES:]):
            raise StoreError("its password is wrong, or it is damaged")
    reader = _Reader(data[:-_SALT_BYTES])
    reader.take(len(JKS_MAGIC))
    version = reader.number()
    if version not in (1, 2):
        raise StoreError(f"it is a JKS file of version {version}")
    keys: list[tuple[bytes, tuple[bytes, ...]]] = []
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if tag == 1:
            protected = reader.take(reader.number())
            keys.append((protected, tuple(reader.certificate(version) for _ in range(reader.number()))))
        elif tag == 2:
            trusted.append(reader.certificate(version))
        else:
            raise StoreError(f"it is damaged: an entry of kind {tag}")
    return keys, tuple(trusted)


def _jks_key(protected: bytes, password: str) -> bytes:
    """The key in PKCS8, which is xored with a chain of digests."""
    try:
        algorithm, sealed = der.values(der.only(protected, der.SEQUENCE))
        number = der.oid_text(next(der.values(algorithm.content)).content)
    except (ValueError, StopIteration):
        raise StoreError("it is damaged: its key cannot be read") from None
    if number != _PROTECTOR:
        raise StoreError("its key is protected in a way that JKS files do not have")
    content = sealed.content
    digest, body, check = content[:_SALT_BYTES], content[_SALT_BYTES:-_SALT_BYTES], content[-_SALT_BYTES:]
    secret = _wide(password)
    stream = bytearray()
    while len(stream) < len(body):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise StoreError("the password of its key is wrong: give ssl.key.password")
    return key


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be")
