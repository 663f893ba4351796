"""Sequences on one partition, step by step on Ottla and on Apache Kafka: producers, trimming, times, fetch sessions."""

from __future__ import annotations

import itertools
import os
import random
import time
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential import FETCH, TIME, Comparison, Of, Side, batch
from tests.conformance.exemptions import unused

_numbers = itertools.count()


@pytest.fixture
def pair(bootstrap: str, oracle: str) -> Comparison:
    return Comparison(
        Side(bootstrap), Side(oracle), f"l{os.getpid()}-{time.time_ns() % 10**9}-{next(_numbers)}-", "log"
    )


def idempotent(sequence: int, count: int = 1, *, producer: int = 4000, epoch: int = 0, **more: Any) -> bytes:
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **more)


def trim(pair: Comparison, name: str, offset: int, version: int = 2) -> None:
    topics = [{"name": pair.prefix + name, "partitions": [{"partition_index": 0, "offset": offset}]}]
    pair.ask(ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout": 9000})


def producers(pair: Comparison, name: str) -> None:
    topics = [{"name": pair.prefix + name, "partition_indexes": [0]}]
    pair.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})


@pytest.mark.parametrize("codec", range(5))
def test_fetch_at_every_offset(pair: Comparison, codec: int) -> None:
    """Bug 12: from the middle of a batch."""
    pair.set_up("t")
    for count in (5, 1, 7, 3):
        pair.produce("t", batch(count, codec=codec))
    for version, offset in itertools.product((4, 12, 18), range(-1, 19)):
        pair.fetch("t", offset, version=version)
    for offset in range(17):
        pair.fetch("t", offset, max_bytes=1)
    pair.check()


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_offsets_by_time(pair: Comparison, codec: int) -> None:
    for name in ("t", "trimmed"):
        pair.set_up(name)
        for times in ((50, 10, 30), (20,), (90, 90, 40), (60, 95, 95, 1), (95,)):
            pair.produce(name, batch(times=[TIME + each for each in times], codec=codec))
    stamps = [-6, -5, -4, -3, -2, -1, 0, *(TIME + each for each in range(0, 101, 5)), TIME + 1]
    for version in (1, 3, 4, 7, 11):
        pair.list_offsets("t", *stamps, version=version)
    for start in (1, 2, 4, 6, 8, 11, -1):  # bug 11: look-ups after the front of the log is gone
        trim(pair, "trimmed", start)
        pair.list_offsets("trimmed", *stamps)
        pair.list_offsets("trimmed", *stamps, isolation_level=1)
        pair.fetch("trimmed", start - 1)
        pair.fetch("trimmed", start)
    pair.check()


def test_times_that_no_record_has(pair: Comparison) -> None:
    pair.set_up("timeless")
    for times in ([-1], [-1, TIME], [0], [1], [TIME, -1]):
        pair.produce("timeless", batch(times=times))
        pair.list_offsets("timeless", -3, -2, -1, 0, 1, 2, TIME, TIME + 1)
        pair.fetch("timeless", 0)
    pair.check()


def test_idempotent_producer_step_by_step(pair: Comparison) -> None:
    """Bug 7: five batches are remembered; a retry of any is answered with its first offset."""
    pair.set_up("t")
    for sequence in range(0, 14, 2):
        pair.produce("t", idempotent(sequence, 2))
    for sequence, count in (
        (12, 2),
        (10, 2),
        (4, 2),
        (2, 2),
        (0, 2),
        (12, 1),
        (13, 1),
        (11, 2),
        (15, 1),
        (20, 1),
        (14, 1),
    ):
        pair.produce("t", idempotent(sequence, count))
        producers(pair, "t")
    for sequence, epoch in ((1, 1), (0, 1), (1, 1), (15, 0), (0, 3), (0, 2), (5, 3), (1, 3), (0, 32767), (1, 32767)):
        pair.produce("t", idempotent(sequence, epoch=epoch))
    pair.fetch("t", 0)
    pair.check()


def test_first_sequences_and_wraps(pair: Comparison) -> None:
    pair.set_up("t")
    top = (1 << 31) - 1
    for producer, sequences in enumerate(([5, 6], [top - 1, top, 0, 1], [top, 0], [0, 2, 1], [top - 1, top, 1]), 5000):
        for sequence in sequences:
            pair.produce("t", idempotent(sequence, producer=producer))
    for sequence in (top - 2, 2, top - 2):
        pair.produce("t", idempotent(sequence, 5, producer=6000))
    pair.produce("t", idempotent(-1, producer=6001))
    pair.produce("t", idempotent(-5, producer=6001))
    pair.produce("t", idempotent(0, producer=6001, epoch=-1))
    pair.produce("t", batch(producer_id=-1, producer_epoch=3, base_sequence=4))
    producers(pair, "t")
    pair.fetch("t", 0)
    pair.check()


def test_retry_of_what_was_deleted(pair: Comparison) -> None:
    """Bug 8: the log forgets records, the producer does not."""
    pair.set_up("t")
    for sequence in range(6):
        pair.produce("t", idempotent(sequence))
    trim(pair, "t", 4)
    for sequence in (5, 3, 1, 0, 6, 6, 8):
        pair.produce("t", idempotent(sequence))
    trim(pair, "t", -1)
    producers(pair, "t")
    for sequence in (6, 2, 7, 9, 0):
        pair.produce("t", idempotent(sequence))
    pair.fetch("t", 0)
    pair.fetch("t", 7)
    pair.check()


def test_delete_records_and_epochs(pair: Comparison) -> None:
    pair.set_up("trimmed")
    for _ in range(4):
        pair.produce("trimmed", batch(2))
    for version, offset in ((0, 3), (1, 2), (2, 3), (2, 9), (2, -2), (2, 8), (1, -1), (2, 0)):
        trim(pair, "trimmed", offset, version)
        pair.list_offsets("trimmed", -2, -1, -3, -4)
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": each} for each in (0, 1)]
        for one in asked:
            values = {"replica_id": -1, "topics": [{"topic": pair.prefix + "trimmed", "partitions": [one]}]}
            pair.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
    pair.produce("trimmed", batch(2))
    pair.list_offsets("trimmed", -2, -1)
    pair.check()


def test_some_partitions_fail(pair: Comparison) -> None:
    pair.set_up("t", 3)
    pair.set_up("u")
    good, bad = batch(), batch()[:-1]
    for version in (3, 9, 12, 13):
        partitions = [{"index": index, "records": each} for index, each in enumerate((good, bad, good, good))]
        topics = [
            {"name": pair.prefix + "t", "topic_id": Of("t"), "partition_data": partitions},
            {"name": pair.prefix + "u", "topic_id": Of("u"), "partition_data": partitions[:2]},
        ]
        for acks in (-1, 1):
            values = {"transactional_id": None, "acks": acks, "timeout": 9000, "topic_data": topics}
            pair.ask(ApiKey.PRODUCE, version, values)
    for partition in range(3):
        pair.fetch("t", 0, partition=partition)
    pair.check()


def test_without_acknowledgement(pair: Comparison) -> None:
    """acks=0: nothing is answered; an error closes the connection."""
    pair.set_up("t")
    for version, bad in itertools.product((3, 9, 13), (batch()[:-1], b"")):
        values = {"topics": [{"name": pair.prefix + "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
        for records in (batch(), bad):
            for side in pair.sides:
                data = {
                    "name": pair.prefix + "t",
                    "topic_id": side.known["t"],
                    "partition_data": [{"index": 0, "records": records}],
                }
                side.send(ApiKey.PRODUCE, version, {"transactional_id": None, "acks": 0, "topic_data": [data]})
            pair.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, **values})
    pair.check()


SETTINGS: list[dict[str, str]] = [
    {"max_message_bytes": "300"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"},
    {"cleanup_policy": "compact"},
    {"cleanup_policy": "compact,delete", "message_timestamp_type": "LogAppendTime"},
    *({"compression_type": name} for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")),
    {"compression_type": "gzip", "message_timestamp_type": "LogAppendTime", "max_message_bytes": "400"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: ",".join(each.values()))
def test_settings_of_a_topic(pair: Comparison, settings: dict[str, str]) -> None:
    from ottla.protocol.records.record_batch import SimpleRecord, build_batch

    pair.set_up("t", **settings)
    now = time.time_ns() // 1_000_000
    nulls = [SimpleRecord(now, None, None), SimpleRecord(now, b"", b"", (("", b""), ("h", None), ("h", b"twice")))]
    # Far enough from the limits that it does not matter when the request arrives.
    stamps = ([now], [TIME], [-1], [now + 500_000], [now, now - 500_000, now], [-1, now])
    for codec in (0, 1, 4):
        for times in stamps:
            pair.produce("t", batch(times=times, codec=codec), version=11)
        pair.produce("t", batch(2, size=150, times=[now, now], codec=codec))
        pair.produce("t", batch(5, size=150, times=[now] * 5, codec=codec))
        pair.produce("t", batch(times=[now], codec=codec, timestamp_type=1))
        pair.produce("t", bytes(build_batch(nulls, codec=codec)))
        pair.produce("t", bytes(build_batch(nulls[1:], codec=codec)))
    for offset in (0, 3, 7):
        pair.fetch("t", offset)
    pair.list_offsets("t", -2, -1, *([] if "LogAppendTime" in settings.values() else [-3, 0]))
    pair.check()


def test_fetch_sessions_step_by_step(pair: Comparison) -> None:
    """Incremental sessions (KIP-227) over two topics, one of which is deleted and recreated while the session lives."""
    pair.set_up("t", 3)
    pair.set_up("u")

    def ask(version: int, session: Any, epoch: int, wanted: dict[str, dict[int, int]], forget: Any = ()) -> None:
        topics = [
            {
                "topic": pair.prefix + name,
                "topic_id": Of(name),
                "partitions": [
                    {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                    for index, offset in partitions.items()
                ],
            }
            for name, partitions in wanted.items()
        ]
        gone = [{"topic": pair.prefix + name, "topic_id": Of(name), "partitions": each} for name, each in forget]
        values = {**FETCH, "session_id": session, "session_epoch": epoch, "topics": topics}
        answers = pair.ask(ApiKey.FETCH, version, {**values, "forgotten_topics_data": gone})
        for side, answer in zip(pair.sides, answers, strict=True):
            if epoch == 0 and answer["session_id"]:
                side.known["session"] = answer["session_id"]

    for version in (7, 12, 13, 18):
        session = Of("session")
        pair.produce("t", batch())
        ask(version, 0, 0, {"t": {0: 0, 1: 0, 2: 0}, "u": {0: 0}})
        ask(version, session, 1, {})
        ask(version, session, 2, {"t": {0: 1}})
        ask(version, session, 3, {"t": {0: 3, 7: 0}})
        pair.produce("t", batch(), partition=2)
        pair.produce("u", batch())
        ask(version, session, 4, {})
        ask(version, session, 4, {})  # the epoch before
        ask(version, session, 6, {})  # the one after next
        ask(version, session, 5, {"u": {0: 1}}, [("t", [2, 7])])
        pair.produce("t", batch(), partition=2)
        ask(version, session, 6, {}, [("u", [0])])
        ask(version, session, 7, {"t": {1: 99}})
        ask(version, session, 8, {}, [("t", [1])])
        ask(version, session, 9, {"t": {0: 0}}, [("t", [0])])
        ask(version, session, 0, {"t": {0: 0}})
        ask(13 if version < 13 else 12, session, 1, {})
        ask(version, session, 1, {}, [("t", [0])])
        ask(version, session, 2, {})
        ask(version, session, -1, {"t": {0: 0}})
        ask(version, session, 1, {})
    pair.check()


@pytest.mark.parametrize("seed", range(4))
def test_random_walks(pair: Comparison, seed: int) -> None:
    """Whatever a few producers, consumers and an operator do in whatever order."""
    dice = random.Random(seed)
    name = "trimmed" if seed % 2 else "t"
    pair.set_up(name, max_message_bytes="2000", compression_type=dice.choice(["producer", "gzip", "zstd"]))
    sequences = dict.fromkeys(range(7000, 7003), 0)
    epochs = dict.fromkeys(sequences, 0)
    for _ in range(120):
        match dice.randrange(8):
            case 0 | 1:
                times = [TIME + dice.randrange(1000) for _ in range(dice.randrange(1, 6))]
                pair.produce(name, batch(times=times, codec=dice.randrange(5), size=dice.choice((0, 1, 400))))
            case 2 | 3 | 4:
                producer, count = dice.choice(list(sequences)), dice.randrange(1, 4)
                drift = dice.choice((0, 0, 0, 0, -1, -3, -9, 2))
                bump = dice.choice((0, 0, 0, 0, 0, 1, -1))
                sequence = max(0, sequences[producer] + drift) if bump <= 0 else dice.choice((0, 0, 1))
                epoch = max(0, epochs[producer] + bump)
                data = idempotent(sequence, count, producer=producer, epoch=epoch, codec=dice.choice((0, 2)))
                answer, _ = pair.produce(name, data, version=dice.randrange(3, 14))
                (row,) = answer["responses"][0]["partition_responses"]
                if not row["error_code"] and (drift == 0 or bump > 0):
                    sequences[producer], epochs[producer] = sequence + count, epoch
            case 5 if name == "trimmed":
                trim(
                    pair, name, dice.choice((-1, dice.randrange(60), dice.randrange(200))) if dice.random() < 0.3 else 0
                )
            case 6:
                pair.list_offsets(name, dice.choice((-4, -3, -2, -1, TIME + dice.randrange(1100))), version=8)
            case 7:
                pair.fetch(
                    name, dice.randrange(150), version=dice.randrange(4, 19), max_bytes=dice.choice((1, 500, 1 << 20))
                )
    pair.list_offsets(name, *range(-4, 0), *range(TIME, TIME + 1000, 100))
    pair.fetch(name, 0)
    pair.check()
    assert pair.asked > 100


def test_every_exemption_is_used(request: pytest.FixtureRequest) -> None:
    """By the sequences above, if all of them were run."""
    names = {getattr(item, "originalname", "") for item in request.session.items}
    if {name for name in globals() if name.startswith("test_")} <= names:
        assert unused("log") == []
