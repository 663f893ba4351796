"""Settings of security by Kafka's names and librdkafka's, from files, the environment and options; what is refused."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.client import librdkafka as of_librdkafka
from ottla.client.login import mechanism_of
from ottla.client.properties import from_environment, replaced, security_from, settings_of
from ottla.client.secret_names import is_secret
from ottla.client.security import PLAINTEXT, Login, Security, SecurityFailure, Store
from ottla.client.security_settings import (
    SECURITY_SETTINGS,
    Sides,
    WrongSecurity,
    normalized,
    parse_security,
    security_of,
    sides_of,
)
from ottla.config.secret import Secret

CANARY = "cAnArY-5f2b"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", "sasl.password": CANARY}
PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def test_nothing_is_plaintext() -> None:
    assert parse_security({}) == parse_security({"client.id": "x"}) == PLAINTEXT
    assert parse_security({"security.protocol": "PLAINTEXT", "sasl.password": "unused", "ssl.ca.location": "/x"}) == (
        PLAINTEXT
    )


def test_both_families_of_names_say_the_same() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="ann" password="{CANARY}";',
    }
    librdkafka = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": CANARY,
    }
    found = parse_security(java)
    assert found == parse_security(librdkafka)
    assert found.protocol == "SASL_SSL"
    assert found.tls is not None and found.tls.trusted == Store("/ca.pem", kind="PEM")
    assert found.tls.is_verified and not found.tls.is_name_checked
    assert found.login is not None and found.login.username == "ann" and found.login.password == Secret(CANARY)


def test_a_login_module_chooses_the_mechanism() -> None:
    plain = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username=a password="b c";',
    }
    login = parse_security(plain).login
    assert login is not None and (login.mechanism, login.username, login.password.reveal()) == ("PLAIN", "a", "b c")
    with pytest.raises(WrongSecurity, match=r"sasl\.mechanism: must be set"):  # either of SCRAM's
        parse_security({**plain, "sasl.jaas.config": f"{SCRAM_MODULE} required username=a password=b;"})
    with pytest.raises(WrongSecurity, match=r"PlainLoginModule is not for sasl.mechanism=SCRAM-SHA-256"):
        parse_security({**plain, "sasl.mechanism": "SCRAM-SHA-256"})


def test_what_is_set_beside_a_login_module_wins() -> None:
    text = f'{PLAIN_MODULE} required username="ann" password="old";'
    found = parse_security({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": text, "sasl.password": "new"})
    assert found.login is not None and found.login.password.reveal() == "new"


def test_client_credentials_by_either_name() -> None:
    url = "https://id.example.org/token"
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="me" clientSecret="{CANARY}" scope="a b" '
        'extension_logicalCluster="lkc";',
    }
    newer = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": CANARY,
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc",
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
    }
    librdkafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.extensions": "logicalCluster=lkc",
    }
    found = parse_security(java)
    assert found == parse_security(newer) == parse_security(librdkafka)
    assert found.login is not None and found.login.endpoint is not None
    assert found.login.endpoint.extensions == (("logicalCluster", "lkc"),)


@pytest.mark.parametrize(
    "url", ["http://id.example.org/t", "file:///etc/shadow", "ftp://h/t", "https:///t", "//h/t", "http://[::2]/t"]
)
def test_tokens_and_secrets_go_to_https_or_this_machine_only(url: str) -> None:
    """CVE-2025-27817: URLs of tokens read files and asked other hosts."""
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "a",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    with pytest.raises(WrongSecurity, match=r"expected an https URL") as caught:
        parse_security(given)
    assert CANARY not in str(caught.value)
    for local in ("http://127.0.0.1:1/t", "http://localhost/t", "http://[::1]:1/t"):
        parse_security({**given, "sasl.oauthbearer.token.endpoint.url": local})


WRONG: list[tuple[dict[str, str], str]] = [
    ({"security.protocol": "TLS"}, "security.protocol: expected one of PLAINTEXT, SSL"),
    ({"sasl.username": "a"}, "security.protocol: is not set, but sasl.username is: set security.protocol=SASL_SSL"),
    ({"ssl.ca.location": "/x"}, "set security.protocol=SSL$"),
    ({"security.protocol": "SSL", "ssl.trusstore.location": "/x"}, "did you mean ssl.truststore.location"),
    ({"security.protocol": "SSL", "ssl.truststore.location": "/x", "ssl.ca.pem": PEM}, "ssl.ca.pem: ssl.truststore"),
    ({"security.protocol": "SSL", "ssl.truststore.certificates": "/x"}, "expected PEM"),
    ({"security.protocol": "SSL", "ssl.certificate.location": "/x"}, "ssl.key.location: is not set"),
    ({"security.protocol": "SSL", "ssl.key.pem": PEM}, "ssl.certificate.location: is not set"),
    ({"security.protocol": "SSL", "ssl.crl.location": "/x"}, "revoked certificates are not checked"),
    ({"security.protocol": "SSL", "ssl.engine.factory.class": "a.B"}, "no class is loaded"),
    ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "older ones are not secure"),
    ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.4"}, "got TLSv1.4"),
    ({"security.protocol": "SSL", "ssl.truststore.location": "/x", "ssl.truststore.type": "BKS"}, "got BKS"),
    ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "no"}, "expected true or false"),
    ({"security.protocol": "SSL", "ssl.cipher.suites": "TLS_RC4_WITH_X"}, "ssl.cipher.suites"),
    (LOGIN, "sasl.mechanism: must be set"),
    ({**LOGIN, "sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/x"}, "sasl.kerberos.principal: must be set"),
    ({**LOGIN, "sasl.jaas.config": f"{KERBEROS_MODULE} required useKeyTab=true;"}, "add keyTab"),
    ({**LOGIN, "sasl.jaas.config": f"{KERBEROS_MODULE} required keytab=x;"}, "did you mean keyTab"),
    ({**LOGIN, "sasl.jaas.config": f"{KERBEROS_MODULE} required;"}, "useTicketCache=true"),
    (
        {
            **LOGIN, "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{KERBEROS_MODULE} required useTicketCache=true serviceName=other;",
        },
        "is kafka, but serviceName",
    ),
    ({**LOGIN, "sasl.mechanism": "DIGEST-MD5"}, "expected one of PLAIN"),
    ({**LOGIN, "sasl.kerberos.service.name": "kafka"}, "sasl.mechanism: must be set"),
    ({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.username": ""}, "sasl.username: must be set"),
    ({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.client.callback.handler.class": "a.B"}, "no class is loaded"),
    ({**LOGIN, "sasl.jaas.config": 'com.sun.security.auth.module.JndiLoginModule required a="b";'}, "is not known"),
    ({**LOGIN, "sasl.jaas.config": f"{PLAIN_MODULE} required username=a password=b other=c;"}, "option other"),
    ({**LOGIN, "sasl.jaas.config": f'{PLAIN_MODULE} required username=a password=b tokenauth="true";'}, "tokenauth"),
    ({**LOGIN, "sasl.jaas.config": f"{PLAIN_MODULE} required username=a"}, "sasl.jaas.config: "),
    ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url: must be set"),
    ({**LOGIN, "enable.sasl.oauthbearer.unsecure.jwt": "true"}, "unsecured tokens"),
    ({**LOGIN, "sasl.oauthbearer.config": "principal=admin"}, "unsecured tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), WRONG)
def test_wrong_settings_are_refused(given: dict[str, str], wanted: str) -> None:
    """CVE-2023-30450: a client lost its TLS settings over a wrong type, and connected without."""
    with pytest.raises(WrongSecurity, match=wanted) as caught:
        parse_security(given)
    assert CANARY not in str(caught.value)


def test_a_delegation_token_is_shown_by_scram() -> None:
    """KIP-48; librdkafka does not know them, and commands that use it say so."""
    jaas = f'{SCRAM_MODULE} required username="id" password="{CANARY}" tokenauth="{{}}";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    found = parse_security({**given, "sasl.jaas.config": jaas.format("true")})
    assert found.login is not None and found.login == Login("SCRAM-SHA-512", "id", Secret(CANARY), by_token=True)
    first = mechanism_of(found.login, "h:1").first()
    assert first.startswith(b"n,,n=id,r=") and first.endswith(b",tokenauth=true")
    with pytest.raises(SecurityFailure, match="delegation token") as caught:
        of_librdkafka.settings_of(found)
    assert CANARY not in str(caught.value)
    login = parse_security({**given, "sasl.jaas.config": jaas.format("false")}).login
    assert login is not None and not login.by_token and b"tokenauth" not in mechanism_of(login, "h:1").first()
    named = normalized({"sasl.username": "ann", "sasl.password": CANARY})
    login = security_of(replaced(normalized({**given, "sasl.jaas.config": jaas.format("true")}), named)).login
    assert login == Login("SCRAM-SHA-512", "ann", Secret(CANARY)), "a password of another source is no token"


def test_no_secret_is_in_a_repr_and_all_are_in_a_pickle() -> None:
    given = {
        **LOGIN,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.keystore.location": "/k",
        "ssl.keystore.password": CANARY,
        "ssl.key.password": CANARY,
        "ssl.truststore.certificates": PEM.replace("AA==", CANARY),
    }
    found = parse_security(given)
    assert CANARY not in repr(found) and CANARY not in f"{found}"
    again = pickle.loads(pickle.dumps(found))
    assert again == found and hash(again) == hash(found)
    assert again.login.password.reveal() == CANARY


def test_which_names_are_secret() -> None:
    secret = {name for name in SECURITY_SETTINGS if is_secret(name)}
    assert secret == {
        "ssl.truststore.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "ssl.key.password",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    }
    assert is_secret("schema.registry.basic.auth.user.info") and is_secret("listener.name.x.sasl.jaas.config")


def test_places_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=of file\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="jaas" password="{CANARY}";\n'
    )
    environ = {
        "OTTLA_CLIENT_CONFIG": str(file),
        "OTTLA_CLIENT_SASL_PASSWORD": "of environment",
        "OTTLA_CLIENT_ID": "x",
        "OTTLA_BOOTSTRAP": "b:1",
    }
    assert from_environment(environ=environ) == {"sasl.password": "of environment"}
    login = security_from(environ=environ).login
    assert login is not None and (login.username, login.password.reveal()) == ("of file", "of environment")
    typed = security_from({"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "typed"}, environ).login
    assert typed is not None and (typed.mechanism, typed.username) == ("SCRAM-SHA-256", "typed")
    assert security_from({"security.protocol": "PLAINTEXT"}, environ) == PLAINTEXT


def test_certificates_of_another_place_leave_nothing_of_the_first() -> None:
    environ = {
        "OTTLA_CLIENT_SECURITY_PROTOCOL": "SSL",
        "OTTLA_CLIENT_SSL_CA_LOCATION": "/old",
        "OTTLA_CLIENT_SSL_KEYSTORE_LOCATION": "/old.jks",
        "OTTLA_CLIENT_SSL_KEYSTORE_PASSWORD": "p",
    }
    found = security_from({"ssl.truststore.location": "/new"}, environ).tls
    assert found is not None and found.trusted == Store("/new")
    assert found.key is not None and found.key.location == "/old.jks"
    other = settings_of({"ssl.certificate.location": "/c", "ssl.key.location": "/k"}, environ)
    assert "ssl.keystore.location" not in other and other["ssl.ca.location"] == "/old"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongSecurity, match=r"cannot be read"):
        security_from(environ={"OTTLA_CLIENT_CONFIG": str(tmp_path / "none")})
    wrong = tmp_path / "wrong.properties"
    wrong.write_text("security.protocol=SSL\nssl.ca.locations=/x\n")
    with pytest.raises(WrongSecurity, match=r"wrong\.properties: ssl\.ca\.locations"):
        security_from(environ={"OTTLA_CLIENT_CONFIG": str(wrong)})


def test_pem_of_one_line() -> None:
    found = parse_security({"security.protocol": "SSL", "ssl.ca.pem": PEM.replace("\n", "\\n")})
    assert found.tls is not None and found.tls.trusted is not None and found.tls.trusted.read() == PEM.encode()


def test_both_clusters_of_a_mirror_in_one_file() -> None:
    given = {
        "security.protocol": "SSL",
        "source.security.protocol": "PLAINTEXT",
        "source.cluster.sasl.username": "s",
        "target.ssl.ca.location": "/t",
        "bootstrap.servers": "b:1",
    }
    assert sides_of(given) == Sides(
        {"security.protocol": "PLAINTEXT", "sasl.username": "s"},
        {"security.protocol": "SSL", "ssl.ca.location": "/t", "bootstrap.servers": "b:1"},
    )


def test_a_driver_carries_files_to_machines_without_them(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(PEM)
    read = parse_security({"security.protocol": "SSL", "ssl.ca.location": str(file)}).carried()
    carried: Any = pickle.loads(pickle.dumps(read))
    file.write_text(PEM * 2)
    assert carried.tls.trusted.read() == (PEM * 2).encode(), "the file of this machine is newer"
    file.unlink()
    assert carried.tls.trusted.read() == PEM.encode()
    with pytest.raises(SecurityFailure, match=r"ca\.pem cannot be read: No such file"):
        parse_security({"security.protocol": "SSL", "ssl.ca.location": str(file)}).carried()


def test_names_that_are_not_of_security_are_passed_over() -> None:
    assert normalized({"bootstrap.servers": "b:1", "acks": "all", "security.protocol": "SSL"}) == (
        {"security.protocol": "SSL"}
    )


class _Renewed:
    """A user's token that is renewed by a thread of this process."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = [*tokens]
        self._lock = threading.Lock()

    def token(self) -> str:
        with self._lock:
            if not self._tokens:
                raise SecurityFailure("the login is over")
            return self._tokens.pop(0)


def test_a_process_of_its_own_gets_the_token_as_it_is_now() -> None:
    """A query of the console is pickled for its process; a token that is renewed cannot be."""
    renewed = Security("SASL_PLAINTEXT", login=Login("OAUTHBEARER", bearer=_Renewed("first", "second")))
    with pytest.raises(TypeError):
        pickle.dumps(renewed)
    sent = pickle.loads(pickle.dumps(renewed.as_of_now()))
    assert [sent.login.bearer.token() for _ in range(2)] == ["first"] * 2
    assert "first" not in repr(sent)
    assert renewed.as_of_now().login.bearer.token() == "second"  # type: ignore[union-attr]
    with pytest.raises(SecurityFailure, match="over"):
        renewed.as_of_now()
    assert PLAINTEXT.as_of_now() is PLAINTEXT
