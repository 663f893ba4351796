"""Dead letters of share groups (KIP-1191) beside Apache Kafka 4.4: what is written, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.protocol.messages import ApiKey
from peers.kafka import KafkaPeer, cache, start_fast
from tests.conformance.groups.raw_share_member import (
    ACCEPT,
    BROKER,
    GAP,
    GROUP,
    REJECT,
    RELEASE,
    TOPIC,
    RawMember,
    alter,
    create,
    raise_share_version,
    until,
)
from tests.conformance.pair import Wire, settle
from tests.node import NodeProcess

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000", "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500", "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}  # fmt: skip
LETTERS_S = 30.0


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("ottla") / "data", SETTINGS) as node:
        raise_share_version(node.bootstrap)
        yield node.bootstrap


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not (cache("4.4") / "libs").is_dir():
        pytest.skip("needs the jars of Apache Kafka 4.4: python -m peers.kafka install")
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaPeer(directory, heap="512m", flags=start_fast("4.4"), release="4.4", settings=SETTINGS) as peer:
        yield peer.bootstrap


def letters(bootstrap: str, topic: str, count: int) -> list[Any]:
    """As many letters, in the order of their places."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    end = time.monotonic() + LETTERS_S
    try:
        while len(found) < count and time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                found.append(
                    (
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.headers(),
                        message.timestamp()[0],
                    )
                )
    finally:
        consumer.close()
    return sorted(found, key=lambda each: each[:2])


def prepared(bootstrap: str, name: str, *, count: int = 6, partition: int = 0, **of_group: str) -> RawMember:
    """A member of group g-NAME, and records of topic NAME, which has two partitions."""
    topic_id = create(bootstrap, name, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(name, f"v{number}", f"k{number}", partition=partition, headers=[("h", b"x"), ("n", None)])
    assert producer.flush(30) == 0
    settings: dict[str, str | None] = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "2",
        "share.record.lock.duration.ms": "1000",
        "errors.deadletterqueue.topic.name": f"dlq.{name}",
        **{each.replace("_", "."): value for each, value in of_group.items()},
    }
    assert alter(bootstrap, GROUP, f"g-{name}", settings)[0] == 0
    settle(Wire(bootstrap))
    member = RawMember(bootstrap, f"g-{name}", name, topic_id)
    member.join()
    return member


def die(bootstrap: str, name: str, copies: str) -> list[Any]:
    """The letters of records that died in each way that there is, and of none that did not."""
    create(bootstrap, f"dlq.{name}", 3, errors_deadletterqueue_group_enable="true")
    member = prepared(bootstrap, name, partition=1, errors_deadletterqueue_copy_record_enable=copies)
    until(lambda: member.take(6, partition=1))
    for offset, fate in enumerate((REJECT, ACCEPT, RELEASE)):
        assert member.acknowledge(offset, offset, fate, partition=1) == 0
    assert member.acknowledge(5, 5, GAP, partition=1) == 0
    seen: set[int] = set()
    until(lambda: seen.update(each.offset for each in member.take(6, partition=1)) or len(seen) == 3)
    assert seen == {2, 3, 4}, "released, and two whose locks have ended"
    member.close_session()
    found = letters(bootstrap, f"dlq.{name}", 4)
    assert not member.take(6, partition=1), "the dead are not delivered"
    member.leave()
    return found


@pytest.mark.parametrize("copies", ["true", "false"])
def test_letters_are_those_of_kafka(ottla: str, kafka: str, copies: str) -> None:
    mine, theirs = die(ottla, f"die-{copies}", copies), die(kafka, f"die-{copies}", copies)
    assert [each[:2] for each in mine] == [(1, 0), (1, 1), (1, 2), (1, 3)]

    def by_record(found: list[Any]) -> list[Any]:
        """Locks that end together may do so in any order."""
        return (
            sorted((row[0], *row[2:]) for row in found)
            if copies == "true"
            else sorted((row[0], dict(row[4])["__dlq.errors.offset"], row[4], row[5]) for row in found)
        )

    assert by_record(mine) == by_record(theirs)


def test_settings_are_refused_and_described_as_by_kafka(ottla: str, kafka: str) -> None:
    name = "errors.deadletterqueue.topic.name"
    for value in ("__x", "a b", " ", "outside", "dlq.fine", ""):
        assert alter(ottla, GROUP, "zz", {name: value}) == alter(kafka, GROUP, "zz", {name: value}), value
    copy = "errors.deadletterqueue.copy.record.enable"
    assert alter(ottla, GROUP, "zz", {copy: "maybe"}) == alter(kafka, GROUP, "zz", {copy: "maybe"})
    for bootstrap in (ottla, kafka):
        create(bootstrap, "described", 1, errors_deadletterqueue_group_enable="true")
        settle(Wire(bootstrap))
    for kind, of in ((GROUP, "zz"), (BROKER, "1"), (TOPIC, "described")):
        assert described(ottla, kind, of) == described(kafka, kind, of), of


def described(bootstrap: str, kind: int, name: str) -> list[Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    values = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (row,) = Wire(bootstrap).ask(ApiKey.DESCRIBE_CONFIGS, 4, values)["results"]
    return sorted(
        (each for each in row["configs"] if each["name"].startswith("errors.dead")), key=lambda it: it["name"]
    )


@pytest.mark.parametrize("wrong", ["missing", "not enabled", "outside"])
def test_what_has_no_topic_is_archived_without_a_letter(ottla: str, kafka: str, wrong: str) -> None:
    """And is neither kept for ever nor delivered again."""
    for bootstrap in (ottla, kafka):
        name = f"wrong-{wrong.replace(' ', '-')}"
        if wrong == "not enabled":
            create(bootstrap, f"dlq.{name}")
        if wrong == "outside":
            create(bootstrap, f"out.{name}", errors_deadletterqueue_group_enable="true")
        prefix = "out" if wrong == "outside" else "dlq"
        member = prepared(bootstrap, name, count=1, errors_deadletterqueue_topic_name=f"{prefix}.{name}")
        member.some()
        assert member.acknowledge(0, 0, REJECT) == 0
        until(lambda bootstrap=bootstrap, name=name: lag(bootstrap, name) == 0)  # type: ignore[misc]
        member.leave()


def lag(bootstrap: str, name: str) -> int:
    """Records that are not done with."""
    groups = [{"group_id": f"g-{name}", "topics": [{"topic_name": name, "partitions": [0]}]}]
    answer = Wire(bootstrap).ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": groups})
    return int(answer["groups"][0]["topics"][0]["partitions"][0]["lag"])


def test_a_missing_topic_is_created_where_that_is_allowed(ottla: str, kafka: str) -> None:
    for bootstrap in (ottla, kafka):
        assert alter(bootstrap, BROKER, "", {"errors.deadletterqueue.auto.create.topics.enable": "true"})[0] == 0
        member = prepared(bootstrap, "created", count=1)
        member.some()
        assert member.acknowledge(0, 0, REJECT) == 0
        until(lambda bootstrap=bootstrap: "dlq.created" in topics(bootstrap))  # type: ignore[misc]
        assert len(letters(bootstrap, "dlq.created", 1)) == 1
        member.leave()
        assert alter(bootstrap, BROKER, "", {"errors.deadletterqueue.auto.create.topics.enable": None})[0] == 0
    assert described(ottla, TOPIC, "dlq.created") == described(kafka, TOPIC, "dlq.created")


def topics(bootstrap: str) -> set[str]:
    answer = Wire(bootstrap).ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
    return {each["name"] for each in answer["topics"]}


def ottla_share(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "share", *arguments, "-b", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run(bootstrap: str, *arguments: str) -> Any:
    done = ottla_share(bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_show_dead_letters_and_put_each_back_once(ottla: str, kafka: str) -> None:
    for bootstrap in (ottla, kafka):
        name, group = "back", "g-back"
        create(bootstrap, f"dlq.{name}", 3, errors_deadletterqueue_group_enable="true")
        member = prepared(bootstrap, name, count=4)
        member.some()
        for offset in (0, 2, 3):
            assert member.acknowledge(offset, offset, REJECT) == 0
        assert len(letters(bootstrap, f"dlq.{name}", 3)) == 3
        (described_,) = json.loads(run(bootstrap, "describe", group, "--json"))
        assert described_["dead_letters"] == {
            "topic": f"dlq.{name}",
            "copies_record": False,
            "problem": None,
            "lost": [],
        }
        assert group in run(bootstrap, "list")
        shown = [json.loads(line) for line in run(bootstrap, "dead", group, "--json").splitlines()]
        assert [(each["offset"], each["reason"], each["deliveries"]) for each in shown] == [
            (0, "rejected", 1),
            (2, "rejected", 1),
            (3, "rejected", 1),
        ]
        planned = json.loads(run(bootstrap, "redrive", group, "--json"))
        assert (planned["executed"], planned["chosen"], planned["put_back"]) == (False, 3, 0)
        first = json.loads(run(bootstrap, "redrive", group, "--limit", "1", "--execute", "--json"))
        assert (first["put_back"], first["left"]) == (1, 2)
        rest = json.loads(run(bootstrap, "redrive", group, "--execute", "--json"))
        assert (rest["put_back"], rest["left"]) == (2, 0)
        again = json.loads(run(bootstrap, "redrive", group, "--execute", "--json"))
        assert again["put_back"] == 0
        written = letters(bootstrap, name, 7)
        assert [(each[2], each[3]) for each in written[4:]] == [(b"k0", b"v0"), (b"k2", b"v2"), (b"k3", b"v3")]
        assert written[4][4] == [
            ("h", b"x"),
            ("n", None),
            ("__ottla.redrive.attempts", b"1"),
            ("__ottla.redrive.deliveries", b"1"),
            ("__ottla.redrive.history", b"g-back back-0@0 1 rejected"),
        ]
        member.leave()


def test_what_ottla_adds_where_it_is_asked_to(tmp_path: Path) -> None:
    settings = {**SETTINGS, "ottla.share.dlq.payload.and.reason": "true"}
    with NodeProcess(tmp_path / "data", settings) as node:
        raise_share_version(node.bootstrap)
        create(node.bootstrap, "dlq.more", 1, errors_deadletterqueue_group_enable="true")
        member = prepared(node.bootstrap, "more", count=1)
        member.some()
        assert member.acknowledge(0, 0, REJECT) == 0
        ((_, _, key, value, headers, _),) = letters(node.bootstrap, "dlq.more", 1)
        assert (key, value) == (b"k0", b"v0")
        assert [name for name, _ in headers][:2] == ["h", "n"] and ("__ottla.dlq.reason", b"rejected") in headers
        assert any(name == "__ottla.dlq.timestamp" and text.isdigit() for name, text in headers)
