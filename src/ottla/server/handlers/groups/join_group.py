"""JoinGroup, versions 0-9: become a member, or take part in a rebalance; answered when everyone has joined.

Version 1 adds the rebalance timeout (KIP-62), 4 the two-step join (KIP-394), 5 static members (KIP-345), 9 that a
returning static leader skips the assignment (KIP-814). See `coordinator/group/classic/join.py`.

A member that joins again sends the same bytes, unless its subscription has changed: they are decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.requests import JoinGroup
from ottla.errors import KafkaError
from ottla.protocol.group_responses import encode_join
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Deferred, EncodedResponse, RequestContext, api, load
from ottla.server.coordinators.coordinator_replies import EncodedReply, encoded
from ottla.server.coordinators.known_requests import DeferredShortcut, Known, shortcut_for
from ottla.server.security.authorization import visible_topics
from ottla.server.security.permissions import group

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import JoinGroupRequest


def on_error(context: RequestContext, request: JoinGroupRequest, error: KafkaError) -> EncodedResponse:
    return encoded(context, encode_join, replies.join_error(error.code))


def learn(context: RequestContext, request: JoinGroupRequest, frame: memoryview) -> None:
    """A member that joins again in the next rebalance mostly has the same to say."""
    if not request.member_id:
        return
    shortcut = shortcut_for(context, frame, lambda: DeferredShortcut(load(ApiKey.JOIN_GROUP), _know, _ask_again))
    if shortcut is not None:
        shortcut.learn(context, frame, request)


def _know(context: RequestContext, request: JoinGroupRequest, frame: memoryview) -> Known:
    return Known(len(frame), _asked(context, request))


@api(ApiKey.JOIN_GROUP, versions=(0, 9), needs=(group(Operation.READ),), on_error=on_error, learn=learn)
def handle(context: RequestContext, request: JoinGroupRequest) -> Deferred:
    return _ask(context, _asked(context, request))


def _asked(context: RequestContext, request: JoinGroupRequest) -> JoinGroup:
    session_timeout_ms = request.session_timeout
    version: int = context.api_version
    fields = (
        request.group_id,
        session_timeout_ms,
        request.rebalance_timeout if version else session_timeout_ms,
        request.protocol_type,
        {protocol.name: protocol.metadata for protocol in request.protocols},
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        f"/{context.client_host}",
        version >= 4,  # requires a known member id
        version >= 9,  # can skip the assignment
        visible_topics(context),
    )
    return tuple.__new__(JoinGroup, fields)  # JoinGroup() costs ten times that


def _ask(context: RequestContext, asked: JoinGroup) -> Deferred:
    reply = EncodedReply(context, encode_join)
    return reply.ask(context.node.groups, asked)


def _ask_again(context: RequestContext, known: Known) -> Deferred:
    return _ask(context, known.asked)
