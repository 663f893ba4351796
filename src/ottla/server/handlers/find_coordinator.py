"""FindCoordinator, versions 0-6: which node coordinates a group. From version 4 for many groups at once (KIP-699).

Of a group, or from version 1 on of a transactional id. The first request creates `__consumer_offsets` or
`__transaction_state`, and unlike in Kafka is answered when that is done. Share groups have no coordinator here:
INVALID_REQUEST, which clients take as final.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.server import topic_creation
from ottla.server.api import RequestContext, Response, api
from ottla.server.long_answers import RowsOf, encoded, in_steps

GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_NODE = {"node_id": -1, "host": "", "port": -1}
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC}
_NOT_SERVED = {SHARE: ""}
_UNKNOWN = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""What Kafka's clients say of INVALID_REQUEST."""


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    if context.api_version < 4:
        return {"error_code": error.code, "error_message": error.message, **NO_NODE}
    row = {"error_code": error.code, "error_message": error.message, **NO_NODE}
    return {"coordinators": RowsOf(request.coordinator_keys, lambda key: {"key": key, **row})}


@api(ApiKey.FIND_COORDINATOR, versions=(0, 6), on_error=on_error)
async def handle(context: RequestContext, request: Any) -> Response:
    key_type = getattr(request, "key_type", GROUP)
    keys = [request.key] if context.api_version < 4 else request.coordinator_keys
    topic = _TOPICS.get(key_type)
    if keys and topic is not None and context.node.image.topic(topic) is None:
        await topic_creation.create(context, [topic])
    if context.api_version < 4:
        return _find(context, key_type, "NONE", "The coordinator is not available.", request.key)
    found = await run_yielding(in_steps(keys, partial(_find, context, key_type, "", "")))
    return await encoded(context, {"coordinators": found}, "coordinators")


def _find(context: RequestContext, key_type: int, ok: str, unavailable: str, key: str) -> Mapping[str, Any]:
    if key_type not in _TOPICS:
        message = _NOT_SERVED.get(key_type, _UNKNOWN)
        return {"key": key, "error_code": ErrorCode.invalid_request, "error_message": message, **NO_NODE}
    try:
        coordinator = context.node.groups if key_type == GROUP else context.node.transactions
        node_id, endpoint = coordinator.find(key, context.listener_name)
    except KafkaError as error:
        return {"key": key, "error_code": error.code, "error_message": unavailable, **NO_NODE}
    return {
        "key": key,
        "error_code": ErrorCode.none,
        "error_message": ok,
        "node_id": node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }
