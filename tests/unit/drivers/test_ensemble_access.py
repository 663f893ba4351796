"""The way to the ensemble out of a broker's settings: what is taken, and what is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.config.zookeeper import completed, from_java_options
from ottla.drivers.zookeeper.access import CLEAR_SOCKET, NETTY_SOCKET, EnsembleAccess, ensemble_access
from ottla.errors import OttlaError
from ottla.network import SystemNetwork
from ottla.tls_network import TlsNetwork
from ottla.zookeeper.messages import ACL, Perms
from ottla.zookeeper.session import Login
from tests.certificates import Authority

JAAS = """
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a;b{}" user_admin="x";
};
// The login at ZooKeeper.
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required
    username="kafka"
    password="it's \\"secret\\"";
};
Kerberos { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };
Nameless { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka"; };
"""
LOGIN = Login("kafka", 'it\'s "secret"')
TLS = {"zookeeper.ssl.client.enable": "true"}
EVERYBODY, CREATOR = ACL(Perms.ALL, "world", "anyone"), ACL(Perms.ALL, "auth", "")
READERS = ACL(Perms.READ, "world", "anyone")


def access(given: Mapping[str, str], **files: bytes) -> EnsembleAccess:
    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(2, "no such file", path)
        return files[path]

    return ensemble_access(SystemNetwork(), given, read)


def jaas(**more: str) -> EnsembleAccess:
    given = {f"ottla.zookeeper.login.{name}": text for name, text in more.items()}
    return access({"ottla.zookeeper.login.config": "jaas", "zookeeper.set.acl": "true"} | given, jaas=JAAS.encode())


def test_without_any_of_them_the_ensemble_is_reached_in_the_clear() -> None:
    found = access({"broker.id": "1", "zookeeper.connect": "zk:2181"})
    assert found.login is None and isinstance(found.network, SystemNetwork)
    assert {found.acl(each) for each in ("/config/users/a", "/brokers/topics/t")} == {(EVERYBODY,)}


def test_a_login_of_the_section_client_and_acls_as_kafkas() -> None:
    found = jaas()
    assert found.login == LOGIN and "secret" not in repr(found)
    for path in ("/brokers/topics/t/partitions/0/state", "/controller", "/config/topics", "/kafka-acl/Topic/t"):
        assert found.acl(path) == (CREATOR, READERS), path
    for path in ("/config/users", "/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/x"):
        assert found.acl(path) == (CREATOR,), path
    assert found.acl("/consumers") == (EVERYBODY,)


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("Kerberos", "Krb5LoginModule, but this version logs in at ZooKeeper by .*DigestLoginModule only"),
        ("KafkaServer", "PlainLoginModule"),
        ("Nameless", "needs a username and a password"),
        ("None", "zookeeper.set.acl is true, but this broker has no login"),
    ],
)
def test_sections_that_are_refused(section: str, why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        jaas(context=section)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Client", "a section such as Client"),
        ("Client { };", "names no login module"),
        ("Client { a.B required x=y;", "does not end with"),
        ("Client { a.B required x=y; }", "does not end with"),
        ("a.B required;", "a section such as Client"),
        ('Client { a.B required x="1 };', "cannot be read"),
        ("\xff", "a section such as"),
    ],
)
def test_files_that_are_no_jaas(text: str, why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        access({"ottla.zookeeper.login.config": "jaas"}, jaas=text.encode())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ottla.zookeeper.login.config": "nowhere"}, "nowhere cannot be read"),
        ({"zookeeper.set.acl": "true"}, "no login for the ensemble"),
        ({"zookeeper.set.acl": "yes"}, "zookeeper.set.acl"),
        ({"zookeeper.clientCnxnSocket": "com.example.Socket"}, "com.example.Socket: Ottla loads no classes"),
        (TLS | {"zookeeper.clientCnxnSocket": CLEAR_SOCKET}, "knows no TLS"),
        (TLS | {"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable is true"),
        (TLS | {"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
        (TLS | {"zookeeper.ssl.truststore.location": "ca.pem"}, "ca.pem cannot be read"),
        (TLS | {"zookeeper.ssl.truststore.type": "BCFKS"}, "zookeeper.ssl.truststore.type is BCFKS"),
        (TLS | {"zookeeper.ssl.enabled.protocols": "TLSv1.1"}, "zookeeper.ssl.enabled.protocols has TLSv1.1"),
    ],
)
def test_what_is_refused_by_its_name(given: dict[str, str], why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        access(given)


def test_tls_with_pem_stores() -> None:
    authority = Authority()
    stores = {"broker.pem": authority.issue("broker").pem().encode(), "ca.pem": authority.pem.encode()}
    given = {
        "zookeeper.clientCnxnSocket": NETTY_SOCKET,
        "zookeeper.ssl.keystore.location": "broker.pem",
        "zookeeper.ssl.keystore.password": "of the key",
        "zookeeper.ssl.truststore.location": "ca.pem",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.ssl.protocol": "TLSv1.2",
        "zookeeper.set.acl": "true",
    }
    found = access(TLS | given, **stores)
    assert isinstance(found.network, TlsNetwork)
    context = found.network.contexts.client
    assert context is not None and not context.check_hostname and context.maximum_version.name == "TLSv1_2"
    assert found.acl("/controller") == (CREATOR, READERS)  # its certificate is its login
    found.close()


def test_options_of_java_that_old_brokers_were_started_with(tmp_path: Path) -> None:
    environ = {
        "KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/jaas.conf -Xmx1g -Dzookeeper.sasl.clientconfig=Zk "
        "-Dzookeeper.client.secure=true '-Dzookeeper.ssl.trustStore.password=a b' "
        "-Dzookeeper.ssl.hostnameVerification=false"
    }
    found = from_java_options(environ)
    assert found == {
        "ottla.zookeeper.login.config": "/etc/jaas.conf",
        "ottla.zookeeper.login.context": "Zk",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.password": "a b",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    given = {"broker.id": "1", "zookeeper.connect": "zk", "ottla.zookeeper.login.context": "Client"}
    assert completed(given, environ)["ottla.zookeeper.login.context"] == "Client"  # the file says it
    environ["KAFKA_OPTS"] += " -Dzookeeper.sasl.client=false"
    assert "ottla.zookeeper.login.config" not in from_java_options(environ)
    with pytest.raises(OttlaError, match="KAFKA_OPTS cannot be read"):
        from_java_options({"KAFKA_OPTS": "'-Dx"})
