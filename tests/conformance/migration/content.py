"""What a cluster with ZooKeeper is filled with before it is imported, and how Kafka's own tools describe it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.cli import wire
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.znodes.cluster import DELETIONS, REASSIGNMENTS
from ottla.zookeeper.client import ZooKeeper
from peers.kafka.old import old_tool

if TYPE_CHECKING:
    from tests.conformance.migration.old_cluster import OldCluster

TOPICS = {"orders": 3, "with.settings": 2, "empty": 1}
RECORDS = 60
GROUP = "a group"
OPEN_TRANSACTION = "left-open"
DONE_TRANSACTION = "done"
USER = "álice b%c"
"""Percent-encoded in a path: not ASCII, a space, a percent sign."""


def fill(bootstrap: str, *, replicas: int = 3) -> None:
    """Topics with settings, records, groups, transactions, users, ACLs and quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, replicas) for name, count in TOPICS.items()]
    topics[1].config = {"retention.ms": "86400000", "min.insync.replicas": str(min(replicas, 2))}
    _done(admin.create_topics(topics))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", value=b"value %d" % number, key=b"key %d" % number, partition=number % 3)
    producer.flush(30)
    _transactions(bootstrap)
    _group(bootstrap)
    _security(admin)
    entry = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    _done(admin.incremental_alter_configs([broker]))
    _quotas(bootstrap)


def _quotas(bootstrap: str) -> None:
    rates = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
    wanted: list[tuple[dict[str, str | None], dict[str, float]]] = [
        ({"user": USER}, rates),
        ({"client-id": "a/client"}, rates),
        ({"user": USER, "client-id": "x"}, rates),
        ({"user": None}, rates),
        ({"client-id": None}, rates),
        ({"ip": "10.1.2.3"}, {"connection_creation_rate": 7.0}),
    ]
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value, "remove": False} for key, value in quotas.items()],
        }
        for entity, quotas in wanted
    ]
    answer = wire.ask(bootstrap, ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
    assert not any(row["error_code"] for row in answer["entries"]), answer


DELETED, MOVING = "deleted", "moving"
"""Topics of which something is under way when the brokers stop."""


def leave_unfinished(cluster: OldCluster) -> None:
    """A deletion that waits for a broker that is down, and a reassignment that is asked for when all are: as
    `kafka-topics --zookeeper` and `kafka-reassign-partitions --zookeeper` of 2.x do."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    moving = NewTopic(MOVING, 1, replica_assignment=[[1, 2]])
    _done(admin.create_topics([NewTopic(DELETED, 1, 3), moving]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for topic in (DELETED, MOVING):
        producer.produce(topic, value=b"a record")
    assert producer.flush(30) == 0
    cluster.brokers[2].stop()
    wish = {"version": 1, "partitions": [{"topic": MOVING, "partition": 0, "replicas": [2, 3]}]}

    async def ask(path: str, data: bytes = b"") -> None:
        async with ZooKeeper(SystemNetwork(), cluster.connect, random=Random(1)) as client:
            await client.create(path, data)

    asyncio.run(ask(f"{DELETIONS}/{DELETED}"))
    cluster.stop()
    asyncio.run(ask(REASSIGNMENTS, json.dumps(wish).encode()))


def wait_finished(bootstrap: str) -> None:
    """What was under way is done."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=30).topics
        if DELETED not in topics and MOVING in topics and sorted(topics[MOVING].partitions[0].replicas) == [2, 3]:
            return
        time.sleep(0.2)
    raise AssertionError("not finished within two minutes")


def segments(directory: Path) -> list[str]:
    """What DumpLogSegments of 3.9 says of a broker's logs of records: all bytes of every batch."""
    found = []
    for log in sorted(directory.glob("orders-*")) + sorted(directory.glob("with.settings-*")):
        files = ",".join(str(path) for path in sorted(log.glob("*.log")))
        said = old_tool("3.9", "kafka.tools.DumpLogSegments", "--print-data-log", "--files", files)
        found += [line.replace(str(directory), "") for line in said.splitlines()]
    return found


def committed(bootstrap: str) -> list[tuple[int, int]]:
    """Partition and offset that the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition("orders", number) for number in range(3)], 30)
    consumer.close()
    return [(each.partition, each.offset) for each in found]


def _done(futures: Any) -> None:
    for future in futures.values():
        future.result(30)


def _transactions(bootstrap: str) -> None:
    for name in (DONE_TRANSACTION, OPEN_TRANSACTION):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("with.settings", value=name.encode(), partition=0)
        producer.flush(30)
        if name == DONE_TRANSACTION:
            producer.commit_transaction(30)


def _group(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 60
    seen = 0
    while seen < RECORDS // 2 and time.monotonic() < deadline:
        seen += len(consumer.consume(10, 1.0))
    consumer.commit(offsets=[TopicPartition("orders", n, 5 + n) for n in range(3)], asynchronous=False)
    consumer.close()


def _security(admin: AdminClient) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    _done(
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(USER, credential, b"secret", b"salt of alice"),
                UserScramCredentialUpsertion(
                    "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"secret 2"
                ),
                UserScramCredentialUpsertion("carol", credential, b"secret 3"),
            ]
        )
    )
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    read, write = AclOperation.READ, AclOperation.WRITE
    _done(
        admin.create_acls(
            [
                AclBinding(ResourceType.TOPIC, "orders", literal, f"User:{USER}", "*", read, allow),
                AclBinding(ResourceType.TOPIC, "orders", literal, "User:*", "10.0.0.1", write, deny),
                AclBinding(ResourceType.TOPIC, "pré", prefixed, "User:bob", "*", read, allow),
                AclBinding(ResourceType.GROUP, "*", literal, "User:bob", "*", read, allow),
                AclBinding(ResourceType.BROKER, "kafka-cluster", literal, "User:bob", "*", AclOperation.CREATE, allow),
                AclBinding(ResourceType.TRANSACTIONAL_ID, "t x", prefixed, "User:bob", "*", write, allow),
            ]
        )
    )


def token(release: str, bootstrap: str, directory: Path) -> None:
    """Create a delegation token, over a connection with SASL."""
    properties = directory / "carol.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="carol" password="secret 3";\n'
    )
    tool = "org.apache.kafka.tools.DelegationTokenCommand" if release != "2.8" else "kafka.admin.DelegationTokenCommand"
    old_tool(
        release,
        tool,
        "--bootstrap-server",
        bootstrap,
        "--create",
        "--max-life-time-period",
        "-1",
        "--command-config",
        str(properties),
        "--renewer-principal",
        "User:bob",
    )


def logs_in(bootstrap: str, user: str, password: str) -> bool:
    """Whether a user's password is the right one."""
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
        }
    )
    try:
        return bool(admin.list_topics(timeout=15).topics)
    except KafkaException:
        return False


GROUP_MS = 100_000
"""What a tool may take to describe a group: the machine has other things to do."""


def described(bootstrap: str, *, release: str = "3.9") -> dict[str, list[str]]:
    """What tools of 3.9 say of a cluster of a release, with what differs between any two starts left out."""
    at = ("--bootstrap-server", bootstrap)
    config = ("kafka.admin.ConfigCommand", *at, "--describe", "--entity-type")
    asked = {
        "topics": ("org.apache.kafka.tools.TopicCommand", *at, "--describe"),
        "users": (*config, "users"),
        "clients": (*config, "clients"),
        "users and clients": (*config, "users", "--entity-type", "clients"),
        "ips": (*config, "ips"),
        "brokers": (*config, "brokers"),
        "acls": ("kafka.admin.AclCommand", *at, "--list"),
        "offsets": ("org.apache.kafka.tools.GetOffsetShell", *at),
        "group": (
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *at,
            "--describe",
            "--group",
            GROUP,
            "--timeout",
            str(GROUP_MS),  # it has five seconds by itself, and ends with 0 when they are over
        ),
    }
    if release != "2.8":  # which cannot say
        asked["open"] = (
            "org.apache.kafka.tools.TransactionsCommand",
            *at,
            "describe",
            "--transactional-id",
            OPEN_TRANSACTION,
        )
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(asked, pool.map(lambda command: old_tool("3.9", *command), asked.values()), strict=True))
    assert not any(text.lstrip().startswith("Error") for text in said.values()), said
    return {name: sorted(_comparable(text)) for name, text in said.items()}


_VARIES = re.compile(
    r"(Leader|Isr|Elr|LastKnownElr): \S*|TopicId: \S*|^\d+(?=\s+left-open)|(?<=Ongoing)(\s+\d+)(\s+\d+)\s+\d+"
)
"""Leaders, ids that were made up, the coordinator and how long a transaction has lasted."""


def _comparable(text: str) -> list[str]:
    """Lines without what varies; quotas stand in any order."""
    found = []
    for line in text.splitlines():
        plain = unquote(line)  # 2.8 shows names of users as they are in a path
        head, are, quotas = " ".join(_VARIES.sub("", plain).split()).partition(" are ")
        if head and not any(name in head for name in (DELETED, MOVING)):
            found.append(head + are + ", ".join(sorted(quotas.split(", "))))
    return found


def records(bootstrap: str, *, isolation: str = "read_committed") -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """Every record: offset, key, value, timestamp."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    held = _led(consumer)
    places = [TopicPartition(name, n, 0) for name, count in TOPICS.items() if name in held for n in range(count)]
    consumer.assign(places)
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {(each.topic, each.partition): [] for each in places}
    ended = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(places) and time.monotonic() < deadline:
        for message in consumer.consume(100, 1.0):
            key = str(message.topic()), int(message.partition() or 0)
            if message.error() is not None:
                ended.add(key)
            else:
                row = message.offset(), message.key(), message.value(), message.timestamp()
                found[key].append(row)
    consumer.close()
    assert len(ended) == len(places), ended
    return found


def _led(consumer: Consumer) -> Mapping[str, Any]:
    """The topics, once the cluster knows them and all of their partitions have a leader."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        topics: Mapping[str, Any] = consumer.list_topics(timeout=30).topics
        found = [each for topic in topics.values() for each in topic.partitions.values()]
        if "orders" in topics and all(each.leader >= 0 for each in found):
            return topics
        time.sleep(0.1)
    raise AssertionError("no leaders within two minutes")
