"""A node that compacts: settings that act while it runs, offsets of groups that survive, a kill in between."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.conformance.operations.operations import Client, eventually, segment_files
from tests.node import NodeProcess

SLOW = {
    "log.cleaner.backoff.ms": "3600000",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
}
COMMITS = 300


def size(node: NodeProcess, topic: str) -> int:
    directory = node.data / f"{topic}-0"
    return sum((directory / name).stat().st_size for name in segment_files(directory))


def is_clean(node: NodeProcess, topic: str) -> bool:
    """Up to the segment that is written to."""
    return clean_point(node.data, topic) >= int(segment_files(node.data / f"{topic}-0")[-1][:20])


def everything(client: Client) -> dict[int, bytes]:
    """Asked for at every offset, as most of them are gone."""
    return {offset: value for start in range(40) for offset, value in client.fetch("t", start)["values"].items()}


def clean_point(data: Path, topic: str) -> int:
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[2]) for line in lines[2:] if line.split()[0] == topic), 0)


def commit(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    for number in range(COMMITS):
        consumer.commit(offsets=[TopicPartition("t", 0, number + 1)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    (found,) = consumer.committed([TopicPartition("t", 0)], 30)
    consumer.close()
    return int(found.offset)


def test_settings_act_at_once_and_group_offsets_survive(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", SLOW) as node:
        client = Client(node)
        assert client.create("t", cleanup_policy="compact", internal_segment_bytes=2000) == "none"
        for number in range(40):
            client.produce_all("t", b"%d" % number * 100, key=b"key %d" % (number % 4))
        latest = {offset: value for offset, value in client.read("t").items() if offset >= 36}
        committed(node.bootstrap)  # which makes the topic
        assert client.alter("__consumer_offsets", internal_segment_bytes=5000) == "none"
        commit(node.bootstrap)
        before = {topic: size(node, topic) for topic in ("t", "__consumer_offsets")}
        assert clean_point(node.data, "t") == 0

        assert client.alter("", kind=4, log_cleaner_threads=0) == "invalid_request"
        assert client.alter("", kind=4, log_cleaner_backoff_ms=50, log_cleaner_threads=2) == "none"
        for topic, most in before.items():
            eventually(partial(is_clean, node, topic), f"{topic} is not compacted")
            assert size(node, topic) < most / 2
        found = everything(client)
        assert len(found) < 20 and latest.items() <= found.items()
        assert committed(node.bootstrap) == COMMITS
        node.kill()
        node.start()
        client = Client(node)
        assert committed(node.bootstrap) == COMMITS
        assert everything(client) == found
        assert clean_point(node.data, "t") > 0
