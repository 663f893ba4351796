"""A mirror of a real Kafka carries its ACLs, quotas and settings of brokers, and says before what it will do.

What is decided is in `tests/unit/mirror/test_carrying.py`; here Kafka is asked, and both do as they are told.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.exits import FAILED, OK
from ottla.cli.main import main
from ottla.mirror.administration import Administration
from ottla.mirror.carrying import Belongings, Carry, Change
from ottla.mirror.mirror import Mirror, Route
from ottla.mirror.plan import plan
from ottla.security.acls import Binding, Operation, PatternType, Permission, ResourceType
from ottla.testing import Broker
from peers.kafka import KafkaPeer, start_fast
from tests.offsets import commit
from tests.spark.topics import Topics

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
EVERYTHING = frozenset({"acls", "quotas", "broker-configs"})


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    peer = KafkaPeer(
        tmp_path_factory.mktemp("kafka"), heap="384m", settings=SECURED, flags=start_fast("4.4"), release="4.4"
    )
    peer.format("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]")
    peer.start()
    yield peer.bootstrap
    peer.kill()


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[str]:
    with Broker(SECURED, group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap


def acl(kind: ResourceType, name: str, operation: Operation, pattern: PatternType = PatternType.LITERAL) -> Binding:
    return Binding(kind, name, pattern, "User:alice", "*", operation, Permission.ALLOW)


WRITES = acl(ResourceType.TOPIC, "orders", Operation.WRITE)
PREFIX = acl(ResourceType.TOPIC, "ord", Operation.READ, PatternType.PREFIXED)
GROUP = acl(ResourceType.GROUP, "billing", Operation.READ)
OTHER = acl(ResourceType.TOPIC, "left-behind", Operation.READ)
MINE = acl(ResourceType.TOPIC, "mine", Operation.ALL)
ENTITY = (("user", "alice"), ("client-id", None))


def creations(*acls: Binding) -> list[Change]:
    return [Change("acl", "", "create", subject=each) for each in acls]


def rows(found: list[Change]) -> set[tuple[str, str, str]]:
    return {(each.kind, each.action, each.name) for each in found}


def _configs(has: Belongings) -> dict[str, str]:
    """Without what a cluster with eligible leader replicas sets itself."""
    return {name: value for name, value in has.broker_configs.items() if name != "min.insync.replicas"}


def test_all_is_planned_carried_and_followed(kafka: str, ottla: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, there = Administration(kafka), Administration(ottla)
    topics = Topics(kafka)
    topics.create("orders", 2, retention_ms="86400000", min_insync_replicas="1", segment_bytes="2000000")
    topics.create("left-behind")
    topics.produce("orders", [b"one"])
    commit(kafka, "billing", {("orders", 0): 0})
    quotas = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    source.apply(
        [
            *creations(WRITES, PREFIX, GROUP, OTHER),
            Change("quota", "", "create", quotas, subject=ENTITY),
            Change("broker-config", "", "create", {"log.cleaner.threads": "2", "message.max.bytes": "2000000"}),
        ]
    )
    there.apply(creations(MINE))

    route = Route(
        "a",
        kafka,
        "b",
        ottla,
        "orders",
        "billing",
        carry=Carry(EVERYTHING, exclude=("segment\\..*", r"log\.cleaner\..*")),
    )
    before = plan(Mirror(route))
    assert rows(before) == {
        ("topic", "create", "orders"),
        ("topic", "leave", "left-behind"),
        ("group", "alter", "billing"),
        ("acl", "create", "allow User:alice write topic:orders"),
        ("acl", "create", "allow User:alice read topic:ord*"),
        ("acl", "create", "allow User:alice read group:billing"),
        ("acl", "leave", "allow User:alice read topic:left-behind"),
        ("quota", "create", "user alice, client-id <default>"),
        ("broker-config", "create", "message.max.bytes"),
        ("broker-config", "leave", "log.cleaner.threads"),
        ("user", "leave", "alice"),
        ("broker-config", "leave", "min.insync.replicas"),  # Kafka sets it itself, with eligible leader replicas
    }
    (topic,) = (each for each in before if each.name == "orders")
    assert topic.what == {"partitions": 2, "retention.ms": "86400000"}
    assert "min.insync.replicas, segment.bytes" in topic.why
    arguments = [
        "mirror",
        "plan",
        "a",
        "--from",
        kafka,
        "-b",
        ottla,
        "--name",
        "b",
        "--topics",
        "orders",
        "--groups",
        "billing",
        "--carry",
        "acls,quotas,broker-configs",
        "--exclude",
        r"segment\..*,log\.cleaner\..*",
    ]
    assert main([*arguments, "--json"]) == OK
    assert [Change(**each) for each in json.loads(capsys.readouterr().out)] == [
        each._replace(subject=None) for each in before
    ]
    assert there.belongings(EVERYTHING).acls == {MINE}, "a plan changes nothing"

    Mirror(route).step()
    has = there.belongings(EVERYTHING)
    assert has.acls == {WRITES, PREFIX, GROUP, MINE}
    assert has.quotas == {ENTITY: quotas} and _configs(has) == {"message.max.bytes": "2000000"}
    after = plan(Mirror(route))
    assert {each.action for each in after} == {"leave"}
    assert main(arguments) == OK
    assert "left-behind" in capsys.readouterr().out

    source.apply(
        [
            Change("acl", "", "delete", subject=WRITES),
            Change("quota", "", "alter", {"producer_byte_rate": None}, subject=ENTITY),
            Change("broker-config", "", "delete", {"message.max.bytes": None}),
        ]
    )
    Mirror(route).step()
    assert there.belongings(EVERYTHING) == has, "deletions are not followed unasked"
    followed = Route(
        "a",
        kafka,
        "b",
        ottla,
        "orders",
        "billing",
        carry=Carry(EVERYTHING, deletions=True, exclude=(r"log\.cleaner\..*",)),
    )
    Mirror(followed).step()
    has = there.belongings(EVERYTHING)
    assert has.acls == {PREFIX, GROUP, MINE} and has.quotas == {ENTITY: {"request_percentage": 12.5}}
    assert _configs(has) == {}


def test_back_to_kafka_without_what_lets_clients_write(kafka: str, ottla: str) -> None:
    """The other way round: Ottla is the source, Kafka is asked to change."""
    source, there = Administration(ottla), Administration(kafka)
    Topics(ottla).create("home")
    reads = acl(ResourceType.TOPIC, "home", Operation.READ)
    source.apply(creations(reads, acl(ResourceType.TOPIC, "home", Operation.WRITE)))
    source.apply([Change("quota", "", "create", {"consumer_byte_rate": 7.0}, subject=(("client-id", "c"),))])
    before = there.belongings(EVERYTHING)
    Mirror(Route("b", ottla, "a", kafka, "home", carry=Carry(frozenset({"read-acls", "quotas"})))).step()
    after = there.belongings(EVERYTHING)
    assert after.acls - before.acls == {reads}
    assert after.quotas == {**before.quotas, (("client-id", "c"),): {"consumer_byte_rate": 7.0}}


def test_a_topic_with_records_of_its_own_is_said_before(
    kafka: str, ottla: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (kafka, ottla):
        Topics(each).create("both")
    Topics(ottla).produce("both", [b"mine"])
    assert main(["mirror", "plan", "x", "--from", kafka, "-b", ottla, "--topics", "both"]) == FAILED
    out = capsys.readouterr().out
    assert "refuse" in out and "records of its own" in out
    assert main(["mirror", "plan", "x", "--from", kafka, "-b", ottla, "--carry", "passwords"]) == 2
    assert "'passwords' cannot be carried" in capsys.readouterr().err
