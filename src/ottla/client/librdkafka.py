"""A client's security as settings of librdkafka."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Any, Final

from ottla.client import stores, tls
from ottla.client.security import Kerberos, Login, Security, SecurityFailure, Store, Tls
from ottla.security.key_stores import certificate_pem

_kept: dict[bytes, str] = {}
_lock: Final = threading.Lock()


def settings_of(security: Security) -> dict[str, Any]:
    """Empty for PLAINTEXT. Secrets are in it as text: hand it to librdkafka, and nothing else. Raises
    SecurityFailure for files that cannot be read."""
    if security.protocol == "PLAINTEXT":
        return {}
    found: dict[str, Any] = {"security.protocol": security.protocol}
    if security.tls is not None:
        found |= _of_tls(security.tls)
    if security.login is not None:
        found |= _of_login(security.login)
    return found


def _of_tls(settings: Tls) -> dict[str, Any]:
    found: dict[str, Any] = {
        "enable.ssl.certificate.verification": settings.is_verified,
        "ssl.endpoint.identification.algorithm": "https" if settings.is_name_checked else "none",
    }
    if settings.trusted is not None and settings.is_verified:
        found["ssl.ca.location"] = _trusted(settings.trusted)
    if settings.certificate is not None and settings.key is not None:
        own = stores.identity(settings.certificate, settings.key, settings.key_password)
        found["ssl.certificate.location"] = found["ssl.key.location"] = _kept_file(own.pem.encode())
        if own.password is not None:
            found["ssl.key.password"] = own.password
    if settings.ciphers:
        found["ssl.cipher.suites"] = ":".join(settings.ciphers)
    return found


def _of_login(login: Login) -> dict[str, Any]:
    found: dict[str, Any] = {"sasl.mechanism": login.mechanism}
    if login.kerberos is not None:
        return found | _of_kerberos(login.kerberos)
    endpoint = login.endpoint
    if login.by_token:
        raise SecurityFailure(
            "librdkafka, which does this, cannot log in with a delegation token (tokenauth): log in with a password, a "
            'certificate or OAUTHBEARER; Java, Spark\'s format("ottla") and ottla.arrow log in with tokens'
        )
    if endpoint is None:
        return found | {"sasl.username": login.username, "sasl.password": login.password.reveal()}
    found |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.client.id": endpoint.client_id,
        "sasl.oauthbearer.client.secret": endpoint.client_secret.reveal(),
    }
    if endpoint.scope:
        found["sasl.oauthbearer.scope"] = endpoint.scope
    if endpoint.extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in endpoint.extensions)
    if endpoint.trusted is not None:
        found["https.ca.location"] = _trusted(endpoint.trusted)
    return found


def _of_kerberos(kerberos: Kerberos) -> dict[str, Any]:
    """Raises SecurityFailure where librdkafka was built without it, as in confluent-kafka's wheels."""
    from confluent_kafka import KafkaException, Producer

    found: dict[str, Any] = {"sasl.kerberos.service.name": kerberos.service}
    if kerberos.keytab is not None and kerberos.principal is not None:
        found |= {"sasl.kerberos.keytab": kerberos.keytab, "sasl.kerberos.principal": kerberos.principal}
    else:
        found["sasl.kerberos.kinit.cmd"] = ""  # the tickets are there
    try:
        Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.kerberos.kinit.cmd": ""})
    except KafkaException:
        raise SecurityFailure(
            "sasl.mechanism=GSSAPI: the librdkafka of the installed confluent-kafka was built without Kerberos; build "
            "confluent-kafka with the system's: apt-get install librdkafka-dev libsasl2-modules-gssapi-mit, then pip "
            "install --force-reinstall --no-binary confluent-kafka confluent-kafka"
        ) from None
    return found


def _trusted(store: Store) -> str:
    """A path of PEM: the file itself if it is such, else one in memory."""
    if store.location is not None and store.kind == "PEM" and os.access(store.location, os.R_OK):
        return store.location
    return _kept_file("".join(map(certificate_pem, stores.trusted(store))).encode())


def _kept_file(pem: bytes) -> str:
    """For as long as the process lives: librdkafka reads it when a client is made, after this returns."""
    key = hashlib.sha256(pem).digest()
    with _lock:
        if key not in _kept:
            _kept[key] = f"/proc/self/fd/{tls.in_memory(pem)}"
        return _kept[key]
