"""The byte format of producer snapshots: `<offset>.snapshot`, Kafka's ProducerSnapshot version 1.

int16 version, uint32 CRC32C of all that follows, int32 count, then 46 bytes a producer. Of a producer's last five
batches only the newest is kept, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ottla.model import Offset, ProducerId
from ottla.protocol.crc32c import crc32c
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.producers.producer_entry import BatchMetadata, ProducerEntry

SNAPSHOT_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(producers: Mapping[ProducerId, ProducerEntry]) -> bytes:
    parts = [_COUNT.pack(len(producers))]
    for producer_id, entry in producers.items():
        batch = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
        open_transaction = -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset
        parts.append(
            _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                open_transaction,
            )
        )
    body = b"".join(parts)
    return _HEADER.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(path: str, data: bytes) -> list[tuple[ProducerId, ProducerEntry]]:
    """The producers of a snapshot. Raises `CorruptFile` on an unknown version, a wrong length or checksum."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptFile(f"producer snapshot {path} is cut short at {len(data)} bytes")
    version, crc = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptFile(f"producer snapshot {path} has unknown version {version}")
    body = memoryview(data)[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptFile(f"producer snapshot {path} does not match its checksum")
    (count,) = _COUNT.unpack_from(body)
    if len(body) - _COUNT.size != count * _ENTRY.size:
        raise CorruptFile(f"producer snapshot {path} announces {count} producers in {len(body)} bytes")
    return [_entry(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _entry(fields: tuple[int, ...]) -> tuple[ProducerId, ProducerEntry]:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, open_transaction = (
        fields
    )
    entry = ProducerEntry()
    entry.producer_epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.current_txn_first_offset = _offset(open_transaction)
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
    return producer_id, entry


def _offset(value: int) -> Offset | None:
    return value if value >= 0 else None
