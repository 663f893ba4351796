"""Offset fetches of a connection that are like one before, byte for byte: what has not changed is answered the same.

An answer is kept with the version of the offsets that it was made of (`coordinator/group/offsets.py`), asked for again
each time: that also refuses where the group is not here, and appends the commits that wait. Without errors only,
which are counted, and before version 10, where the names of topics are the metadata's. What this saves is in
`docs/inside/benchmarks.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import offsets
from ottla.errors import KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.wire import FetchedGroup
from ottla.server.api import EncodedResponse, RequestContext

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import OffsetFetchRequest

KNOWN_MAX = 8
"""Requests that are kept for a connection and version; beyond, the oldest is evicted."""
ANSWER_BYTES_MAX = 16_384
"""Size of a cached answer: some hundred partitions. The request is smaller."""
VERSIONS_END = 10
_AFTER_CORRELATION = 8


class _Known:
    """An answer, and what it rests on."""

    __slots__ = ("group_id", "head", "request", "rest", "version")

    def __init__(self, request: OffsetFetchRequest, group_id: str, version: Any, answer: bytes) -> None:
        self.request = request
        self.group_id = group_id
        self.version = version
        self.head = len(answer).to_bytes(4, "big")
        self.rest = answer[4:]
        """Behind the correlation id."""


class RepeatedOffsetFetches:
    """The shortcut of one connection and version."""

    def __init__(self, context: RequestContext) -> None:
        self._groups = context.node.groups
        self._known: dict[bytes, _Known] = {}
        """Keyed by what follows the correlation id of the request."""
        self.made: _Known | None = None
        """The answer that was made last, whose frame `learn` knows."""

    def learn(self, frame: memoryview, request: OffsetFetchRequest) -> None:
        made, self.made = self.made, None
        if made is not None and made.request is request:
            self._known[bytes(frame[_AFTER_CORRELATION:])] = made
            while len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def __call__(self, frame: memoryview, correlation_id: int) -> bytes | None:
        known = self._known.get(bytes(frame[_AFTER_CORRELATION:]))
        if known is None:
            return None
        read = self._groups.read_settled if known.request.require_stable else self._groups.read
        try:
            if read(offsets.version, known.group_id) != known.version:
                return None
        except KafkaError:
            return None
        return known.head + frame[4:8] + known.rest


def note(
    context: RequestContext, request: OffsetFetchRequest, groups: list[FetchedGroup], response: EncodedResponse
) -> None:
    """Keep an answer that was just made until `learn`, if it may be given again."""
    if context.api_version >= VERSIONS_END or len(groups) != 1 or response.length > ANSWER_BYTES_MAX:
        return
    shortcuts: dict[int, Any] | None = getattr(context.session, "shortcuts", None)
    (group,) = groups
    if shortcuts is None or group.error_code:
        return
    for topic in group.topics:
        for row in topic.partitions:
            if row.error_code:
                return
    try:
        version = context.node.groups.read(offsets.version, group.group_id)
    except KafkaError:
        return
    which = ApiKey.OFFSET_FETCH << 16 | context.api_version
    repeated = shortcuts.get(which)
    if repeated is None:
        repeated = shortcuts[which] = RepeatedOffsetFetches(context)
    repeated.made = _Known(request, group.group_id, version, b"".join(response.parts))


def learn(context: RequestContext, request: OffsetFetchRequest, frame: memoryview) -> None:
    """Remember a request that was answered at once."""
    repeated = getattr(context.session, "shortcuts", {}).get(ApiKey.OFFSET_FETCH << 16 | context.api_version)
    if repeated is not None:
        repeated.learn(frame, request)
