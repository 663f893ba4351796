"""Heartbeat, versions 0-4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again. Version 3 adds static
members (KIP-345). While its group is being loaded a member is told that all is well, so that it waits.

A member sends the same bytes every few seconds, but for the correlation id: they are decoded once.
That is 40,000 instructions in place of 112,000 (`docs/inside/benchmarks.md`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group_responses import encode_heartbeat
from ottla.protocol.messages import ApiKey, response_header
from ottla.security.acls import Operation
from ottla.server.api import EncodedResponse, RequestContext, api
from ottla.server.security.permissions import group

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import HeartbeatRequest

BEATS_MAX = 64
"""Different heartbeats of one connection that are remembered; a consumer has one, a proxy many."""
BEAT_BYTES_MAX = 1024
"""Longer ones, with tagged fields or names that nobody has, are decoded each time: a frame may have 100 MB."""
_INT32 = struct.Struct(">i")


class _Beats:
    """The shortcut of one connection and version."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._answers: dict[ErrorCode, tuple[bytes, bytes]] = {}
        """Length of an answer, and what is behind its correlation id."""
        self.known: dict[bytes, tuple[str, str, str | None, int]] = {}
        """Decoded heartbeats by the bytes behind the correlation id: group, member, instance, generation."""

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | None:
        beat = self.known.get(bytes(frame[8:]))
        if beat is None:
            return None
        error = _heard(self._context, beat)
        if error:
            self._context.count_error(error)
        found = self._answers.get(error)
        if found is None:
            version = self._context.api_version
            answer = encode_heartbeat(version, error, response_header(ApiKey.HEARTBEAT, version, 0))
            found = self._answers[error] = _INT32.pack(len(answer)), answer[4:]
        return b"".join((found[0], frame[4:8], found[1]))


def learn(context: RequestContext, request: HeartbeatRequest, frame: memoryview) -> None:
    shortcuts = getattr(context.session, "shortcuts", None)
    if shortcuts is None or len(frame) > BEAT_BYTES_MAX:
        return
    key = ApiKey.HEARTBEAT << 16 | context.api_version
    beats = shortcuts.get(key)
    if beats is None:
        beats = shortcuts[key] = _Beats(context)
    if len(beats.known) >= BEATS_MAX:
        beats.known.clear()
    beats.known[bytes(frame[8:])] = _asked(request)


def _asked(request: HeartbeatRequest) -> tuple[str, str, str | None, int]:
    return request.group_id, request.member_id, request.group_instance_id, request.generation_id


def on_error(context: RequestContext, request: HeartbeatRequest, error: KafkaError) -> EncodedResponse:
    return _encoded(context, error.code)


@api(ApiKey.HEARTBEAT, versions=(0, 4), needs=(group(Operation.READ),), on_error=on_error, learn=learn)
def handle(context: RequestContext, request: HeartbeatRequest) -> EncodedResponse:
    error = _heard(context, _asked(request))
    if error:
        context.count_error(error)
    return _encoded(context, error)


def _heard(context: RequestContext, beat: tuple[str, str, str | None, int]) -> ErrorCode:
    """What the coordinator says to a heartbeat. An error is nothing exceptional: in a rebalance all get one."""
    try:
        context.node.groups.heartbeat(*beat)
    except KafkaError as error:
        return ErrorCode.none if error.code is ErrorCode.coordinator_load_in_progress else error.code
    return ErrorCode.none


def _encoded(context: RequestContext, error: ErrorCode) -> EncodedResponse:
    header = response_header(ApiKey.HEARTBEAT, context.api_version, context.correlation_id)
    return EncodedResponse([encode_heartbeat(context.api_version, error, header)])
