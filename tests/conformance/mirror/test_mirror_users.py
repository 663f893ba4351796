"""A mirror carries the SCRAM users of a real Kafka with their keys, and a real client logs in with the old password.

The metadata log, its snapshots and the rights that they take are Kafka's own here; what is decided is in
`tests/unit/mirror/test_users_carried.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from ottla.cli.exits import FAILED, MISUSED, OK
from ottla.cli.main import main
from ottla.errors import KafkaError
from ottla.mirror.administration import Administration
from ottla.mirror.carrying import Carry, Change
from ottla.mirror.mirror import Mirror, Route
from ottla.mirror.plan import plan
from ottla.security.acls import Binding, Operation, PatternType, Permission, ResourceType
from ottla.testing import Broker
from peers.kafka import KafkaPeer, hold_port, start_fast
from tests.conformance.mirror.logins import PLAIN, may_log_in, of, secured_node, upserted
from tests.node import NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

LOGINS = f'{PLAIN} username="node" password="n" user_node="n" user_mirror="m" user_nobody="x";'
LOGINS_AT_CONTROLLERS = LOGINS.replace('"m"', '"mc"').replace('"x"', '"xc"')
PASSWORD, NEW_PASSWORD = "the-old-password", "a-new-password"
USERS = frozenset({"users"})


class Source(KafkaPeer):
    """Kafka 4.4 whose controller demands a login, with other passwords than the broker's, and which has a snapshot of
    its metadata early."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, heap="384m", flags=start_fast("4.4"), release="4.4")
        self.held = hold_port()
        self.secured = f"127.0.0.1:{self.held.getsockname()[1]}"
        brokers = f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://{self.secured}"
        self.settings = {
            "listeners": f"{brokers},CONTROLLER://{self.controllers}",
            "advertised.listeners": brokers,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": LOGINS_AT_CONTROLLERS,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGINS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:node",
            "metadata.log.max.record.bytes.between.snapshots": "1",
        }


def allowed(user: str, operation: Operation) -> Change:
    kind, name = ResourceType.CLUSTER, "kafka-cluster"
    rule = Binding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
    return Change("acl", "", "create", subject=rule)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    peer = Source(tmp_path_factory.mktemp("kafka"))
    peer.format(
        "--add-scram",
        f"SCRAM-SHA-256=[name=alice,password={PASSWORD},iterations=8192]",
        "--add-scram",
        f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]",
        "--add-scram",
        "SCRAM-SHA-256=[name=admin,password=admin-of-kafka]",
        "--add-scram",
        "SCRAM-SHA-256=[name=local,password=of-kafka]",
    )
    peer.start()
    rules = [allowed(name, Operation.DESCRIBE) for name in ("mirror", "nobody")]
    assert Administration(peer.bootstrap).apply([*rules, allowed("mirror", Operation.CLUSTER_ACTION)]) == []
    yield peer
    peer.kill()
    peer.held.close()


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[NodeProcess]:
    with secured_node(tmp_path / "data") as node:
        yield node


def of_librdkafka(node: NodeProcess, mechanism: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def deleted(bootstrap: str) -> None:
    asked = [UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.alter_user_scram_credentials(list(asked)).values():
        answer.result(60)


def route(kafka: Source, node: NodeProcess, user: str = "mirror", *, deletions: bool = False) -> Route:
    password = user[0].replace("n", "x")
    return Route(
        "a",
        kafka.secured,
        "b",
        node.bootstrap,
        "none",
        "none",
        source_security=of(user, password),
        destination_security=of("admin", "a"),
        carry=Carry(USERS, deletions, exclude_users=("adm.*",)),
        source_controllers=kafka.controllers,
        controllers_security=of(user, f"{password}c"),
    )


def rows(found: list[Change]) -> list[tuple[str, str, str]]:
    return [(each.action, each.name, str(each.what.get("mechanism"))) for each in found if each.kind == "user"]


S256, S512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def test_a_client_of_kafka_logs_in_at_ottla(
    kafka: Source, ottla: NodeProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step is a mirror of its own, as after a restart."""
    with pytest.raises(KafkaError, match="CLUSTER_ACTION"):
        plan(Mirror(route(kafka, ottla, "nobody")))

    files = {"from": of_file("mirror", "m"), "controllers": of_file("mirror", "mc"), "to": of_file("admin", "a")}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    asked = [
        "mirror",
        "plan",
        "a",
        "--from",
        kafka.secured,
        "--from-config",
        str(tmp_path / "from"),
        "--config",
        str(tmp_path / "to"),
        "-b",
        ottla.bootstrap,
        "--name",
        "b",
        "--topics",
        "none",
        "--groups",
        "none",
        "--carry",
        "users",
        "--from-controllers",
        kafka.controllers,
        "--exclude-users",
        "adm.*",
        "--json",
    ]
    assert main(asked) == FAILED, "the controllers want another password"
    assert kafka.controllers in capsys.readouterr().err
    asked += ["--from-controllers-config", str(tmp_path / "controllers")]
    assert main(asked) == OK
    shown = capsys.readouterr().out
    found = [Change(**each) for each in json.loads(shown) if each["kind"] == "user"]
    new = [("create", "alice", S256), ("create", "alice", S512), ("create", "local", S256)]
    assert rows(found) == [("leave", "admin", S256), *new]
    assert found[1].what == {"mechanism": S256, "iterations": 8192}
    assert not may_log_in(ottla, PASSWORD), "a plan changes nothing"

    Mirror(route(kafka, ottla)).step()
    for mechanism in (S256, S512):
        assert AdminClient(of_librdkafka(ottla, mechanism, PASSWORD)).list_topics(timeout=60).brokers
    assert not may_log_in(ottla, "guessed") and not may_log_in(ottla, "admin-of-kafka", name="admin")
    assert rows(plan(Mirror(route(kafka, ottla)))) == [("leave", "admin", S256)]

    upserted(kafka.bootstrap, NEW_PASSWORD)
    deleted(kafka.bootstrap)
    Mirror(route(kafka, ottla)).step()
    assert may_log_in(ottla, NEW_PASSWORD) and not may_log_in(ottla, PASSWORD)
    assert may_log_in(ottla, PASSWORD, S512), "deletions are not followed unasked"
    Mirror(route(kafka, ottla, deletions=True)).step()
    assert not may_log_in(ottla, PASSWORD, S512) and may_log_in(ottla, NEW_PASSWORD)

    mirror = Mirror(route(kafka, ottla))
    mirror.rest([])
    assert mirror._users is not None
    keys = [key for each in mirror._users.read().values() for key in (each.stored_key, each.server_key)]
    control = b"".join(each.read_bytes() for each in (ottla.data / "mirror-offsets.a-0").iterdir() if each.is_file())
    assert b'"credential", "alice"' in control
    for text in (control, ottla.output.read_bytes(), shown.encode()):
        assert not any(part in text for key in keys for part in (key, key.hex().encode()))


def of_file(name: str, password: str) -> str:
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="{name}" password="{password}";\n'
    )


def test_an_ottla_is_read_alike_and_who_cannot_take_keys_is_said_before(
    kafka: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an Ottla to a Kafka, and to an Ottla over plaintext."""
    held = hold_port()
    controllers = f"127.0.0.1:{held.getsockname()[1]}"
    source = NodeProcess(tmp_path / "data")
    source.settings |= {
        "listeners": f"PLAINTEXT://{source.bootstrap},CONTROLLER://{controllers}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controllers}",
        "node.id": "1",
    }
    with source, Broker() as broker:
        upserted(source.bootstrap, PASSWORD, "carol")
        for there, why in ((kafka.bootstrap, "cannot take keys"), (broker.bootstrap, "only over TLS or SASL")):
            arguments = [
                "mirror",
                "plan",
                "x",
                "--from",
                source.bootstrap,
                "-b",
                there,
                "--carry",
                "users",
                "--topics",
                "none",
                "--groups",
                "none",
            ]
            assert main(arguments) == MISUSED
            assert "from_controllers" in capsys.readouterr().err
            assert main([*arguments, "--from-controllers", controllers]) == FAILED
            said = capsys.readouterr().out
            assert "refuse" in said and "carol" in said and why in said and "ottla user create carol" in said
            asked = Route("x", source.bootstrap, "y", there, "none", carry=Carry(USERS), source_controllers=controllers)
            assert Mirror(asked).sync_rest([]) == []
            assert "carol" not in Administration(there).belongings(USERS).users
    held.close()
