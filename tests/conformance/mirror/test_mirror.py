"""A mirror between two real clusters: records as they were, exactly once, and groups at the exact record.

What copies is a thread here; in tests/spark it is tasks.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import Fetcher
from ottla.mirror import control_topic as control
from ottla.mirror.control_topic import MirrorError
from ottla.mirror.failback import Failback
from ottla.mirror.mirror import Mirror
from ottla.model import TopicPartition as At
from ottla.testing import Broker
from tests.conformance.mirror.mirrored import first, route, rows, values, with_gaps
from tests.offsets import commit
from tests.spark.topics import BEGAN_MS, Record, Topics

_numbers = itertools.count()


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with Broker(group_initial_rebalance_delay_ms=0, log_cleaner_backoff_ms=200) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """The second cluster."""
    with Broker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap


@pytest.fixture
def topics(source: str) -> Topics:
    return Topics(source)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"mirror-{os.getpid()}-{next(_numbers)}"


def test_records_configs_and_partitions_are_those_of_the_source(
    topics: Topics, source: str, other: str, topic: str
) -> None:
    topics.create(topic, 2, retention_ms="86400000")
    topics.produce(
        topic,
        [
            Record(b"v", 1, b"k", [("h", b"1"), ("h", None)], 1_700_000_000_123),
            Record(None, 0, b"tombstone"),
            Record(b"", 0, b""),
            Record(b"no key", 1),
        ],
    )
    mirror = Mirror(route(source, other, topic))
    mirror.step()
    assert rows(other, topic) == rows(source, topic)

    topics.grow(topic, 3)
    topics.produce(topic, [Record(b"third", 2), Record(b"more", 0)])
    mirror.source.set_configs(topic, {"retention.ms": None, "max.message.bytes": "2000000"})
    assert [(row["partition"], row["lag_records"]) for row in mirror.status()] == [(0, 1), (1, 0), (2, 1)]
    again = Mirror(route(source, other, topic))
    again.step()
    again.step()
    assert rows(other, topic) == rows(source, topic)
    assert mirror.destination.configs([topic])[topic] == {"max.message.bytes": "2000000"}
    assert [row["lag_records"] for row in again.status()] == [0, 0, 0]


def test_every_offset_of_a_group_is_translated_to_the_exact_record(
    topics: Topics, source: str, other: str, topic: str
) -> None:
    topics.create(topic)
    mirror = Mirror(route(source, other, topic))
    for label in ("a", "b"):
        with_gaps(source, topic, label)
        mirror.step()
    (end,) = mirror.source.ends([(topic, 0)]).values()
    for offset in range(end + 1):
        commit(source, f"{topic}-{offset}", {(topic, 0): offset})
    mirror.step()
    found = {offset: first(other, f"{topic}-{offset}", topic) for offset in range(0, end + 1, 3)}
    assert found == {offset: first(source, f"{topic}-{offset}", topic) for offset in found}
    assert len(set(found.values())) > 8


def test_a_group_that_moves_over_and_back_goes_on_at_the_exact_record(
    topics: Topics, source: str, other: str, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    group, behind = f"{topic}-moving", f"{topic}-behind"
    with_gaps(source, topic)
    way = route(source, other, topic)
    mirror = Mirror(way)
    commit(source, group, {(topic, 0): 9})
    commit(source, behind, {(topic, 0): 1})
    mirror.failover()
    assert first(other, group, topic) == first(source, group, topic) == b"2-1"

    topics.produce(topic, [b"never mirrored"])
    there = Topics(other)
    there.produce(topic, [Record(f"own {n}".encode()) for n in range(5)])
    mirror.step()
    assert b"never mirrored" not in values(other, topic)
    (cut,) = mirror.control.cuts.values()
    commit(other, group, {(topic, 0): cut + 2})
    assert first(other, group, topic) == b"own 2"

    lost = tmp_path / "unmirrored.jsonl"
    failback = Failback(way, lost)
    failback.step()
    failback.finish()
    assert [json.loads(line)["value"] for line in lost.read_text().splitlines()] == ["never mirrored"]
    assert first(source, group, topic) == b"own 2"
    assert first(source, behind, topic) == b"0-1"
    assert values(source, topic)[-6:] == [
        b"never mirrored",
        *(f"own {n}".encode() for n in range(5)),
    ]

    topics.produce(topic, [b"home again"])
    Mirror(way).step()
    assert values(other, topic)[-6:] == [*(f"own {n}".encode() for n in range(5)), b"home again"]


def test_topics_that_somebody_else_wrote_to_are_refused(topics: Topics, source: str, other: str, topic: str) -> None:
    topics.create(topic)
    there = Topics(other)
    there.create(topic)
    there.produce(topic, [b"mine"])
    with pytest.raises(MirrorError, match="records of its own"):
        Mirror(route(source, other, topic)).step()


def test_mirrored_records_do_not_come_back(topics: Topics, source: str, other: str, topic: str) -> None:
    topics.create(topic)
    topics.produce(topic, [b"once"])
    way = route(source, other, topic)
    Mirror(way).step()
    back = Mirror(way.reversed())
    back.step()
    assert back.chosen() == {}
    assert values(source, topic) == [b"once"]


@pytest.mark.parametrize("kafka_is_source", [True, False])
def test_kafka_on_either_side(source: str, oracle: str, topic: str, kafka_is_source: bool) -> None:
    begin, end = (oracle, source) if kafka_is_source else (source, oracle)
    Topics(begin).create(topic)
    with_gaps(begin, topic)
    group = f"{topic}-group"
    commit(begin, group, {(topic, 0): 9})
    Mirror(route(begin, end, topic)).failover()
    assert rows(end, topic) == rows(begin, topic)
    assert first(end, group, topic) == first(begin, group, topic) == b"2-1"


def test_codecs_and_large_records_are_kept(topics: Topics, source: str, other: str, topic: str) -> None:
    topics.create(topic, max_message_bytes="5000000")
    mirror = Mirror(route(source, other, topic))
    for codec in ("gzip", "snappy", "lz4", "zstd", "none"):
        settings = {"bootstrap.servers": source, "compression.type": codec, "message.max.bytes": 5_000_000}
        large = Producer({**settings, "linger.ms": 50})
        topics.produce(topic, [Record(b"x" * 100 * number) for number in range(20)], large)
        topics.produce(topic, [b"y" * 3_000_000], large)
        mirror.step()
    assert rows(other, topic) == rows(source, topic)
    sizes = [sizes_of(bootstrap, topic) for bootstrap in (source, other)]
    assert sizes[1] < 1.05 * sizes[0] < 10_000_000


def sizes_of(bootstrap: str, topic: str) -> int:
    """Bytes of a topic's batches, as they are fetched."""
    cluster = Cluster(ClientConfig(parse_addresses(bootstrap)))
    end = cluster.offsets({At(topic, 0): LATEST})[At(topic, 0)].offset
    found = sum(len(chunk.records) for chunk in Fetcher(cluster, topic, 0, 0, end))
    cluster.close()
    return found


def test_what_compaction_has_left(topics: Topics, source: str, other: str, topic: str) -> None:
    topics.create(
        topic,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="1",
    )
    dice = random.Random(4)
    topics.produce(
        topic,
        [
            Record(b"%01000d" % number, 0, b"%d" % dice.randrange(100), None, BEGAN_MS + number)
            for number in range(5000)
        ],
    )
    deadline = time.monotonic() + 60
    while len(rows(source, topic)) > 2500:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    mirror = Mirror(route(source, other, topic))
    mirror.source.set_configs(topic, {"min.compaction.lag.ms": "9000000000000", "max.compaction.lag.ms": None})
    for offset in (0, *range(1, 5000, 97)):
        commit(source, f"{topic}-{offset}", {(topic, 0): offset})
    mirror.step()
    known = [int(value) for value in values(other, topic) if value is not None]
    assert len(known) <= 2500
    assert set(known) >= {int(value) for value in values(source, topic) if value is not None}
    for offset in range(1, 5000, 970):
        found = first(other, f"{topic}-{offset}", topic)
        assert found is not None and int(found) == next(number for number in known if number >= offset)


BLOCK_RUNS = 64
"""A quarter of the real one: each is a transaction at both clusters."""


def test_many_transactions_become_blocks_and_mean_the_same(
    topics: Topics, source: str, other: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "BLOCK_RUNS", BLOCK_RUNS)
    topics.create(topic)
    mirror = Mirror(route(source, other, topic), every_s=0)
    for number in range(BLOCK_RUNS + 50):
        topics.produce(topic, [b"%d" % number, b"and"])
        mirror.step()
        if number in (BLOCK_RUNS // 2, BLOCK_RUNS + 9):
            mirror.control.tidy({})
    runs = mirror.control.offsets[topic, 0].runs
    assert len(runs.blocks) == 1 and len(runs.tail) == 40
    again = Mirror(route(source, other, topic))
    again.control.load()
    assert list(again.control.offsets[topic, 0].runs) == list(runs)
    assert len(again.control.offsets[topic, 0].runs.blocks) == 1
    topics.produce(topic, [b"last"])
    again.step()
    assert values(other, topic) == values(source, topic)
    (end,) = again.destination.ends([(topic, 0)]).values()
    again.control.offsets[topic, 0].runs.pack()
    again.control.tidy({(topic, 0): end})
    assert len(again.control.offsets[topic, 0].runs.blocks) == 1
