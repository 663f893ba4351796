"""Share groups on their coordinator: decisions are the group coordinator's (`coordinator/group/share/`), what the share
coordinators are to do for them goes by the persister, and comes back as another decision."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from ottla.coordinator.effects import InitializeShares
from ottla.coordinator.group.requests import (
    DeleteShareGroup,
    DeleteShareOffsets,
    DeleteShareStates,
    MoveShareOffsets,
    ShareHeartbeat,
    ShareRequest,
    SharesDeleted,
    SharesInitialized,
)
from ottla.coordinator.group.share import offsets
from ottla.coordinator.share.requests import DeleteState, InitializeState, StateRequest, StateRow, SummarizeState
from ottla.drivers.cooperative import scheduler_of
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.drivers.coordinators.share_persister import Persister
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import ZERO_UUID, NodeId, Offset
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.drivers.ports import ShareHost, Waiter
    from ottla.protocol.schemas import sent

_LOG = logging.getLogger("ottla.share")

TOPICS_AT_ONCE: Final = 64
UNKNOWN_START: Final = -1
NOTHING_KNOWN: sent.DescribeShareGroupOffsetsResponsePartition = {"start_offset": -1, "leader_epoch": 0, "lag": -1}
UNKNOWN_PARTITION: Final = {
    "error_code": ErrorCode.unknown_topic_or_partition,
    "error_message": "This server does not host this topic-partition.",
}

T = TypeVar("T")


class ShareGroups:
    """All methods belong to the event loop's thread. They raise NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or
    COORDINATOR_NOT_AVAILABLE where the group is not this node's."""

    def __init__(self, node: ShareHost, persister: Persister) -> None:
        self._node = node
        self._persister = persister
        self._being_initialized: dict[tuple[str, UUID], frozenset[int]] = {}
        """Partitions whose state the share coordinator was asked for, by group and topic."""
        node.groups.initialize_shares = self._initialize

    def heartbeat(self, waiter: Waiter, request: ShareHeartbeat) -> None:
        """Replies and raises as the decision (`group/share/heartbeat.py`)."""
        self._node.groups.ask(waiter, request)

    async def _decided(self, request: ShareRequest) -> Any:
        """The reply of the group coordinator, once it is committed. Raises KafkaError."""
        waiter = AwaitedReply()
        self._node.groups.ask(waiter, request)
        return await waiter.result

    # Offsets

    async def describe_offsets(
        self, group_id: str, topics: Mapping[str, Sequence[int]] | None
    ) -> list[sent.DescribeShareGroupOffsetsResponseTopic]:
        """The rows of topics, all that the group has where None are named."""
        image = self._node.image
        rows: list[sent.DescribeShareGroupOffsetsResponseTopic] = []
        wanted: dict[UUID, Sequence[int]] = {}
        if topics is None:
            wanted.update(self._node.groups.read_committed(offsets.partitions, group_id))
        for position, (name, numbers) in enumerate((topics or {}).items()):
            await _breathe(position)
            topic = image.topic(name)
            if topic is None:
                nothing: list[sent.DescribeShareGroupOffsetsResponsePartition] = [
                    {"partition_index": number, **NOTHING_KNOWN} for number in numbers
                ]
                rows.append({"topic_name": name, "topic_id": ZERO_UUID, "partitions": nothing})
            else:
                wanted[topic.id] = numbers
        answers = await self.ask(group_id, wanted, SummarizeState)
        counted = {
            where
            for where, row in answers.items()
            if not row["error_code"] and row["start_offset"] >= 0 and row["delivery_complete_count"] >= 0
        }
        ends = await self._ends(counted)
        for position, (topic_id, numbers) in enumerate(wanted.items()):
            await _breathe(position)
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                some = []
                for index, number in enumerate(numbers):
                    await _breathe(index)
                    some.append(_offsets_row(number, answers[topic_id, number], ends.get((topic_id, number))))
                rows.append({"topic_name": topic.name, "topic_id": topic_id, "partitions": some})
        return rows

    async def alter_offsets(
        self, group_id: str, topics: Mapping[str, Mapping[int, Offset]]
    ) -> list[sent.AlterShareGroupOffsetsResponseTopic]:
        """Set where an empty group goes on; the rows of topics. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        image = self._node.image
        moved: dict[UUID, dict[int, Offset]] = {}
        for name, numbers in topics.items():
            topic = image.topic(name)
            if topic is not None:
                moved[topic.id] = {number: each for number, each in numbers.items() if number in topic.partitions}
        epoch = (await self._decided(MoveShareOffsets(group_id, moved)))["epoch"]

        def request(key: SharePartitionKey) -> StateRequest:
            return InitializeState(key, epoch, moved[key.topic_id][key.partition])

        answers = await self._initializing(group_id, moved, request)
        rows: list[sent.AlterShareGroupOffsetsResponseTopic] = []
        for position, (name, numbers) in enumerate(topics.items()):
            await _breathe(position)
            topic = image.topic(name)
            topic_id = ZERO_UUID if topic is None else topic.id
            some: list[sent.AlterShareGroupOffsetsResponsePartition] = []
            for index, number in enumerate(numbers):
                await _breathe(index)
                error = _error_row(answers.get((topic_id, number), UNKNOWN_PARTITION))
                some.append({"partition_index": number, **error})
            rows.append({"topic_name": name, "topic_id": topic_id, "partitions": some})
        return rows

    async def delete_offsets(
        self, group_id: str, topics: Sequence[str]
    ) -> list[sent.DeleteShareGroupOffsetsResponseTopic]:
        """Forget how far an empty group has come in topics; their rows. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        image = self._node.image
        begun = await self._decided(DeleteShareOffsets(group_id, topics))
        found, failed = begun["found"], begun["failed"]
        answers = await self.ask(group_id, found, DeleteState)
        errors = {topic_id: row for (topic_id, _), row in answers.items() if row["error_code"]}
        done = [topic_id for topic_id in found if topic_id not in errors]
        if done:
            self._node.groups.ask(NOBODY, SharesDeleted(group_id, done))
        rows: list[sent.DeleteShareGroupOffsetsResponseTopic] = []
        for position, name in enumerate(dict.fromkeys(topics)):
            await _breathe(position)
            topic, error = image.topic(name), failed.get(name)
            if error is not None or topic is None:
                code, message = (ErrorCode.none, None) if error is None else (error.code, error.message)
                rows.append({"topic_name": name, "topic_id": ZERO_UUID, "error_code": code, "error_message": message})
            else:
                row = errors.get(topic.id, {"error_code": ErrorCode.none, "error_message": None})
                code, message = ErrorCode(row["error_code"]), row["error_message"]
                rows.append({"topic_name": name, "topic_id": topic.id, "error_code": code, "error_message": message})
        return rows

    async def delete_group(self, waiter: Waiter, group_id: str) -> bool:
        """Delete an empty share group, its state first; False if it is none. Replies as the group coordinator, and
        raises KafkaError."""
        found = (await self._decided(DeleteShareStates(group_id)))["found"]
        if found is None:
            return False
        answers = await self.ask(group_id, found, DeleteState)
        error = next((ErrorCode(row["error_code"]) for row in answers.values() if row["error_code"]), None)
        if error is not None:
            raise KafkaError(error)
        self._node.groups.ask(waiter, DeleteShareGroup(group_id))
        return True

    async def _ends(self, partitions: Collection[tuple[UUID, int]]) -> dict[tuple[UUID, int], Offset | KafkaError]:
        """The high watermarks of partitions, from their leaders."""
        found: dict[tuple[UUID, int], Offset | KafkaError] = {}
        elsewhere: dict[NodeId, list[tuple[UUID, int]]] = {}
        for position, (topic_id, number) in enumerate(partitions):
            await _breathe(position)
            topic = self._node.image.topic_by_id(topic_id)
            registration = None if topic is None else topic.partitions.get(number)
            partition = None if topic is None else self._node.replicas.get(topic.name, number)
            if partition is not None and partition.is_leader:
                found[topic_id, number] = partition.log.high_watermark
            elif registration is None:
                found[topic_id, number] = KafkaError(ErrorCode.unknown_topic_or_partition)
            else:
                elsewhere.setdefault(registration.leader, []).append((topic_id, number))
        for leader, some in elsewhere.items():
            try:
                found |= await self._ends_at(leader, some)
            except KafkaError as error:
                found |= dict.fromkeys(some, KafkaError(ErrorCode.leader_not_available, str(error)))
        return found

    async def _ends_at(
        self, leader: NodeId, partitions: Sequence[tuple[UUID, int]]
    ) -> dict[tuple[UUID, int], Offset | KafkaError]:
        image = self._node.image
        topics: dict[str, list[dict[str, int]]] = {}
        ids: dict[tuple[str, int], tuple[UUID, int]] = {}
        for topic_id, number in partitions:
            topic = image.topic_by_id(topic_id)
            name = "" if topic is None else topic.name
            ids[name, number] = topic_id, number
            topics.setdefault(name, []).append({"partition_index": number, "current_leader_epoch": -1, "timestamp": -1})
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": 0,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = await self._persister.ask_broker(leader, ApiKey.LIST_OFFSETS, values, versions=(5, 11))
        return {
            ids[topic.name, row.partition_index]: KafkaError(row.error_code) if row.error_code else row.offset
            for topic in answer.topics
            for row in topic.partitions
        }

    # Share coordinators

    async def ask(
        self, group_id: str, partitions: Mapping[UUID, Any], request: Callable[[SharePartitionKey], StateRequest]
    ) -> dict[tuple[UUID, int], StateRow]:
        """Results of the same request for many partitions. Raises nothing."""
        asked: dict[tuple[UUID, int], asyncio.Future[StateRow]] = {}
        for topic_id, numbers in partitions.items():
            for number in dict.fromkeys(numbers):
                await _breathe(len(asked))
                asked[topic_id, number] = self._persister.ask(request(SharePartitionKey(group_id, topic_id, number)))
        if asked:
            await asyncio.wait(asked.values())
        lost = {"error_code": ErrorCode.coordinator_not_available, "error_message": None}
        return {
            where: {"partition": where[1], **lost} if each.cancelled() else each.result()
            for where, each in asked.items()
        }

    def _initialize(self, asked_for: InitializeShares) -> None:
        """New partitions, where the settings of the group will say where it begins.

        A partition whose request has no answer yet is not asked for again, however long that takes: members read it
        as soon as the first answer is there, and a second request, of a later epoch, would undo what they did since.
        """
        group_id, epoch, partitions = asked_for
        busy = self._being_initialized
        wanted: dict[UUID, frozenset[int]] = {}
        for topic_id, numbers in partitions.items():
            asked = busy.get((group_id, topic_id), frozenset())
            if numbers - asked:
                wanted[topic_id] = numbers - asked
                busy[group_id, topic_id] = asked | numbers

        async def work() -> None:
            try:
                await self._initializing(group_id, wanted, lambda key: InitializeState(key, epoch, UNKNOWN_START))
            finally:
                for topic_id, numbers in wanted.items():
                    busy[group_id, topic_id] -= numbers
                    if not busy[group_id, topic_id]:
                        del busy[group_id, topic_id]

        if wanted:
            self._node.spawn(work())

    async def _initializing(
        self,
        group_id: str,
        partitions: Mapping[UUID, Collection[int]],
        request: Callable[[SharePartitionKey], StateRequest],
    ) -> dict[tuple[UUID, int], StateRow]:
        """Initialize state at the share coordinator, and record the result. Raises nothing."""
        answers = await self.ask(group_id, partitions, request)
        for kept in (True, False):
            found: dict[UUID, list[int]] = {}
            for (topic_id, number), answer in answers.items():
                if (answer["error_code"] == ErrorCode.none) is kept:
                    found.setdefault(topic_id, []).append(number)
            if not found:
                continue
            if not kept:
                where = fields(group=group_id, partitions=sum(map(len, found.values())))
                _LOG.warning("share partitions cannot be initialized", extra=where)
            try:
                self._node.groups.ask(NOBODY, SharesInitialized(group_id, found, kept))
            except KafkaError as error:  # its coordinator is another node, which will ask for the same
                _LOG.debug("a share group has moved", extra=fields(group=group_id, error=str(error)))
        return answers


class _Nobody:
    """Stands for a waiter where nobody waits."""

    def complete(self, result: Any) -> None: ...


NOBODY: Final = _Nobody()


async def _breathe(position: int) -> None:
    """Others have their turn between the topics of a long list."""
    if position % TOPICS_AT_ONCE == TOPICS_AT_ONCE - 1:
        await scheduler_of(asyncio.get_running_loop()).next_slice()


def _error_row(row: Mapping[str, Any]) -> sent.AlterShareGroupOffsetsResponsePartition:
    return {"error_code": ErrorCode(row["error_code"]), "error_message": row["error_message"]}


def _offsets_row(
    number: int, row: StateRow, end: Offset | KafkaError | None
) -> sent.DescribeShareGroupOffsetsResponsePartition:
    """A row of offsets; an unknown one is not an error, as in OffsetFetch."""
    if isinstance(end, KafkaError):
        return {"partition_index": number, "error_code": end.code, "error_message": end.message or None}
    if row["error_code"]:
        return {"partition_index": number, **NOTHING_KNOWN}
    start = row["start_offset"]
    lag = -1 if end is None else end - start - row["delivery_complete_count"]
    return {"partition_index": number, "start_offset": start, "leader_epoch": row["leader_epoch"], "lag": lag}
