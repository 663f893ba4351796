"""Lines out of bytes: pure, and the one place that knows which bytes of a file are sent and which are held."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Line:
    r"""A line without its `\n` (a `\r` before it stays), several lines of one record, or a piece of a line.

    Pieces are sent of a line that is longer than allowed.
    """

    offset: int
    """Offset of the first byte in the file."""
    data: bytes
    partial: bool = False
    """The line goes on in the next record."""


@dataclass
class Splitter:
    """Feeds on what a file holds from `offset` on.

    With `start`, a line that matches begins a record, and those that do not are added to it, as a stack trace is. A
    record that would become longer than `bytes_max` is sent in pieces, so nothing of it is lost.
    """

    bytes_max: int
    start: re.Pattern[bytes] | None = None
    offset: int = 0
    """Where what is held begins: everything before it has been returned."""
    _rest: bytes = b""
    """The unfinished line; invariant: no line end in it."""
    _record: list[bytes] = field(default_factory=list)
    """Whole lines, with their ends, of a record that may go on."""
    _record_bytes: int = 0

    @property
    def held_bytes(self) -> int:
        return self._record_bytes + len(self._rest)

    @property
    def has_record(self) -> bool:
        """Whether whole lines are held, in case the record goes on."""
        return bool(self._record)

    def feed(self, data: bytes) -> list[Line]:
        """Lines that are finished by `data`."""
        *whole, rest = data.split(b"\n")
        found: list[Line] = []
        if whole:
            whole[0] = self._rest + whole[0]
            self._rest = rest
            if self.start is None:
                self._add_lines(whole, found)
            else:
                for each in whole:
                    self._add_to_record(each + b"\n", self.start, found)
        else:
            self._rest += rest
        if len(self._rest) >= self.bytes_max:
            found += self.finish_record()
            while len(self._rest) > self.bytes_max:
                found.append(Line(self.offset, self._rest[: self.bytes_max], partial=True))
                self._rest = self._rest[self.bytes_max :]
                self.offset += self.bytes_max
        return found

    def finish_record(self) -> list[Line]:
        """The whole lines that are held: nothing more of that record came for a while."""
        if not self._record:
            return []
        found = self._pieces(b"".join(self._record))
        self._record, self._record_bytes = [], 0
        return found

    def finish(self) -> list[Line]:
        """Everything that is held: the end of the file."""
        found = self.finish_record()
        if self._rest:
            found += self._pieces(self._rest)
            self._rest = b""
        return found

    def _add_lines(self, whole: list[bytes], found: list[Line]) -> None:
        offset, limit = self.offset, self.bytes_max
        for each in whole:
            size = len(each) + 1
            if size > limit:
                self.offset = offset
                found += self._pieces(each + b"\n")
            else:
                found.append(Line(offset, each))
            offset += size
        self.offset = offset

    def _add_to_record(self, line: bytes, start: re.Pattern[bytes], found: list[Line]) -> None:
        if self._record and (start.search(_bare(line)) or self._record_bytes + len(line) > self.bytes_max):
            found += self.finish_record()
        self._record.append(line)
        self._record_bytes += len(line)

    def _pieces(self, data: bytes) -> list[Line]:
        found = []
        text = data.removesuffix(b"\n")
        for begin in range(0, max(1, len(text)), self.bytes_max):
            piece = text[begin : begin + self.bytes_max]
            found.append(Line(self.offset + begin, piece, partial=begin + self.bytes_max < len(text)))
        self.offset += len(data)
        return found


def _bare(line: bytes) -> bytes:
    """What a regular expression is compared with: `$` is where the line ends, on Windows too."""
    return line.removesuffix(b"\n").removesuffix(b"\r")
