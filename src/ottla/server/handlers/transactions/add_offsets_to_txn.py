"""AddOffsetsToTxn, versions 0-4: the offsets of a group are to be committed with a transaction (KIP-98, KIP-447).

What is added is the partition of `__consumer_offsets` that keeps the group. Version 2 brought PRODUCER_FENCED. Clients
of KIP-890 leave it to TxnOffsetCommit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.transaction.requests import AddPartitions
from ottla.errors import KafkaError
from ottla.model import OFFSETS_TOPIC, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.transactional import fenced_before
from ottla.server.security.permissions import group, transactional_id

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import AddOffsetsToTxnRequest
    from ottla.protocol.schemas.sent import AddOffsetsToTxnResponse


def _on_error(context: RequestContext, request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return {"error_code": fenced_before(2, context, error.code)}


@api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    needs=(transactional_id(Operation.WRITE), group(Operation.READ)),
    on_error=_on_error,
)
def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> Deferred:
    def finish(answer: AddOffsetsToTxnResponse) -> AddOffsetsToTxnResponse:
        return {"error_code": fenced_before(2, context, answer["error_code"])}

    reply = DeferredReply(finish)
    partition = TopicPartition(OFFSETS_TOPIC, context.node.groups.partition_of(request.group_id))
    asked = AddPartitions(request.transactional_id, request.producer_id, request.producer_epoch, (partition,))
    context.node.transactions.ask(reply, asked)
    return reply.deferred
