"""Commits that repeat themselves: requests of one member for the same partitions differ in offsets and epochs only.

A `CommitShape` is what such requests have in common. It finds the numbers in a frame in one step and puts them between
the bytes of the records that stay the same, so that a commit of a hundred partitions costs no loop in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.internal.group_records import OFFSET_COMMIT_VERSION, GroupRecord, encode_key, offset_value_tags
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.varint import write_uvarint, zigzag_varint
from ottla.protocol.wire import end_of_tags, read_count, read_name, read_string

FLEXIBLE_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
LEADER_EPOCHS_SINCE: Final = 6
RECORDS_MAX: Final = 4_000
"""Records in one batch of commits: offset deltas of one or two bytes, and far below max.message.bytes."""
_ROW = struct.Struct(">qi")
_INT64 = struct.Struct(">q")
_CORRELATION_END = 8
_NARROW = 64
"""Offset deltas below this take one byte."""


_DELTAS: Final = [zigzag_varint(delta) for delta in range(2 * RECORDS_MAX)]


class CommittedPartition(NamedTuple):
    topic: str
    partition: int
    metadata: str
    topic_id: UUID


class CommitShape:
    """Requests of one group for the same partitions with the same metadata, in one version."""

    def __init__(self, group_id: str, partitions: Sequence[CommittedPartition], frame: Buffer, starts: Sequence[int]):
        """`starts` says where in `frame` the offset of each partition is, its leader epoch behind it."""
        self.group_id = group_id
        self.partitions = partitions
        self.count = len(partitions)
        self.size = len(frame)
        format_ = f">{_CORRELATION_END}x{starts[0] - _CORRELATION_END}s"
        for start, stop in zip(starts, [*starts[1:], len(frame)], strict=True):
            format_ += f"12s{stop - start - 12}s"
        self._unpack = struct.Struct(format_).unpack
        self._fixed = self._unpack(frame)[0::2]
        self._parts: list[bytes] = [b""] * (5 * self.count)
        self._narrow: list[bytes] = []
        self._wide: list[bytes] = []
        self._ends: dict[tuple[bytes, bytes], int] = {}
        self._end_of: list[int] = []
        for index, each in enumerate(partitions):
            self._add(index, each)

    def _add(self, index: int, each: CommittedPartition) -> None:
        key = encode_key(OffsetCommitKey(self.group_id, each.topic, each.partition))
        metadata = bytearray()
        write_uvarint(metadata, len(each.metadata.encode()) + 1)
        metadata += each.metadata.encode()
        tags = offset_value_tags(each.topic_id)
        value_size = 2 + _ROW.size + len(metadata) + _INT64.size + len(tags)
        middle = zigzag_varint(len(key)) + key + zigzag_varint(value_size) + OFFSET_COMMIT_VERSION.to_bytes(2, "big")
        # attributes, timestamp delta (0), offset delta, key, value, number of headers (0)
        size = 2 + len(middle) + value_size - 2 + 1
        self._narrow.append(zigzag_varint(size + 1) + b"\0\0")
        self._wide.append(zigzag_varint(size + 2) + b"\0\0")
        self._parts[5 * index + 2] = middle
        self._end_of.append(self._ends.setdefault((bytes(metadata), tags + b"\0"), len(self._ends)))

    def match(self, frame: Buffer) -> tuple[bytes, ...] | None:
        """The numbers of a frame of this shape, 12 bytes for each partition; None for another frame."""
        if len(frame) != self.size:
            return None
        fields = self._unpack(frame)
        return fields[1::2] if fields[0::2] == self._fixed else None

    def records(self, rows: Sequence[bytes], timestamp_ms: int, base: int) -> bytes:
        """The records of a batch from its index `base` on, which is at most RECORDS_MAX."""
        count, parts = self.count, self._parts
        end = base + count
        if end <= _NARROW:
            parts[0::5] = self._narrow
        elif base >= _NARROW:
            parts[0::5] = self._wide
        else:
            parts[0::5] = self._narrow[: _NARROW - base] + self._wide[_NARROW - base :]
        parts[1::5] = _DELTAS[base:end]
        parts[3::5] = rows
        timestamp = _INT64.pack(timestamp_ms)
        ends = [before + timestamp + after for before, after in self._ends]
        parts[4::5] = ends * count if len(ends) == 1 else [ends[index] for index in self._end_of]
        return b"".join(parts)


class OffsetBlock(NamedTuple):
    """The records of one commit, not taken apart yet."""

    shape: CommitShape
    rows: Sequence[bytes]
    timestamp_ms: int

    def records(self) -> Iterator[GroupRecord]:
        for each, row in zip(self.shape.partitions, self.rows, strict=True):
            offset, epoch = _ROW.unpack(row)
            value = OffsetCommitValue(offset, epoch, each.metadata, self.timestamp_ms, -1, each.topic_id)
            yield GroupRecord(OffsetCommitKey(self.shape.group_id, each.topic, each.partition), value)


def offset_positions(version: int, frame: Buffer, position: int) -> list[int]:
    """Where the offsets lie in a request whose body starts at `position`, of a version with leader epochs."""
    flexible = version >= FLEXIBLE_SINCE
    _, position = read_name(frame, position, flexible)
    _, position = read_name(frame, position + 4, flexible)
    if version >= 7:
        _, position = read_string(frame, position, flexible)
    topics, position = read_count(frame, position, flexible, 3)
    found = []
    for _ in range(topics):
        if version >= TOPIC_IDS_SINCE:
            position += 16
        else:
            _, position = read_name(frame, position, flexible)
        count, position = read_count(frame, position, flexible, 17)
        for _ in range(count):
            found.append(position + 4)
            _, position = read_string(frame, position + 4 + _ROW.size, flexible)
            position = end_of_tags(frame, position) if flexible else position
        position = end_of_tags(frame, position) if flexible else position
    return found
