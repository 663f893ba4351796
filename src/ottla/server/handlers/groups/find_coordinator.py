"""FindCoordinator, versions 0-6: which node coordinates a group. From version 4 for many groups at once (KIP-699).

Of a group, from version 1 on of a transactional id, from version 6 on of a share-partition ("group:topic id:partition",
KIP-932; brokers ask that). The first request creates `__consumer_offsets`, `__transaction_state` or
`__share_group_state`, and unlike in Kafka is answered when that is done.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import Endpoint
from ottla.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, uuid_from_base64
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext, api
from ottla.server.connections.long_answers import RowsOf, in_steps
from ottla.server.metadata import topic_creation
from ottla.server.security.authorization import EVERYTHING, allowed, authorize_cluster, refusal
from ottla.server.security.permissions import Need, of_groups, of_ids

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import FindCoordinatorRequest
    from ottla.protocol.schemas.sent import Coordinator, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
NO_NODE: Coordinator = {"node_id": -1, "host": "", "port": -1}
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE: SHARE_STATE_TOPIC}
_NUMBER = re.compile(r"[+-]?\d{1,10}")
_UNKNOWN = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""The message of Kafka's clients for INVALID_REQUEST."""


def on_error(context: RequestContext, request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    if context.api_version < 4:
        return {"error_code": error.code, "error_message": error.message, "node_id": -1, "host": "", "port": -1}
    row: Coordinator = {"error_code": error.code, "error_message": error.message, **NO_NODE}
    return {"coordinators": RowsOf(request.coordinator_keys, lambda key: {"key": key, **row})}


NEEDS: Final = (
    of_groups(Operation.DESCRIBE, "coordinator_keys", when="for groups"),
    of_ids(Operation.DESCRIBE, "coordinator_keys", when="for transactional ids", versions=(1, 6)),
    Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, versions=(6, 6), when="for share-partitions"),
)
_KINDS: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


@api(ApiKey.FIND_COORDINATOR, versions=(0, 6), needs=NEEDS, on_error=on_error)
async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    key_type = request.key_type
    keys = [request.key] if context.api_version < 4 else request.coordinator_keys
    visible = _visible(context, key_type, keys)
    if _is_needed(context, key_type, keys) and any(key in visible for key in keys):
        await topic_creation.create_own(context.node, [_TOPICS[key_type]])
    if context.api_version < 4:
        row = _find(context, key_type, visible, "NONE", "The coordinator is not available.", request.key)
        return {
            "error_code": row["error_code"],
            "error_message": row["error_message"],
            "node_id": row["node_id"],
            "host": row["host"],
            "port": row["port"],
        }
    found = await run_yielding(in_steps(keys, partial(_find, context, key_type, visible, "", "")))
    return {"coordinators": found}


def _visible(context: RequestContext, key_type: int, keys: Sequence[str]) -> Container[str]:
    """The keys whose coordinator the client may know. Raises CLUSTER_AUTHORIZATION_FAILED for share-partitions, which
    only brokers ask for."""
    if key_type in _KINDS:
        return allowed(context, Operation.DESCRIBE, _KINDS[key_type])
    if key_type == SHARE and context.api_version >= 6 and keys:
        authorize_cluster(context, Operation.CLUSTER_ACTION)
    return EVERYTHING


def _is_needed(context: RequestContext, key_type: int, keys: Sequence[str]) -> bool:
    """Whether the topic of the coordinators is to be made. Keys of share-partitions that are wrong need none."""
    topic = _TOPICS.get(key_type)
    if not keys or topic is None or context.node.image.topic(topic) is not None:
        return False
    return key_type != SHARE or (context.api_version >= 6 and _share_partition(keys[0]) is not None)


def _find(
    context: RequestContext, key_type: int, visible: Container[str], ok: str, unavailable: str, key: str
) -> Coordinator:
    if key not in visible:
        error = refusal(context, Operation.DESCRIBE, _KINDS[key_type], key)
        return {"key": key, "error_code": error.code, "error_message": error.message, **NO_NODE}
    if key_type not in _TOPICS:
        return {"key": key, "error_code": ErrorCode.invalid_request, "error_message": _UNKNOWN, **NO_NODE}
    try:
        node_id, endpoint = _coordinator(context, key_type, key)
    except KafkaError as error:
        message = _UNKNOWN if context.api_version < 4 and error.code is ErrorCode.invalid_request else unavailable
        return {"key": key, "error_code": error.code, "error_message": message, **NO_NODE}
    return {
        "key": key,
        "error_code": ErrorCode.none,
        "error_message": ok,
        "node_id": node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _coordinator(context: RequestContext, key_type: int, key: str) -> tuple[int, Endpoint]:
    node, listener = context.node, context.listener_name
    if key_type == GROUP:
        return node.groups.find(key, listener)
    if key_type == TRANSACTION:
        return node.transactions.find(key, listener)
    share_partition = _share_partition(key)
    if context.api_version < 6 or share_partition is None:
        raise KafkaError(ErrorCode.invalid_request)
    return node.share_coordinator.find(share_partition, listener)


def _share_partition(key: str) -> SharePartitionKey | None:
    """None for what is no key. A group's id may have colons, the rest has none."""
    parts = key.rstrip(":").rsplit(":", 2)  # Java's split drops what is empty at the end
    if len(parts) < 3 or not parts[0].strip() or _NUMBER.fullmatch(parts[2]) is None:
        return None
    number = int(parts[2])
    try:
        topic_id = uuid_from_base64(parts[1])
    except ValueError:
        return None
    return SharePartitionKey(parts[0], topic_id, number) if -(1 << 31) <= number < 1 << 31 else None
