# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""What nearly every producer sends, and every coordinator, checked and given its place in the log in one pass: one
batch, not compressed.

`StampRules.stamp` says yes or nothing and knows no errors: what it does not take, `validation.validate` goes through
from the beginning and refuses, or accepts for reasons of its own. What it takes, `validate` would have taken with the
same result; `tests/property/test_stamp.py` holds them together.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.crc32c import crc32c

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

if not cython.compiled:
    from ottla.protocol.records._records import _scan

_HEADER_SIZE = 61
_OVERHEAD = 12
_CRC_FROM = 21
_TRANSACTIONAL = 0x10
_MARKER = 0x30
"""A control batch of a transaction."""


class Stamped:
    """A batch that is ready to be written: numbers of its header as it stands there now."""

    __slots__ = ("base_offset", "is_transactional", "last_offset", "max_timestamp", "producer_id", "size")

    def __init__(self) -> None:
        self.base_offset = 0
        self.is_transactional = False
        self.last_offset = 0
        self.max_timestamp = 0
        self.producer_id = 0
        self.size = 0


class StampRules:
    """What a topic asks of its batches, as far as it lets them be stamped."""

    __slots__ = ("bytes_max", "compacted", "later_max_ms", "older_max_ms")

    def __init__(self, bytes_max: int, compacted: bool, older_max_ms: int, later_max_ms: int) -> None:
        """`bytes_max` is 0 where every batch needs more than a stamp: another codec, the broker's timestamps."""
        self.bytes_max = bytes_max
        self.compacted = compacted
        self.older_max_ms = older_max_ms
        self.later_max_ms = later_max_ms

    def stamp(
        self, records: Any, now_ms: int, next_offset: int, leader_epoch: int, is_own: bool = False
    ) -> Stamped | None:
        """Check a client's batch, or one of a coordinator (`is_own`), whose markers have no sequence, and write base
        offset and leader epoch into it, outside its CRC.

        None if that is not all that there is to do, with nothing changed.
        """
        if type(records) is not memoryview or records.readonly:
            return None
        size = len(records)
        if size < _HEADER_SIZE or size > self.bytes_max:
            return None
        if cython.compiled:
            data = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(records).buf)  # type: ignore[name-defined] # noqa: F821
            checked = PyMemoryView_FromMemory(  # type: ignore[name-defined] # noqa: F821
                cython.cast(cython.p_char, data + _CRC_FROM),
                size - _CRC_FROM,
                PyBUF_READ,  # type: ignore[name-defined] # noqa: F821
            )  # a slice would cost more
        else:
            data = records
            checked = records[_CRC_FROM:]
        count = _number(data, 57, 4)
        base_timestamp = _number(data, 27, 8)
        max_timestamp = _number(data, 35, 8)
        producer_id = _number(data, 43, 8)
        attributes = _number(data, 21, 2)
        if (
            _number(data, 0, 8) != 0  # base offset
            or _number(data, 8, 4) != size - _OVERHEAD
            or data[16] != 2  # the message format
            or (attributes != 0 and attributes != _TRANSACTIONAL and not (is_own and attributes == _MARKER))
            or count <= 0
            or _number(data, 23, 4) != count - 1  # last offset delta
            or (producer_id != -1 and not is_own and _number(data, 53, 4) < 0)  # base sequence
            or crc32c(checked) != _number(data, 17, 4) & 0xFFFFFFFF
        ):
            return None
        status, _, least, greatest, _, keyless, misplaced = _scan(data, _HEADER_SIZE, size, count, base_timestamp)
        if (
            status != 0
            or misplaced >= 0
            or (self.compacted and keyless >= 0)
            or greatest != max_timestamp
            or least < 0
            or now_ms - least > self.older_max_ms
            or greatest - now_ms > self.later_max_ms
        ):
            return None
        _put(data, 0, 8, next_offset)
        _put(data, 12, 4, leader_epoch)
        found = Stamped()
        found.base_offset = next_offset
        found.is_transactional = attributes != 0
        found.last_offset = next_offset + count - 1
        found.max_timestamp = max_timestamp
        found.producer_id = producer_id
        found.size = size
        return found


def _number(data, at, size):
    """A signed big-endian number of `size` bytes."""
    if cython.compiled:
        value = data[at]
        if value > 0x7F:
            value -= 256
        while size > 1:
            size -= 1
            at += 1
            value = value * 256 + data[at]
    else:
        value = int.from_bytes(data[at : at + size], "big", signed=True)
    return value


def _put(data, at, size, value):
    """Write a number of `size` bytes, big-endian."""
    while size > 0:
        size -= 1
        data[at + size] = value & 0xFF
        value >>= 8
