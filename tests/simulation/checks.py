"""What holds for the files of a partition at any time: checked from the bytes, as Kafka's DumpLogSegments does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.records.record_batch import BatchHeader, crc_is_valid, iterate_batches, iterate_records

_INDEX = struct.Struct(">iI")
_TIME_INDEX = struct.Struct(">qi")


class SegmentBytes(NamedTuple):
    base_offset: int
    log: bytes
    index: bytes
    time_index: bytes


def segments(files: dict[str, bytes], directory: str) -> Iterator[SegmentBytes]:
    """The segments of a directory by base offset, from `SimulatedFileSystem.files`."""
    for path, log in sorted(files.items()):
        if path.startswith(directory + "/") and path.endswith(".log"):
            stem = path.removesuffix(".log")
            base = int(stem.rpartition("/")[2])
            yield SegmentBytes(base, log, files.get(stem + ".index", b""), files.get(stem + ".timeindex", b""))


def batches(files: dict[str, bytes], directory: str) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the log in order. Fails where the files are not one clean sequence of batches."""
    found: list[tuple[BatchHeader, bytes]] = []
    for segment in segments(files, directory):
        end = 0
        for position, header in iterate_batches(segment.log):
            assert crc_is_valid(segment.log, position, header), (segment.base_offset, position)
            assert header.base_offset >= segment.base_offset
            assert not found or header.base_offset > found[-1][0].last_offset, "offsets increase"
            found.append((header, segment.log[position : position + header.size]))
            end = position + header.size
        assert end == len(segment.log), f"unknown bytes behind {end} in segment {segment.base_offset}"
    return found


def check_indexes(files: dict[str, bytes], directory: str) -> None:
    """Each index entry says of the log what the log says itself."""
    for segment in segments(files, directory):
        by_position = dict(iterate_batches(segment.log))
        by_last_offset = {header.last_offset: (position, header) for position, header in by_position.items()}
        _check_offset_index(segment, by_position)
        _check_time_index(segment, by_last_offset)


def _entries(layout: struct.Struct, data: bytes) -> list[tuple[int, int]]:
    """The entries up to the zeros that fill the file of an open segment."""
    whole = len(data) - len(data) % layout.size
    entries = list(layout.iter_unpack(data[:whole]))
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


def _check_offset_index(segment: SegmentBytes, by_position: dict[int, BatchHeader]) -> None:
    previous = (-1, -1)
    for relative, position in _entries(_INDEX, segment.index):
        assert relative > previous[0], "index offsets increase"
        assert position > previous[1], "index positions increase"
        assert position in by_position, f"index of {segment.base_offset}: no batch at {position}"
        assert by_position[position].last_offset == segment.base_offset + relative
        previous = (relative, position)


def _check_time_index(segment: SegmentBytes, by_last_offset: dict[int, tuple[int, BatchHeader]]) -> None:
    previous = (-1, -1)
    for timestamp, relative in _entries(_TIME_INDEX, segment.time_index):
        assert timestamp > previous[0], "index timestamps increase"
        assert relative >= previous[1], "time index offsets increase"
        offset = segment.base_offset + relative
        assert offset in by_last_offset, f"time index of {segment.base_offset}: no batch ends at {offset}"
        position, header = by_last_offset[offset]
        batch = segment.log[position : position + header.size]
        assert max(record.timestamp for record in iterate_records(batch)) == timestamp
        assert all(h.max_timestamp <= timestamp for last, (_, h) in by_last_offset.items() if last <= offset)
        previous = (timestamp, relative)
