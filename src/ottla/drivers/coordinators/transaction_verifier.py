"""Asks the coordinators of transactions, before the first batch of a transaction is written to a partition (KIP-890).

Of an older client: whether the partition was added. A client of transaction.version 2 leaves it to the broker to add
it. A coordinator on this node is called; to another one the questions of one moment go together in one
AddPartitionsToTxn, and what comes meanwhile waits for the next one (Kafka's `AddPartitionsToTxnManager`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.coordinator.partitioning import partition_for
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import TRANSACTION_TOPIC, NodeId, ProducerEpoch, ProducerId, TopicPartition
from ottla.network import Address
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.drivers.ports import VerifierHost

_LOG = logging.getLogger("ottla.transactions")

VERSIONS: Final = (4, 5)
"""Versions of AddPartitionsToTxn that a broker may use."""

_TRANSLATED: Final = {
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.request_timed_out: ErrorCode.network_exception,
}
"""Errors sent to a producer instead, as it may not know newer ones."""

Errors = dict[TopicPartition, ErrorCode]


class Question(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Collection[TopicPartition]
    adds: bool
    """The coordinator adds the partitions, and does not only look whether they were added."""

    @property
    def subject(self) -> tuple[str, ProducerId, ProducerEpoch, bool]:
        """Questions with the same one can be asked in one."""
        return self.transactional_id, self.producer_id, self.producer_epoch, self.adds


class _Asked:
    __slots__ = ("answer", "question")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    def complete(self, result: Any) -> None:
        """The errors of the answer, or one for all partitions."""
        if not self.answer.done():
            errors = result
            if isinstance(result, ErrorCode):
                errors = dict.fromkeys(self.question.partitions, result)
            self.answer.set_result({key: _TRANSLATED.get(each, each) for key, each in errors.items() if each})


class TransactionVerifier:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: VerifierHost) -> None:
        self._node = node
        self._client = node.broker_clients.new(f"broker-{node.node_id}-transactions")
        self._waiting: dict[NodeId, list[_Asked]] = {}
        """Unsent requests, by coordinator."""
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._failing = False

    def ask(self, question: Question) -> asyncio.Future[Errors]:
        """The partitions that may not be written to, with the errors: there when this returns, where the coordinator is
        on this node and waits for nobody. Raises nothing."""
        node = self._node
        topic = node.image.topic(TRANSACTION_TOPIC)
        number = 0 if topic is None else partition_for(question.transactional_id, len(topic.partitions))
        registration = node.image.partition(TRANSACTION_TOPIC, number)
        broker = None if registration is None else node.image.brokers.get(registration.leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoints.get(node.inter_broker_listener)
        asked = _Asked(question)
        if broker is None or endpoint is None:
            asked.complete(ErrorCode.coordinator_not_available)
        elif broker.id == node.node_id:
            node.transactions.add_partitions(asked, *question[:4], not question.adds)
        else:
            self._waiting.setdefault(broker.id, []).append(asked)
            task = self._tasks.get(broker.id)
            if task is None or task.done():
                address = Address(endpoint.host, endpoint.port)
                self._tasks[broker.id] = asyncio.get_running_loop().create_task(self._run(broker.id, address))
        return asked.answer

    async def stop(self) -> None:
        for task in list(self._tasks.values()):
            await cancelled(task)
        for waiting in self._waiting.values():
            for each in waiting:
                each.complete(ErrorCode.network_exception)
        await self._client.close()

    async def _run(self, node_id: NodeId, address: Address) -> None:
        while waiting := self._waiting.pop(node_id, None):
            now, later = _without_conflicts(waiting)
            if later:
                self._waiting[node_id] = later
            try:
                await self._send(address, now)
            except Exception as error:
                _LOG.error("transactions cannot be verified", exc_info=error)
            finally:
                for each in now:
                    each.complete(ErrorCode.network_exception)  # where there was no answer

    async def _send(self, address: Address, asked: list[_Asked]) -> None:
        values = {"transactions": _transactions(asked)}
        try:
            _, response = await self._client.ask(address, ApiKey.ADD_PARTITIONS_TO_TXN, values, versions=VERSIONS)
        except KafkaError as error:
            if error.code == ErrorCode.unsupported_version:  # as an older Kafka: nobody there verifies anything
                for each in asked:
                    each.complete({})
            elif not self._failing:
                self._failing = True
                _LOG.warning("a transaction coordinator does not answer", extra=fields(error=str(error)))
            return
        self._failing = False
        if response.error_code:
            code = ErrorCode(response.error_code)
            refused = code == ErrorCode.cluster_authorization_failed
            for each in asked:
                each.complete(ErrorCode.invalid_txn_state if refused else code)
            return
        answers = {
            transaction.transactional_id: {
                TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
                for topic in transaction.topic_results
                for row in topic.results_by_partition
            }
            for transaction in response.results_by_transaction
        }
        for each in asked:
            errors = answers.get(each.question.transactional_id)
            if errors is not None:
                each.complete({key: errors[key] for key in each.question.partitions if key in errors})


def _without_conflicts(waiting: Iterable[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
    """Requests that fit into one batch, in which a transactional id appears once; and the rest."""
    subjects: dict[str, Any] = {}
    now: list[_Asked] = []
    later: list[_Asked] = []
    for each in waiting:
        subject = subjects.setdefault(each.question.transactional_id, each.question.subject)
        (now if subject == each.question.subject else later).append(each)
    return now, later


def _transactions(asked: Iterable[_Asked]) -> list[dict[str, Any]]:
    partitions: dict[Any, dict[str, dict[int, None]]] = {}
    for each in asked:
        topics = partitions.setdefault(each.question.subject, {})
        for topic, number in each.question.partitions:
            topics.setdefault(topic, {})[number] = None
    return [
        {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "verify_only": not adds,
            "topics": [{"name": name, "partitions": list(numbers)} for name, numbers in topics.items()],
        }
        for (transactional_id, producer_id, producer_epoch, adds), topics in partitions.items()
    ]
