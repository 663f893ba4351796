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
"""Of what has been read, the first and the last bytes are kept: an inode that is used again, a file that was truncated
and written again, and a copy of a known file are told apart by them. Lines of logs have timestamps: equal bytes at both
places are the same file."""
READ_BYTES = 256 << 10


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
        )

    def is_prefix_of(self, begin: bytes) -> bool:
        """Whether a file that begins so may be a copy of this one, as far as it has come."""
        size = min(len(begin), len(self.head))
        return size > 0 and begin[:size] == self.head[:size]

    def describes(self, descriptor: int) -> bool:
        """Whether the open file holds what was read until here. Raises OSError."""
        if os.fstat(descriptor).st_size < self.offset:
            return False
        head = os.pread(descriptor, len(self.head), 0)
        return head == self.head and os.pread(descriptor, len(self.tail), self.offset - len(self.tail)) == self.tail


@dataclass
class LogFile:
    """An open file. `read` gives what is new; `position` says how far that is."""

    descriptor: int
    position: Position
    splitter: Splitter
    current: str
    """Where the file is now; the position has where it was found first."""
    rotated: bool = False
    """It is no longer where it was found, or is a copy: read to its end, and no further."""
    changed_at_s: float = field(default_factory=time.monotonic)
    """When bytes were last found in it."""
    _seen: tuple[int, int] = (-1, -1)
    """Size and time of the last change, when it was last read to its end."""
    _window: bytes = b""
    """What lies before the end of what was read: the tail of the position, and what the splitter holds."""

    @classmethod
    def open(
        cls, descriptor: int, position: Position, current: str, bytes_max: int, start: re.Pattern[bytes] | None
    ) -> LogFile:
        splitter = Splitter(bytes_max, start, position.offset)
        return cls(descriptor, position, splitter, current, _window=position.tail)

    def close(self) -> None:
        os.close(self.descriptor)

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
        found = os.fstat(self.descriptor)
        seen = (found.st_size, found.st_mtime_ns)
        if seen == self._seen:
            return []
        read_to, behind = self.read_to, self._window[-TAIL_BYTES:]
        data = os.pread(self.descriptor, len(behind) + READ_BYTES, read_to - len(behind))
        head = self.position.head
        if (
            not data.startswith(behind)
            or os.pread(self.descriptor, len(head), 0) != head
            or os.fstat(self.descriptor).st_size < read_to
        ):
            return None
        new = data[len(behind) :]
        if not new:
            self._seen = seen
            return []
        self.changed_at_s = time.monotonic()
        self._window += new
        lines = self.splitter.feed(new)
        self._advance()
        return lines

    def finish(self, unfinished: bool) -> list[Line]:
        """What is held: whole lines of a record, and with `unfinished` a line without an end."""
        lines = self.splitter.finish() if unfinished else self.splitter.finish_record()
        self._advance()
        return lines

    def restart(self) -> None:
        """The file was truncated: what it holds is new."""
        self.splitter = Splitter(self.splitter.bytes_max, self.splitter.start)
        self.position = replace(self.position, offset=0, head=b"", tail=b"", time_ms=now_ms())
        self._window, self._seen = b"", (-1, -1)
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
        self.position = replace(before, offset=offset, head=head, tail=tail, time_ms=now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def position_at_end(descriptor: int, path: str) -> Position:
    """Of a file that is followed from its end. Raises OSError."""
    found = os.fstat(descriptor)
    size = found.st_size
    begin = max(0, size - TAIL_BYTES)
    head = os.pread(descriptor, min(size, HEAD_BYTES), 0)
    tail = os.pread(descriptor, size - begin, begin)
    return Position(path, found.st_dev, found.st_ino, size, head, tail, now_ms())
