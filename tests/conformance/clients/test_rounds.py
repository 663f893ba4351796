"""Each client's round against the node, and what an independent reader then finds in the topic."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.conformance.clients import build
from tests.conformance.compatibility import Ran

HERE = Path(__file__).parent
EVERY_CODEC = {"none", "gzip", "snappy", "lz4", "zstd"}
PER_CODEC, AGAIN = 50, 5
LIMIT_S = 300


@dataclass(frozen=True)
class Client:
    name: str
    language: str
    command: tuple[str, ...]
    """With {built} for the folder of what was built."""
    codecs: frozenset[str] = frozenset(EVERY_CODEC)
    """The codecs that it must have; it may have more."""
    lacks: tuple[tuple[str, str], ...] = ()
    """Features that it may lack, and why: shown where the run found them missing."""
    groups: bool = True
    idempotent: bool = True


CASES = [
    pytest.param(Client("kafka-python", "python", (sys.executable, str(HERE / "python" / "round.py")))),
    pytest.param(Client("franz-go", "go", ("{built}/bin/franz-go",))),
    pytest.param(Client("sarama", "go", ("{built}/bin/sarama",))),
    pytest.param(Client("kafkajs", "node", ("node", "{built}/kafkajs.js")), marks=pytest.mark.matrix),
    pytest.param(
        Client(
            "@platformatic/kafka", "node", ("node", "{built}/platformatic.js"), frozenset(EVERY_CODEC - {"zstd"}),
            lacks=(("zstd", "it takes zstd from Node, which has it from 22.15 on"),),
        ),
        marks=pytest.mark.matrix,
    ),
    pytest.param(
        Client(
            "rskafka", "rust", ("{built}/release/ottla-clients",), groups=False, idempotent=False,
            lacks=(("groups", "this client has none; it follows its own offsets"),),
        ),
        marks=pytest.mark.matrix,
    ),
]  # fmt: skip

CLIENTS = [
    pytest.param(*case.values, id=case.values[0].name, marks=[*case.marks, pytest.mark.client(case.values[0].name)])
    for case in CASES
]


class GaveUp(AssertionError):
    """A client's program ended with an error of its own, and with no report."""


def round_of(client: Client, *arguments: str, middle: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run a client's program and return its report. Skips where the language is not installed.

    In the middle of writing and of reading, and when all is read, the program waits until `middle` has returned.
    Raises GaveUp if the program ends with an error.
    """
    built = ""
    if client.language != "python":
        reason = build.missing(client.language)
        if reason:
            pytest.skip(reason)
        built = str(build.build(client.language))
    command = [part.replace("{built}", built) for part in client.command]
    printed: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        stop = threading.Timer(LIMIT_S, process.kill)
        stop.start()
        try:
            assert process.stdin is not None and process.stdout is not None
            for line in process.stdout:
                printed.append(json.loads(line))
                if "middle" in printed[-1]:
                    if middle is not None:
                        middle(printed[-1]["middle"])
                    process.stdin.write("\n")
                    process.stdin.flush()
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            stop.cancel()
        errors.seek(0)
        if status != 0:
            raise GaveUp(errors.read())
    assert [each.get("middle") for each in printed] == ["writing", "reading", "end", None]
    return printed[-1]


def read_all(bootstrap: str, topic: str, count: int) -> Counter[str]:
    """Read with librdkafka, check each record, and count by codec."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"check-{topic}", "check.crcs": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(2)])
    found: Counter[str] = Counter()
    deadline = time.monotonic() + 60
    try:
        while found.total() < count and time.monotonic() < deadline:
            for message in consumer.consume(count, 0.5):
                if message.error():
                    raise KafkaException(message.error())
                headers = {name: value.decode() for name, value in message.headers() or []}
                assert message.key().decode() == f"{headers['codec']}-{headers['n']}"
                assert message.value().decode() == f"{message.key().decode()}:{'x' * 100}"
                found[headers["codec"]] += 1
    finally:
        consumer.close()
    return found


def note(ran: Ran, client: Client, report: dict[str, Any]) -> None:
    """Record the program's own report."""
    ran.version(client.name, report["version"])
    for codec in report["produced"]:
        ran.step(
            client.name, "produces with {codec}, keys and headers" + client.idempotent * ", idempotent", codec=codec
        )
    ran.step(
        client.name, "reads all of it" + client.groups * " in a group, commits, joins again and gets only the rest"
    )
    ran.step(
        client.name, "lists offsets, creates, describes and deletes topics" + client.groups * " and describes groups"
    )
    for what, why in client.lacks:
        if what not in report["produced"]:
            ran.lacks(client.name, what, why)


@pytest.mark.parametrize("client", CLIENTS)
def test_round(bootstrap: str, topic: str, client: Client, ran: Ran) -> None:
    arguments = (bootstrap, topic, f"group-{topic}") if client.groups else (bootstrap, topic)
    report = round_of(client, *arguments)
    note(ran, client, report)
    assert report["repeated"] == 0
    judge(client, report, bootstrap, topic)


def judge(client: Client, report: dict[str, Any], bootstrap: str, topic: str) -> None:
    """Everything was written and read, once; and an independent reader finds the same."""
    assert report["client"] == client.name
    assert report["partitions"] == 2
    assert client.codecs <= report["produced"].keys() <= EVERY_CODEC
    assert set(report["produced"].values()) == {PER_CODEC}
    assert report["consumed"] == report["produced"]
    each = sum(report["produced"].values()) // 2
    assert report["earliest"] == {"0": 0, "1": 0}
    assert report["latest"] == {"0": each, "1": each}
    assert report["resumed"] == 2 * AGAIN
    assert report["deleted"] is True
    if client.groups:
        assert report["group_state"].upper() == "STABLE"
        assert report["group_members"] == 1
        assert report["committed"] == {"0": each - AGAIN, "1": each - AGAIN}
    assert read_all(bootstrap, topic, 2 * each) == report["produced"]
