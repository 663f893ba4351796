"""Ottla's share-partitions beside Kafka's own class, walk by walk (`share_walk.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conformance.line_program import Lines
from tests.conformance.walks.share_walk import STEPS, KafkaFails, Walk

WALKS = 60
LEAST = {
    "acquired": 500, "again": 200, "aborted": 200, "expired": 60, "failed": 40, "release": 60, "start": 60, "full": 100,
    "ok": 200, "INVALID_RECORD_STATE": 80, "INVALID_REQUEST": 5,
}  # fmt: skip
"""Minimum counts of events, or the walks prove little."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("kafka.server.share.SharePartitionLines")
    yield started
    started.close()


def test_walks_beside_kafkas_share_partition(kafka: Lines) -> None:
    done: Counter[str] = Counter()
    for seed in range(WALKS):
        try:
            walk = Walk(seed, kafka)
            for _ in range(STEPS):
                walk.step()
        except KafkaFails:
            done["cut short"] += 1
        done += walk.done
    assert done["cut short"] <= WALKS // 3
    assert {name: done[name] for name, least in LEAST.items() if done[name] < least} == {}
