"""AddPartitionsToTxn, versions 0-5: partitions that a transaction is going to write to (KIP-98, KIP-890).

Up to version 3 clients send it, for one transaction; version 2 brought PRODUCER_FENCED. From version 4 on brokers do,
for many: they add a partition for a client that has just begun to write to it, or only verify that it was added. Where
one partition does not exist, none of its transaction is added.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.coordinator.transaction.requests import AddPartitions
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import ROW_COST, Handling, RequestContext, api
from ottla.server.coordinators.transactional import fenced_before
from ottla.server.security.authorization import EVERYTHING, allowed
from ottla.server.security.permissions import cluster, of_topics, transactional_id

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
    from ottla.protocol.schemas.sent import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTopicResult,
    )

TRANSACTION_COST: Final = 50
"""Cost of logging a change of a transaction."""

Errors = Mapping[TopicPartition, int]


def _on_error(
    context: RequestContext, request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    code = fenced_before(2, context, error.code)
    if context.api_version >= 4:
        return {"error_code": code, "results_by_transaction": ()}
    rows: list[AddPartitionsToTxnTopicResult] = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": code} for number in topic.partitions
            ],
        }
        for topic in request.v3_and_below_topics
    ]
    return {"results_by_topic_v3_and_below": rows}


NEEDS: Final = (
    transactional_id(Operation.WRITE, "v3_and_below_transactional_id", versions=(0, 3)),
    of_topics(Operation.WRITE, "v3_and_below_topics.name", versions=(0, 3)),
    cluster(Operation.CLUSTER_ACTION, versions=(4, 5)),
)


@api(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), needs=NEEDS, on_error=_on_error)
def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> Handling[AddPartitionsToTxnResponse]:
    if context.api_version >= 4:
        return (yield from _for_brokers(context, request))
    writable = allowed(context, Operation.WRITE)
    partitions, errors = yield from _partitions(context, request.v3_and_below_topics, writable, may_be_internal=False)
    if not errors:
        reply = AwaitedReply()
        asked = AddPartitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
        )
        context.node.transactions.ask(reply, asked)
        answer = yield reply.result
        errors = dict.fromkeys(partitions, fenced_before(2, context, answer["error_code"]))
    return {"results_by_topic_v3_and_below": (yield from _rows(errors))}


def _for_brokers(context: RequestContext, request: AddPartitionsToTxnRequest) -> Handling[AddPartitionsToTxnResponse]:
    waiting = []
    for each in request.transactions:
        partitions, errors = yield from _partitions(context, each.topics, EVERYTHING)
        waiter = AwaitedReply()
        if errors:
            waiter.complete(errors)
        else:
            context.node.transactions.add_partitions(
                waiter, each.transactional_id, each.producer_id, each.producer_epoch, partitions, each.verify_only
            )
        waiting.append(waiter)
        yield TRANSACTION_COST
    results: list[AddPartitionsToTxnResult] = []
    for each, waiter in zip(request.transactions, waiting, strict=True):
        answer = waiter.result
        rows = yield from _rows(answer.result() if answer.done() else (yield answer))
        results.append({"transactional_id": each.transactional_id, "topic_results": rows})
        yield ROW_COST
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


def _partitions(
    context: RequestContext,
    topics: Sequence[AddPartitionsToTxnTopic],
    writable: Container[str],
    *,
    may_be_internal: bool = True,
) -> Generator[int, None, tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]]:
    """The partitions that a request names; with their errors if one does not exist or must not be written to, as then
    no other is added. Clients may not write to internal topics, whatever they are allowed."""
    image, partitions, failed = context.node.image, [], {}
    for topic in topics:
        is_writable = (may_be_internal or topic.name not in INTERNAL_TOPICS) and topic.name in writable
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            partitions.append(partition)
            if not is_writable:
                failed[partition] = ErrorCode.topic_authorization_failed
            elif image.partition(topic.name, number) is None:
                failed[partition] = ErrorCode.unknown_topic_or_partition
            yield 1
    if not failed:
        return partitions, {}
    return partitions, {each: failed.get(each, ErrorCode.operation_not_attempted) for each in partitions}


def _rows(errors: Errors) -> Generator[int, None, list[AddPartitionsToTxnTopicResult]]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, number), error in errors.items():
        topics.setdefault(name, []).append({"partition_index": number, "partition_error_code": error})
        yield 1
    return [{"name": name, "results_by_partition": rows} for name, rows in topics.items()]
