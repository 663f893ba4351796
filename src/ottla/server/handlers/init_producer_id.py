"""InitProducerId, versions 0-5: a producer id for an idempotent producer (KIP-98, KIP-360).

Without a transactional id every call gives a new id in epoch 0, whatever id the client had. Transactional ids are
refused with UNSUPPORTED_VERSION, which clients treat as fatal: this version has no transactions.
"""

from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages import ApiKey
from ottla.server.api import RequestContext, Response, api


def _on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    return {"error_code": error.code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


@api(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), on_error=_on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    given = getattr(request, "producer_id", NO_PRODUCER_ID), getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (given[0] == NO_PRODUCER_ID) != (given[1] == NO_PRODUCER_EPOCH) or request.transactional_id == "":
        raise KafkaError(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.unsupported_version)
    producer_id = await context.node.controller.allocate_producer_id()
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}
