"""Kafka's own clients in Java: Streams, and the programs of its system tests."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages import ApiKey
from peers.kafka import install, java, start_fast, tool
from tests.conformance.clients import build
from tests.conformance.compatibility import Ran
from tests.conformance.pair import Wire
from tests.oracle import RELEASE

TOOLS = "org.apache.kafka.tools"
TEXT = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]


def create(bootstrap: str, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        future.result(300)


def delete_if_there(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.delete_topics([topic]).values()
    try:
        future.result(300)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for i, value in enumerate(values):
        producer.produce(topic, value, partition=i % 2)
    assert producer.flush(300) == 0


def last_of_each_key(bootstrap: str, topic: str) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"check-{topic}", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    last: dict[str, int] = {}
    try:
        while (message := consumer.poll(300)) is not None:
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                return last
            last[message.key().decode()] = int.from_bytes(message.value(), "big")
    finally:
        consumer.close()
    raise AssertionError("the end of the topic did not come")


def word_count(ran: Ran, bootstrap: str, topic: str, words: int, state: Path) -> dict[str, int]:
    built = build.build("java")
    done = subprocess.run(
        [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-Xmx512m",
            "-cp",
            f"{built}/classes:{built}/libs/*",
            "WordCount",
            bootstrap,
            f"count-{topic}",
            topic,
            f"{topic}-counts",
            str(words),
            str(state),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    ran.version("Kafka Streams", report["version"])
    counts: dict[str, int] = report["counts"]
    return counts


@pytest.mark.matrix
@pytest.mark.client(
    "Kafka Streams", "WordCount at least once: a repartition topic, a changelog that restores its counts"
)
def test_streams_word_count_goes_on_from_its_changelog(bootstrap: str, topic: str, tmp_path: Path, ran: Ran) -> None:
    """At-least-once, a repartition and a changelog topic; the second run has none of the first one's files."""
    reason = build.missing("java")
    if reason:
        pytest.skip(reason)
    create(bootstrap, topic, partitions=2)
    create(bootstrap, f"{topic}-counts")
    lines = [" ".join(TEXT)] * 50
    once = {word: 50 * n for word, n in Counter(TEXT).items()}
    produce(bootstrap, topic, lines)
    assert word_count(ran, bootstrap, topic, 50 * len(TEXT), tmp_path / "first") == once
    assert last_of_each_key(bootstrap, f"{topic}-counts") == once
    produce(bootstrap, topic, lines)
    twice = {word: 2 * n for word, n in once.items()}
    assert word_count(ran, bootstrap, topic, 100 * len(TEXT), tmp_path / "second") == twice
    assert last_of_each_key(bootstrap, f"{topic}-counts") == twice


def events(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.client("VerifiableConsumer", "reads in a group, commits, and goes on where it stopped")
def test_verifiable_consumer_reads_commits_and_resumes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=2)

    def consume(count: int) -> list[dict[str, Any]]:
        return events(
            tool(
                f"{TOOLS}.VerifiableConsumer",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--group-id",
                f"group-{topic}",
                "--max-messages",
                str(count),
                "--reset-policy",
                "earliest",
                release=RELEASE,
            ).stdout
        )

    next_offsets = {"0": 0, "1": 0}
    for value in range(2):
        produce(bootstrap, topic, [str(value)] * 500)
        seen = consume(500)
        names = [event["name"] for event in seen]
        assert names[0] == "startup_complete"
        assert "shutdown_complete" in names
        assert "partitions_assigned" in names
        read = [event for event in seen if event["name"] == "records_consumed"]
        assert sum(event["count"] for event in read) == 500
        for part in (part for event in read for part in event["partitions"]):
            assert part["minOffset"] == next_offsets[str(part["partition"])]
            next_offsets[str(part["partition"])] = part["maxOffset"] + 1
        commits = [event for event in seen if event["name"] == "offsets_committed"]
        assert commits
        assert all(event["success"] for event in commits)
    assert next_offsets == {"0": 500, "1": 500}


LATER = pytest.mark.nightly(
    "tests/conformance/clients/test_java.py::test_verifiable_share_consumer_accepts_what_it_reads",
    "tests/conformance/clients/test_share_consumers.py::test_what_is_not_acknowledged_is_accepted_by_the_next_poll",
)
"""What is accepted goes over the wire alike; how it comes to be sent is the client's."""


@pytest.mark.parametrize("mode", [pytest.param("auto", marks=LATER), "sync", pytest.param("async", marks=LATER)])
def test_verifiable_share_consumer_accepts_what_it_reads(bootstrap: str, topic: str, mode: str) -> None:
    create(bootstrap, topic, partitions=2)

    def consume(count: int) -> list[dict[str, Any]]:
        produce(bootstrap, topic, ["x"] * count)
        return events(
            tool(
                f"{TOOLS}.VerifiableShareConsumer",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--group-id",
                f"shared-{topic}",
                "--max-messages",
                str(count),
                "--acknowledgement-mode",
                mode,
                "--offset-reset-strategy",
                "earliest",
                release=RELEASE,
            ).stdout
        )

    seen = consume(600) + consume(300)
    names = [event["name"] for event in seen]
    assert names[0] == "startup_complete" and names.count("shutdown_complete") == 2
    read = sum(event["count"] for event in seen if event["name"] == "records_consumed")
    accepted = [event for event in seen if event["name"] == "offsets_acknowledged"]
    assert accepted and all(event["success"] for event in accepted)
    assert sum(event["count"] for event in accepted) == read == 900


@pytest.mark.client(
    "ClientCompatibilityTest",
    "times, cluster id, large messages, topics, settings, idempotence; told that there are no ACLs",
)
def test_client_compatibility(bootstrap: str, topic: str) -> None:
    """The program that Kafka's system tests run against each older broker."""
    for number in range(ATTEMPTS):
        out = _compatibility_test(bootstrap, f"{topic}-{number}")
        if OWN_LIMIT not in out.stdout:
            break
    assert out.stdout.strip().endswith("SUCCESS."), out.stdout + out.stderr


ATTEMPTS = 5
OWN_LIMIT = "Timed out after 10000 ms."
"""The program gives itself ten seconds for a first record, which a loaded machine may not keep."""


def _compatibility_test(bootstrap: str, topic: str) -> subprocess.CompletedProcess[str]:
    create(bootstrap, topic)
    offered = Wire(bootstrap).ask(ApiKey.API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})
    acls = any(each["api_key"] == ApiKey.DESCRIBE_ACLS for each in offered["api_keys"])
    delete_if_there(bootstrap, "newtopic")
    try:
        return tool(
            f"{TOOLS}.ClientCompatibilityTest",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--offsets-for-times-supported",
            "true",
            "--cluster-id-supported",
            "true",
            "--expect-record-too-large-exception",
            "false",
            "--num-cluster-nodes",
            "1",
            "--create-topics-supported",
            "true",
            "--describe-acls-supported",
            str(acls).lower(),
            "--describe-configs-supported",
            "true",
            "--idempotent-producer-supported",
            "true",
            check=False,
            release=RELEASE,
        )
    finally:
        delete_if_there(bootstrap, "newtopic")


@pytest.mark.client("ReplicaVerificationTool", "fetches as a replica does, from the start of each partition to its end")
def test_replica_verification(bootstrap: str, topic: str) -> None:
    """It fetches as a replica does, and runs until it is stopped: a report at the end of each partition is enough."""
    create(bootstrap, topic, partitions=2)
    produce(bootstrap, topic, ["x"] * 200)
    install(RELEASE)
    process = subprocess.Popen(
        java(
            f"{TOOLS}.ReplicaVerificationTool",
            "--broker-list",
            bootstrap,
            "--topics-include",
            re.escape(topic),
            "--time",
            "-2",
            "--report-interval-ms",
            "200",
            "--max-wait-ms",
            "100",
            flags=start_fast(RELEASE),
            release=RELEASE,
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stop = threading.Timer(300, process.kill)
    stop.start()
    printed = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            if re.search(rf"max lag is 0 for partition {topic}-\d at offset 100 among 2 partitions", line):
                return
    finally:
        stop.cancel()
        process.kill()
        process.wait()
    raise AssertionError("".join(printed))
