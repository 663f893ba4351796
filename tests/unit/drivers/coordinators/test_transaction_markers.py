"""Markers count when they are committed, and whoever sent them hears of each partition once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.drivers.coordinators.transaction_markers import Marker, write_marker
from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC, TopicPartition
from tests.unit.replication.numbers_log import leading, registration

E = ErrorCode
T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 7)


class Groups:
    """A group coordinator that answers when the test says."""

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def complete_transaction(self, number: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        assert (number, marker.producer_id) == (7, 4000)
        if self.refusal is not None:
            raise self.refusal
        self.waiting.append(done)


class Host:
    def __init__(self, timeout_ms: int = 60_000, **partitions: Any) -> None:
        self.config = SimpleNamespace(request_timeout_ms=timeout_ms)
        self.clock = SimpleNamespace(now_ms=lambda: 1)
        self.groups = Groups()
        self.answered = asyncio.Event()
        self.partitions = {TopicPartition("t", int(name[1:])): each for name, each in partitions.items()}
        self.partitions[OFFSETS] = leading()[0]
        self.replicas = SimpleNamespace(get=lambda topic, number: self.partitions.get(TopicPartition(topic, number)))

    def write(self, *keys: TopicPartition) -> list[dict[TopicPartition, ErrorCode]]:
        heard: list[Any] = []

        def done(errors: Any) -> None:
            heard.append(errors)
            self.answered.set()

        write_marker(self, Marker(4000, 1, True, 0, 2, keys), done)  # type: ignore[arg-type]
        return heard


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def running(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_the_answer_waits_for_the_last_partition() -> None:
    async def test() -> None:
        one, _ = leading((1, 2))
        two, _ = leading()
        host = Host(t0=one, t1=two)
        heard = host.write(T0, T1, GONE, OFFSETS)
        await turns()
        one.on_follower_fetch(2, 1, 0, 0)
        await turns()
        assert not heard
        host.groups.waiting[0](E.none)
        await turns()
        assert heard == [{T1: E.none, GONE: E.unknown_topic_or_partition, T0: E.none, OFFSETS: E.none}]

    running(test)


def test_where_nobody_is_waited_for_the_answer_is_there_at_once() -> None:
    """Else the producer's next transaction would meet one that has not ended."""

    async def test() -> None:
        host = Host(t0=leading()[0], t1=leading()[0])
        assert host.write(T0, T1, GONE) == [{T0: E.none, T1: E.none, GONE: E.unknown_topic_or_partition}]
        await turns()

    running(test)


def test_who_leads_no_more_has_committed_nothing() -> None:
    """A failover between the marker and its commit: the coordinator asks the new leader."""

    async def test() -> None:
        partition, _ = leading((1, 2))
        heard = Host(t0=partition).write(T0)
        partition.update(registration(leader=2, epoch=1, partition_epoch=1, isr=(2,)))
        await turns()
        assert heard == [{T0: E.not_leader_or_follower}]
        assert Host(t0=partition).write(T0) == [{T0: E.not_leader_or_follower}]

    running(test)


def test_markers_are_as_safe_as_the_topic_asks() -> None:
    async def test() -> None:
        partition, log = leading()
        partition.set_min_isr(2)
        heard = Host(t0=partition).write(T0)
        await turns()
        assert heard == [{T0: E.not_enough_replicas}]
        assert log.log_end_offset == 0

    running(test)


def test_one_that_is_not_committed_in_time_is_sent_again() -> None:
    async def test() -> None:
        partition, _ = leading((1, 2))
        other, _ = leading()
        host = Host(timeout_ms=1, t0=partition, t1=other)
        heard = host.write(T0, T1, OFFSETS)
        await host.answered.wait()
        assert heard == [{T1: E.none, T0: E.request_timed_out, OFFSETS: E.request_timed_out}]
        partition.on_follower_fetch(2, 1, 0, 0)  # late, and nobody asks any more
        await turns()
        assert len(heard) == 1

    running(test)


@pytest.mark.parametrize("code", [E.coordinator_not_available, E.coordinator_load_in_progress, E.not_coordinator])
def test_what_group_coordinators_say_is_said_as_partitions_do(code: ErrorCode) -> None:
    async def test() -> None:
        host = Host()
        host.groups.refusal = KafkaError(code)
        refused = host.write(OFFSETS)
        host.groups.refusal = None
        failed = host.write(OFFSETS)
        host.groups.waiting[0](code)
        fenced = host.write(OFFSETS)
        host.groups.waiting[1](E.transaction_coordinator_fenced)
        await turns()
        assert refused == failed == [{OFFSETS: E.not_leader_or_follower}]
        assert fenced == [{OFFSETS: E.transaction_coordinator_fenced}]

    running(test)
