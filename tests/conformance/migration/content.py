"""What a cluster with ZooKeeper is filled with before it is imported, and how Kafka's own tools describe it."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
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

from peers.kafka.old import old_tool

TOPICS = {"orders": 3, "with.settings": 2, "empty": 1}
RECORDS = 60
GROUP = "a group"
OPEN_TRANSACTION = "left-open"
DONE_TRANSACTION = "done"
USER = "álice b%c"
"""Percent-encoded in a path: not ASCII, a space, a percent sign."""


def fill(bootstrap: str, release: str) -> None:
    """Topics with settings, records, groups, transactions, users, ACLs and quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 3) for name, count in TOPICS.items()]
    topics[1].config = {"retention.ms": "86400000", "min.insync.replicas": "2"}
    _done(admin.create_topics(topics))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", value=b"value %d" % number, key=b"key %d" % number, partition=number % 3)
    producer.flush(30)
    _transactions(bootstrap)
    _group(bootstrap)
    _security(admin)
    entry = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    _done(admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])]))
    for entities in (
        ("users", USER), ("clients", "a/client"), ("users", USER, "clients", "x"), ("users", None), ("clients", None),
    ):  # fmt: skip
        _quota(bootstrap, release, entities)
    old_tool(
        release, "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "ips",
        "--entity-name", "10.1.2.3", "--add-config", "connection_creation_rate=7",
    )  # fmt: skip


def _quota(bootstrap: str, release: str, entities: tuple[str | None, ...]) -> None:
    named: list[str] = []
    for kind, name in zip(entities[::2], entities[1::2], strict=True):
        named += ["--entity-type", str(kind)]
        named += ["--entity-default"] if name is None else ["--entity-name", name]
    old_tool(
        release, "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter", *named, "--add-config",
        "producer_byte_rate=1048576,request_percentage=12.5",
    )  # fmt: skip


def _done(futures: Any) -> None:
    for future in futures.values():
        future.result(30)


def _transactions(bootstrap: str) -> None:
    for name in (DONE_TRANSACTION, OPEN_TRANSACTION):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("with.settings", value=name.encode(), partition=0)
        producer.flush(30)
        if name == DONE_TRANSACTION:
            producer.commit_transaction(30)


def _group(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 60
    seen = 0
    while seen < RECORDS // 2 and time.monotonic() < deadline:
        seen += len(consumer.consume(10, 1.0))
    consumer.commit(offsets=[TopicPartition("orders", n, 5 + n) for n in range(3)], asynchronous=False)
    consumer.close()


def _security(admin: AdminClient) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    _done(admin.alter_user_scram_credentials([
        UserScramCredentialUpsertion(USER, credential, b"secret", b"salt of alice"),
        UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"secret 2"),
        UserScramCredentialUpsertion("carol", credential, b"secret 3"),
    ]))  # fmt: skip
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    read, write = AclOperation.READ, AclOperation.WRITE
    _done(admin.create_acls([
        AclBinding(ResourceType.TOPIC, "orders", literal, f"User:{USER}", "*", read, allow),
        AclBinding(ResourceType.TOPIC, "orders", literal, "User:*", "10.0.0.1", write, deny),
        AclBinding(ResourceType.TOPIC, "pré", prefixed, "User:bob", "*", read, allow),
        AclBinding(ResourceType.GROUP, "*", literal, "User:bob", "*", read, allow),
        AclBinding(ResourceType.BROKER, "kafka-cluster", literal, "User:bob", "*", AclOperation.CREATE, allow),
        AclBinding(ResourceType.TRANSACTIONAL_ID, "t x", prefixed, "User:bob", "*", write, allow),
    ]))  # fmt: skip


def token(release: str, bootstrap: str, properties: str) -> None:
    """Create a delegation token, over a connection with SASL."""
    tool = "org.apache.kafka.tools.DelegationTokenCommand" if release != "2.8" else "kafka.admin.DelegationTokenCommand"
    old_tool(
        release, tool, "--bootstrap-server", bootstrap, "--create", "--max-life-time-period", "-1",
        "--command-config", properties, "--renewer-principal", "User:bob",
    )  # fmt: skip


def described(bootstrap: str) -> dict[str, list[str]]:
    """What tools of 3.9 say of a cluster, with what differs between any two starts left out."""
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
        "group": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", GROUP),
        "open": ("org.apache.kafka.tools.TransactionsCommand", *at, "describe", "--transactional-id", OPEN_TRANSACTION),
    }
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(asked, pool.map(lambda command: old_tool("3.9", *command), asked.values()), strict=True))
    return {name: sorted(_comparable(text)) for name, text in said.items()}


_VARIES = re.compile(r"(Leader|Isr|Elr|LastKnownElr): \S*|CoordinatorId\S*|TransactionStartTimeMs|TransactionDurationMs")


def _comparable(text: str) -> list[str]:
    return [" ".join(_VARIES.sub("", line).split()) for line in text.splitlines() if line.strip()]


def records(bootstrap: str, *, isolation: str = "read_committed") -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """Every record: offset, key, value, timestamp."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "isolation.level": isolation, "enable.partition.eof": True})  # fmt: skip
    places = [TopicPartition(name, number, 0) for name, count in TOPICS.items() for number in range(count)]
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


