"""Fetched record batches as columns in the memory layout of Arrow, without an object for each record.

What is read is what Kafka's Java consumer gives (CompletedFetch): control batches are left out, with `Aborted` records
of aborted transactions too, CRCs are checked, a batch cut off at the end waits for the next fetch. Under LogAppendTime
each record has its batch's timestamp.
"""

from __future__ import annotations

import itertools
from array import array
from typing import Final, NamedTuple

from ottla.model import NO_TIMESTAMP, Buffer
from ottla.protocol.crc32c import crc32c
from ottla.protocol.records import _records
from ottla.protocol.records._columns import Rows
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.protocol.records.message_set import read_messages, size_of
from ottla.protocol.records.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_AND_MAGIC,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    CorruptBatch,
    iterate_batches,
    records_section,
    unpack_header,
)

DATA_BYTES_MAX: Final = 2**31 - 1
"""Limit of one column: Arrow's int32 offsets count no further."""

_ROWS_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 1


class ColumnBuffers(NamedTuple):
    """Little-endian values; offsets are int32, one more than rows; a validity bitmap is None where nothing is null.

    All of a column that was not asked for is None. Header columns have `header_count` rows, and `headers_offsets` say
    which of them are a record's; its list is null when it has none, as in Spark's Kafka connector.
    """

    rows: int
    offset: memoryview
    """int64"""
    timestamp: memoryview | None
    """int64, microseconds; -1000 for records without one, whose timestamp is -1 ms"""
    timestamp_type: memoryview | None
    """int32: 0 CreateTime, 1 LogAppendTime, -1 for messages of format 0"""
    key_validity: memoryview | None
    key_offsets: memoryview | None
    key_data: memoryview | None
    value_validity: memoryview | None
    value_offsets: memoryview | None
    value_data: memoryview | None
    header_count: int
    headers_validity: memoryview | None
    headers_offsets: memoryview | None
    header_key_offsets: memoryview | None
    header_key_data: memoryview | None
    """UTF-8"""
    header_value_validity: memoryview | None
    header_value_offsets: memoryview | None
    header_value_data: memoryview | None


class Columns:
    """Records of one partition, appended by `add` and handed out by `take`, as often as one likes."""

    def __init__(
        self, *, keys: bool = True, values: bool = True, headers: bool = False, timestamps: bool = True
    ) -> None:
        """Unwanted columns are not copied."""
        self._rows = Rows(keys, values, headers, timestamps)

    @property
    def rows(self) -> int:
        """How many `take` would give."""
        return self._rows.rows

    @property
    def bytes(self) -> int:
        """Bytes of the wanted keys, values and headers."""
        return self._rows.bytes

    def add(
        self,
        batches: Buffer,
        start: int,
        stop: int = _OFFSET_MAX,
        *,
        aborted: Aborted | None = None,
        rows_max: int | None = None,
        bytes_max: int | None = None,
    ) -> int:
        """Append the records with `start <= offset < stop`; returns the offset to go on from, `stop` at most.

        It is less than what `batches` hold when there would be more than `rows_max` rows, when there are `bytes_max`
        bytes, or when a column would pass DATA_BYTES_MAX: `take`, and add the same again from there. One batch is
        always taken whole, so rows and bytes may be more than asked for by as much. `aborted` is given by who reads
        only what is committed, one for each answer, in which offsets go forward only. Raises CorruptBatch: what was
        appended before the malformed batch stays.
        """
        rows_max = _ROWS_MAX if rows_max is None else rows_max
        bytes_max = DATA_BYTES_MAX if bytes_max is None else bytes_max
        rows = self._rows
        end = len(batches)
        position = 0
        while end - position > MAGIC_POSITION and start < stop:
            length, magic = LENGTH_AND_MAGIC.unpack_from(batches, position + 8)
            if magic in (0, 1):
                size = size_of(batches, position)
                if size > end - position:
                    break
                is_full = rows.rows >= rows_max or rows.bytes >= bytes_max
                if rows.rows and (is_full or not self._has_room(size + DECOMPRESSED_BYTES_MAX)):
                    break
                start = self._add_messages(batches, position, start, stop)
                position += size
                continue
            if length < HEADER_SIZE - LOG_OVERHEAD or magic != MAGIC:
                next(iterate_batches(batches, position))  # says what is wrong
            if length + LOG_OVERHEAD > end - position:
                break
            header = unpack_header(batches, position)
            if rows.rows and (rows.rows + header.count > rows_max or rows.bytes >= bytes_max):
                break
            following = self._add_batch(batches, position, header, start, stop, aborted)
            if following < 0:
                break
            start = following
            position += length + LOG_OVERHEAD
        return min(start, stop)

    def take(self) -> ColumnBuffers:
        """The columns, and none of their rows is here any more."""
        taken = ColumnBuffers._make(self._rows.take())
        if taken.header_key_data is not None and not bytes(taken.header_key_data).isascii():
            return _with_utf8_names(taken)
        return taken

    def _has_room(self, size: int) -> bool:
        return self._rows.bytes + size <= DATA_BYTES_MAX

    def _add_batch(
        self, batches: Buffer, position: int, header: BatchHeader, start: int, stop: int, aborted: Aborted | None
    ) -> int:
        """The offset to go on from, -1 if there is no room for the batch."""
        # The fields by themselves, as properties would be most of what a batch of one record costs.
        offset, length, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, _, _, _, count = header
        last_offset = offset + last_delta
        if offset < 0 or last_delta < 0 or last_offset >= _OFFSET_MAX:
            raise CorruptBatch(f"a batch at {offset} with {last_delta} as last offset delta")
        is_behind = last_offset < start
        if is_behind and (aborted is None or not attributes & CONTROL):
            return start
        end = position + LOG_OVERHEAD + length
        view = memoryview(batches)
        if crc32c(view[position + ATTRIBUTES_POSITION : end]) != crc:
            raise CorruptBatch(f"the CRC of the batch at offset {offset} is wrong")
        if aborted is not None and aborted.covers(header, view[position:end]):
            return max(start, last_offset + 1)
        if attributes & CONTROL or is_behind or offset >= stop:
            return max(start, last_offset + 1)
        first, section = position + HEADER_SIZE, batches
        if attributes & CODEC_MASK:
            section = records_section(batches, header, position)
            first, end = 0, len(section)
        rows = self._rows
        if rows.rows and not self._has_room(end - first):
            return -1
        is_append_time = attributes & LOG_APPEND_TIME != 0
        status, seen = rows.append(
            section,
            first,
            end,
            count,
            offset,
            base_timestamp,
            max_timestamp if is_append_time else NO_TIMESTAMP,
            is_append_time,
            start,
            stop,
        )
        if status != _records.OK:
            raise CorruptBatch(f"the batch at offset {offset}: {_records.problem(status, seen)}")
        return last_offset + 1

    def _add_messages(self, batches: Buffer, position: int, start: int, stop: int) -> int:
        """One message, or those compressed in it; returns the offset to go on from."""
        messages = read_messages(batches, position)
        for message in messages:
            if not start <= message.offset < stop:
                continue
            section = bytearray()
            _records.write(section, [(message.timestamp, message.key, message.value, ())], message.timestamp)
            self._rows.append(
                section,
                0,
                len(section),
                1,
                message.offset,
                message.timestamp,
                NO_TIMESTAMP,
                message.timestamp_type,
                start,
                stop,
            )
        return max(start, messages[-1].offset + 1)


def _with_utf8_names(taken: ColumnBuffers) -> ColumnBuffers:
    """Names of headers are text in Arrow; bytes that are no UTF-8 become what Java makes of them."""
    assert taken.header_key_offsets is not None and taken.header_key_data is not None
    offsets = taken.header_key_offsets.cast("i")
    names = [
        bytes(taken.header_key_data[offsets[at] : offsets[at + 1]]).decode("utf-8", "replace").encode()
        for at in range(taken.header_count)
    ]
    ends = array("i", itertools.accumulate(map(len, names), initial=0))
    return taken._replace(header_key_offsets=memoryview(ends).cast("B"), header_key_data=memoryview(b"".join(names)))
