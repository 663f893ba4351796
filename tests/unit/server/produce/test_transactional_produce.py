"""Transactional batches and offsets: the coordinator is asked before the first one of a transaction (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.drivers.coordinators.transaction_verifier import Errors, Question
from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from tests.unit.server.node import Client, batch, fetch_values, running

P = 4000
E = ErrorCode
ERRORS = [error for error in ErrorCode if error > 0]


class Coordinator:
    """In place of the verifier: answers what the test says, when it says so."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.errors: list[ErrorCode] = []
        """Errors of the next verifications, for each partition; none after them."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()

    def ask(self, question: Question) -> asyncio.Future[Errors]:
        self.asked.append(question)
        self.was_asked.set()
        return asyncio.ensure_future(self._answer(question))

    async def _answer(self, question: Question) -> Errors:
        await self.may_answer.wait()
        error = self.errors.pop(0) if self.errors else E.none
        return dict.fromkeys(question.partitions, error) if error else {}

    async def stop(self) -> None:
        pass


def transactional(sequence: int, *, epoch: int = 0, producer_id: int = P, **more: Any) -> bytes:
    return batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True, **more)


async def produce(client: Client, *records: bytes, version: int = 11, acks: int = -1, with_id: bool = True) -> Any:
    """What became of each batch: those of partition 0, 1, ..."""
    client.send(ApiKey.PRODUCE, version, values(*records, acks=acks, with_id=with_id))
    return await answer(client, version)


def values(*records: bytes, acks: int = -1, with_id: bool = True) -> Mapping[str, Any]:
    rows = [{"index": number, "records": each} for number, each in enumerate(records)]
    data = [{"name": "t", "partition_data": rows}]
    return {"transactional_id": "x" if with_id else None, "acks": acks, "timeout": 1000, "topic_data": data}


async def answer(client: Client, version: int) -> Any:
    (topic,) = (await client.receive(ApiKey.PRODUCE, version))["responses"]
    rows = topic["partition_responses"]
    return rows[0]["error_code"] if len(rows) == 1 else [row["error_code"] for row in rows]


def on_a_node(
    tmp_path: Path, test: Callable[[Any, Client, Coordinator], Coroutine[Any, Any, None]], **settings: str
) -> None:
    async def run() -> None:
        async with running(str(tmp_path), {name.replace("_", "."): value for name, value in settings.items()}) as node:
            coordinator = node.transaction_verifier = Coordinator()  # type: ignore[assignment]
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            await test(node, client, coordinator)
            client.close()

    asyncio.run(run())


async def end(client: Client, epoch: int, *partitions: int, topic: str = "t", committed: bool = False) -> Any:
    marker = {
        "producer_id": P,
        "producer_epoch": epoch,
        "transaction_result": committed,
        "coordinator_epoch": 0,
        "transaction_version": 2,
        "topics": [{"name": topic, "partition_indexes": partitions}],
    }
    found = await client.ask(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
    return [row["error_code"] for row in found["markers"][0]["topics"][0]["partitions"]]


@pytest.mark.parametrize(("version", "adds"), [(11, False), (12, True)])
def test_the_coordinator_is_asked_once_a_transaction(tmp_path: Path, version: int, adds: bool) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        for sequence in range(5):  # more than once: the connection learns what its requests look like
            assert await produce(client, transactional(sequence), version=version) == E.none
        key = TopicPartition("t", 0)
        (question,) = coordinator.asked
        assert (question[:3], list(question.partitions), question.adds) == (("x", P, 0), [key], adds)
        assert await produce(client, transactional(5), transactional(0), version=version) == [E.none, E.none]
        assert list(coordinator.asked[1].partitions) == [TopicPartition("t", 1)]
        assert await end(client, 1, 0, 1) == [E.none, E.none]
        assert await produce(client, transactional(0, epoch=1), version=version) == E.none
        assert len(coordinator.asked) == 3

    on_a_node(tmp_path, test)


def test_what_a_producer_hears(tmp_path: Path) -> None:
    """As it is, or where its version does not know the error, as one with which it tries again."""
    unreachable = {
        E.network_exception,
        E.coordinator_load_in_progress,
        E.coordinator_not_available,
        E.not_coordinator,
    }

    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        for version in (10, 11, 12):
            for error in ERRORS:
                coordinator.errors = [error] * 50
                expected = error
                if error in unreachable or (error == E.concurrent_transactions and version < 12):
                    expected = E.not_enough_replicas
                if error == E.transaction_abortable and version < 11:
                    expected = E.invalid_txn_state
                assert await produce(client, transactional(0), version=version) == expected, (version, error)
        assert not any(partition.log.log_end_offset for partition in node.replicas)

    on_a_node(tmp_path, test)


def test_one_partition_fails_alone(tmp_path: Path) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        assert await produce(client, transactional(0)) == E.none
        coordinator.errors = [E.invalid_txn_state]
        assert await produce(client, transactional(1), transactional(0)) == [E.none, E.invalid_txn_state]

    on_a_node(tmp_path, test)


def test_a_transaction_that_is_ending_is_waited_for(tmp_path: Path) -> None:
    """The markers of the one before are on their way."""

    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        coordinator.errors = [E.concurrent_transactions] * 2
        assert await produce(client, transactional(0), version=12) == E.none
        assert len(coordinator.asked) == 3

    on_a_node(tmp_path, test)


def test_nobody_else_waits_for_the_coordinator(tmp_path: Path) -> None:
    """What comes behind on the same connection does, in order; its records are kept."""

    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        for sequence in range(4):
            client.send(ApiKey.PRODUCE, 11, values(transactional(sequence, size=100 + sequence)))
        await coordinator.was_asked.wait()
        other = await Client.connect(node)
        assert not (await other.produce("t", batch(), partition=0))["error_code"]
        assert len(coordinator.asked) == 1
        coordinator.may_answer.set()
        assert [await answer(client, 11) for _ in range(4)] == [E.none] * 4
        assert len(coordinator.asked) == 1
        found = await other.fetch("t", 0)
        assert found["high_watermark"] == 5
        other.close()

    on_a_node(tmp_path, test)


def test_an_end_that_comes_meanwhile_is_the_end(tmp_path: Path) -> None:
    """A late batch opens no transaction that nobody ends (KAFKA-14402)."""

    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        client.send(ApiKey.PRODUCE, 12, values(transactional(0)))
        await coordinator.was_asked.wait()
        other = await Client.connect(node)
        assert await end(other, 1, 0) == [E.none]
        coordinator.may_answer.set()
        assert await answer(client, 12) == E.invalid_producer_epoch
        (row,) = (await other.ask(ApiKey.FETCH, 12, fetch_values("t", 0, isolation_level=1)))["responses"]
        assert row["partitions"][0]["last_stable_offset"] == row["partitions"][0]["high_watermark"] == 1
        other.close()

    on_a_node(tmp_path, test)


def test_several_producers_are_refused_as_a_whole(tmp_path: Path) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        both = transactional(0), transactional(0, producer_id=P + 1)
        assert await produce(client, *both) == [E.invalid_producer_id_mapping] * 2
        assert not coordinator.asked

    on_a_node(tmp_path, test)


def test_without_a_transactional_id_all_is_refused(tmp_path: Path) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        refused = [E.transactional_id_authorization_failed] * 2
        assert await produce(client, batch(), transactional(0), with_id=False) == refused
        for sequence in range(3):  # the connection learns
            assert await produce(client, batch(), with_id=False) == E.none
            assert await produce(client, transactional(sequence), with_id=False) == refused[0]
        client.send(ApiKey.PRODUCE, 11, values(transactional(0), acks=0, with_id=False))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive(ApiKey.PRODUCE, 11)

    on_a_node(tmp_path, test)


def test_older_clients_are_not_verified_where_the_setting_says_so(tmp_path: Path) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        assert await produce(client, transactional(0), version=11) == E.none
        assert not coordinator.asked
        assert await end(client, 1, 0) == [E.none]
        assert await produce(client, transactional(0, epoch=1), version=12) == E.none
        assert len(coordinator.asked) == 1

    on_a_node(tmp_path, test, transaction_partition_verification_enable="false")


def test_offsets_are_verified_like_batches(tmp_path: Path) -> None:
    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})

        async def commit(version: int, epoch: int = 0) -> ErrorCode:
            row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
            request = {
                "transactional_id": "x",
                "group_id": "g",
                "producer_id": P,
                "producer_epoch": epoch,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": "t", "partitions": [row]}],
            }
            (topic,) = (await client.ask(ApiKey.TXN_OFFSET_COMMIT, version, request))["topics"]
            found: ErrorCode = topic["partitions"][0]["error_code"]
            return found

        for version in (1, 3, 4, 5):
            for error in ERRORS:
                coordinator.errors = [error]
                expected = {E.network_exception: E.coordinator_load_in_progress}.get(error, error)
                if error == E.transaction_abortable and version < 4:
                    expected = E.invalid_txn_state
                if expected == E.coordinator_load_in_progress and version < 2:
                    expected = E.coordinator_not_available
                assert await commit(version) == expected, (version, error)
        coordinator.asked.clear()
        assert [await commit(5), await commit(5)] == [E.none, E.none]
        (question,) = coordinator.asked
        number = node.groups.partition_of("g")
        assert (question.adds, list(question.partitions)) == (True, [TopicPartition("__consumer_offsets", number)])
        assert await end(client, 1, number, topic="__consumer_offsets", committed=True) == [E.none]
        assert await commit(5) == E.invalid_producer_epoch
        asked = {"group_id": "g", "topics": None, "require_stable": True}
        (topic,) = (await client.ask(ApiKey.OFFSET_FETCH, 7, asked))["topics"]
        assert topic["partitions"][0]["committed_offset"] == 5

    on_a_node(tmp_path, test)


def test_offsets_by_topic_id(tmp_path: Path) -> None:
    """Version 6 (KIP-1319): unknown ids, partitions that do not exist, and the errors that it may answer with."""

    async def test(node: Any, client: Client, coordinator: Coordinator) -> None:
        await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        known, unknown = node.image.topic("t").id, UUID(int=99)

        async def commit(topic_ids: list[UUID], *, generation: int = -1, version: int = 6) -> list[tuple[Any, ...]]:
            rows = [{"partition_index": n, "committed_offset": 5, "committed_metadata": ""} for n in (0, 7)]
            request = {
                "transactional_id": "x",
                "group_id": "g",
                "producer_id": P,
                "producer_epoch": 0,
                "generation_id_or_member_epoch": generation,
                "member_id": "",
                "topics": [{"name": "t", "topic_id": each, "partitions": rows} for each in topic_ids],
            }
            answer = await client.ask(ApiKey.TXN_OFFSET_COMMIT, version, request)
            return [
                (topic["topic_id"] if version >= 6 else topic["name"], row["partition_index"], row["error_code"])
                for topic in answer["topics"]
                for row in topic["partitions"]
            ]

        strange = [(unknown, 0, E.unknown_topic_id), (unknown, 7, E.unknown_topic_id)]
        assert await commit([unknown]) == strange
        missing = (known, 7, E.unknown_topic_or_partition)
        assert sorted(await commit([known], generation=3)) == [(known, 0, E.group_id_not_found), missing]
        missing_name = ("t", 7, E.unknown_topic_or_partition)
        assert sorted(await commit([known], generation=3, version=5)) == [("t", 0, E.illegal_generation), missing_name]
        answers = await commit([unknown, known])
        assert answers[:2] == strange and sorted(answers[2:]) == [(known, 0, E.none), missing]

    on_a_node(tmp_path, test)
