"""Writes the protocol buffers that clients push."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: Any) -> bytes:
    """A varint, a double, or bytes (a message, a text)."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, bool | int):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attribute(name: str, value: str | bool | int | float) -> bytes:
    kind = {str: 1, bool: 2, int: 3, float: 4}[type(value)]
    return field(1, name) + field(2, field(kind, value))


def point(value: float | int, **attributes: Any) -> bytes:
    number = field(4, value) if isinstance(value, float) else fixed64(6, value)
    times = fixed64(2, 1_700_000_000_000_000_000) + fixed64(3, 1_700_000_060_000_000_000)
    return b"".join(field(7, attribute(*each)) for each in attributes.items()) + times + number


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(2, "what it is") + field(5, b"".join(field(1, each) for each in points))


def counter(name: str, *points: bytes, delta: bool = False, monotonic: bool = True) -> bytes:
    rows = b"".join(field(1, each) for each in points)
    return field(1, name) + field(7, rows + field(2, 1 if delta else 2) + field(3, monotonic))


def pushed(*metrics: bytes, resource: Mapping[str, Any] | None = None) -> bytes:
    """`MetricsData`."""
    about = b"".join(field(1, attribute(*each)) for each in (resource or {}).items())
    return field(1, field(1, about) + field(2, b"".join(field(2, each) for each in metrics)))
