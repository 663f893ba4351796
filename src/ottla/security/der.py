"""DER, as far as certificates and Java's key stores need it: a value is a tag and its content.

Raises ValueError for what is not DER; certificates come from peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE = 0x30
SET = 0x31
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18

LENGTH_BYTES_MAX = 4
"""A length that needs more is not one of a certificate."""


class Value(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes
    """The value with its tag and length."""


def values(data: bytes) -> Iterator[Value]:
    """The values in `data`, one after the other. Raises ValueError."""
    position = 0
    while position < len(data):
        value = value_at(data, position)
        yield value
        position += len(value.encoded)


def value_at(data: bytes, position: int = 0) -> Value:
    """The value that begins at `position`. Raises ValueError."""
    if position + 2 > len(data):
        raise ValueError("DER ends in the middle of a value")
    tag, length = data[position], data[position + 1]
    if tag & 0x1F == 0x1F:
        raise ValueError("DER has a long tag, which no certificate has")
    start = position + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= LENGTH_BYTES_MAX or start + count > len(data):
            raise ValueError("DER has a length that cannot be")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if end > len(data):
        raise ValueError("DER ends in the middle of a value")
    return Value(tag, data[start:end], data[position:end])


def only(data: bytes, tag: int) -> bytes:
    """The content of the one value that `data` is. Raises ValueError."""
    value = value_at(data)
    if value.tag != tag or len(value.encoded) != len(data):
        raise ValueError(f"DER has {value.tag:#x} where {tag:#x} is due")
    return value.content


def oid_text(content: bytes) -> str:
    """`2.5.4.3`. Raises ValueError."""
    arcs: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(number)
            number = 0
    if not arcs or content[-1] & 0x80:
        raise ValueError("DER has an object identifier that ends in the middle")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
