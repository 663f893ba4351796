"""TxnOffsetCommit, versions 0-5: offsets that count when the producer's transaction is committed (KIP-98).

Version 3 says who commits, so that a member of an older generation is fenced (KIP-447); from version 5 on
(transaction.version 2) this broker has the partition of `__consumer_offsets` added to the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.coordinator.effects import WRITE_ERRORS, InTransaction
from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit
from ottla.drivers.coordinators.transaction_verifier import Question
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD, OFFSETS_TOPIC, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import in_transaction
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Deferred, Handling, RequestContext, api
from ottla.server.connections.incremental_free import without_frames
from ottla.server.connections.long_answers import RowsOf
from ottla.server.coordinators.coordinator_replies import AwaitedReply, DeferredReply
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
_ABORTABLE_SINCE: Final = 4
_LOADING_SINCE: Final = 2
"""Versions in which clients know these errors."""
COMMITTED_AT_ONCE: Final = 200
"""A longer commit is several writes, of some milliseconds each."""

Errors = Mapping[TopicPartition, ErrorCode]


def on_error(context: RequestContext, request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    def refused(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
        rows: RowsOf[TxnOffsetCommitResponsePartition] = RowsOf(
            topic.partitions, lambda row: {"partition_index": row.partition_index, "error_code": error.code}
        )
        return {"name": topic.name, "partitions": rows}

    return {"topics": RowsOf(request.topics, refused)}


NEEDS: Final = (
    transactional_id(Operation.WRITE), group(Operation.READ), of_topics(Operation.READ, "topics.name"),
)  # fmt: skip


@api(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Handling[TxnOffsetCommitResponse | Deferred]:
    readable = allowed(context, Operation.READ)
    refused: dict[TopicPartition, ErrorCode] = {}
    offsets: list[OffsetToCommit] = []
    for asked in request.topics:
        topic = context.node.image.topic(asked.name)
        is_readable = asked.name in readable
        for row in asked.partitions:
            if not is_readable:
                refused[TopicPartition(asked.name, row.partition_index)] = ErrorCode.topic_authorization_failed
            elif topic is None or row.partition_index not in topic.partitions:
                refused[TopicPartition(asked.name, row.partition_index)] = ErrorCode.unknown_topic_or_partition
            else:
                offsets.append(
                    OffsetToCommit(
                        asked.name, row.partition_index, row.committed_offset,
                        row.committed_leader_epoch, row.committed_metadata or "",
                    )
                )  # fmt: skip
            yield 2
    if not offsets:
        return (yield from _answering(context, refused))
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        guard = yield from _verify(context, request)
    except KafkaError as error:
        return (yield from _answering(context, {**refused, **_all(offsets, error)}))
    transaction = InTransaction(request.producer_id, request.producer_epoch, guard)
    if len(offsets) + len(refused) > COMMITTED_AT_ONCE:
        return (yield from _in_parts(context, request, offsets, transaction, refused))
    waiter = DeferredReply(lambda reply: at_once(_answering(context, {**refused, **reply["partitions"]})))
    try:
        context.node.groups.ask(_Errors(waiter, offsets), _asked(request, offsets, transaction))
    except KafkaError as error:
        return (yield from _answering(context, {**refused, **_all(offsets, error)}))
    return waiter.deferred


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
    refused: Errors,
) -> Handling[TxnOffsetCommitResponse]:
    errors = dict(refused)
    for start in range(0, len(offsets), COMMITTED_AT_ONCE):
        part = offsets[start : start + COMMITTED_AT_ONCE]
        reply = AwaitedReply()
        try:
            context.node.groups.ask(_Errors(reply, part), _asked(request, part, transaction))
            errors.update((yield reply.result)["partitions"])
        except KafkaError as error:
            without_frames(error)
            errors.update(_all(part, error))
        yield COMMITTED_AT_ONCE * ROW_COST
    return (yield from _answering(context, errors))


def _verify(context: RequestContext, request: TxnOffsetCommitRequest) -> Handling[int]:
    """The guard to append with: the coordinator of the transaction is asked before its first commit here. Raises
    KafkaError."""
    node, version = context.node, context.api_version
    adds = version >= ADDS_SINCE
    if not adds and not node.config.transaction_partition_verification_enable:
        return NO_GUARD
    try:
        partition = node.replicas.find(OFFSETS_TOPIC, node.groups.partition_of(request.group_id))
        batch = in_transaction(request.producer_id, request.producer_epoch)
        guard = partition.start_verification(batch, begins_transaction=adds, now_ms=node.clock.now_ms())
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
    request: TxnOffsetCommitRequest, offsets: Sequence[OffsetToCommit], transaction: InTransaction
) -> TxnOffsetCommit:
    commit = OffsetCommit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
    )
    return TxnOffsetCommit(commit, transaction)


def _all(offsets: Sequence[OffsetToCommit], error: KafkaError) -> dict[TopicPartition, ErrorCode]:
    return {TopicPartition(each.topic, each.partition): error.code for each in offsets}


def _answering(context: RequestContext, errors: Errors) -> Generator[int, None, TxnOffsetCommitResponse]:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, number), error in errors.items():
        if error == ErrorCode.coordinator_load_in_progress and context.api_version < _LOADING_SINCE:
            error = ErrorCode.coordinator_not_available
        topics.setdefault(topic, []).append((number, error))
        yield 1
    return {"topics": RowsOf(list(topics.items()), lambda each: {"name": each[0], "partitions": RowsOf(each[1], _row)})}


def _row(item: tuple[int, ErrorCode]) -> TxnOffsetCommitResponsePartition:
    return {"partition_index": item[0], "error_code": item[1]}
