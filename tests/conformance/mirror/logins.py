"""A destination that clients log in at, and users of both sides."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.client.config import ClientConfig
from ottla.client.connection import Connection
from ottla.client.security import Login, Security, SecurityFailure
from ottla.config.secret import Secret
from tests.node import NodeProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def of(name: str, password: str, mechanism: str = "PLAIN") -> Security:
    return Security("SASL_PLAINTEXT", None, Login(mechanism, name, Secret(password)))


def secured_node(data: Path) -> NodeProcess:
    """An Ottla that is reached over SASL only; not started."""
    node = NodeProcess(data)
    jaas = f'{PLAIN} username="admin" password="a" user_admin="a";'
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "ottla.log.level": "DEBUG",
        "connection.failed.authentication.delay.ms": "0",
    }
    return node


def may_log_in(node: NodeProcess, password: str, mechanism: str = "SCRAM-SHA-256", name: str = "alice") -> bool:
    host, _, port = node.bootstrap.partition(":")
    try:
        Connection(host, int(port), ClientConfig((), security=of(name, password, mechanism))).close()
    except SecurityFailure:
        return False
    return True


def upserted(bootstrap: str, password: str, name: str = "alice") -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    asked = [UserScramCredentialUpsertion(name, info, password.encode())]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.alter_user_scram_credentials(list(asked)).values():
        answer.result(60)
