"""A broker with a listener of each security protocol, users, certificates, and files of clients for each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.security import authority
from peers.kafka import START_FAST, KafkaPeer, hold_port

USER: Final = "ann"
PASSWORD: Final = 'cAnArY-and a; "quote" \\ = ,'
STORE_PASSWORD: Final = "cAnArY-store"
SESSION_MS: Final = 4000
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", "MUTUAL")


@dataclass
class Secured:
    """Where it listens by listener, its CA, and a client's certificate."""

    addresses: dict[str, str]
    ca: Path
    client: Path
    directory: Path

    def settings(self, listener: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Settings of a client of a listener, by Kafka's names."""
        protocol = {"MUTUAL": "SSL"}.get(listener, listener)
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if listener == "MUTUAL":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client)}
        if protocol.startswith("SASL"):
            module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
            found |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{module} required username="{USER}" password="{_quoted(PASSWORD)}";',
            }
        return found

    def file(self, listener: str, mechanism: str = "SCRAM-SHA-256") -> Path:
        """The same as a client.properties."""
        file = self.directory / f"{listener}-{mechanism}.properties"
        given = {"bootstrap.servers": self.addresses[listener], **self.settings(listener, mechanism)}
        authority.write_private(file, "".join(f"{name}={_escaped(value)}\n" for name, value in given.items()).encode())
        return file


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


@contextlib.contextmanager
def kafka(directory: Path, more: Mapping[str, str | None] | None = None) -> Iterator[Secured]:
    """Apache Kafka."""
    certificates = directory / "certificates"
    authority.create(certificates, "Test CA")
    node, client = directory / "node.pem", directory / "client.pem"
    authority.write_private(node, authority.issue(certificates, "node", authority.own_names([])))
    authority.write_private(client, authority.issue(certificates, "client", ["client"]))
    held = {name: hold_port() for name in PROTOCOLS}
    addresses = {name: f"127.0.0.1:{each.getsockname()[1]}" for name, each in held.items()}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    ca = certificates / authority.CA_FILE
    peer = KafkaPeer(directory / "kafka", heap="512m", flags=START_FAST)
    plain = f"PLAINTEXT://127.0.0.1:{peer.port}"
    jaas = f"{SCRAM_MODULE} required;"
    users = f'{PLAIN_MODULE} required user_{USER}="{_quoted(PASSWORD)}";'
    peer.settings = {
        "listeners": f"{plain},{listeners},CONTROLLER://127.0.0.1:{peer.controller_port}",
        "advertised.listeners": f"{plain},{listeners}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MUTUAL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms": str(SESSION_MS),
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": _escaped(users if mechanism == "plain" else jaas)
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism in ("plain", "scram-sha-256", "scram-sha-512")
        },
        **(more or {}),
    }
    # The tool takes no password with a quotation mark: it is set by the listener that wants no login.
    peer.format()
    try:
        peer.start()
        _add_user(peer.bootstrap)
        yield Secured({"PLAINTEXT": peer.bootstrap, **addresses}, ca, client, directory)
    finally:
        peer.kill()


def _add_user(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        asked = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for answer in admin.alter_user_scram_credentials([asked]).values():
            answer.result(30)
