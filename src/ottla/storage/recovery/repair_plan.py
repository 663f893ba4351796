"""What `ottla log repair` is going to do to a log, as data and in words."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model import Offset, TopicPartition
from ottla.storage.recovery.damage import CUT
from ottla.storage.segments.segment_files import LOG


class Range(NamedTuple):
    """Bytes [start, end) of a file, and why they go."""

    start: int
    end: int
    why: str


class Patch(NamedTuple):
    """A field outside a batch's checksum that its neighbours prove wrong."""

    position: int
    data: bytes
    why: str


@dataclass
class SegmentPlan:
    """What is to be done to one log file."""

    path: str
    base_offset: Offset
    size: int
    cuts: list[Range] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    batches: int = 0
    """Whole ones, which stay."""
    records: int = 0
    is_dropped: bool = False
    """Whether the file goes as a whole: a snapshot has all that it had."""
    begins_at: Offset | None = None
    """The base offset that its file gets, if its first records go because a snapshot has them."""

    @property
    def is_changed(self) -> bool:
        return bool(self.cuts or self.patches or self.is_dropped or self.begins_at is not None)

    @property
    def new_path(self) -> str:
        if self.begins_at is None:
            return self.path
        return posixpath.join(posixpath.dirname(self.path), f"{self.begins_at:020d}{LOG}")

    def kept(self) -> Iterator[tuple[int, int]]:
        """The ranges that stay."""
        position = 0
        for cut in sorted(self.cuts):
            if cut.start > position:
                yield position, cut.start
            position = max(position, cut.end)
        if position < self.size:
            yield position, self.size


class LogStart(NamedTuple):
    """An entry of the log start checkpoint."""

    path: str
    partition: TopicPartition
    offset: Offset


@dataclass
class Plan:
    """What is to be done to one partition's log."""

    directory: str
    segments: list[SegmentPlan] = field(default_factory=list)
    gaps: list[tuple[Offset, Offset]] = field(default_factory=list)
    """Offsets that are missing and not known to be, [first, end)."""
    new_segment: Offset | None = None
    """An empty segment to make, so that offsets which were given are not given again."""
    records_end: Offset = 0
    """The offset behind the last record that is there; 0 without any."""
    end: Offset = 0
    """The offset that the next record gets."""
    stale_indexes: list[str] = field(default_factory=list)
    """Indexes of what is not there."""
    log_start: LogStart | None = None
    """A log start beyond the end, which is dropped."""
    snapshots: list[str] = field(default_factory=list)
    """Damaged snapshots of the metadata log, which an older one and the log replace."""
    beyond_repair: list[str] = field(default_factory=list)
    """What no repair can bring back, and what to do."""

    @property
    def is_empty(self) -> bool:
        return not (
            any(each.is_changed for each in self.segments)
            or self.gaps
            or self.new_segment is not None
            or self.log_start is not None
            or self.snapshots
            or self.beyond_repair
        )

    def steps(self) -> Iterator[str]:
        """The plan in words."""
        for segment in self.segments:
            if segment.is_dropped and not segment.cuts:
                yield f"{segment.path}: removed, as it is empty"
            for cut in segment.cuts:
                if segment.is_dropped:
                    yield f"{segment.path}: removed ({cut.why}), kept in {posixpath.basename(segment.path)}.0{CUT}"
                    continue
                yield (
                    f"{segment.path}: cut bytes {cut.start} to {cut.end} ({cut.why}), kept in "
                    f"{posixpath.basename(segment.path)}.{cut.start}{CUT}; {segment.batches} whole batches with "
                    f"{segment.records} records stay in the file"
                )
            for patch in segment.patches:
                yield f"{segment.path}: at byte {patch.position} {patch.why}"
            if segment.begins_at is not None:
                yield f"{segment.path}: renamed to {posixpath.basename(segment.new_path)}, as its records begin there"
        for name in self.snapshots:
            path = posixpath.join(self.directory, name)
            yield f"{path}: renamed to {name}{CUT}; an older snapshot and the log replace it"
        for first, end in self.gaps:
            yield f"{self.directory}: offsets {first} to {end - 1} are missing, recorded in known-gaps"
        if self.new_segment is not None:
            yield f"{self.directory}: start an empty segment at offset {self.new_segment}, as lower ones were used"
        for path in self.stale_indexes:
            yield f"{path}: removed, as its log does not exist"
        if self.log_start is not None:
            path, key, offset = self.log_start
            yield f"{path}: drop the entry of {key}, which starts the log at {offset}, beyond its end at {self.end}"
        yield from self.beyond_repair
