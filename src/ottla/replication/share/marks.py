"""Reads from records what a share group's settings depend on: their keys (`ottla.share.order`), and a header that says
when they may be delivered (`ottla.share.delivery.time.header`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from ottla.model import Buffer, Millis, Offset
from ottla.protocol.records import _records
from ottla.protocol.records.compression import TooLong
from ottla.protocol.records.record_batch import (
    INLINE_BYTES_MAX,
    INLINE_RECORDS_MAX,
    CorruptBatch,
    LongWork,
    read_batch_header,
    records_section,
)
from ottla.replication.share.aborted import ReadBatch
from ottla.replication.share.config import Mark, MarkSettings
from ottla.replication.share.ranges import index_of

_DIGITS_MAX: Final = 19
"""Bytes of an int64."""
_MILLIS_MAX: Final = 2**48 - 1
"""In the year 10889. A larger number is no time: neither the bytes of a text of eight letters nor microseconds are."""


class Marks(NamedTuple):
    """The records of some batches in the order of their offsets. Offsets that are not here have no record."""

    records: list[Mark]
    bad_times: int = 0
    """Records whose header is no time. They are delivered at once."""


def delivery_time_ms(value: bytes) -> Millis | None:
    """The time in a header: ASCII digits, or 8 bytes big endian; None for anything else."""
    if value.isdigit() and len(value) <= _DIGITS_MAX:
        found = int(value)
        return found if found <= _MILLIS_MAX else None
    if len(value) == 8:
        found = int.from_bytes(value, "big")
        return found if found <= _MILLIS_MAX else None
    return None


def read_marks(
    data: Buffer, batches: Sequence[ReadBatch], first: Offset, settings: MarkSettings, *, in_thread: bool = False
) -> Marks:
    """The marks of the records from `first` on in batches that were read into `data`. Raises LongWork, which finds the
    same in a thread, unless called from that thread."""
    found: list[Mark] = []
    bad_times = 0
    bytes_left, records_left = INLINE_BYTES_MAX, INLINE_RECORDS_MAX
    for batch in batches:
        if batch.last_offset < first:
            continue
        header = read_batch_header(data, batch.position)
        if header.is_control:
            continue
        try:
            records_left -= header.count
            if not in_thread and records_left < 0:
                raise TooLong
            if in_thread:
                section = bytes(records_section(data, header, batch.position))
            else:
                section = bytes(records_section(data, header, batch.position, limit=max(1, bytes_left)))
            bytes_left -= len(section)
            rows = _records.marks(
                section, 0, len(section), header.count, header.base_offset, settings.time_header, settings.by_key
            )
        except TooLong:
            raise LongWork(partial(read_marks, bytes(data), batches, first, settings, in_thread=True)) from None
        except (CorruptBatch, ValueError):
            # The consumer gets the batch as it is, and finds the same.
            rows = [(offset, None, 0) for offset in range(header.base_offset, batch.last_offset + 1)]
        if header.base_offset < first:
            rows = rows[index_of(rows, first) :]
        if settings.time_header:
            for offset, key, value in rows:
                time_ms = delivery_time_ms(value) if isinstance(value, bytes) else 0
                bad_times += time_ms is None
                found.append((offset, key, time_ms or 0))
        else:
            found += cast("list[Mark]", rows)  # without a header's name no row has a value
    return Marks(found, bad_times)
