"""Requests of a member that come again with the same bytes. They are decoded once.

Only the correlation id differs, and a number that grows with each rebalance: the epoch of a consumer group, or the
generation of a classic one. In a rebalance each of thousands of members sends a few of them at the same moment, and
decoding them with what belongs to it (header, permissions, the request's object) is about half of their cost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.protocol import messages
from ottla.protocol.varint import read_uvarint
from ottla.server.api import Call

if TYPE_CHECKING:
    from ottla.model import Buffer
    from ottla.server.api import Api, Deferred, RequestContext

KNOWN_MAX: Final = 64
"""Different requests of one API and connection that are remembered; a consumer has one, a proxy many."""
BYTES_MAX: Final = 1024
"""Longer ones, with tagged fields or names that nobody has, are decoded each time: a frame may have 100 MB."""
_INT16 = struct.Struct(">h")
_LONG_VARINT: Final = 0x80
"""From here on the length of a string has more than one byte."""
_BEHIND_ID: Final = 8
"""Where the correlation id of a frame ends."""

S = TypeVar("S")


class Known:
    """A request that came before."""

    __slots__ = ("asked", "context", "number", "place")

    def __init__(self, place: int, asked: Any = None, context: RequestContext | None = None) -> None:
        self.place = place
        """Where its number is in the frame; the end of a frame that has none."""
        self.number = 0
        """The number of the frame that was found last."""
        self.asked = asked
        """What it asks for, as its handler keeps it."""
        self.context = context
        """Its own: the clients of one connection may have several names."""


class KnownRequests:
    """Repeated requests of one connection, API and version."""

    __slots__ = ("_by_bytes", "_head", "_last", "_places", "_size", "_tail")

    def __init__(self) -> None:
        self._last: Known | None = None
        """The one that was learned or found last: most connections have a single member."""
        self._size = 0
        """Size of its frame, and what is in that between the correlation id and the number, and behind the number."""
        self._head = b""
        self._tail = b""
        self._by_bytes: dict[tuple[int, bytes], Known] | None = None
        """Where there are several, all of them, by the place of the number and all bytes behind the correlation id but
        the number's. So a frame that is found differs in nothing else from the one that was decoded."""
        self._places: dict[int, int] = {}
        """A place to try, by the size of the frame."""

    def __len__(self) -> int:
        return len(self._by_bytes) if self._by_bytes is not None else int(self._last is not None)

    def find(self, frame: memoryview) -> Any:
        """The `Known` request that this one is but for its number, which is found, too; or None."""
        whole = frame.tobytes()
        size = len(whole)
        found = self._last
        if (
            found is None
            or size != self._size
            or not whole.startswith(self._head, _BEHIND_ID)
            or not whole.endswith(self._tail)
        ):
            if self._by_bytes is None:
                return None
            place = self._places.get(size, size)
            head, tail = whole[_BEHIND_ID:place], whole[place + 4 :]
            found = self._by_bytes.get((place, head + tail))
            if found is None:
                return None
            self._last, self._size, self._head, self._tail = found, size, head, tail
        at = found.place
        if at + 4 <= size:
            number = whole[at] << 24 | whole[at + 1] << 16 | whole[at + 2] << 8 | whole[at + 3]
            found.number = number if number < 1 << 31 else number - (1 << 32)
        return found

    def learn(self, frame: memoryview, known: Known) -> None:
        whole = frame.tobytes()
        size, place = len(whole), known.place
        head, tail = whole[_BEHIND_ID:place], whole[place + 4 :]
        last = self._last
        if last is not None or self._by_bytes is not None:
            if self._by_bytes is None or len(self._by_bytes) >= KNOWN_MAX:
                self._by_bytes, self._places = {}, {}
            if last is not None:
                self._file(last, self._size, self._head, self._tail)
            self._file(known, size, head, tail)
        self._last, self._size, self._head, self._tail = known, size, head, tail

    def _file(self, known: Known, size: int, head: bytes, tail: bytes) -> None:
        assert self._by_bytes is not None
        self._places[size] = known.place
        self._by_bytes[known.place, head + tail] = known


class DeferredShortcut:
    """The shortcut of one connection and version for requests that are answered later."""

    __slots__ = ("_api", "_ask", "_know", "_known", "_newest")

    def __init__(
        self,
        api: Api,
        know: Callable[[RequestContext, Any, memoryview], Known],
        ask: Callable[[RequestContext, Known], Deferred],
    ) -> None:
        self._api = api
        self._know = know
        self._ask = ask
        self._newest: tuple[RequestContext, bytes, Any] | None = None
        """The frame that was learned last, its context and its request. What is known of it is made when another frame
        comes: many a member joins once."""
        self._known = KnownRequests()

    def learn(self, context: RequestContext, frame: memoryview, request: Any) -> None:
        self._file_newest()
        self._newest = context, frame.tobytes(), request

    def _file_newest(self) -> None:
        if self._newest is not None:
            context, frame, request = self._newest
            self._newest = None
            view = memoryview(frame)
            known = self._know(context, request, view)
            known.context = context
            self._known.learn(view, known)

    def __call__(self, frame: memoryview, correlation_id: int) -> tuple[Call, Deferred] | None:
        self._file_newest()
        known = self._known.find(frame)
        if known is None:
            return None
        context = known.context.of_another(correlation_id)
        return Call(self._api, context, None), self._ask(context, known)


def shortcut_for(context: RequestContext, frame: memoryview, make: Callable[[], S]) -> S | None:
    """The shortcut of the connection for requests like this one, made if need be; None where it has none."""
    shortcuts: dict[int, Any] | None = getattr(context.session, "shortcuts", None)
    if shortcuts is None or len(frame) > BYTES_MAX:
        return None
    key = context.api_key << 16 | context.api_version
    found: S | None = shortcuts.get(key)
    if found is None:
        found = shortcuts[key] = make()
    return found


def behind_strings(frame: Buffer, api_key: int, version: int, count: int, body_offset: int = 0) -> int:
    """The place behind the first strings of a request's body, none of which is null."""
    place = body_offset or messages.read_header(frame).body_offset
    is_flexible = messages.is_flexible(api_key, version)
    for _ in range(count):
        length = frame[place]
        if not is_flexible:
            place += _INT16.size + _INT16.unpack_from(frame, place)[0]
        elif 0 < length < _LONG_VARINT:
            place += length
        else:
            length, place = read_uvarint(frame, place)
            place += length - 1
    return place
