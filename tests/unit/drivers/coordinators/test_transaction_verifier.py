"""Questions to a coordinator that is another node: what goes together, and what is made of its answers."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.drivers.coordinators.transaction_verifier import Question, TransactionVerifier
from ottla.drivers.nodes.broker_clients import BrokerClients
from ottla.errors import ErrorCode
from ottla.model import TRANSACTION_TOPIC, TopicPartition
from ottla.network import SystemNetwork
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Answers when it may, with the errors that the test says."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, int, int, bool, list[TopicPartition]]]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.whole = E.none
        self.newest = 5
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()
        self.hangs_up = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = messages.read_header(frame)
                if header.api_key == ApiKey.API_VERSIONS:
                    key = {"api_key": ApiKey.ADD_PARTITIONS_TO_TXN, "min_version": 0, "max_version": self.newest}
                    values: Mapping[str, Any] = {"api_keys": [key]}
                else:
                    values = await self._answer(header, frame)
                data = messages.encode_response(header.api_key, header.api_version, header.correlation_id, values)
                writer.write(struct.pack(">i", len(data)) + data)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, header: Any, frame: bytes) -> Mapping[str, Any]:
        asked = messages.decode_request(header.api_key, header.api_version, frame, header.body_offset).transactions
        self.requests.append(
            [
                (
                    each.transactional_id,
                    each.producer_id,
                    each.producer_epoch,
                    each.verify_only,
                    [TopicPartition(topic.name, number) for topic in each.topics for number in topic.partitions],
                )
                for each in asked
            ]
        )
        self.was_asked.set()
        await self.may_answer.wait()
        if self.hangs_up:
            raise ConnectionError
        results = [
            {
                "transactional_id": each.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {
                                "partition_index": number,
                                "partition_error_code": self.errors.get(TopicPartition(topic.name, number), E.none),
                            }
                            for number in topic.partitions
                        ],
                    }
                    for topic in each.topics
                ],
            }
            for each in asked
        ]
        return {"error_code": self.whole, "results_by_transaction": () if self.whole else results}


def asking(
    test: Callable[[TransactionVerifier, Coordinator], Coroutine[Any, Any, None]], *, exists: bool = True
) -> None:
    async def run() -> None:
        coordinator = Coordinator()
        server = await asyncio.start_server(coordinator.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        endpoint = SimpleNamespace(host="127.0.0.1", port=port)
        broker = SimpleNamespace(id=2, fenced=False, endpoints={"PLAINTEXT": endpoint})
        topic = SimpleNamespace(partitions={0: None})
        image = SimpleNamespace(
            cluster_id="",
            brokers={2: broker},
            topic=lambda name: topic if exists and name == TRANSACTION_TOPIC else None,
            partition=lambda name, number: SimpleNamespace(leader=2) if exists else None,
        )
        node = SimpleNamespace(
            node_id=1,
            image=image,
            network=SystemNetwork(),
            random=random.Random(1),
            inter_broker_listener="PLAINTEXT",
            config=SimpleNamespace(request_timeout_ms=5000, socket_connection_setup_timeout_ms=5000),
        )
        node.broker_clients = BrokerClients(node)
        verifier = TransactionVerifier(node)
        try:
            await test(verifier, coordinator)
        finally:
            await verifier.stop()
            server.close()

    asyncio.run(run())


def question(name: str = "x", *partitions: TopicPartition, epoch: int = 0, adds: bool = True) -> Question:
    return Question(name, 4000, epoch, partitions or (T0,), adds)


def test_what_comes_while_one_is_asked_goes_together() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        coordinator.errors = {T1: E.invalid_txn_state}
        first = verifier.ask(question("a"))
        await coordinator.was_asked.wait()
        rest = [
            verifier.ask(each)
            for each in (
                question("b", T0),
                question("b", T1),
                question("c", adds=False),
                question("b", T0, epoch=1),
            )
        ]
        await asyncio.sleep(0)
        coordinator.may_answer.set()
        assert await first == {}
        assert [await each for each in rest] == [{}, {T1: E.invalid_txn_state}, {}, {}]
        assert coordinator.requests == [
            [("a", 4000, 0, False, [T0])],
            [("b", 4000, 0, False, [T0, T1]), ("c", 4000, 0, True, [T0])],
            [("b", 4000, 1, False, [T0])],  # an id comes once in a request
        ]

    asking(test)


@pytest.mark.parametrize(
    ("answered", "heard"), [(E.producer_fenced, E.invalid_producer_epoch), (E.transaction_abortable,) * 2]
)
def test_errors_of_a_partition(answered: ErrorCode, heard: ErrorCode) -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.errors = {T0: answered}
        assert await verifier.ask(question("x", T0, T1)) == {T0: heard}

    asking(test)


@pytest.mark.parametrize(
    ("answered", "heard"),
    [(E.cluster_authorization_failed, E.invalid_txn_state), (E.unknown_server_error,) * 2],
)
def test_an_error_of_the_whole(answered: ErrorCode, heard: ErrorCode) -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.whole = answered
        assert await verifier.ask(question("x", T0, T1)) == {T0: heard, T1: heard}

    asking(test)


def test_a_lost_connection_is_an_error_and_the_next_question_is_asked() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.hangs_up = True
        assert await verifier.ask(question()) == {T0: E.network_exception}
        coordinator.hangs_up = False
        assert await verifier.ask(question()) == {}

    asking(test)


def test_an_older_coordinator_verifies_nothing() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.newest = 3
        assert await verifier.ask(question(adds=False)) == {}
        assert not coordinator.requests

    asking(test)


def test_without_a_coordinator() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        assert await verifier.ask(question()) == {T0: E.coordinator_not_available}

    asking(test, exists=False)


def test_waiters_hear_that_the_node_stops() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        waiting = [verifier.ask(question(name)) for name in "ab"]
        await coordinator.was_asked.wait()
        await verifier.stop()
        assert [await each for each in waiting] == [{T0: E.network_exception}] * 2
        coordinator.may_answer.set()

    asking(test)


def test_a_coordinator_on_this_node_is_called() -> None:
    async def test(verifier: TransactionVerifier, coordinator: Coordinator) -> None:
        called: list[Any] = []

        def add_partitions(waiter: Any, *key: Any) -> None:
            called.append(key)
            waiter.complete({T0: E.producer_fenced, T1: E.none})

        node: Any = verifier._node
        node.node_id, node.transactions = 2, SimpleNamespace(add_partitions=add_partitions)
        assert await verifier.ask(question("x", T0, T1, adds=False)) == {T0: E.invalid_producer_epoch}
        assert called == [("x", 4000, 0, (T0, T1), True)]
        assert not coordinator.requests

    asking(test)
