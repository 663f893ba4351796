"""What compaction leaves of a batch (Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`).

A record stays if it is the latest of its key. A batch keeps its offsets, producer and sequence whatever goes out of it,
and where it is a producer's last one, or the last of the cleaned range, it stays even empty: the log still has its
end and the sequence to expect. Tombstones, and markers of transactions of which nothing is left, stay until
`delete.retention.ms` after they were first met by the cleaner: that time stands in the batch instead of the base
timestamp (KIP-534).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model import Millis, Offset, ProducerEpoch, ProducerId
from ottla.protocol.records import _compaction, _records
from ottla.protocol.records.compression import compress
from ottla.protocol.records.record_batch import CONTROL as CONTROL_BATCH
from ottla.protocol.records.record_batch import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    RECORD_BYTES_MAX,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    assemble,
    read_end_marker,
    records_section,
)
from ottla.storage.cleaner.cleaner_map import OffsetMap
from ottla.storage.cleaner.cleaner_transactions import CleanedTransactions
from ottla.storage.segments.transaction_index import AbortedTransaction

_GROWTH_PER_RECORD = 14
"""A timestamp delta may take nine bytes more, and the record's length four."""


class LastRecord(NamedTuple):
    """The newest that is known of a producer; its batch is kept so that a restart knows it as well."""

    offset: Offset | None
    """The last one of its data in this log."""
    epoch: ProducerEpoch


@dataclass(slots=True)
class FilterCounts:
    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0
    """Records without a key, written before the topic was compacted: they go."""


class Cleaned(NamedTuple):
    """A batch as it stays, and the entry for the transaction index that goes with it."""

    data: bytes | bytearray
    max_timestamp: Millis
    aborted: AbortedTransaction | None


def section_of(batch: bytes, header: BatchHeader, record_bytes_max: int = RECORD_BYTES_MAX) -> bytes:
    """The records of a batch, decompressed and looked over. Raises `CorruptBatch`, `RecordTooLarge`."""
    section = bytes(records_section(batch, header, record_bytes_max=record_bytes_max))
    status, seen, *_ = _records.scan(section, 0, len(section), header.count, header.base_timestamp)
    if status != _records.OK:
        raise CorruptBatch(_records.problem(status, seen))
    return section


class BatchFilter:
    """Sees every batch of a log in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        round_end: Offset,
        delete_retention_ms: Millis,
        now_ms: Millis,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._offsets = offsets
        self._record_bytes_max = record_bytes_max
        self.transactions = transactions
        self._round_end = round_end
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        self.last_records: Mapping[ProducerId, LastRecord] = {}
        self.counts = FilterCounts()

    def clean(self, batch: bytes, header: BatchHeader) -> Cleaned | None:
        """What stays of a batch, None if nothing. Raises `CorruptBatch`, `RecordTooLarge`."""
        self.counts.records_read += header.count
        aborted = None
        if header.is_control:
            spent, aborted = self._judge_control(batch, header)
            discard = spent and header.has_delete_horizon and header.base_timestamp <= self._now_ms
            horizon = self._new_horizon() if spent and not header.has_delete_horizon else None
        else:
            discard, horizon = self.transactions.on_batch(header), None
        keep_empty = self._stays_when_empty(header)
        if discard or not header.count:
            return Cleaned(_emptied(header), header.max_timestamp, aborted) if keep_empty else None
        if header.is_control:
            self.counts.records_kept += header.count
            if horizon is None:
                return Cleaned(batch, header.max_timestamp, aborted)
            keep = bytearray(b"\1" * header.count)
            section = section_of(batch, header, self._record_bytes_max)
            greatest = header.max_timestamp
            cleaned = _rebuild(header, section, keep, header.count, greatest, horizon, header.base_timestamp)
            return Cleaned(cleaned, header.max_timestamp, aborted)
        return self._clean_data(batch, header, keep_empty)

    def _judge_control(self, batch: bytes, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        marker = read_end_marker(batch) if header.count else None
        if header.count and marker is None:
            return False, None  # not a transaction's: whoever wrote it wants it kept
        return self.transactions.on_control(header, marker)

    def _stays_when_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._round_end:
            return True
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset is not None:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _new_horizon(self) -> Millis:
        return self._now_ms + self._delete_retention_ms

    def _clean_data(self, batch: bytes, header: BatchHeader, keep_empty: bool) -> Cleaned | None:
        section = section_of(batch, header, self._record_bytes_max)
        keep = bytearray(header.count)
        tombstones_stay = not header.has_delete_horizon or self._now_ms < header.base_timestamp
        kept, keyless, tombstones, first, greatest = self._offsets.retain(
            keep, section, header.count, header.base_offset, header.base_timestamp, tombstones=tombstones_stay
        )
        self.counts.records_kept += kept
        self.counts.keyless += keyless
        if not kept:
            return Cleaned(_emptied(header), header.max_timestamp, None) if keep_empty else None
        horizon: Millis | None
        if tombstones and not header.has_delete_horizon:
            horizon, base = self._new_horizon(), first
        elif kept == header.count:
            return Cleaned(batch, header.max_timestamp, None)
        else:
            horizon = header.base_timestamp if header.has_delete_horizon else None
            base = first
        if header.attributes & LOG_APPEND_TIME:
            base = greatest = header.max_timestamp
        data = _rebuild(header, section, keep, kept, greatest, horizon, base)
        return Cleaned(data, greatest, None)


def _rebuild(
    header: BatchHeader,
    section: bytes,
    keep: bytearray,
    kept: int,
    max_timestamp: Millis,
    horizon: Millis | None,
    base_timestamp: Millis,
) -> bytearray:
    """The batch with the records that `keep` marks; a horizon takes the place of the base timestamp."""
    attributes = header.attributes
    if horizon is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = horizon
    append_time = header.max_timestamp if attributes & LOG_APPEND_TIME else -1
    out = bytearray(len(section) + _GROWTH_PER_RECORD * kept)
    size = _compaction.copy_kept(
        out, keep, section, 0, len(section), header.count, header.base_timestamp, append_time, base_timestamp
    )
    del out[size:]
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=kept
    )
    return assemble(changed, compress(header.codec, out) if header.is_compressed else out)


def _emptied(header: BatchHeader) -> bytearray:
    """The batch without records, as Kafka's `DefaultRecordBatch.writeEmptyHeader` makes it."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL_BATCH)
    return assemble(header._replace(attributes=attributes, base_timestamp=-1, count=0), b"")
