"""SyncGroup, versions 0-5: the leader brings the assignment, every member gets its part of it.

Version 3 adds static members (KIP-345), version 5 requires the protocol's type and name (KIP-559).

Members that bring none send the same bytes in each rebalance, but for their generation: they are decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.requests import SyncGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group_responses import encode_sync
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Deferred, EncodedResponse, RequestContext, api, load
from ottla.server.coordinators.coordinator_replies import EncodedReply, encoded
from ottla.server.coordinators.known_requests import DeferredShortcut, Known, behind_strings, shortcut_for
from ottla.server.security.authorization import authorize
from ottla.server.security.permissions import Refused, of_groups

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import SyncGroupRequest


def on_error(context: RequestContext, request: SyncGroupRequest, error: KafkaError) -> EncodedResponse:
    return encoded(context, encode_sync, replies.sync_error(error.code))


NEEDS = (of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),)


def learn(context: RequestContext, request: SyncGroupRequest, frame: memoryview) -> None:
    if request.assignments:
        return
    shortcut = shortcut_for(context, frame, lambda: DeferredShortcut(load(ApiKey.SYNC_GROUP), _know, _ask_again))
    if shortcut is not None:
        shortcut.learn(context, frame, request)


def _know(context: RequestContext, request: SyncGroupRequest, frame: memoryview) -> Known:
    return Known(behind_strings(frame, ApiKey.SYNC_GROUP, context.api_version, 1, context.body_offset), _asked(request))


@api(ApiKey.SYNC_GROUP, versions=(0, 5), needs=NEEDS, on_error=on_error, learn=learn)
def handle(context: RequestContext, request: SyncGroupRequest) -> Deferred:
    if context.api_version >= 5 and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if context.node.authorizer is not None:
        authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    return _ask(context, _asked(request))


def _asked(request: SyncGroupRequest) -> SyncGroup:
    fields = (
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: each.assignment for each in request.assignments},
    )
    return tuple.__new__(SyncGroup, fields)  # SyncGroup() costs ten times that


def _ask(context: RequestContext, asked: SyncGroup) -> Deferred:
    reply = EncodedReply(context, encode_sync)
    return reply.ask(context.node.groups, asked)


def _ask_again(context: RequestContext, known: Known) -> Deferred:
    """Whatever its generation."""
    asked = known.asked
    # `_replace` costs five times that.
    return _ask(context, tuple.__new__(SyncGroup, (asked[0], known.number, *asked[2:])))
