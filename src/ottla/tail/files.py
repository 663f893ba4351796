"""One file that is followed: where it is read, and how it is known to be the same file still."""

from __future__ import annotations

import base64
import os
import re
import time
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.tail.lines import Line, Splitter

HEAD_BYTES = 128
TAIL_BYTES = 64
"""The first and the last bytes read are kept: they tell apart a reused inode, a file that was truncated and rewritten,
and a copy of a known file. Lines of logs have timestamps: equal bytes at both places are the same file.
"""
READ_BYTES = 256 << 10
MARK_BYTES = 16 << 10
"""While a file is read, the bytes before some places in it are kept in memory, at least so far apart: see `Marks`."""
MARKS_MAX = 128
RECENT_BYTES = 16 << 10
"""Bytes of what was read last: so much is kept in memory for each file. See `Marks`."""
COMPARED_BYTES = 4096
COMPARED_PLACES = 16
"""Pieces of a file and what may be its copy: so many pieces of this size are compared; of shorter files, everything."""
TICK_NS = 100_000_000
"""A file system's times go by ticks, of 4 to 10 ms: a file changed so lately may change again without a new time."""


@dataclass(frozen=True)
class Position:
    """How far a file was sent. What is stored, and compared with what is found."""

    path: str
    """Where the file was found first: what it is called in the records, wherever it is moved later."""
    device: int
    inode: int
    offset: int = 0
    head: bytes = b""
    """The first bytes, of those before `offset`."""
    tail: bytes = b""
    """The last bytes before `offset`."""
    time_ms: int = 0
    """When the files beside it were last looked at: what is newer may be a rotated file that nobody has seen. In states
    of the first versions, when the file was last read."""
    real: str = ""
    """Where the file lay, behind links, when it was last seen at `path`. Empty in states of the first versions."""

    @property
    def key(self) -> str:
        return f"{self.device}-{self.inode}"

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "device": self.device,
            "inode": self.inode,
            "offset": self.offset,
            "head": base64.b64encode(self.head).decode(),
            "tail": base64.b64encode(self.tail).decode(),
            "time": self.time_ms,
            "real": self.real,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Position:
        """Raises KeyError, TypeError or ValueError for what `to_json` did not make."""
        return cls(
            str(fields["path"]),
            int(fields["device"]),
            int(fields["inode"]),
            int(fields["offset"]),
            base64.b64decode(fields["head"]),
            base64.b64decode(fields["tail"]),
            int(fields["time"]),
            str(fields.get("real", "")),
        )

    def describes(self, descriptor: int) -> bool:
        """Whether the open file holds what was read until here. Raises OSError."""
        if os.fstat(descriptor).st_size < self.offset:
            return False
        head = os.pread(descriptor, len(self.head), 0)
        return head == self.head and os.pread(descriptor, len(self.tail), self.offset - len(self.tail)) == self.tail


@dataclass
class Marks:
    """What was read last, and the bytes before some offsets: by them a copy is known that lacks the original's end."""

    _marks: list[tuple[int, bytes]] = field(default_factory=list)
    _recent: bytes = b""
    _end: int = 0

    def add(self, end: int, data: bytes) -> None:
        """`data` are the last bytes that were read, up to the offset `end`."""
        begin = end - len(data)
        last = self._marks[-1][0] if self._marks else 0
        for at in {*range(max(begin, last) + MARK_BYTES, end, MARK_BYTES), end}:
            self._marks.append((at, data[max(0, at - begin - TAIL_BYTES) : at - begin]))
        self._marks.sort()
        if len(self._marks) > MARKS_MAX:
            half = MARKS_MAX // 2
            self._marks = self._marks[:half:2] + self._marks[half:]
        self._recent = (self._recent + data[max(0, self._end - begin) :])[-RECENT_BYTES:]
        self._end = end

    def agree(self, descriptor: int, size: int) -> bool | None:
        """Whether a file of `size` bytes ends as what was read did there; None if that is not known. Raises OSError.

        Before what is kept, the last mark says it; what lies behind that is not compared.
        """
        begin = self._end - len(self._recent)
        compared = min(size - begin, COMPARED_BYTES)
        if compared >= min(TAIL_BYTES, size):
            wanted = self._recent[size - begin - compared : size - begin]
            return os.pread(descriptor, compared, size - compared) == wanted
        for end, data in reversed(self._marks):
            if end <= size and data:
                return os.pread(descriptor, len(data), end - len(data)) == data
        return None


@dataclass
class LogFile:
    """An open file. `read` gives what is new; `position` says how far that is."""

    descriptor: int
    position: Position
    splitter: Splitter
    current: str
    """Where the file is now; the position has where it was found first."""
    places: tuple[str, ...] = ()
    """Where `current` leads to, link by link, while the file is there; rotated files lie beside these."""
    rotated: bool = False
    """It is no longer where it was found: read to its end, and no further."""
    is_copy: bool = False
    """It was opened under a name that rotation gives, as what is left of another file or a generation of it."""
    is_left: bool = False
    """A link led to it, and leads elsewhere now; the file lies where it did."""
    is_at_end: bool = False
    """All that it had was read."""
    is_touched: bool = False
    """Nothing was read of it, and it was changed since that was last found: it may have been truncated again."""
    is_new: bool = False
    """It was opened at the last scan, without a stored position."""
    looked_ms: int = 0
    """When the files beside it were last looked at."""
    read_ms: int = 0
    """When it was last seen to hold what was read from it; while nothing was, when it was opened or truncated."""
    changed_at_s: float = field(default_factory=lambda: time.monotonic())
    """When bytes were last found in it."""
    _seen: tuple[int, int] = (-1, -1)
    """Size and time of the last change, when it was last read to its end."""
    _empty_ns: int = -1
    """Time of the last change when it was last found empty."""
    _window: bytes = b""
    """What lies before the end of what was read: the tail of the position, and what the splitter holds."""
    _marks: Marks = field(default_factory=Marks)

    @classmethod
    def open(
        cls, descriptor: int, position: Position, current: str, bytes_max: int, start: re.Pattern[bytes] | None
    ) -> LogFile:
        splitter = Splitter(bytes_max, start, position.offset)
        file = cls(descriptor, position, splitter, current, _window=position.tail)
        file.looked_ms = file.read_ms = position.time_ms
        if position.offset:
            file._marks.add(position.offset, position.tail)
        return file

    def close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1

    @property
    def is_closed(self) -> bool:
        return self.descriptor < 0

    @property
    def is_past(self) -> bool:
        """Whether nobody is expected to write to it for long."""
        return self.rotated or self.is_copy or self.is_left

    def has_more(self) -> bool:
        """Whether it has grown since it was read to its end, or nothing of it was read. Raises OSError."""
        return (self.is_at_end or not self.read_to) and os.fstat(self.descriptor).st_size > self.read_to

    @property
    def identity(self) -> tuple[int, int]:
        found = os.fstat(self.descriptor)
        return found.st_dev, found.st_ino

    @property
    def read_to(self) -> int:
        return self.splitter.offset + self.splitter.held_bytes

    def is_deleted(self) -> bool:
        return os.fstat(self.descriptor).st_nlink == 0

    def quiet_s(self) -> float:
        return time.monotonic() - self.changed_at_s

    def read(self) -> list[Line] | None:
        """Lines that have become whole; None if the file was truncated: see `restart`. Raises OSError.

        What is read is taken only if the file is the same before and behind it, looked at after the reading: one may
        be truncated and written again meanwhile.
        """
        began_ms = now_ms()
        found = os.fstat(self.descriptor)
        seen = (found.st_size, found.st_mtime_ns)
        self.is_touched = False
        if seen == self._seen:
            self._was_seen(began_ms)
            return []
        read_to, behind = self.read_to, self._window[-TAIL_BYTES:]
        data = os.pread(self.descriptor, len(behind) + READ_BYTES, read_to - len(behind))
        if not data.startswith(behind) or not self.is_intact():
            return None
        new = data[len(behind) :]
        self.is_at_end = not new
        if not new:
            self._was_seen(began_ms)
            self.is_touched = not read_to and self._empty_ns != found.st_mtime_ns
            self._empty_ns = found.st_mtime_ns
            if abs(time.time_ns() - found.st_mtime_ns) > TICK_NS:
                self._seen = seen
            return []
        self.read_ms, self.changed_at_s = began_ms, time.monotonic()
        self._window += new
        self._marks.add(read_to + len(new), behind + new)
        lines = self.splitter.feed(new)
        self._advance()
        return lines

    def _was_seen(self, at_ms: int) -> None:
        if self.read_to:
            self.read_ms = at_ms

    def is_intact(self) -> bool:
        """Whether it holds still what was read from it. Raises OSError."""
        return self._begins(self.descriptor, TAIL_BYTES)

    def goes_on_in(self, descriptor: int) -> bool:
        """Whether a file begins with all that was read from this one. Raises OSError."""
        return self._begins(descriptor, max(TAIL_BYTES, self.splitter.held_bytes))

    def _begins(self, descriptor: int, compared: int) -> bool:
        if os.fstat(descriptor).st_size < self.read_to:
            return False
        head, behind = self.position.head, self._window[-compared:]
        return (
            os.pread(descriptor, len(head), 0) == head
            and os.pread(descriptor, len(behind), self.read_to - len(behind)) == behind
        )

    def covers(self, descriptor: int) -> bool:
        """Whether all that a shorter file holds was read from this one: a copy without what was added after it.

        A file of fewer bytes than the first mark is known by its first bytes alone. Raises OSError.
        """
        size = os.fstat(descriptor).st_size
        begin = os.pread(descriptor, HEAD_BYTES, 0)
        head = (self.position.head + self._window[len(self.position.tail) :])[:HEAD_BYTES]
        if size > self.read_to or not begin or begin[: len(head)] != head[: len(begin)]:
            return False
        agreed = self._marks.agree(descriptor, size)
        return size <= len(head) if agreed is None else agreed

    def begins_like(self, descriptor: int) -> bool:
        """Whether another file holds what this one begins with, as both are now; an empty one may become a copy.

        Raises OSError.
        """
        size = os.fstat(descriptor).st_size
        if size > os.fstat(self.descriptor).st_size:
            return False
        step = max(COMPARED_BYTES, size // COMPARED_PLACES)
        for begin in (*range(0, size, step), max(0, size - COMPARED_BYTES)):
            count = min(COMPARED_BYTES, size - begin)
            if os.pread(descriptor, count, begin) != os.pread(self.descriptor, count, begin):
                return False
        return True

    def has_copy(self, descriptor: int) -> bool:
        """Whether it still holds the bytes that were read from it, and another file begins like it. Raises OSError."""
        return self.begins_like(descriptor) and self.is_intact()

    def finish(self, unfinished: bool) -> list[Line]:
        """What is held: whole lines of a record, and with `unfinished` a line without an end."""
        lines = self.splitter.finish() if unfinished else self.splitter.finish_record()
        self._advance()
        return lines

    def restart(self, since_ms: int) -> None:
        """The file was truncated: what it holds is new, as of the time `since_ms`."""
        self.read_ms = since_ms
        self.splitter = Splitter(self.splitter.bytes_max, self.splitter.start)
        self.position = replace(self.position, offset=0, head=b"", tail=b"", time_ms=self.looked_ms)
        self._window, self._seen, self._marks, self.is_at_end = b"", (-1, -1), Marks(), False
        self._empty_ns = -1
        self.changed_at_s = time.monotonic()

    def _advance(self) -> None:
        """The position follows the splitter."""
        before, offset = self.position, self.splitter.offset
        if offset == before.offset:
            return
        held = self.splitter.held_bytes
        passed = self._window[: len(self._window) - held]
        head = before.head
        if len(head) == before.offset and len(head) < HEAD_BYTES:  # all that was read so far
            head = (head + passed[len(before.tail) :])[:HEAD_BYTES]
        tail = passed[-TAIL_BYTES:]
        self._window = self._window[len(passed) - len(tail) :]
        real = self.places[-1] if self.places else before.real
        self.position = replace(before, offset=offset, head=head, tail=tail, time_ms=self.looked_ms, real=real)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def position_at_end(descriptor: int, path: str) -> Position:
    """Position of a file that is followed from its end. Raises OSError."""
    found = os.fstat(descriptor)
    size = found.st_size
    begin = max(0, size - TAIL_BYTES)
    head = os.pread(descriptor, min(size, HEAD_BYTES), 0)
    tail = os.pread(descriptor, size - begin, begin)
    return Position(path, found.st_dev, found.st_ino, size, head, tail, now_ms())


def ends_with_line(descriptor: int) -> bool:
    """Whether a file, that is not empty, ends with a line end. Raises OSError."""
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1) == b"\n"
