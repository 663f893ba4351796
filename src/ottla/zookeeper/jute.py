"""Jute, the encoding of ZooKeeper's messages: big-endian numbers, and lengths in front of bytes, texts and lists."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class MalformedMessage(ValueError):
    """Bytes that are no message of ZooKeeper's."""


class JuteWriter:
    """A message under construction."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def i32(self, value: int) -> None:
        self.data += _INT.pack(value)

    def i64(self, value: int) -> None:
        self.data += _LONG.pack(value)

    def flag(self, value: bool) -> None:
        self.data.append(1 if value else 0)

    def buffer(self, value: bytes | None) -> None:
        """None is written as the length -1, as Java's null."""
        if value is None:
            self.data += _INT.pack(-1)
            return
        self.data += _INT.pack(len(value))
        self.data += value

    def string(self, value: str) -> None:
        self.buffer(value.encode())

    def strings(self, values: Sequence[str]) -> None:
        self.data += _INT.pack(len(values))
        for each in values:
            self.string(each)


class JuteReader:
    """Reads one message. Every method raises MalformedMessage where the bytes end too early or make no sense."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def _take(self, size: int) -> int:
        """Position of the next `size` bytes, which are skipped."""
        start = self._position
        if size > len(self._data) - start:
            raise MalformedMessage(f"{size} bytes are expected where {len(self._data) - start} are left")
        self._position = start + size
        return start

    def i32(self) -> int:
        return int(_INT.unpack_from(self._data, self._take(4))[0])

    def i64(self) -> int:
        return int(_LONG.unpack_from(self._data, self._take(8))[0])

    def flag(self) -> bool:
        return self._data[self._take(1)] != 0

    def buffer(self) -> bytes | None:
        size = self.i32()
        if size == -1:
            return None
        if size < 0:
            raise MalformedMessage(f"a length of {size} bytes")
        start = self._take(size)
        return self._data[start : start + size]

    def string(self) -> str:
        data = self.buffer()
        try:
            return "" if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"a text that is not UTF-8: {error}") from None

    def vector(self, read: Callable[[], T], size_min: int) -> list[T]:
        """A list of elements that take at least `size_min` bytes each. The count is checked before anything is made."""
        count = self.i32()
        if count == -1:
            return []
        if not 0 <= count <= self.remaining // size_min:
            raise MalformedMessage(f"a list of {count} elements where {self.remaining} bytes are left")
        return [read() for _ in range(count)]
