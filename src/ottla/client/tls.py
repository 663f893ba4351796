"""TLS of a client: contexts from settings, handshakes on blocking sockets, and failures as sentences.

A context takes certificates from paths only, and so does librdkafka: what is no PEM file goes through a file in memory
(`memfd_create`), never through a temporary one. A context is made again when a file of its settings changes.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ottla.client import stores
from ottla.client.security import SecurityFailure, Store, Tls
from ottla.config.secret import Secret
from ottla.errors import ErrorCode

CONTEXTS_MAX: Final = 16
"""Contexts kept: a process has one for each cluster and token endpoint that it connects to."""
_NOT_TRUSTED: Final = frozenset({2, 7, 18, 19, 20, 21, 24, 32})
"""X509_V_ERR_*: no issuer found, one of that name with another key, self-signed, a CA that is none."""
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
_WANTS_CERTIFICATE: Final = ("CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")
_REFUSED_CERTIFICATE: Final = (
    "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
_NOTHING_IN_COMMON: Final = (
    "PROTOCOL_VERSION",
    "HANDSHAKE_FAILURE",
    "NO_PROTOCOLS",
    "UNSUPPORTED_PROTOCOL",
    "NO_SHARED",
)

_contexts: dict[tuple[object, ...], ssl.SSLContext] = {}
_lock: Final = threading.Lock()


def context(tls: Tls) -> ssl.SSLContext:
    """The context for settings, with what is in their files now. Raises SecurityFailure, whose text names the file."""
    key = (tls, *(store and store.stamp() for store in (tls.trusted, tls.certificate, tls.key)))
    with _lock:
        found = _contexts.pop(key, None) or _context(tls)
        _contexts[key] = found
        while len(_contexts) > CONTEXTS_MAX:
            _contexts.pop(next(iter(_contexts)))
    return found


def _context(tls: Tls) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.is_name_checked
    made.verify_mode = ssl.CERT_REQUIRED if tls.is_verified else ssl.CERT_NONE
    # A certificate in a trust store is trusted as it is, as in Java, whether it signed itself or not.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.minimum_version = ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in tls.versions else ssl.TLSVersion.TLSv1_3
    made.maximum_version = ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in tls.versions else ssl.TLSVersion.TLSv1_2
    if tls.ciphers:
        _set_ciphers(made, tls.ciphers)
    if tls.is_verified:
        if tls.trusted is None:
            made.load_default_certs()
        else:
            _trust(made, tls.trusted)
    if tls.certificate is not None and tls.key is not None:
        _show(made, tls.certificate, tls.key, tls.key_password)
    return made


def _set_ciphers(made: ssl.SSLContext, ciphers: tuple[str, ...]) -> None:
    try:
        made.set_ciphers(":".join(ciphers))
    except ssl.SSLError:
        raise SecurityFailure(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(ciphers)}") from None


def _trust(made: ssl.SSLContext, store: Store) -> None:
    try:
        made.load_verify_locations(cadata=b"".join(stores.trusted(store)))
    except ssl.SSLError as error:
        raise SecurityFailure(
            f"{stores.named(store)} has a certificate that cannot be read: {_reason(error)}"
        ) from None


def _show(made: ssl.SSLContext, certificate: Store, key: Store, key_password: Secret | None) -> None:
    """The client's own certificate."""
    found = stores.identity(certificate, key, key_password)
    try:
        with memory_file(found.pem.encode()) as path:
            # A password of any kind keeps OpenSSL from asking for one at the terminal.
            made.load_cert_chain(path, None, lambda: found.password or "")
    except ssl.SSLError as error:
        raise SecurityFailure(_wrong_key(certificate, key, error)) from None


def _wrong_key(certificate: Store, key: Store, error: ssl.SSLError) -> str:
    reason = (error.reason or "").upper()
    if "MISMATCH" in reason:
        return f"the key in {stores.named(key)} does not belong to the certificate in {stores.named(certificate)}"
    if key.kind == "PEM" or "DECRYPT" in reason:
        return f"the key in {stores.named(key)} cannot be decrypted: ssl.key.password is wrong or not set"
    return f"the certificate or the key in {stores.named(key)} cannot be read: {_reason(error)}"


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """A path of a file that is in memory only, for as long as the context lasts."""
    descriptor = in_memory(data)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("ottla", os.MFD_CLOEXEC)
    try:
        with memoryview(data) as view:
            at = 0
            while at < len(view):
                at += os.write(descriptor, view[at:])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# Handshakes


def handshake(plain: socket.socket, host: str, address: str, tls: Tls) -> ssl.SSLSocket:
    """The socket, encrypted from now on. Raises SecurityFailure for what trying again does not mend, OSError."""
    made = context(tls)
    try:
        return made.wrap_socket(plain, server_hostname=host)
    except ssl.SSLEOFError:
        raise ConnectionError(closed_in_handshake(address)) from None
    except ssl.SSLError as error:
        raise refusal(error, host, address, tls) from None
    except (ConnectionResetError, BrokenPipeError):
        raise ConnectionError(closed_in_handshake(address)) from None
    except TimeoutError:
        raise ConnectionError(f"{address} does not answer the TLS handshake in time: {_NO_TLS}") from None
    except ValueError as error:  # a host that no certificate can have
        raise SecurityFailure(f"{address}: {error}", ErrorCode.unknown_server_error) from None


_NO_TLS: Final = "if its listener has no TLS, set security.protocol=PLAINTEXT (SASL_PLAINTEXT with a login)"


def closed_in_handshake(address: str) -> str:
    return f"{address} closed the connection during the TLS handshake: {_NO_TLS}"


def refusal(error: ssl.SSLError, host: str, address: str, tls: Tls) -> SecurityFailure:
    """Why there is no TLS with a broker, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = _untrusted(error, host, address)
    else:
        sentence = _sentence((error.reason or "").upper(), address, _reason(error), shown=tls.certificate is not None)
    return SecurityFailure(sentence, ErrorCode.unknown_server_error)


def _sentence(reason: str, address: str, words: str, *, shown: bool) -> str:
    """`shown`: whether the client has shown a certificate. Java's word for a missing one is a bad one."""
    if reason in _NOT_TLS:
        return (
            f"{address} does not speak TLS: set security.protocol=PLAINTEXT (SASL_PLAINTEXT with a login), or connect "
            "to its TLS listener"
        )
    if any(each in reason for each in _WANTS_CERTIFICATE) or ("BAD_CERTIFICATE" in reason and not shown):
        return (
            f"{address} wants a certificate of the client: set ssl.keystore.location, or ssl.certificate.location and "
            "ssl.key.location"
        )
    if any(each in reason for each in _REFUSED_CERTIFICATE):
        why = next(each for each in _REFUSED_CERTIFICATE if each in reason).lower().replace("_", " ")
        return (
            f"{address} refused this client's certificate ({why}): use one that the broker's trust store has the CA of"
        )
    if any(each in reason for each in _NOTHING_IN_COMMON):
        return f"{address} and this client have no TLS version or cipher in common: check ssl.enabled.protocols"
    return f"no TLS connection to {address}: {words}"


def _untrusted(error: ssl.SSLCertVerificationError, host: str, address: str) -> str:
    code = error.verify_code
    if code in _NOT_TRUSTED:
        return (
            f"the certificate of {address} is not trusted ({error.verify_message}): set ssl.truststore.location or "
            "ssl.ca.location to the certificate of the CA that signed it"
        )
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return (
            f"the certificate of {address} is not for {host}: connect by a name that is in it, or renew it with this "
            "name"
        )
    if code == _EXPIRED:
        return f"the certificate of {address} has expired: renew it on the broker"
    if code == _NOT_YET:
        return f"the certificate of {address} is not valid yet: check the clocks of both machines"
    return f"the certificate of {address} is refused: {error.verify_message}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()


def close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.close()
