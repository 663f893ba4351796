"""InitProducerId, versions 0-5: a producer id and epoch (KIP-98, KIP-360).

Without a transactional id every call gives a new id in epoch 0, whatever id the client had. With one, the coordinator
of that id fences earlier producers and aborts their open transaction. Version 3 says what the client had, version 4
brought PRODUCER_FENCED. Version 6 (two-phase commit, KIP-939) is not stable in Kafka 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.coordinator.transaction.requests import InitProducerId, ProducerIdAndEpoch
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Deferred, RequestContext, api
from ottla.server.coordinators.coordinator_replies import DeferredReply
from ottla.server.coordinators.transactional import fenced_before
from ottla.server.security.authorization import authorize, is_allowed_for_any, is_allowed_on_cluster, refusal
from ottla.server.security.permissions import Need

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import InitProducerIdRequest
    from ottla.protocol.schemas.sent import InitProducerIdResponse

NOTHING: InitProducerIdResponse = {"producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


def _on_error(context: RequestContext, request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return {"error_code": fenced_before(4, context, error.code), **NOTHING}


NEEDS: Final = (
    Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    Need(
        Operation.IDEMPOTENT_WRITE,
        ResourceType.CLUSTER,
        when="without a transactional id",
        instead=((Operation.WRITE, ResourceType.TOPIC),),
    ),
)


@api(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), needs=NEEDS, on_error=_on_error)
def handle(context: RequestContext, request: InitProducerIdRequest) -> Deferred | Awaitable[InitProducerIdResponse]:
    _authorize(context, request.transactional_id)
    given = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (given.producer_id == NO_PRODUCER_ID) != (given.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.invalid_request)
    if request.transactional_id is None:
        return _idempotent(context)
    expected = None if given.producer_id == NO_PRODUCER_ID else given

    def finish(answer: InitProducerIdResponse) -> InitProducerIdResponse:
        return {**NOTHING, **answer, "error_code": fenced_before(4, context, answer["error_code"])}

    reply = DeferredReply(finish)
    asked = InitProducerId(request.transactional_id, request.transaction_timeout, expected)
    context.node.transactions.ask(reply, asked)
    return reply.deferred


def _authorize(context: RequestContext, transactional_id: str | None) -> None:
    """Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED; CLUSTER_AUTHORIZATION_FAILED for a producer without an id that may
    not write to any topic either (KIP-679)."""
    if context.node.authorizer is None:
        return
    if transactional_id is not None:
        authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not is_allowed_on_cluster(context, Operation.IDEMPOTENT_WRITE, log_denial=False) and not is_allowed_for_any(
        context, Operation.WRITE, ResourceType.TOPIC
    ):
        raise refusal(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


async def _idempotent(context: RequestContext) -> InitProducerIdResponse:
    producer_id = await context.node.producer_ids.next()
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}
