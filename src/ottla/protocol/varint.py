"""Variable-length integers: seven bits a byte, lowest first, as compact lengths (KIP-482), tags and records have them.

The loops over records have their own in the compiled module (`_records.py`).
"""

from __future__ import annotations

import struct

from ottla.model import Buffer


def write_uvarint(out: bytearray, value: int) -> None:
    """Append `value`, 0 or more."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uvarint(value: int) -> bytes:
    """`value`, 0 or more, by itself."""
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def padded_uvarint(value: int, size: int) -> bytes:
    """`value`, 0 or more, in exactly `size` bytes, which must be no fewer than it takes."""
    short = uvarint(value)
    if len(short) == size:
        return short
    return short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (size - len(short) - 1) + b"\0"


def zigzag_varint(value: int) -> bytes:
    """A signed varint, as records have them, of a number that is not negative."""
    return uvarint(value << 1)


def uvarint_size(value: int) -> int:
    """How many bytes `value` takes."""
    return max(1, (value.bit_length() + 6) // 7)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it. Raises IndexError at the end of the buffer, struct.error past 5 bytes."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise struct.error("a varint longer than 5 bytes")


def read_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """A compact length, -1 for null, and the position after it: an int32, as Kafka's decoder holds it, less one.

    Raises what `read_uvarint` raises.
    """
    value, position = read_uvarint(buffer, position)
    value = (value & 0xFFFFFFFF) - 1
    return value if value <= 0x7FFFFFFF else -1, position
