"""Heartbeat, versions 0-4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again. Version 3 adds static
members (KIP-345). While its group is being loaded a member is told that all is well, so that it waits.

A member sends the same bytes every few seconds, but for the correlation id and its generation: they are decoded once
(`docs/inside/benchmarks.md` says what this saves).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group_responses import encode_heartbeat
from ottla.protocol.messages import ApiKey, response_header
from ottla.security.acls import Operation
from ottla.server.api import EncodedResponse, RequestContext, api
from ottla.server.coordinators.known_requests import Known, KnownRequests, behind_strings, shortcut_for
from ottla.server.security.permissions import group

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import HeartbeatRequest

_INT32 = struct.Struct(">i")


class _Beats:
    """The shortcut of one connection and version."""

    __slots__ = ("_answers", "_context", "known")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._answers: dict[int, tuple[bytes, bytes]] = {}
        """Length of an answer, and what is behind its correlation id."""
        self.known = KnownRequests()

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | None:
        beat = self.known.find(frame)
        if beat is None:
            return None
        group_id, member_id, instance_id = beat.asked
        error = _heard(self._context, group_id, member_id, instance_id, beat.number)
        if error:
            self._context.count_error(error)
        found = self._answers.get(error)
        if found is None:
            version = self._context.api_version
            answer = encode_heartbeat(version, error, response_header(ApiKey.HEARTBEAT, version, 0))
            found = self._answers[error] = _INT32.pack(len(answer)), answer[4:]
        length, rest = found
        return length + frame[4:8].tobytes() + rest


def learn(context: RequestContext, request: HeartbeatRequest, frame: memoryview) -> None:
    beats = shortcut_for(context, frame, lambda: _Beats(context))
    if beats is not None:
        place = behind_strings(frame, ApiKey.HEARTBEAT, context.api_version, 1, context.body_offset)
        beats.known.learn(frame, Known(place, (request.group_id, request.member_id, request.group_instance_id)))


def on_error(context: RequestContext, request: HeartbeatRequest, error: KafkaError) -> EncodedResponse:
    return _encoded(context, error.code)


@api(ApiKey.HEARTBEAT, versions=(0, 4), needs=(group(Operation.READ),), on_error=on_error, learn=learn)
def handle(context: RequestContext, request: HeartbeatRequest) -> EncodedResponse:
    error = _heard(context, request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    if error:
        context.count_error(error)
    return _encoded(context, error)


def _heard(
    context: RequestContext, group_id: str, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """What the coordinator says to a heartbeat."""
    try:
        return context.node.groups.heartbeat(group_id, member_id, instance_id, generation)
    except KafkaError as error:
        return ErrorCode.none if error.code is ErrorCode.coordinator_load_in_progress else error.code


def _encoded(context: RequestContext, error: ErrorCode) -> EncodedResponse:
    header = response_header(ApiKey.HEARTBEAT, context.api_version, context.correlation_id)
    return EncodedResponse([encode_heartbeat(context.api_version, error, header)])
