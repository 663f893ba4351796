"""EndTxn, versions 0-5: commit or abort a transaction (KIP-98).

It is answered when the outcome is in the log; consumers see it when the partitions have their markers. Version 2
brought PRODUCER_FENCED. From version 5 on each transaction has an epoch of its own, and the answer has the next one
(KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.transaction.requests import EndTxn
from ottla.errors import KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.transactional import fenced_before
from ottla.server.security.permissions import transactional_id

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import EndTxnRequest
    from ottla.protocol.schemas.sent import EndTxnResponse

NOTHING: EndTxnResponse = {"producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


def _on_error(context: RequestContext, request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return {"error_code": fenced_before(2, context, error.code), **NOTHING}


@api(ApiKey.END_TXN, versions=(0, 5), needs=(transactional_id(Operation.WRITE),), on_error=_on_error)
def handle(context: RequestContext, request: EndTxnRequest) -> Deferred:
    def finish(answer: EndTxnResponse) -> EndTxnResponse:
        return {**NOTHING, **answer, "error_code": fenced_before(2, context, answer["error_code"])}

    reply = DeferredReply(finish)
    version = 2 if context.api_version >= 5 else 0
    asked = EndTxn(request.transactional_id, request.producer_id, request.producer_epoch, request.committed, version)
    context.node.transactions.ask(reply, asked)
    return reply.deferred
