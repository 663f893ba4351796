"""Transactions over the wire, on a node that is alone: every version of the coordinator's APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.model import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.unit.server.node import Client, running

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
NONE, FENCED = ErrorCode.none, ErrorCode.producer_fenced
OLD_FENCED = ErrorCode.invalid_producer_epoch
PASSES = (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)
INIT = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


class Session:
    """A client that speaks of transactions."""

    def __init__(self, node: Node, client: Client) -> None:
        self.node, self.client = node, client

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        return await self.client.ask(key, version, values)

    async def find(self, *keys: str, version: int = 6) -> Any:
        if version < 4:
            return await self.ask(ApiKey.FIND_COORDINATOR, version, key=keys[0], key_type=1)
        answer = await self.ask(ApiKey.FIND_COORDINATOR, version, key_type=1, coordinator_keys=keys)
        return answer["coordinators"]

    async def init(self, transactional_id: str = "x", version: int = 5, **more: Any) -> Any:
        """Until the transaction before is over, and what the node had written is read again."""
        while True:
            values = {**INIT, "transactional_id": transactional_id, **more}
            answer = await self.client.ask(ApiKey.INIT_PRODUCER_ID, version, values)
            if answer["error_code"] not in PASSES:
                return answer
            await asyncio.sleep(0.001)

    async def add(self, answer: Any, *numbers: int, transactional_id: str = "x", version: int = 3) -> Any:
        found = await self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=answer["producer_id"],
            v3_and_below_producer_epoch=answer["producer_epoch"],
            v3_and_below_topics=[{"name": "t", "partitions": numbers}],
        )
        return [
            row["partition_error_code"] for row in found["results_by_topic_v3_and_below"][0]["results_by_partition"]
        ]

    async def for_brokers(self, *transactions: dict[str, Any], version: int = 5) -> list[dict[str, list[int]]]:
        found = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=transactions)
        assert found["error_code"] == NONE
        return [
            {
                topic["name"]: [row["partition_error_code"] for row in topic["results_by_partition"]]
                for topic in result["topic_results"]
            }
            for result in found["results_by_transaction"]
        ]

    async def end(self, answer: Any, committed: bool = True, version: int = 5, transactional_id: str = "x") -> Any:
        return await self.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=transactional_id,
            committed=committed,
            producer_id=answer["producer_id"],
            producer_epoch=answer["producer_epoch"],
        )

    async def describe(self, *transactional_ids: str) -> list[Any]:
        answer = await self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": transactional_ids})
        return list(answer["transaction_states"])

    async def list(self, version: int = 2, **filters: Any) -> dict[str, str]:
        values = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, **filters}
        answer = await self.client.ask(ApiKey.LIST_TRANSACTIONS, version, values)
        assert answer["error_code"] == NONE
        return {row["transactional_id"]: row["transaction_state"] for row in answer["transaction_states"]}

    async def until_state(self, title: str, transactional_id: str = "x") -> Any:
        while True:
            (row,) = await self.describe(transactional_id)
            if row["transaction_state"] == title:
                return row
            await asyncio.sleep(0.001)


def play(path: Path, scene: Callable[[Session], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def run() -> None:
        async with running(str(path), {**SETTINGS, **settings}) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=3)
            session = Session(node, client)
            await session.find("x")
            await asyncio.wait_for(scene(session), 20)
            client.close()

    asyncio.run(run())


def broker_entry(answer: Any, numbers: Iterable[int], *, verify_only: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "transactional_id": "x",
        "producer_id": answer["producer_id"],
        "producer_epoch": answer["producer_epoch"],
        "verify_only": verify_only,
        "topics": [{"name": "t", "partitions": tuple(numbers)}],
        **more,
    }


def test_the_topic_is_created_with_kafkas_settings(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        topic = session.node.image.topic(TRANSACTION_TOPIC)
        assert topic is not None and len(topic.partitions) == 2
        assert session.node.image.topic_config(TRANSACTION_TOPIC) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        for version in range(1, 7):
            found = await session.find("x", version=version)
            row = found if version < 4 else found[0]
            assert (row["error_code"], row["node_id"]) == (NONE, session.node.node_id)
        assert [row["key"] for row in await session.find("x", "y")] == ["x", "y"]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(6))
def test_a_producer_with_a_transactional_id(tmp_path: Path, version: int) -> None:
    async def scene(session: Session) -> None:
        first = await session.init(version=version)
        second = await session.init(version=version)
        assert (first["error_code"], first["producer_epoch"]) == (NONE, 0)
        assert (second["producer_id"], second["producer_epoch"]) == (first["producer_id"], 1)
        for wrong in ({"transaction_timeout": 0}, {"transaction_timeout": 900_001}):
            answer = await session.init(version=version, **wrong)
            assert answer["error_code"] == ErrorCode.invalid_transaction_timeout
            assert (answer["producer_id"], answer["producer_epoch"]) == (-1, -1)
        assert (await session.init("", version))["error_code"] == ErrorCode.invalid_request
        if version >= 3:
            third = await session.init(version=version, producer_id=first["producer_id"], producer_epoch=1)
            assert third["producer_epoch"] == 2
            late = await session.init(version=version, producer_id=first["producer_id"], producer_epoch=0)
            assert late["error_code"] == (FENCED if version >= 4 else OLD_FENCED)
            half = await session.init(version=version, producer_id=first["producer_id"], producer_epoch=-1)
            assert half["error_code"] == ErrorCode.invalid_request

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(4))
def test_clients_add_partitions(tmp_path: Path, version: int) -> None:
    async def scene(session: Session) -> None:
        await session.init()
        producer = await session.init()
        assert await session.add(producer, 0, 2, version=version) == [NONE, NONE]
        unknown, other = ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted
        assert await session.add(producer, 1, 7, version=version) == [other, unknown]
        late = {**producer, "producer_epoch": 0}
        assert await session.add(late, 1, version=version) == [FENCED if version >= 2 else OLD_FENCED]
        assert await session.add({**producer, "producer_id": 4711}, 1, version=version) == [
            ErrorCode.invalid_producer_id_mapping
        ]
        (row,) = await session.describe("x")
        assert [(topic["topic"], [*topic["partitions"]]) for topic in row["topics"]] == [("t", [0, 2])]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_partitions(tmp_path: Path, version: int) -> None:
    async def scene(session: Session) -> None:
        producer = await session.init()
        other = await session.init("y")
        answers = await session.for_brokers(
            broker_entry(producer, [0]),
            broker_entry(other, [1, 2], transactional_id="y"),
            broker_entry(producer, [0], transactional_id="nobody"),
            version=version,
        )
        assert answers == [{"t": [NONE]}, {"t": [NONE, NONE]}, {"t": [ErrorCode.invalid_producer_id_mapping]}]
        answers = await session.for_brokers(
            broker_entry(producer, [0, 1], verify_only=True),
            broker_entry({**other, "producer_epoch": 5}, [1], transactional_id="y", verify_only=True),
            broker_entry(producer, [0, 9], verify_only=True),
            version=version,
        )
        unknown, not_tried = ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted
        assert answers == [
            {"t": [NONE, ErrorCode.transaction_abortable]},
            {"t": [FENCED]},
            {"t": [not_tried, unknown]},
        ]

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(tmp_path: Path, version: int) -> None:
    async def scene(session: Session) -> None:
        await session.init()
        producer = await session.init()
        group = {"transactional_id": "x", "group_id": "g", "producer_id": producer["producer_id"]}
        answer = await session.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **group, producer_epoch=1)
        assert answer["error_code"] == NONE
        answer = await session.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **group, producer_epoch=0)
        assert answer["error_code"] == (FENCED if version >= 2 else OLD_FENCED)
        (row,) = await session.describe("x")
        assert [topic["topic"] for topic in row["topics"]] == [OFFSETS_TOPIC]
        assert row["topics"][0]["partitions"][0] == session.node.groups.partition_of("g")

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends(tmp_path: Path, version: int, committed: bool) -> None:
    async def scene(session: Session) -> None:
        await session.init()
        producer = await session.init()
        await session.add(producer, 0, 1)
        late = await session.end({**producer, "producer_epoch": 0}, committed, version)
        assert late["error_code"] == (FENCED if version >= 2 else OLD_FENCED)
        answer = await session.end(producer, committed, version)
        assert answer["error_code"] == NONE
        if version >= 5:
            assert (answer["producer_id"], answer["producer_epoch"]) == (producer["producer_id"], 2)
        row = await session.until_state("CompleteCommit" if committed else "CompleteAbort")
        assert (row["topics"], row["producer_epoch"]) == ([], 2 if version >= 5 else 1)
        for number, end in enumerate((1, 1, 0)):
            assert session.node.replicas.find("t", number).log.log_end_offset == end
        again = await session.end(producer, committed, version)
        assert again["error_code"] == NONE
        other = await session.end(producer, not committed, version)
        assert other["error_code"] == ErrorCode.invalid_txn_state

    play(tmp_path, scene)


def test_an_open_transaction_is_aborted_for_the_next_producer(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        first = await session.init()
        await session.add(first, 0)
        values = {**INIT, "transactional_id": "x"}
        answer = await session.client.ask(ApiKey.INIT_PRODUCER_ID, 5, values)
        assert answer["error_code"] == ErrorCode.concurrent_transactions
        second = await session.init()
        assert second["producer_epoch"] == 2
        assert session.node.replicas.find("t", 0).log.log_end_offset == 1
        assert (await session.end(first))["error_code"] == FENCED

    play(tmp_path, scene)


def test_a_transaction_times_out(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        producer = await session.init(transaction_timeout=50)
        await session.add(producer, 0, 1)
        row = await session.until_state("CompleteAbort")
        assert row["producer_epoch"] == 1
        assert session.node.replicas.find("t", 1).log.log_end_offset == 1

    play(tmp_path, scene)


def test_a_deleted_partition_needs_no_marker(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.client.create("gone")
        producer = await session.init()
        entry = broker_entry(producer, [0])
        await session.for_brokers(entry, {**entry, "topics": [{"name": "gone", "partitions": (0,)}]})
        topics = [{"name": "gone", "topic_id": None}]
        await session.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=10_000)
        assert (await session.end(producer))["error_code"] == NONE
        await session.until_state("CompleteCommit")

    play(tmp_path, scene)


def test_transactions_are_listed(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        producer = await session.init("order-1")
        await session.init("order-2")
        await session.init("other")
        await session.add(producer, 0, transactional_id="order-1")
        everything = {"order-1": "Ongoing", "order-2": "Empty", "other": "Empty"}
        for version in range(3):
            assert await session.list(version) == everything
            assert await session.list(version, state_filters=("Ongoing",)) == {"order-1": "Ongoing"}
            ids = (producer["producer_id"], 4711)
            assert await session.list(version, producer_id_filters=ids) == {"order-1": "Ongoing"}
        assert "order-1" not in await session.list(1, duration_filter=60_000)
        assert {*await session.list(2, transactional_id_pattern="order-.*")} == {"order-1", "order-2"}
        assert await session.list(2, transactional_id_pattern="order-") == {}
        assert await session.list(2, transactional_id_pattern="") == everything
        answer = await session.ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=("Lost",), producer_id_filters=(), transactional_id_pattern="("
        )
        assert answer["error_code"] == ErrorCode.invalid_regular_expression
        answer = await session.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=("Lost",), producer_id_filters=())
        assert [*answer["unknown_state_filters"]] == ["Lost"] and not answer["transaction_states"]

    play(tmp_path, scene)


def test_what_is_described(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        producer = await session.init()
        fresh, nobody, nothing = await session.describe("x", "nobody", "")
        assert (fresh["transaction_state"], fresh["transaction_timeout"]) == ("Empty", 60_000)
        assert fresh["transaction_start_time"] == -1
        assert nobody["error_code"] == ErrorCode.transactional_id_not_found
        assert nothing["error_code"] == ErrorCode.invalid_request
        await session.add(producer, 1, 0)
        (row,) = await session.describe("x")
        assert (row["transaction_state"], row["producer_id"]) == ("Ongoing", producer["producer_id"])
        assert row["transaction_start_time"] > 1_700_000_000_000

    play(tmp_path, scene)


def test_a_restarted_node_goes_on(tmp_path: Path) -> None:
    """What was open can be committed; ids and epochs go on where they were."""

    async def run() -> None:
        async with running(str(tmp_path), SETTINGS) as node:
            session = Session(node, await Client.connect(node))
            await session.client.create("t", partitions=3)
            await session.find("x")
            producer = await session.init()
            await session.add(producer, 0)
            await session.init("y")
            session.client.close()
        async with running(str(tmp_path), SETTINGS, seed=2) as node:
            session = Session(node, await Client.connect(node))
            await session.until_state("Ongoing")  # it is read again first
            assert (await session.end(producer))["error_code"] == NONE
            await session.until_state("CompleteCommit")
            assert (await session.init("y"))["producer_epoch"] == 1
            session.client.close()

    asyncio.run(run())


def test_a_node_that_is_asked_for_another_ones_transactions(tmp_path: Path) -> None:
    """Before the topic exists nobody coordinates."""

    async def run() -> None:
        async with running(str(tmp_path), SETTINGS) as node:
            session = Session(node, await Client.connect(node))
            answer = await session.init()
            assert answer["error_code"] == ErrorCode.not_coordinator
            (row,) = await session.describe("x")
            assert row["error_code"] == ErrorCode.not_coordinator
            assert await session.list() == {}
            session.client.close()

    asyncio.run(run())
