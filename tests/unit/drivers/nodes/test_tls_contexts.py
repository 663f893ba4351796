"""Contexts out of every kind of store, and what is refused with a sentence that says what to do."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.config.definitions import BROKER
from ottla.drivers.nodes.tls_contexts import Loaded, load, read_stores, refusal
from ottla.errors import OttlaError
from ottla.security.key_stores import pem_key_store
from ottla.security.tls_settings import tls_settings
from tests.certificates import Authority, Identity, ssl_settings
from tests.unit.drivers.java_stores import JKS_KEYS, JKS_TRUST, PASSWORD, PKCS12_TRUST

ROOT = Authority("Root")
MIDDLE = Authority("Middle", ROOT)
NODE = MIDDLE.issue("node")


def loaded(texts: dict[str, str], *, serves: bool = True) -> Loaded:
    def get(name: str) -> Any:
        text = texts.get(name, BROKER[name].default)
        return None if text is None else BROKER[name].parse(text)

    stores = read_stores(tls_settings(get), lambda path: Path(path).read_bytes())
    return load(stores, serves=serves)


def connects(texts: dict[str, str], identity: Identity | None = None) -> bool:
    """Whether a client that trusts the root connects, also with a certificate."""
    found = loaded(texts).contexts.server
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ROOT.pem)
    assert found is not None
    return refusal(found, client) is None


def inline(text: str) -> str:
    """As a value of one line, with spaces for line ends."""
    return " ".join(text.split("\n"))


def test_pem_files(tmp_path: Path) -> None:
    texts = ssl_settings(tmp_path, ROOT, NODE, client_auth="required")
    found = loaded(texts)
    assert found.certificate is not None and found.certificate.subject == "CN=node"
    assert found.untrusted is None
    assert found.contexts.server is not None and found.contexts.server.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("password", [None, "geheim"])
def test_pem_inline(password: str | None) -> None:
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.key": inline(NODE.key_pem(password)),
        "ssl.keystore.certificate.chain": inline(NODE.chain_pem),
        "ssl.truststore.certificates": inline(ROOT.pem),
    }
    if password is not None:
        texts["ssl.key.password"] = password
    assert connects(texts)


def test_pkcs12_under_either_name(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(NODE.pkcs12("geheim"))
    texts = {"ssl.keystore.location": str(tmp_path / "keys"), "ssl.keystore.password": "geheim"}
    assert connects({**texts, "ssl.keystore.type": "PKCS12"})
    assert connects({**texts, "ssl.key.password": "geheim"})  # JKS is the default of Kafka


@pytest.mark.parametrize("trust", [JKS_TRUST, PKCS12_TRUST])
def test_stores_of_keytool(tmp_path: Path, trust: bytes) -> None:
    """JKS with a key password of its own; trust stores of both kinds. Both sides are of the same authority."""
    (tmp_path / "keys.jks").write_bytes(JKS_KEYS)
    (tmp_path / "trust.jks").write_bytes(trust)
    texts = {
        "ssl.keystore.location": str(tmp_path / "keys.jks"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": "key" + PASSWORD,
        "ssl.truststore.location": str(tmp_path / "trust.jks"),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    assert loaded(texts).untrusted is None
    for name in ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password"):
        with pytest.raises(OttlaError, match="password"):
            loaded({**texts, name: "wrong"})
    for size in range(0, len(JKS_KEYS), 97):
        (tmp_path / "keys.jks").write_bytes(JKS_KEYS[:size])
        with pytest.raises(OttlaError):
            loaded(texts)


def test_a_damaged_jks_file_without_a_password_is_refused_too(tmp_path: Path) -> None:
    for size in range(4, len(JKS_TRUST) - 20, 13):
        (tmp_path / "trust.jks").write_bytes(JKS_TRUST[:size])
        with pytest.raises(OttlaError):
            loaded({"ssl.truststore.location": str(tmp_path / "trust.jks")}, serves=False)


def test_an_intermediate_authority_may_be_all_that_is_trusted(tmp_path: Path) -> None:
    """As in Java: whatever is in the trust store is trusted."""
    assert loaded(ssl_settings(tmp_path, MIDDLE, NODE)).untrusted is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssl.keystore.location": "/nowhere/keys"}, "/nowhere/keys cannot be read: No such file"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.type": "JKS"}, "it is a PEM file: set its type to PEM"),
        ({"ssl.keystore.password": "x"}, "give ssl.key.password"),
        ({"ssl.cipher.suites": "TLS_DHE_RSA_WITH_AES_999_GCM_SHA384"}, "does not know or allow"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    with pytest.raises(OttlaError) as refused:
        loaded({**ssl_settings(tmp_path, ROOT, NODE), **changes})
    assert said in str(refused.value)


def test_bad_content_of_files(tmp_path: Path) -> None:
    texts = ssl_settings(tmp_path, ROOT, NODE)
    keys = tmp_path / "keys.pem"

    def said(text: str, **more: str) -> str:
        keys.write_text(text)
        with pytest.raises(OttlaError) as refused:
            loaded({**texts, **{name.replace("_", "."): value for name, value in more.items()}})
        assert "PRIVATE KEY-----" not in str(refused.value)
        return str(refused.value)

    assert "does not belong" in said(NODE.key_pem() + ROOT.issue("other").chain_pem)
    assert "no private key" in said(NODE.chain_pem)
    assert "no certificate" in said(NODE.key_pem())
    assert "give ssl.key.password" in said(NODE.pem("geheim"))
    assert "ssl.key.password is wrong" in said(NODE.pem("geheim"), ssl_key_password="falsch")
    assert "more than one" in said(NODE.key_pem() + NODE.pem())
    assert "not valid PEM" in said(NODE.pem().replace("MIG", "M!G"))


def test_an_untrusted_certificate_is_noticed(tmp_path: Path) -> None:
    found = loaded(ssl_settings(tmp_path, Authority(), NODE))
    assert found.untrusted is not None and "not accepted" in found.untrusted


def test_the_client_s_side_needs_no_key(tmp_path: Path) -> None:
    texts = ssl_settings(tmp_path, ROOT, NODE)
    del texts["ssl.keystore.location"]
    found = loaded(texts, serves=False)
    assert found.contexts.server is None
    assert found.contexts.client is not None and found.contexts.client.check_hostname
    free = loaded({**texts, "ssl.endpoint.identification.algorithm": ""}, serves=False).contexts.client
    assert free is not None and not free.check_hostname and free.verify_mode is ssl.CERT_REQUIRED


def test_versions_and_options(tmp_path: Path) -> None:
    found = loaded({**ssl_settings(tmp_path, ROOT, NODE), "ssl.enabled.protocols": "TLSv1.2"}).contexts.server
    assert found is not None
    assert found.maximum_version is found.minimum_version is ssl.TLSVersion.TLSv1_2
    assert ssl.OP_NO_RENEGOTIATION in found.options
    assert ssl.OP_NO_COMPRESSION in found.options


def test_the_fixtures_are_what_they_say() -> None:
    """keytool's own JKS, not PKCS12 under that name."""
    assert JKS_KEYS[:4] == JKS_TRUST[:4] == b"\xfe\xed\xfe\xed"
    assert PKCS12_TRUST[:1] == b"\x30"


def test_nothing_shows_a_key_or_a_password(tmp_path: Path) -> None:
    """CVE-2026-33558: what is put into a message or a traceback does not have them."""
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": inline(NODE.key_pem("canary-1")),
        "ssl.keystore.certificate.chain": inline(NODE.chain_pem),
        "ssl.key.password": "canary-1",
    }
    found = loaded(texts)
    (tmp_path / "keys.p12").write_bytes(NODE.pkcs12("canary-2"))
    other = loaded({"ssl.keystore.location": str(tmp_path / "keys.p12"), "ssl.keystore.password": "canary-2"})
    shown = repr((found, other, found.stores.settings, pem_key_store(NODE.pem(), NODE.pem(), None)))
    for secret in ("canary", "PRIVATE KEY", NODE.key_pem().split("\n")[1]):
        assert secret not in shown
    assert str(tmp_path / "keys.p12") in shown
