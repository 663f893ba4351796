"""`ssl.*` settings: what OpenSSL is told, and what is refused because it would not protect."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.definitions import BROKER
from ottla.errors import OttlaError
from ottla.security.tls_settings import TlsSettings, openssl_name, tls_settings

TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/trust.pem"}


def settings(**given: str) -> TlsSettings:
    return of({name.replace("_", "."): text for name, text in given.items()})


def of(texts: dict[str, str]) -> TlsSettings:
    def get(name: str) -> Any:
        text = texts.get(name, BROKER[name].default)
        return None if text is None else BROKER[name].parse(text)

    return tls_settings(get)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_the_defaults() -> None:
    found = settings()
    assert found.versions == ("TLSv1.2", "TLSv1.3")
    assert (found.ciphers, found.suites) == ((), frozenset())
    assert found.checks_names
    assert found.client_auth == "none"


def test_suites_decide_the_versions() -> None:
    """As in Java, where a version without a suite cannot be negotiated."""
    older = settings(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    assert older.versions == ("TLSv1.2",)
    newer = settings(ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
    assert newer.versions == ("TLSv1.3",)
    assert newer.suites == {"TLS_AES_256_GCM_SHA384"}


INLINE = {"ssl.keystore.type": "PEM", "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1, which is not safe"),
        ({"ssl.enabled.protocols": "TLSv1.4"}, "TLSv1.4: allowed are TLSv1.2 and TLSv1.3"),
        ({"ssl.protocol": "SSL"}, "ssl.protocol is SSL"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "without TLS_AES_256_GCM_SHA384"),
        ({"ssl.cipher.suites": "TLS_RSA_EXPORT_WITH_RC4_40_MD5"}, "unknown or not safe"),
        (
            {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"},
            "has none for TLSv1.2",
        ),
        ({"ssl.engine.factory.class": "org.example.Factory"}, "loads no classes"),
        ({"ssl.provider": "Conscrypt"}, "loads no classes"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "allowed is https"),
        ({"ssl.keystore.type": "BCFKS"}, "allowed is one of JKS, PKCS12, PEM"),
        ({"ssl.client.auth": "required"}, "any public authority"),
        ({**INLINE, "ssl.keystore.type": "JKS"}, "only with ssl.keystore.type=PEM"),
        ({**INLINE, "ssl.keystore.location": "/f"}, "both given"),
        ({**INLINE, "ssl.keystore.password": "x"}, "ssl.key.password decrypts"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.truststore.certificates": "c"}, "only with ssl.truststore.type=PEM"),
    ],
)
def test_what_would_not_protect_is_refused(texts: dict[str, str], said: str) -> None:
    with pytest.raises(OttlaError) as refused:
        of(texts)
    assert said in str(refused.value)


def test_no_file_is_named_twice() -> None:
    assert of({**TRUST, "ssl.keystore.location": "/keys.p12", "ssl.client.auth": "required"}).files == (
        "/keys.p12",
        "/trust.pem",
    )
