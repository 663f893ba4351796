"""ConsumerGroupHeartbeat, versions 0-1: a member of a consumer group joins, stays, changes what it reads, or leaves
(KIP-848). It learns from the answer which partitions it has.

Version 1 adds regular expressions, and has the client make the member id (KIP-1082). See
`coordinator/group/consumer/heartbeat.py`.

A member that has nothing new to say sends the same bytes every few seconds, but for the correlation id and its epoch:
they are decoded once (`docs/inside/benchmarks.md`). In a rebalance they learn from it their new epoch, and the
partitions that come or go: that is short work, too (`coordinator/group/consumer/plain_heartbeat.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypedDict
from uuid import UUID

from ottla.coordinator.group.requests import ConsumerHeartbeat, PlainHeartbeat
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Millis
from ottla.protocol.group_responses import encode_consumer_heartbeat
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.varint import read_uvarint
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import Api, Call, Deferred, RequestContext, Response, api, load
from ottla.server.coordinators.coordinator_replies import DeferredReply, framed
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.coordinators.known_requests import Known, KnownRequests, behind_strings, shortcut_for
from ottla.server.security.authorization import allowed, authorize, refusal, visible_topics
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ConsumerGroupHeartbeatRequest
    from ottla.protocol.schemas.sent import ConsumerGroupHeartbeatResponse

    class _Answer(TypedDict):
        """What the coordinator says."""

        error_code: ErrorCode
        member_id: str
        member_epoch: int
        heartbeat_interval: int
        assignment: Mapping[UUID, Collection[int]] | None


PARTITIONS_AT_ONCE: Final = 1_000
"""An assignment of more is encoded in steps."""
_EPOCH_BYTES: Final = 4
_NOTHING_NEW: Final = (b"\0\xff\xff\xff\xff\0\0\0\0", b"\0\xff\xff\xff\xff\0\0\0\0\0")
"""How a heartbeat ends that says no more than who sends it, by version: rack, rebalance timeout, topics, pattern (from
version 1 on), assignor and partitions, which are all left out; no tagged fields."""
_pack_start = struct.Struct(">ii").pack
"""Encodes length and correlation id of an answer."""
_END = struct.Struct(">iibB")
_END_BYTES: Final = _END.size
_pack_end = _END.pack
"""Encodes how an answer without an assignment ends: epoch, interval, null, no tagged fields."""


def on_error(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


class _Beat(Known):
    """The heartbeat of one member, whatever its epoch, and the answer where nothing is new."""

    __slots__ = ("answer", "correlation_id", "heard")

    def __init__(self, place: int, context: RequestContext, heard: PlainHeartbeat, answer: bytes) -> None:
        super().__init__(place, context=context)
        self.heard = heard
        """As it came last."""
        self.answer = answer
        """What is between the correlation id and the epoch."""
        self.correlation_id = 0
        """The id of the heartbeat that is being answered."""

    def waiter(self) -> _BeatReply:
        """Gets what the coordinator says to this heartbeat, later."""
        return _BeatReply(self)

    def frame(self, correlation_id: int, epoch: int, interval_ms: Millis) -> bytes:
        head = self.answer
        start: bytes = _pack_start(len(head) + _END_BYTES + 4, correlation_id)
        end: bytes = _pack_end(epoch, interval_ms, -1, 0)
        return start + head + end


class _BeatReply(Deferred):
    """Encodes what the coordinator says to one heartbeat. As `EncodedReply`, it stands before no other object."""

    __slots__ = ("_beat", "_correlation_id")

    def __init__(self, beat: _Beat) -> None:
        # Written out: a call of the base's would go through Python.
        self.done = self.cancelled = False
        self.result = self.slot = self.on_complete = self.on_cancel = None
        self._beat = beat
        self._correlation_id = beat.correlation_id

    def complete(self, result: _Answer | BaseException) -> None:  # type: ignore[override]
        """With what the coordinator says, or an error."""
        beat = self._beat
        response: Response | BaseException
        if isinstance(result, BaseException):
            response = result
        elif result["assignment"] is None:
            response = beat.frame(self._correlation_id, result["member_epoch"], result["heartbeat_interval"])
        else:
            assert beat.context is not None
            response = _response(beat.context.of_another(self._correlation_id), result)
        Deferred.complete(self, response)


class _Beats:
    """The shortcut of one connection and version."""

    __slots__ = ("_api", "_context", "_enabled_by", "known")

    def __init__(self, context: RequestContext, api: Api) -> None:
        self._context = context
        self._api = api
        self._enabled_by: Mapping[str, int] | None = None
        """The cluster's features with which such groups were found to be enabled; the node's setting cannot change."""
        self.known = KnownRequests()

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | tuple[Call, Deferred] | None:
        return self._answer(frame, correlation_id)

    def _answer(self, frame: memoryview, correlation_id: int) -> bytes | tuple[Call, Deferred] | None:
        beat: _Beat | None = self.known.find(frame)
        if beat is None:
            return None
        heard, epoch, node = beat.heard, beat.number, self._context.node
        if epoch <= 0:
            return None
        if epoch != heard.member_epoch:
            heard = beat.heard = tuple.__new__(PlainHeartbeat, (*heard[:3], epoch, *heard[4:]))  # as `_replace`, faster
        try:
            features = node.image.features
            if features is not self._enabled_by:
                check_enabled(self._context, "consumer")
                self._enabled_by = features
            beat.correlation_id = correlation_id
            found = node.groups.plain_heartbeat(heard, beat.waiter)
        except KafkaError:
            return None  # said by the handler, which asks again
        if found is None:
            return None
        if isinstance(found, int):
            return beat.frame(correlation_id, epoch, found)
        assert beat.context is not None
        return Call(self._api, beat.context.of_another(correlation_id), None), found

    def learn(self, context: RequestContext, frame: memoryview, place: int, heard: PlainHeartbeat) -> None:
        version = context.api_version
        response = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "member_id": heard.member_id,
            "member_epoch": 0,
            "heartbeat_interval": 0,
            "assignment": None,
        }
        header = response_header(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, 0)
        answer = encode_consumer_heartbeat(version, response, header[4:])
        self.known.learn(frame, _Beat(place, context, heard, answer[:-_END_BYTES]))


def learn(context: RequestContext, request: ConsumerGroupHeartbeatRequest, frame: memoryview) -> None:
    """Learn the heartbeat in which nothing is new: from such a one, or from that of a member that joins."""
    joins = request.member_epoch == 0 and request.member_id != ""
    if not joins and _says_more(request):
        return
    beats = shortcut_for(context, frame, lambda: _Beats(context, load(ApiKey.CONSUMER_GROUP_HEARTBEAT)))
    if beats is not None:
        who = (context.client_id or "", f"/{context.client_host}")
        heard = PlainHeartbeat(request.group_id, request.member_id, request.instance_id, request.member_epoch, *who)
        place = behind_strings(frame, ApiKey.CONSUMER_GROUP_HEARTBEAT, context.api_version, 2, context.body_offset)
        beats.learn(context, memoryview(_plain(frame, place, context.api_version)) if joins else frame, place, heard)


def _plain(frame: memoryview, place: int, version: int) -> bytes:
    """The heartbeats that most clients send after this one, from the place of the epoch on: with the same instance id,
    and then nothing (see the test of its layout)."""
    instance = place + _EPOCH_BYTES
    length, behind = read_uvarint(frame, instance)
    return bytes(frame[: behind + max(length - 1, 0)]) + _NOTHING_NEW[version]


def _says_more(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether there is more in it than who sends it."""
    return (
        request.member_epoch <= 0
        or request.rebalance_timeout != -1
        or request.topic_partitions is not None
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
        or request.rack_id is not None
    )


NEEDS: Final = (
    of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.DESCRIBE, "subscribed_topic_names", refused=Refused.REQUEST),
)


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), needs=NEEDS, on_error=on_error, learn=learn)
def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Deferred:
    check_enabled(context, "consumer")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    check_subscription(context, request.subscribed_topic_names)
    owned: dict[UUID, frozenset[int]] | None = None
    if request.topic_partitions is not None:
        owned = {each.topic_id or ZERO_UUID: frozenset(each.partitions) for each in request.topic_partitions}
    asked = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=request.rebalance_timeout,
        topics=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        needs_member_id=context.api_version >= 1,
        visible=visible_topics(context),
    )
    waiter = DeferredReply(lambda answer: _response(context, answer))
    context.node.groups.ask(waiter, asked)
    return waiter.deferred


def check_subscription(context: RequestContext, names: Iterable[str] | None) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED if a member subscribes to a topic that it may not describe."""
    if names is None or context.node.authorizer is None:
        return
    visible = allowed(context, Operation.DESCRIBE)
    hidden = next((name for name in names if name not in visible), None)
    if hidden is not None:
        raise refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, hidden)


def _response(context: RequestContext, answer: _Answer) -> Response:
    assigned = answer["assignment"]
    response = {**answer, "error_message": None}
    if assigned is None or sum(map(len, assigned.values())) <= PARTITIONS_AT_ONCE:
        return framed(context, encode_consumer_heartbeat, response)
    rows = tuple({"topic_id": topic_id, "partitions": tuple(found)} for topic_id, found in assigned.items())
    response["assignment"] = {"topic_partitions": rows}
    return response
