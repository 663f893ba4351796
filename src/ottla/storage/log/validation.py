"""What a leader checks and changes in the records it appends: Kafka's LogValidator and the checks around it.

A batch stays the bytes that came off the socket. Offsets and leader epoch are written in place, outside the CRC; a new
CRC is needed where the topic's timestamp type differs or the producer's greatest timestamp is wrong, a new batch only
where the topic's `compression.type` asks for another codec or the producer numbered its records wrongly.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ottla.errors import ErrorCode, KafkaError, MissingOffsets, OverlappingBatch
from ottla.model import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, TopicPartition
from ottla.protocol.crc32c import crc32c
from ottla.protocol.records import _records
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Codec, TooLong, compress, room_for
from ottla.protocol.records.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    INLINE_BYTES_MAX,
    INLINE_RECORDS_MAX,
    LENGTH_AND_MAGIC,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    RECORD_BYTES_MAX,
    BatchHeader,
    CorruptBatch,
    LongWork,
    assemble,
    compute_crc,
    iterate_batches,
    read_batch_header,
    records_section,
    set_base_offset_and_epoch,
    set_max_timestamp_and_attributes,
    unpack_header,
)

if TYPE_CHECKING:
    from ottla.storage.log.log_state import LogState

RECORD_ERRORS_MAX: Final = 100
"""Records that an error names one by one; a batch may hold a million, and nobody reads past the first few."""

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_ZSTD_PRODUCE_VERSION: Final = 7
RECORD_BYTES_MIN: Final = 7
"""A record without key, value and headers."""
LONG_BATCH_BYTES: Final = 2 << 20
"""A larger batch, which few topics allow, is checked in a thread altogether."""
COMPRESSED_INLINE_BYTES_MAX: Final = 65_536
"""More bytes are not compressed on the event loop, where a topic wants another codec: it would take milliseconds."""
_DELTA_BYTES_MAX: Final = 5
_LENGTH_MIN: Final = 14
"""Minimum length in the oldest message format: a smaller number is not a length."""


LAST_OFFSET_MAX: Final = 2**63 - 2
"""The log end behind it is the largest number that an offset may be."""


class Origin(enum.Enum):
    """Origin of an append, as Kafka's AppendOrigin: clients are trusted least."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"


CLIENT: Final = Origin.CLIENT
COORDINATOR: Final = Origin.COORDINATOR
RAFT_LEADER: Final = Origin.RAFT_LEADER
REPLICATION: Final = Origin.REPLICATION


@dataclass(frozen=True, slots=True)
class ValidationPolicy:
    """What a topic's configuration asks of its batches."""

    max_message_bytes: int = 1024 * 1024 + 12
    record_bytes_max: int = RECORD_BYTES_MAX
    """Bytes of a record in a compressed batch: `max.decompressed.message.bytes`."""
    codec: Codec | None = None
    """None for `compression.type=producer`, which keeps what the producer chose."""
    level: int | None = None
    log_append_time: bool = False
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False


class RecordError(NamedTuple):
    """One record that caused its batch to be refused (KIP-467)."""

    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    """A batch refused for some of its records: the one refusal whose sentences the Produce response carries."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NotOneBatch(KafkaError):
    """Refused before a look at the log: bytes that are no single batch of the one format, or too new a codec."""


@final
class Examined(NamedTuple):
    """A batch whose records a thread has gone through: what is left to do is to give it its place in the log."""

    batch: memoryview
    header: BatchHeader
    greatest: int
    """Timestamp."""


class Validated(NamedTuple):
    buffer: memoryview
    """What to append: the caller's bytes changed in place, or a new batch. No bytes behind the last batch."""
    headers: list[BatchHeader]
    """Headers of the batches as they are to be written, with offsets, epoch and timestamps assigned."""
    max_timestamp: int
    offset_of_max_timestamp: int
    """Last offset of the batch with the greatest timestamp: what Kafka's time index records."""
    log_append_time_ms: int
    """`now_ms` under LogAppendTime, otherwise -1."""

    @property
    def first_offset(self) -> int:
        return self.headers[0][0]

    @property
    def last_offset(self) -> int:
        return self.headers[-1].last_offset


class _Place(NamedTuple):
    """Where and when a batch is appended."""

    now_ms: int
    next_offset: int
    leader_epoch: int


def validate(
    records: Buffer | Examined,
    policy: ValidationPolicy,
    *,
    now_ms: int,
    next_offset: int,
    leader_epoch: int,
    origin: Origin = CLIENT,
) -> Validated:
    """Check `records` and make them the log's at `next_offset`; writable buffers are changed in place.

    Clients send exactly one batch. A batch cut off at the end is dropped, as Kafka drops it. Under REPLICATION nothing
    is assigned or changed and `next_offset` is not looked at: the leader did that. Nothing is written before every
    check has passed, except that a buffer of several batches may have its first ones changed.

    Raises KafkaError: CORRUPT_MESSAGE (lengths, format, CRC), MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_RECORD and INVALID_TIMESTAMP (as InvalidRecords where single records are at fault). For a client's batch of
    many records it raises LongWork, which gives `Examined`, to be validated instead.
    """
    if type(records) is Examined:
        return _assign(
            records.batch, records.header, policy, _Place(now_ms, next_offset, leader_epoch), records.greatest
        )
    if origin is REPLICATION:
        return _validate_replicated(records)
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    if origin is CLIENT:
        header = _only_batch(view)
        place = _Place(now_ms, next_offset, leader_epoch)
        return _validate_batch(view[: header[1] + LOG_OVERHEAD], header, policy, place, origin)
    parts = []
    for position, found in iterate_batches(view):
        batch = view[position : position + found.size]
        parts.append(_validate_batch(batch, found, policy, _Place(now_ms, next_offset, leader_epoch), origin))
        next_offset = parts[-1].headers[-1].next_offset
    if not parts:
        raise KafkaError(ErrorCode.invalid_record, "records without a batch")
    if len(parts) == 1:
        return parts[0]
    latest = max(parts, key=lambda part: part.max_timestamp)
    buffer = memoryview(b"".join(part.buffer for part in parts))
    return latest._replace(buffer=buffer, headers=[part.headers[0] for part in parts])


def check_produce_version(records: Buffer, version: int) -> None:
    """Produce requests below version 7 may not carry zstd (KIP-110). Raises KafkaError; for old versions only."""
    if version < _ZSTD_PRODUCE_VERSION and len(records) >= HEADER_SIZE and _codec_of(records) == Codec.ZSTD:
        raise NotOneBatch(
            ErrorCode.unsupported_compression_type, f"Produce version {version} may not carry zstd-compressed records"
        )


def _codec_of(records: Buffer) -> int:
    return records[22] & CODEC_MASK if records[MAGIC_POSITION] == MAGIC else 0


def _only_batch(view: memoryview) -> BatchHeader:
    """The header of the one batch that a client may send; what follows it must be less than a batch.

    The codes are Kafka's: CORRUPT_MESSAGE for what no batch starts with, INVALID_RECORD for a number other than one.
    """
    size = len(view)
    if size < HEADER_SIZE:
        raise _no_batch(view)
    header = unpack_header(view)
    length, magic = header[1], header[3]
    end = length + LOG_OVERHEAD
    if length < HEADER_SIZE - LOG_OVERHEAD or magic != MAGIC or end > size:
        raise _no_batch(view)
    if end < size and next(iterate_batches(view, end), None) is not None:
        raise NotOneBatch(ErrorCode.invalid_record, "more than one record batch for a partition")
    return header


def _no_batch(view: memoryview) -> KafkaError:
    """Why bytes do not begin with a whole batch."""
    size = len(view)
    if size <= MAGIC_POSITION:
        return NotOneBatch(ErrorCode.invalid_record, "no record batch for a partition")
    length, magic = LENGTH_AND_MAGIC.unpack_from(view, 8)
    if length < _LENGTH_MIN or not 0 <= magic <= MAGIC:
        return CorruptBatch(f"no record batch has the length {length} and the message format {magic}")
    if length + LOG_OVERHEAD > size:
        return NotOneBatch(ErrorCode.invalid_record, f"no whole record batch for a partition: {size} bytes")
    if magic != MAGIC:
        return NotOneBatch(ErrorCode.invalid_record, f"record batches have message format {MAGIC}, not {magic}")
    return CorruptBatch(f"a batch length of {length} is less than the header's size")


def _validate_batch(
    batch: memoryview, header: BatchHeader, policy: ValidationPolicy, place: _Place, origin: Origin
) -> Validated:
    size = len(batch)
    if origin is CLIENT and header[0] != 0:
        raise KafkaError(ErrorCode.invalid_record, f"a producer's batch has base offset 0, not {header[0]}")
    if size > policy.max_message_bytes and origin is not RAFT_LEADER:
        raise _too_large(size, policy)
    if origin is CLIENT:
        if size > LONG_BATCH_BYTES:
            raise _long(batch, header, policy, place)
        if compute_crc(batch, 0, size) != header[4]:
            raise CorruptBatch(f"CRC {header[4]} does not match the bytes")
        _check_claims(header)
        try:
            batch, header, greatest = _examine(batch, header, policy, place.now_ms, INLINE_BYTES_MAX, _records.scan)
        except TooLong:
            raise _long(batch, header, policy, place) from None
    else:
        if compute_crc(batch, 0, size) != header[4]:
            raise CorruptBatch(f"CRC {header[4]} does not match the bytes")
        batch, header, greatest = _examine(batch, header, policy, place.now_ms, DECOMPRESSED_BYTES_MAX, _records.scan)
    return _assign(batch, header, policy, place, greatest)


def _long(batch: memoryview, header: BatchHeader, policy: ValidationPolicy, place: _Place) -> LongWork:
    copy = memoryview(bytearray(batch))

    def examine() -> Examined:
        if compute_crc(copy, 0, len(copy)) != header.crc:
            raise CorruptBatch(f"CRC {header.crc} does not match the bytes")
        _check_claims(header)
        return Examined(*_examine(copy, header, policy, place.now_ms, DECOMPRESSED_BYTES_MAX, _records.scan_unlocked))

    return LongWork(examine)


def _examine(
    batch: memoryview,
    header: BatchHeader,
    policy: ValidationPolicy,
    now_ms: int,
    limit: int,
    scan: Callable[[Buffer, int, int, int, int], tuple[int, int, int, int, int, int, int]],
) -> tuple[memoryview, BatchHeader, int]:
    """Go through the records. Raises KafkaError; TooLong where they are too many for the event loop."""
    attributes = header[5]
    size = len(batch)
    codec = attributes & CODEC_MASK
    target = codec if policy.codec is None or attributes & CONTROL else policy.codec
    if codec or target:
        if header[12] * RECORD_BYTES_MIN > DECOMPRESSED_BYTES_MAX:
            raise KafkaError(ErrorCode.invalid_record, f"{header[12]} records exceed the limit of a batch")
        if limit < DECOMPRESSED_BYTES_MAX:
            if target != codec:
                limit = COMPRESSED_INLINE_BYTES_MAX
                if size > limit:
                    raise TooLong
            if header[12] > INLINE_RECORDS_MAX:
                raise TooLong
        section: Buffer
        if codec:
            section = _decompressed(batch, header, limit, policy.record_bytes_max)
            start, end = 0, len(section)
        else:
            section, start, end = batch, HEADER_SIZE, size
    else:
        section, start, end = batch, HEADER_SIZE, size
    status, seen, least, greatest, _, keyless, misplaced = scan(section, start, end, header[12], header[7])
    if status != _records.OK:
        raise _malformed(status, seen)
    if attributes & LOG_APPEND_TIME:
        least = greatest = header[8]
    if policy.compacted and keyless >= 0:
        _refuse_records(memoryview(section)[start:end], header, policy, now_ms)
    elif policy.log_append_time:
        if attributes & LOG_APPEND_TIME:
            _refuse_records(memoryview(section)[start:end], header, policy, now_ms)
    elif now_ms - least > policy.timestamp_before_max_ms or greatest - now_ms > policy.timestamp_after_max_ms:
        _refuse_records(memoryview(section)[start:end], header, policy, now_ms)

    if target != codec or misplaced >= 0:
        batch = _rebuild(header, memoryview(section)[start:end], target, misplaced >= 0, policy)
        header = read_batch_header(batch)
    return batch, header, greatest


def _assign(
    batch: memoryview, header: BatchHeader, policy: ValidationPolicy, place: _Place, greatest: int
) -> Validated:
    """Write offsets, epoch and, where they differ, timestamps into the batch."""
    now_ms, next_offset, leader_epoch = place
    attributes, crc = header[5], header[4]
    if policy.log_append_time:
        greatest = append_time = now_ms
        attributes |= LOG_APPEND_TIME
    else:
        append_time = NO_TIMESTAMP
        attributes &= ~LOG_APPEND_TIME
    if attributes != header[5] or greatest != header[8]:
        crc = set_max_timestamp_and_attributes(batch, 0, greatest, attributes)
    set_base_offset_and_epoch(batch, 0, next_offset, leader_epoch)
    assigned: BatchHeader = tuple.__new__(
        BatchHeader,
        (next_offset, header[1], leader_epoch, MAGIC, crc, attributes, header[6], header[7], greatest, *header[9:]),
    )
    return Validated(batch, [assigned], greatest, next_offset + header[6], append_time)


def _rebuild(
    header: BatchHeader, section: memoryview, target: int, renumber: bool, policy: ValidationPolicy
) -> memoryview:
    """A new batch under the codec that the topic asks for, with its records renumbered if need be."""
    if renumber:
        out = room_for(len(section) + _DELTA_BYTES_MAX * header.count)
        size = _records.renumber(out, section, 0, len(section), header.count)
        section = memoryview(out)[:size]
    header = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
    rebuilt = assemble(header, compress(target, section, policy.level))
    if len(rebuilt) > policy.max_message_bytes:
        raise _too_large(len(rebuilt), policy)
    return memoryview(rebuilt)


def _validate_replicated(records: Buffer) -> Validated:
    """A follower takes the leader's batches as they are, after a look at their sizes, CRCs and order."""
    view = memoryview(records)
    headers = []
    end = 0
    last_offset = max_timestamp = offset_of_max_timestamp = -1
    for position, header in iterate_batches(view):
        # By index: the names cost a tenth of what a replicated batch of 64 KB costs its follower.
        base_offset, end = header[0], position + header[1] + LOG_OVERHEAD
        if crc32c(view[position + ATTRIBUTES_POSITION : end]) != header[4]:
            raise CorruptBatch(f"CRC {header.crc} does not match the batch at offset {base_offset}")
        last = base_offset + header[6]
        if base_offset <= last_offset or last < base_offset:
            raise CorruptBatch(f"offset {base_offset} follows {last_offset}")
        if last > LAST_OFFSET_MAX:
            raise CorruptBatch(f"the last offset {last} of a batch is not a valid offset")
        last_offset = last
        if header[8] > max_timestamp:
            max_timestamp = header[8]
            offset_of_max_timestamp = last
        headers.append(header)
    return Validated(view[:end], headers, max_timestamp, offset_of_max_timestamp, NO_TIMESTAMP)


def check_follows(headers: Sequence[BatchHeader], state: LogState, key: TopicPartition, *, is_compacted: bool) -> None:
    """Whether a leader's batches, which are in order, are what follows the log end. Raises INVALID_RECORD, and
    `MissingOffsets`: a base offset lies outside the checksum, and only its place tells that it is wrong. What a leader
    has compacted is noted in `state`: the topic's policy may be another one when somebody looks for gaps."""
    log_end = state.log_end
    first = headers[0].base_offset
    if first < log_end:
        what = f"Unexpected offset in append to {key}. First offset {first} is less than the next offset {log_end}."
        if headers[0].last_offset >= log_end:
            raise OverlappingBatch(what, first)
        raise KafkaError(ErrorCode.invalid_record, what)
    if state.cleaned is not None:
        return
    for header in headers:
        if header.base_offset != log_end:
            if is_compacted:
                state.cleaned = state.log_start
                return
            raise MissingOffsets(
                ErrorCode.invalid_record,
                f"offsets {log_end} to {header.base_offset - 1} are missing in what the leader of {key} sent",
            )
        log_end = header.next_offset


def _check_claims(header: BatchHeader) -> None:
    """What a client may not claim in a header, whatever its records are."""
    count, attributes = header[12], header[5]
    if count <= 0 or header[6] != count - 1:
        raise KafkaError(
            ErrorCode.invalid_record, f"a batch of {count} records cannot have a last offset delta of {header[6]}"
        )
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.invalid_record, "clients must not write control records")
    if header[9] != NO_PRODUCER_ID and header[11] < 0:
        raise KafkaError(ErrorCode.invalid_record, f"producer {header[9]} sent the sequence {header[11]}")


def _malformed(status: int, index: int) -> KafkaError:
    message = _records.problem(status, index)
    if status == _records.TIMESTAMP_OVERFLOW:
        return InvalidRecords(ErrorCode.invalid_timestamp, message, (RecordError(index, message),))
    return KafkaError(ErrorCode.invalid_record, message)


def _decompressed(batch: memoryview, header: BatchHeader, limit: int, record_bytes_max: int) -> Buffer:
    codec = header.codec
    if codec > Codec.ZSTD:
        raise KafkaError(ErrorCode.unsupported_compression_type, f"no codec has the id {codec}")
    try:
        return records_section(batch, header, limit=limit, record_bytes_max=record_bytes_max)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.invalid_record, error.message) from error


def _too_large(size: int, policy: ValidationPolicy) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large, f"a batch of {size} bytes, more than max.message.bytes={policy.max_message_bytes}"
    )


def _refuse_records(section: Buffer, header: BatchHeader, policy: ValidationPolicy, now_ms: int) -> None:
    """Raise InvalidRecords with the records at fault; returns if none is after all."""
    low, high = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    append_time = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
    by_type = bool(header.timestamp_type) and policy.log_append_time
    if by_type:
        low, high, append_time = 1, 0, 0  # no timestamp is in order
    elif policy.log_append_time:
        low, high = _INT64_MIN, _INT64_MAX
    found = array("q", bytes(3 * 8 * RECORD_ERRORS_MAX))
    total, untimely = _records.refused(
        section,
        0,
        len(section),
        header.count,
        header.base_timestamp,
        append_time,
        max(low, _INT64_MIN),
        min(high, _INT64_MAX),
        policy.compacted,
        found,
    )
    if not total:
        return
    errors = []
    for at in range(0, 3 * min(total, RECORD_ERRORS_MAX), 3):
        index, timestamp, keyless = found[at : at + 3]
        if keyless:
            why = "a compacted topic takes no record without a key"
        elif by_type:
            why = "a producer may not set the timestamp type to LogAppendTime"
        else:
            why = f"timestamp {timestamp} is not within [{low}, {high}]"
        errors.append(RecordError(index, why))
    reason = "invalid timestamp" if untimely else f"{total} invalid records"
    code = ErrorCode.invalid_timestamp if untimely else ErrorCode.invalid_record
    raise InvalidRecords(code, f"One or more records have been rejected due to {reason}", tuple(errors))
