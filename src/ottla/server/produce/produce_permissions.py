"""Permissions of producers: asked once for each topic of a request, where the node has an authorizer.

Requests that a `ProduceShortcut` answers are not asked about again: it is learned from an allowed request, and
forgotten with every change of the ACLs (`authorization.rules_changed`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.security.acls import Operation, ResourceType
from ottla.server.produce.produce_answers import key_of
from ottla.server.security.authorization import authorize, is_allowed

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceRequest, TopicProduceData
    from ottla.server.api import RequestContext


def denied(context: RequestContext, request: ProduceRequest, *, is_transactional: bool) -> AbstractSet[str | UUID]:
    """The names, or ids, of the topics that the client may not write to. An id that there is not is none of them.

    Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches of an id that is not the client's.
    """
    if is_transactional and request.transactional_id is not None:
        authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    found: set[str | UUID] = set()
    known: dict[str, bool] = {}
    for topic in request.topic_data:
        name = _name(context, topic)
        if name is None:
            continue
        if name not in known:
            known[name] = is_allowed(context, Operation.WRITE, ResourceType.TOPIC, name)
        if not known[name]:
            found.add(key_of(context, topic))
    return found


def may_repeat(context: RequestContext, request: ProduceRequest) -> bool:
    """Whether requests like this one may be answered without being asked about: all that they could have in them is
    allowed, transactional batches too."""
    transactional_id = request.transactional_id
    if transactional_id is not None and not is_allowed(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id, log_denial=False
    ):
        return False
    for topic in request.topic_data:
        name = _name(context, topic)
        if name is None or not is_allowed(context, Operation.WRITE, ResourceType.TOPIC, name, log_denial=False):
            return False
    return True


def _name(context: RequestContext, topic: TopicProduceData) -> str | None:
    """The name of a topic; None for an id that nobody has."""
    key = key_of(context, topic)
    return key if isinstance(key, str) else context.node.replicas.name_of(key, context.node.image)
