"""kcat (librdkafka): produce, consume, query and list as its users do."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: `make peers`")


def kcat(*arguments: str, text: str = "") -> str:
    done = subprocess.run(["kcat", *arguments], input=text, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.client("kcat", "produces with {codec}, keys and headers, and reads it back")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_comes_back_in_order(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"key-{i}\tvalue number {i} " + "x" * (i % 50) for i in range(2000)]
    kcat(
        "-b",
        bootstrap,
        "-P",
        "-t",
        topic,
        "-z",
        codec,
        "-K",
        "\t",
        "-H",
        "origin=kcat",
        "-H",
        "n=1",
        text="\n".join(lines) + "\n",
    )
    out = kcat("-b", bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%o %h %k\t%s\n").splitlines()
    assert out == [f"{i} origin=kcat,n=1 {line}" for i, line in enumerate(lines)]


@pytest.mark.client("kcat", "lists brokers and topics")
def test_metadata_lists_the_broker_and_the_topic(bootstrap: str, topic: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", topic, text="a\n")
    listing = json.loads(kcat("-b", bootstrap, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listing["brokers"]] == [bootstrap]
    (entry,) = listing["topics"]
    assert entry["topic"] == topic
    partition = entry["partitions"][0]
    assert partition["leader"] == 1
    assert partition["replicas"] == partition["isrs"] == [{"id": 1}]


@pytest.mark.client("kcat", "finds offsets by time")
def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", topic, text="first\n")
    kcat("-b", bootstrap, "-P", "-t", topic, text="second\n")
    stamps = [int(line) for line in kcat("-b", bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%T\n").splitlines()]
    query = kcat("-b", bootstrap, "-Q", "-t", f"{topic}:0:{stamps[1]}")
    assert "offset 1" in query or stamps[0] == stamps[1]
    assert "offset 0" in kcat("-b", bootstrap, "-Q", "-t", f"{topic}:0:{stamps[0]}")


@pytest.mark.client("kcat", "reads from the middle and from the tail")
def test_consume_from_the_middle_and_from_the_tail(bootstrap: str, topic: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", topic, text="".join(f"{i}\n" for i in range(100)))
    assert kcat("-b", bootstrap, "-C", "-t", topic, "-o", "42", "-c", "3", "-q").split() == ["42", "43", "44"]
    assert kcat("-b", bootstrap, "-C", "-t", topic, "-o", "-2", "-e", "-q").split() == ["98", "99"]


@pytest.mark.client("kcat", "joins a group, commits and goes on where it stopped")
def test_a_balanced_consumer_reads_and_commits(bootstrap: str, topic: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", topic, text="a\nb\n")
    arguments = ("-b", bootstrap, "-G", f"group-{topic}", topic, "-X", "auto.offset.reset=earliest", "-q", "-e")
    assert kcat(*arguments).split() == ["a", "b"]
    kcat("-b", bootstrap, "-P", "-t", topic, text="c\n")
    assert kcat(*arguments).split() == ["c"]


@pytest.mark.client("kcat", "produces with idempotence")
def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    text = "".join(f"{i}\n" for i in range(1000))
    kcat("-b", bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=10", text=text)
    assert kcat("-b", bootstrap, "-C", "-t", topic, "-e", "-q") == text
