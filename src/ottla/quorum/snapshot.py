"""Snapshots of the metadata log: their names, and the batches inside (KIP-630).

A snapshot `<end offset>-<epoch>.checkpoint` replaces the log below its end offset. Inside: a control batch with the
header (and, from `kraft.version` 1 on, the voters), batches of records, a control batch with the footer. Without the
footer it is incomplete and must not be used.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.quorum_records import decode_control, encode_control
from ottla.protocol.records.record_batch import (
    BatchHeader,
    SimpleRecord,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from ottla.protocol.schemas.records import SnapshotFooterRecord, SnapshotHeaderRecord

BOOTSTRAP_FILE = "bootstrap.checkpoint"
BATCH_RECORDS_MAX = 1024
BATCH_BYTES_MAX = 1 << 20
"""Sizes of a snapshot's batches; readers hold one batch in memory."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The first offset that the snapshot does not contain, and the epoch of the last record that it does."""

    end_offset: Offset
    epoch: LeaderEpoch

    @property
    def filename(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id in a file's name; None for files that are no (finished) snapshots."""
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


def takes_place(snapshot: SnapshotId, log_end: Offset, epoch: LeaderEpoch) -> bool:
    """Whether a log is to be dropped for a snapshot when it is opened (`KafkaMetadataLog.truncateToLatestSnapshot`): it
    ends before the snapshot does, or has another record in the place of the last one that the snapshot has, which is of
    an older `epoch` (-1: that is not known) and was never committed."""
    return log_end < snapshot.end_offset or 0 <= epoch < snapshot.epoch


def control_batch(records: Iterable[Any], base_offset: Offset, epoch: LeaderEpoch, now: Millis) -> bytearray:
    """Control records as one batch."""
    simple = [SimpleRecord(now, *encode_control(record)) for record in records]
    return build_batch(simple, base_offset=base_offset, leader_epoch=epoch, control=True)


def data_batch(values: Sequence[bytes], base_offset: Offset, epoch: LeaderEpoch, now: Millis) -> bytearray:
    """Framed metadata records as one batch."""
    simple = [SimpleRecord(now, None, value) for value in values]
    return build_batch(simple, base_offset=base_offset, leader_epoch=epoch)


def write_snapshot(
    values: Iterable[bytes],
    *,
    epoch: LeaderEpoch,
    last_timestamp: Millis,
    now: Millis,
    voters: Sequence[Any] = (),
) -> Iterator[bytearray]:
    """The batches of a snapshot of framed records. `voters` are KRaftVersionRecord and VotersRecord, if in use."""
    head = (SnapshotHeaderRecord(0, last_timestamp), *voters)
    yield control_batch(head, 0, epoch, now)
    offset = len(head)
    chunk: list[bytes] = []
    size = 0
    for value in values:
        chunk.append(value)
        size += len(value)
        if len(chunk) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
            yield data_batch(chunk, offset, epoch, now)
            offset += len(chunk)
            chunk, size = [], 0
    if chunk:
        yield data_batch(chunk, offset, epoch, now)
        offset += len(chunk)
    yield control_batch((SnapshotFooterRecord(0),), offset, epoch, now)


def read_batches(buffer: bytes | memoryview) -> Iterator[tuple[BatchHeader, list[Any]]]:
    """(header, control records or values of data records) of every whole batch, checked by its CRC.

    Raises MalformedRecord for a batch that is damaged or a metadata record without a value.
    """
    view = memoryview(buffer)
    for position, header in iterate_batches(view):
        if not crc_is_valid(view, position, header):
            raise MalformedRecord(f"the batch at offset {header.base_offset} fails its checksum")
        items: list[Any] = []
        for record in iterate_records(view[position : position + header.size]):
            if record.value is None:
                raise MalformedRecord(f"the record at offset {record.offset} has no value")
            if header.is_control:
                items.append(decode_control(record.key or b"", record.value))
            else:
                items.append(record.value)
        yield header, items


def read_snapshot(data: bytes) -> Iterator[tuple[BatchHeader, list[Any]]]:
    """The batches of a complete snapshot, as `read_batches` gives them. Raises MalformedRecord without header or
    footer."""
    return read_snapshot_pieces((data,))


def read_snapshot_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[tuple[BatchHeader, list[Any]]]:
    """`read_snapshot` of one that comes in pieces of whole batches."""
    first = last = None
    for header, items in itertools.chain.from_iterable(map(read_batches, pieces)):
        if header.is_control and items:
            first = items[0] if first is None else first
            last = items[-1]
        elif first is None:
            break
        yield header, items
    if not isinstance(first, SnapshotHeaderRecord) or not isinstance(last, SnapshotFooterRecord):
        raise MalformedRecord("not a whole snapshot: header or footer is missing")
