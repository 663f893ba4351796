"""What a persister sends to another node's share coordinator: one row for a share-partition, and never an old start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.coordinator.share.requests import ReadState, StateRow, WriteState
from ottla.drivers.coordinators import share_persister
from ottla.drivers.coordinators.share_persister import Persister
from ottla.drivers.nodes.broker_clients import BrokerClients
from ottla.drivers.ports import PersisterHost
from ottla.errors import ErrorCode
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import StateBatch

TOPIC = UUID(int=7)
KEYS = [SharePartitionKey("g", TOPIC, number) for number in range(2)]
ACKNOWLEDGED = 2


class Remote(Persister):
    """Its coordinator is broker 2, which answers when it is told to, with the errors that it is given."""

    def __init__(self) -> None:
        config = SimpleNamespace(request_timeout_ms=1_000, socket_connection_setup_timeout_ms=1_000)
        node = SimpleNamespace(node_id=1, config=config, network=None, random=random.Random(1))
        node.broker_clients = BrokerClients(cast(PersisterHost, node))
        super().__init__(cast(PersisterHost, node), make_topic=cast(Any, None))
        self.requests: list[dict[int, dict[str, Any]]] = []
        self.errors: list[ErrorCode] = []
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def _coordinator(self, asked: Any) -> Any:
        return SimpleNamespace(id=2)

    async def ask_broker(
        self, node_id: int, api: ApiKey, values: Mapping[str, Any], *, versions: tuple[int, int]
    ) -> Any:
        (topic,) = values["topics"]
        rows = {row["partition"]: row for row in topic["partitions"]}
        assert len(rows) == len(topic["partitions"])
        self.requests.append(rows)
        self.was_asked.set()
        await self.may_answer.wait()
        error = self.errors.pop(0) if self.errors else ErrorCode.none
        results = [{"partition": number, "error_code": error, "error_message": None} for number in rows]
        return {"results": [{"topic_id": topic["topic_id"], "partitions": results}]}


def write(number: int, start: int, offset: int, *, leader_epoch: int = 3) -> WriteState:
    return WriteState(KEYS[number], 1, leader_epoch, start, [StateBatch(offset, offset, ACKNOWLEDGED, 1)], offset)


def offsets(row: Mapping[str, Any]) -> list[int]:
    return [each["first_offset"] for each in row["state_batches"]]


async def results(asked: list[asyncio.Future[StateRow]]) -> list[ErrorCode]:
    return [(await each)["error_code"] for each in asked]


def test_writes_of_one_partition_go_together_and_at_once() -> None:
    async def run() -> None:
        persister = Remote()
        persister.may_answer.clear()
        asked = [persister.ask(write(0, 0, 5))]
        await persister.was_asked.wait()
        asked += [persister.ask(each) for each in (write(0, 6, 6), write(1, 0, 9), write(0, -1, 8), write(0, 7, 7))]
        persister.may_answer.set()
        assert await results(asked) == [ErrorCode.none] * 5
        first, second = persister.requests  # without pauses: none was put off
        assert offsets(first[0]) == [5] and set(second) == {0, 1}
        assert offsets(second[0]) == [6, 8, 7] and offsets(second[1]) == [9]
        assert (second[0]["start_offset"], second[0]["delivery_complete_count"]) == (7, 7)
        await persister.stop()

    asyncio.run(run())


def test_a_write_that_is_asked_again_behind_a_newer_one_leaves_the_start_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_persister, "PAUSE_S", 0.001)

    async def run() -> None:
        persister = Remote()
        persister.errors = [ErrorCode.coordinator_load_in_progress]
        persister.may_answer.clear()
        older = persister.ask(write(0, 10, 10))
        await persister.was_asked.wait()
        newer = persister.ask(write(0, 20, 20))
        persister.may_answer.set()
        assert await results([older, newer]) == [ErrorCode.none] * 2
        starts = [(offsets(each[0]), each[0]["start_offset"]) for each in persister.requests]
        assert starts == [([10], 10), ([20], 20), ([10], -1)]
        alone = persister.ask(write(0, 30, 30))
        assert (await alone)["error_code"] is ErrorCode.none
        assert persister.requests[-1][0]["start_offset"] == 30
        await persister.stop()

    asyncio.run(run())


class Moving(Remote):
    """Its coordinator is `broker`; broker 3 answers at once."""

    broker = 2

    def _coordinator(self, asked: Any) -> Any:
        return SimpleNamespace(id=self.broker)

    async def ask_broker(
        self, node_id: int, api: ApiKey, values: Mapping[str, Any], *, versions: tuple[int, int]
    ) -> Any:
        if node_id == 3:
            self.may_answer.set()
        answer = await super().ask_broker(node_id, api, values, versions=versions)
        if node_id == 3:
            self.may_answer.clear()
        return answer


def test_a_write_that_waited_does_not_undo_a_later_write() -> None:
    """A record that is released, delivered again and acknowledged was delivered once more (groups seed 34)."""

    async def run() -> None:
        persister = Moving()
        persister.may_answer.clear()
        first = persister.ask(write(0, 0, 5))
        await persister.was_asked.wait()
        released = WriteState(KEYS[0], 1, 3, 6, [StateBatch(6, 9, 0, 1)], 6)
        waits = persister.ask(released)  # until the first is answered
        persister.broker = 3
        newer = persister.ask(write(0, 7, 7))
        assert (await newer)["error_code"] is ErrorCode.none
        persister.may_answer.set()
        assert await results([first, waits]) == [ErrorCode.none] * 2
        row = persister.requests[-1][0]
        assert [(each["first_offset"], each["last_offset"]) for each in row["state_batches"]] == [(6, 6), (8, 9)]
        assert (row["start_offset"], row["delivery_complete_count"]) == (-1, 7)
        await persister.stop()

    asyncio.run(run())


def test_what_an_earlier_leadership_wrote_does_not_go_along() -> None:
    async def run() -> None:
        persister = Remote()
        asked = [persister.ask(write(0, 5, 5, leader_epoch=3)), persister.ask(write(0, 2, 2, leader_epoch=4))]
        assert await results(asked) == [ErrorCode.fenced_leader_epoch, ErrorCode.none]
        assert [offsets(each[0]) for each in persister.requests] == [[2]]
        await persister.stop()

    asyncio.run(run())


def test_who_reads_twice_is_answered_twice() -> None:
    async def run() -> None:
        persister = Remote()
        asked = [persister.ask(ReadState(KEYS[0], 3)) for _ in range(2)]
        assert await results(asked) == [ErrorCode.none] * 2
        assert len(persister.requests) == 1
        await persister.stop()

    asyncio.run(run())
