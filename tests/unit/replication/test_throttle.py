"""How fast throttled replicas may be copied, against a clock that the test moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metrics.instruments import TopicTraffic
from ottla.model import TopicPartition
from ottla.replication.throttle import UNLIMITED, Rate, Throttle

RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Throttled:
    """One with its settings and its clock."""

    def __init__(self, rate: str | None = "1000", replicas: str = "0:7") -> None:
        self.now_ms = 0
        self.settings = {RATE: rate}
        self.topic = {REPLICAS: replicas}
        self.total = TopicTraffic()
        self.throttle = Throttle(
            "leader", 7, self.settings.get, lambda topic: self.topic, lambda: self.now_ms, self.total, Rate()
        )

    def read(self, size: int, *, isr: tuple[int, ...] = (7,), partition: TopicPartition = P0) -> int:
        """What a follower gets, which is sent."""
        found: Any = SimpleNamespace(records=size, traffic=self.total)
        self.throttle.hold_back(SimpleNamespace(topic_partition=partition, isr=isr), 8, found)
        if found.records is None:
            return 0
        found.traffic.bytes_out += size
        return size


def test_a_rate_is_of_the_latest_windows() -> None:
    rate = Rate()
    assert rate.bytes_per_second(0) == 0
    rate.record(3000, 0)
    assert rate.bytes_per_second(10) == 3000, "a window at least"
    assert rate.bytes_per_second(3000) == 1000
    rate.record(1000, 3000)
    assert rate.bytes_per_second(4000) == 1000
    assert rate.bytes_per_second(10_999) == pytest.approx(4000 / 10.999)
    assert rate.bytes_per_second(11_000) == pytest.approx(1000 / 8)
    assert rate.bytes_per_second(20_000) == 0


@pytest.mark.parametrize(
    ("replicas", "covered"),
    [(" * ", [P0, P1]), ("0:7,", [P0]), ("0:8,,1:7", [P1]), (",", []), ("", []), ("*,", []), ("1:17, 0:7 ", [P0])],
)
def test_every_list_that_a_topic_may_have(replicas: str, covered: list[TopicPartition]) -> None:
    throttle = Throttled(replicas=replicas).throttle
    assert [each for each in (P0, P1) if throttle.covers(each)] == covered


def test_bytes_against_time() -> None:
    """An hour of a follower that asks every 100 ms for more than it may get."""
    throttled = Throttled()
    sent = 0
    for _ in range(36_000):
        sent += throttled.read(700)
        throttled.now_ms += 100
    assert sent == pytest.approx(3_600_000, rel=0.05)
    throttled.throttle.bytes_per_second()
    assert throttled.total.bytes_out == sent


def test_a_replica_in_sync_is_not_held_back_but_counts() -> None:
    throttled = Throttled()
    assert throttled.read(5000, isr=(7, 8)) == throttled.read(5000, isr=(7, 8)) == 5000
    assert throttled.throttle.is_used_up()
    assert throttled.read(1) == 0
    throttled.now_ms = 11_000
    assert throttled.read(1) == 1


def test_other_partitions_and_brokers_are_free() -> None:
    throttled = Throttled(replicas="0:7,1:6")
    throttled.throttle.record(100_000)
    assert throttled.read(1) == 0
    assert throttled.read(9, partition=P1) == 9, "it names another broker"
    throttled.topic[REPLICAS] = "*"
    assert throttled.read(9, partition=P1) == 0
    throttled.topic.clear()
    assert throttled.read(9) == 9, "the list is gone"


@pytest.mark.parametrize("rate", [None, "much", str(UNLIMITED)])
def test_without_a_rate_nothing_is_held_back(rate: str | None) -> None:
    throttled = Throttled(rate)
    throttled.throttle.record(1 << 40)
    assert throttled.throttle.limit == UNLIMITED
    assert not throttled.throttle.is_used_up()
    assert throttled.read(9) == 9
