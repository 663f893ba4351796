"""Confluent's wire format: a zero byte, the schema's id in four bytes, big-endian, then the datum; Protobuf has the
path to the message before it: a count and so many indexes, zigzag varints, or one zero for the first message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
PATH_LENGTH_MAX: Final = 64
"""Messages nested deeper are not written by anybody; a wrong count is not to fill memory."""


def prefix(schema_id: int) -> bytes:
    """The five bytes before a datum."""
    return b"\0" + schema_id.to_bytes(4, "big")


def grouped(values: Iterable[bytes | None]) -> tuple[dict[int, list[int]], list[int]]:
    """(rows by schema id, rows that have no prefix); a null is in neither."""
    rows: dict[int, list[int]] = {}
    bare: list[int] = []
    for row, value in enumerate(values):
        if value is None:
            continue
        if len(value) < PREFIX_BYTES or value[0] != MAGIC:
            bare.append(row)
        else:
            rows.setdefault(int.from_bytes(value[1:PREFIX_BYTES], "big"), []).append(row)
    return rows, bare


def message_path(value: bytes, at: int = PREFIX_BYTES) -> tuple[tuple[int, ...], int]:
    """(indexes of the message, where its bytes begin). Raises ValueError for what is no path."""
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= PATH_LENGTH_MAX:
        raise ValueError(f"{count} message indexes")
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        path.append(index)
    return tuple(path), at


def path_bytes(path: tuple[int, ...]) -> bytes:
    """The message indexes as they are written."""
    if path == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _varint(value: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(value):
            raise ValueError("the message indexes are cut off")
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found >> 1 ^ -(found & 1), at
    raise ValueError("a message index is too long")


def _zigzag(number: int) -> bytes:
    left = number << 1
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
