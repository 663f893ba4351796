"""TxnOffsetCommit, versions 0-6: offsets that count when the producer's transaction is committed (KIP-98).

Version 3 says who commits, so that a member of an older generation is fenced (KIP-447); from version 5 on
(transaction.version 2) this broker has the partition of `__consumer_offsets` added to the transaction (KIP-890).
Version 6 has topic ids instead of names, and the errors STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.coordinator.effects import WRITE_ERRORS, InTransaction
from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.drivers.coordinators.transaction_verifier import Question
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, OFFSETS_TOPIC, ZERO_UUID, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import in_transaction
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Deferred, Handling, RequestContext, api
from ottla.server.connections.incremental_free import without_frames
from ottla.server.connections.long_answers import RowsOf
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.security.authorization import allowed
from ottla.server.security.permissions import group, of_topics, transactional_id
from ottla.steps import at_once

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
    from ottla.protocol.schemas.sent import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

ADDS_SINCE: Final = 5
"""The client leaves it to the broker to add the partition of its group's offsets."""
TOPIC_IDS_SINCE: Final = 6
_ABORTABLE_SINCE: Final = 4
_LOADING_SINCE: Final = 2
"""Versions in which clients know these errors."""
COMMITTED_AT_ONCE: Final = 200
"""A longer commit is several writes, of some milliseconds each."""

Errors = Mapping[TopicPartition, ErrorCode]
UnknownIds = list[tuple[UUID, list[int]]]
"""Unknown topic ids of a request, with the partitions asked for."""


def on_error(context: RequestContext, request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    def refused(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        rows: RowsOf[TxnOffsetCommitResponsePartition] = RowsOf(
            topic.partitions, lambda row: {"partition_index": row.partition_index, "error_code": error.code}
        )
        return {"name": topic.name, "topic_id": topic.topic_id, "partitions": rows}

    return {"topics": RowsOf(request.topics, refused)}


NEEDS: Final = (
    transactional_id(Operation.WRITE), group(Operation.READ), of_topics(Operation.READ, "topics.name"),
)  # fmt: skip


@api(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Handling[TxnOffsetCommitResponse | Deferred]:
    answer = _Answer(context)
    offsets = yield from _resolve(context, request, answer)
    if not offsets:
        return (yield from answer.of({}))
    try:
        guard = yield from _verify(context, request)
        transaction = InTransaction(request.producer_id, request.producer_epoch, guard)
        if len(offsets) + len(answer.refused) > COMMITTED_AT_ONCE:
            return (yield from _in_parts(context, request, offsets, transaction, answer))
        waiter = DeferredReply(lambda reply: at_once(answer.of(reply["partitions"])))
        context.node.groups.ask(_Errors(waiter, offsets), _asked(context, request, offsets, transaction))
    except KafkaError as error:
        return (yield from answer.of(_all(offsets, error)))
    return waiter.deferred


def _resolve(
    context: RequestContext, request: TxnOffsetCommitRequest, answer: _Answer
) -> Generator[int, None, list[OffsetToCommit]]:
    """The offsets of partitions that exist and that the client may read; `answer` learns of the others."""
    readable = allowed(context, Operation.READ)
    by_id, image = context.api_version >= TOPIC_IDS_SINCE, context.node.image
    offsets: list[OffsetToCommit] = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
        if topic is None and by_id:  # there is no name to ask for
            answer.unknown.append((asked.topic_id, [row.partition_index for row in asked.partitions]))
            yield len(asked.partitions)
            continue
        name = asked.name if topic is None else topic.name
        is_readable = name in readable
        if topic is not None:
            answer.ids[name] = topic.id
        for row in asked.partitions:
            number = row.partition_index
            if not is_readable:
                answer.refused[TopicPartition(name, number)] = ErrorCode.topic_authorization_failed
            elif topic is None or number not in topic.partitions:
                answer.refused[TopicPartition(name, number)] = ErrorCode.unknown_topic_or_partition
            else:
                metadata = row.committed_metadata or ""
                offset, epoch = row.committed_offset, row.committed_leader_epoch
                offsets.append(OffsetToCommit(name, number, offset, epoch, metadata, topic.id))
            yield 2
    return offsets


class _Errors:
    """Stands before a waiter: an error of the coordinator is one of every partition."""

    __slots__ = ("_offsets", "_waiter")

    def __init__(self, waiter: DeferredReply | AwaitedReply, offsets: Sequence[OffsetToCommit]) -> None:
        self._waiter = waiter
        self._offsets = offsets

    def complete(self, result: Mapping[str, Errors] | BaseException) -> None:
        if isinstance(result, KafkaError):
            result = {"partitions": _all(self._offsets, result)}
        self._waiter.complete(result)


def _in_parts(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: list[OffsetToCommit],
    transaction: InTransaction,
    answer: _Answer,
) -> Handling[TxnOffsetCommitResponse]:
    errors: dict[TopicPartition, ErrorCode] = {}
    for start in range(0, len(offsets), COMMITTED_AT_ONCE):
        part = offsets[start : start + COMMITTED_AT_ONCE]
        reply = AwaitedReply()
        try:
            context.node.groups.ask(_Errors(reply, part), _asked(context, request, part, transaction))
            errors.update((yield reply.result)["partitions"])
        except KafkaError as error:
            without_frames(error)
            errors.update(_all(part, error))
        yield COMMITTED_AT_ONCE * ROW_COST
    return (yield from answer.of(errors))


def _verify(context: RequestContext, request: TxnOffsetCommitRequest) -> Handling[int]:
    """The guard to append with: the coordinator of the transaction is asked before its first commit here. Raises
    KafkaError."""
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    node, version = context.node, context.api_version
    adds = version >= ADDS_SINCE
    if not adds and not node.config.transaction_partition_verification_enable:
        return NO_GUARD
    try:
        partition = node.replicas.find(OFFSETS_TOPIC, node.groups.partition_of(request.group_id))
        batch = in_transaction(request.producer_id, request.producer_epoch)
        partition.check_leader()
        producers, now_ms = partition.log.producer_state, node.clock.now_ms()
        guard: int = producers.start_verification(batch, begins_transaction=adds, now_ms=now_ms)
    except KafkaError as error:
        raise KafkaError(WRITE_ERRORS.get(error.code, error.code)) from None
    if guard == NO_GUARD:
        return guard
    key = partition.topic_partition
    question = Question(request.transactional_id, request.producer_id, request.producer_epoch, (key,), adds)
    errors = yield node.transaction_verifier.ask(question)
    code = errors.get(key, ErrorCode.none)
    if code == ErrorCode.network_exception:
        code = ErrorCode.coordinator_load_in_progress
    elif code == ErrorCode.transaction_abortable and version < _ABORTABLE_SINCE:
        code = ErrorCode.invalid_txn_state
    if code:
        raise KafkaError(code)
    return guard


def _asked(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Sequence[OffsetToCommit],
    transaction: InTransaction,
) -> TxnOffsetCommit:
    commit = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        knows_unknown_group=context.api_version >= TOPIC_IDS_SINCE,
    )
    return TxnOffsetCommit(commit, transaction)


def _all(offsets: Sequence[OffsetToCommit], error: KafkaError) -> dict[TopicPartition, ErrorCode]:
    return {TopicPartition(each.topic, each.partition): error.code for each in offsets}


class _Answer:
    """Makes the answer to a request from the errors of its partitions that the coordinator was asked for."""

    __slots__ = ("_version", "ids", "refused", "unknown")

    def __init__(self, context: RequestContext) -> None:
        self._version = context.api_version
        self.ids: dict[str, UUID] = {}
        """Ids of the topics that there are, by name."""
        self.refused: dict[TopicPartition, ErrorCode] = {}
        """Partitions that the coordinator is not asked for."""
        self.unknown: UnknownIds = []

    def of(self, errors: Errors) -> Generator[int, None, TxnOffsetCommitResponse]:
        topics: dict[str, list[tuple[int, ErrorCode]]] = {}
        for (topic, number), error in {**self.refused, **errors}.items():
            if error == ErrorCode.coordinator_load_in_progress and self._version < _LOADING_SINCE:
                error = ErrorCode.coordinator_not_available
            topics.setdefault(topic, []).append((number, error))
            yield 1
        rows = [
            ("", topic_id, [(each, ErrorCode.unknown_topic_id) for each in asked]) for topic_id, asked in self.unknown
        ]
        rows += [(name, self.ids.get(name, ZERO_UUID), each) for name, each in topics.items()]
        return {"topics": RowsOf(rows, _topic)}


def _topic(item: tuple[str, UUID, list[tuple[int, ErrorCode]]]) -> TxnOffsetCommitResponseTopic:
    return {"name": item[0], "topic_id": item[1], "partitions": RowsOf(item[2], _row)}


def _row(item: tuple[int, ErrorCode]) -> TxnOffsetCommitResponsePartition:
    return {"partition_index": item[0], "error_code": item[1]}
