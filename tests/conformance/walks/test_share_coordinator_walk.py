"""The same requests for Ottla's share coordinator and for Kafka's own class, from a seed: the same answers, the same
records, byte for byte where Kafka has put neighbours together that stand alike (it does not always)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.share.combining import UNCHANGED, combine
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.requests import DeleteState, InitializeState, ReadState, WriteState
from ottla.coordinator.share.shard import partition_of
from ottla.protocol.internal.share_records import SharePartitionKey, ShareRecord, decode_record, encode_record
from ottla.protocol.schemas.records import StateBatch
from tests.conformance.line_program import Lines
from tests.unit.coordinator.share_harness import ShareDriver

WALKS = 40
STEPS = 120
INTERVAL_MS = 300_000
LEAST = {
    "NONE": 900, "INVALID_REQUEST": 50, "FENCED_LEADER_EPOCH": 50, "FENCED_STATE_EPOCH": 20,
    "UNKNOWN_TOPIC_OR_PARTITION": 50, "records": 900, "same bytes": 800, "restart": 50,
}  # fmt: skip
"""Minimum counts of events, or the walks prove little."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("org.apache.kafka.coordinator.share.ShareCoordinatorLines", "4.4")
    yield started
    started.close()


class Walk:
    def __init__(self, seed: int, kafka: Lines) -> None:
        self.random = random.Random(seed)
        self.kafka = kafka
        self.done: Counter[str] = Counter()
        limit = self.random.choice((0, 1, 3, 500))
        self.driver = ShareDriver(ShareCoordinatorConfig(limit, INTERVAL_MS, 1 << 40))
        self.lines: list[str] = []
        self.tokens = 0
        self.compare(f"new {limit}", "ok", 0)

    def step(self) -> None:
        names = ("write", "read", "initialize", "delete", "summary", "restart", "time", "place")
        getattr(self, self.random.choices(names, (50, 15, 12, 3, 10, 3, 2, 1))[0])()

    def compare(self, line: str, answer: str, known: int) -> None:
        """`known` records were in the log before."""
        self.lines.append(line)
        theirs, written = self.kafka.ask(line)
        script = "\n".join(self.lines)
        assert answer == theirs, f"{script}\n ottla: {answer}\n kafka: {theirs}"
        ours = self.driver.log[known:]
        records = [_record(text) for text in written]
        if line.startswith("cold"):  # in the order of a map
            ours, records = sorted(ours, key=lambda record: record.key), sorted(records, key=lambda record: record.key)
        else:
            for record, text in zip(ours, written, strict=False):
                key, value = encode_record(record)
                self.done["same bytes"] += text == f"{key.hex()}:{'' if value is None else value.hex()}"
        theirs_combined = [_combined(record) for record in records]
        assert ours == theirs_combined, f"{script}\n ottla: {ours}\n kafka: {theirs_combined}"
        self.done["records"] += len(ours)

    def ask(self, line: str, call: Any, request: Any) -> None:
        known = len(self.driver.log)
        self.tokens += 1
        answer = self.driver.ask(self.tokens, call, request)
        self.done[answer["error_code"].name.upper()] += 1
        self.compare(line, _text(answer), known)

    def key(self) -> tuple[SharePartitionKey, str]:
        group, topic = self.random.choice(("g", "h")), self.random.choices((1, 2), (20, 1))[0]
        partition = self.random.choices((0, 2, 3, -1), (10, 10, 1, 1))[0]
        return SharePartitionKey(group, UUID(int=(1 << 64) + topic), partition), f"{group} {topic} {partition}"

    # Requests

    def initialize(self) -> None:
        key, name = self.key()
        epoch, start = self.random.randint(-1, 3), self.random.choice((-1, 0, 7))
        self.ask(f"initialize {name} {epoch} {start}", self.driver.shard.ask, InitializeState(key, epoch, start))

    def read(self) -> None:
        key, name = self.key()
        epoch = self.random.randint(-1, 6)
        self.ask(f"read {name} {epoch}", self.driver.shard.ask, ReadState(key, epoch))

    def delete(self) -> None:
        key, name = self.key()
        self.ask(f"delete {name}", self.driver.shard.ask, DeleteState(key))

    def write(self) -> None:
        key, name = self.key()
        epoch, leader = self.random.choice((-1, 0, 1, 2, 3)), self.random.choice((-1, 1, 3, 5, 6))
        start, complete = self.random.choice((-1, -1, 0, 5, 12)), self.random.randint(-1, 9)
        batches = []
        for _ in range(self.random.choice((0, 1, 1, 3))):
            first = self.random.randint(0, 30)
            last = first + self.random.randint(0, 6)
            batches.append(StateBatch(first, last, self.random.choice((0, 2, 4)), self.random.randint(1, 3)))
        text = " ".join(f"{b.first_offset},{b.last_offset},{b.delivery_state},{b.delivery_count}" for b in batches)
        self.ask(
            f"write {name} {epoch} {leader} {start} {complete} {text}".rstrip(),
            self.driver.shard.ask,
            WriteState(key, epoch, leader, start, batches, complete),
        )

    def summary(self) -> None:
        key, name = self.key()
        answer = self.driver.shard.summary(key)
        self.compare(f"summary {name}", _text(answer), len(self.driver.log))

    def restart(self) -> None:
        """Only Ottla's: what Kafka's still has in memory, the log says."""
        self.done["restart"] += 1
        self.driver.shard = self.driver.loaded()

    def time(self) -> None:
        known = len(self.driver.log)
        self.driver.now_ms += self.random.choice((1_000, INTERVAL_MS))
        now_ms = self.driver.now_ms
        assert self.kafka.ask(f"time {now_ms}")[0] == "ok"
        self.lines.append(f"time {now_ms}")
        due = self.driver.shard.next_deadline() or 0
        self.driver.shard.advance(self.driver.now)
        self.driver.run()
        if due <= now_ms:
            self.compare("cold", "ok", known)

    def place(self) -> None:
        key, name = self.key()
        self.compare(f"place {name}", str(partition_of(key, 50)), len(self.driver.log))


def _text(answer: dict[str, Any]) -> str:
    error = answer["error_code"].name.upper()
    if error != "NONE":
        return f"{error} {answer['error_message']}"
    names = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    parts = [str(answer[name]) for name in names if name in answer]
    parts += [",".join(str(int(number)) for number in each.values()) for each in answer.get("state_batches", ())]
    return " ".join([error, *parts])


def _record(text: str) -> ShareRecord:
    key, _, value = text.partition(":")
    record = decode_record(bytes.fromhex(key), bytes.fromhex(value) if value else None)
    assert record is not None
    return record


def _combined(record: ShareRecord) -> ShareRecord:
    if record.value is None:
        return record
    return record._replace(
        value=record.value.replaced(state_batches=combine((), record.value.state_batches, UNCHANGED))
    )


def test_walks_beside_kafkas_share_coordinator(kafka: Lines) -> None:
    done: Counter[str] = Counter()
    for seed in range(WALKS):
        walk = Walk(seed, kafka)
        for _ in range(STEPS):
            walk.step()
        done += walk.done
    assert {name: done[name] for name, least in LEAST.items() if done[name] < least} == {}
