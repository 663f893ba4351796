"""`ottla log repair`: makes a plan of what has to change so that a damaged log can be opened, then carries it out.

Only bytes that are no whole batch, or a batch at offsets that are another's, are cut, and each is kept in a side file;
every whole batch before and behind a damage stays where it is. Offsets that are missing since are noted as known gaps,
and no offset that was given is given again. A base offset or leader epoch that its neighbours prove is written back.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from ottla.filesystem import File, FileSystem
from ottla.model import METADATA_TOPIC, Offset
from ottla.protocol.records.record_batch import LEADER_EPOCH_POSITION, BatchHeader
from ottla.steps import at_once
from ottla.storage.checkpoints.directory_checkpoints import DirectoryCheckpoints, read_directory_checkpoints
from ottla.storage.checkpoints.fsynced_end import read_fsynced_end
from ottla.storage.checkpoints.offset_checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    CorruptFile,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from ottla.storage.log_directories import parse_directory_name
from ottla.storage.recovery.damage import COPY_BYTES, CUT, is_known, keep_aside, read_known_gaps, write_known_gaps
from ottla.storage.recovery.repair_plan import LogStart, Patch, Plan, Range, SegmentPlan
from ottla.storage.recovery.scan import Scan, walk
from ottla.storage.segments.segment_files import INDEX, LOG, TIME_INDEX, base_offsets, segment_offset
from ottla.storage.segments.segment_list import CLEANED

_INT64, _INT32 = struct.Struct(">q"), struct.Struct(">i")


class _Entry(NamedTuple):
    position: int
    header: BatchHeader


class _Kept(NamedTuple):
    """A batch that stays, and what was so before it."""

    entry: _Entry
    expected: Offset
    gaps: int


class _BehindGap(NamedTuple):
    """Where in its segment the first batch behind a gap lies, and what is kept before it there."""

    position: int
    batches: int
    records: int


def plan_repair(fs: FileSystem, directory: str, *, known_end: Offset = 0, contiguous: bool) -> Plan:
    """Read a partition's log and say what has to be done. Changes nothing. Raises `OSError`.

    `known_end` is the offset up to which checkpoints say that there were records; `contiguous` says that the log was
    never compacted, so that a gap between offsets is a loss.
    """
    return _Planner(fs, directory, known_end, contiguous).plan


def plan_directory(fs: FileSystem, log_dir: str, directory: str) -> Plan:
    """The plan for a partition's directory by what the checkpoints of its log directory say. Raises `OSError`."""
    offsets = read_directory_checkpoints(fs, log_dir)
    key = parse_directory_name(posixpath.basename(directory))
    if key is None:
        return plan_repair(fs, directory, contiguous=False)
    if key.topic == METADATA_TOPIC:
        return _plan_metadata(fs, directory)
    plan = plan_repair(fs, directory, known_end=offsets.known_end(key), contiguous=offsets.is_contiguous(key))
    start = offsets.log_starts.get(key, 0)
    if start > plan.end:
        plan.log_start = LogStart(posixpath.join(log_dir, LOG_START_OFFSET_CHECKPOINT), key, start)
    return plan


def missing_directories(fs: FileSystem, log_dir: str, offsets: DirectoryCheckpoints) -> Iterator[tuple[str, Offset]]:
    """Partitions' directories that are not there although, after a clean stop, the checkpoints know of records in them,
    with the offset of their end. A deleted partition leaves none there."""
    if offsets.is_clean:
        for key in sorted({*offsets.recovery_points, *offsets.high_watermarks}):
            directory = posixpath.join(log_dir, str(key))
            if offsets.known_end(key) and not fs.is_dir(directory) and key.topic != METADATA_TOPIC:
                yield directory, offsets.known_end(key)


def _plan_metadata(fs: FileSystem, directory: str) -> Plan:
    """The metadata log: its records below the newest whole snapshot are not needed."""
    whole: list[str] = []
    damaged: list[str] = []
    for name in sorted(fs.listdir(directory)) if fs.is_dir(directory) else []:
        offset = name.partition("-")[0]
        if name.endswith(".checkpoint") and offset.isdecimal():
            (damaged if is_snapshot_damaged(fs, posixpath.join(directory, name)) else whole).append(name)
    snapshot_end = max((int(name.partition("-")[0]) for name in whole), default=0)
    planner = _Planner(fs, directory, max(snapshot_end, read_fsynced_end(fs, directory)), contiguous=True)
    plan = planner.plan
    plan.snapshots = damaged
    if plan.records_end < snapshot_end:
        return _behind_snapshot(plan, snapshot_end, _known_gaps(fs, directory))
    if any(first < snapshot_end for first, _ in plan.gaps):
        _begin_behind_gaps(plan, planner.behind_gaps, snapshot_end)
    first = plan.segments[0].base_offset if plan.segments else plan.end
    if not whole and (first or not any(segment.batches for segment in plan.segments)):
        lost = Plan(directory)
        lost.beyond_repair = [f"{directory}: the metadata exists nowhere else; restore the directory from a backup"]
        return lost
    if first > snapshot_end:
        plan.gaps = _joined([*plan.gaps, (snapshot_end, first)])
        known = _known_gaps(fs, directory)
        plan.gaps = [gap for gap in plan.gaps if not is_known(known, *gap)]
    return plan


def _behind_snapshot(found: Plan, snapshot_end: Offset, known: list[tuple[Offset, Offset]]) -> Plan:
    """The plan for a metadata log that ends before its newest snapshot does, from that for a log without one.

    The snapshot has all that such a log had, and a start drops the log for it. So what is whole needs no repair, and of
    what is damaged nothing is missed; only what was fsynced behind the snapshot is.
    """
    is_damaged = any(each.is_changed for each in found.segments)
    has_gaps = any(first < found.records_end for first, _ in found.gaps)
    plan = Plan(found.directory, records_end=found.records_end, end=found.end, snapshots=found.snapshots)
    if snapshot_end < found.end:
        plan.new_segment = found.end
        if not is_known(known, snapshot_end, found.end):
            plan.gaps = [(snapshot_end, found.end)]
    if is_damaged or has_gaps or plan.new_segment is not None:
        plan.segments = [_dropped(each, snapshot_end) for each in found.segments]
        plan.stale_indexes = found.stale_indexes
    return plan


def _begin_behind_gaps(plan: Plan, behind_gaps: dict[Offset, _BehindGap], snapshot_end: Offset) -> None:
    """Let a metadata log that goes on behind its newest snapshot begin behind what is missing below it.

    The snapshot has that, and all that was before it: nothing is lost, and no reader meets a hole.
    """
    begin = max(end for first, end in plan.gaps if first < snapshot_end)
    plan.gaps = [(max(first, snapshot_end), end) for first, end in plan.gaps if end > snapshot_end]
    behind = behind_gaps.get(begin)
    """None where a segment begins there, or nothing is behind it."""
    bases = [each.base_offset for each in plan.segments]
    for number, (segment, following) in enumerate(zip_longest(plan.segments, bases[1:])):
        if segment.base_offset >= begin:
            break
        if behind is None or (following is not None and following <= begin):
            plan.segments[number] = _dropped(segment, snapshot_end)
            continue
        cuts = [cut for cut in segment.cuts if cut.start >= behind.position]
        before = [Range(0, behind.position, _has_all_of_it(snapshot_end))] if behind.position else []
        segment.cuts = before + cuts
        segment.patches = [patch for patch in segment.patches if patch.position >= behind.position]
        segment.batches -= behind.batches
        segment.records -= behind.records
        segment.begins_at = begin


def _dropped(segment: SegmentPlan, snapshot_end: Offset) -> SegmentPlan:
    whole = [Range(0, segment.size, _has_all_of_it(snapshot_end))] if segment.size else []
    return SegmentPlan(segment.path, segment.base_offset, segment.size, whole, is_dropped=True)


def _has_all_of_it(snapshot_end: Offset) -> str:
    return f"the snapshot up to offset {snapshot_end} has all of it"


def plan_covered(fs: FileSystem, directory: str, snapshot_end: Offset) -> Plan | None:
    """What of the repair of a metadata log loses nothing, as its newest snapshot, which ends at `snapshot_end`, has all
    of it; None if nothing does. Raises `OSError`.

    A log that ends before that is left to an operator: what cannot be read in it may have been behind the snapshot.
    """
    plan = _plan_metadata(fs, directory)
    covered = [each for each in plan.segments if each.is_dropped or each.begins_at is not None]
    left = [each for each in plan.segments if not each.is_dropped]
    if plan.snapshots or not covered or not left or (left[0].begins_at or left[0].base_offset) > snapshot_end:
        return None
    segments = [replace(each, cuts=[cut for cut in each.cuts if not cut.start], patches=[]) for each in covered]
    return Plan(directory, segments)


def _known_gaps(fs: FileSystem, directory: str) -> list[tuple[Offset, Offset]]:
    """A damaged file counts as one that says nothing."""
    try:
        return read_known_gaps(fs, directory) if fs.is_dir(directory) else []
    except CorruptFile:
        return []


def is_snapshot_damaged(fs: FileSystem, path: str) -> bool:
    """Whether a snapshot of the metadata log cannot be read to its end."""
    with closing(fs.open(path, read_only=True)) as file:
        scan = Scan(file.size())
        ends_well = False
        for batch in walk(file, scan, 0, deep=True):
            ends_well = batch.header.is_control
        return bool(scan.problems or scan.preallocated_bytes) or not ends_well


def _stale_indexes(fs: FileSystem, directory: str) -> list[str]:
    """Indexes with entries whose log is missing or empty."""
    stale = []
    for name in fs.listdir(directory) if fs.is_dir(directory) else []:
        if segment_offset(name) is not None and name.endswith((INDEX, TIME_INDEX)):
            path = posixpath.join(directory, name)
            log = posixpath.join(directory, name.partition(".")[0] + LOG)
            if _is_written(fs, path) and not (fs.exists(log) and fs.size(log)):
                stale.append(path)
    return stale


def _is_written(fs: FileSystem, path: str) -> bool:
    """Whether an index has an entry; Kafka fills the file of an open segment with zeros."""
    with closing(fs.open(path, read_only=True)) as file:
        return any(file.pread(COPY_BYTES, 0))


def _joined(gaps: list[tuple[Offset, Offset]]) -> list[tuple[Offset, Offset]]:
    joined: list[tuple[Offset, Offset]] = []
    for first, end in sorted(gaps):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


class _Planner:
    """Goes through the segments in order; `_expected` is the offset that should come next."""

    def __init__(self, fs: FileSystem, directory: str, known_end: Offset, contiguous: bool) -> None:
        self._fs = fs
        self._known_end = known_end
        self._contiguous = contiguous
        self.plan = plan = Plan(directory)
        self.behind_gaps: dict[Offset, _BehindGap] = {}
        """Batches behind gaps, by the offset at which a gap ends; for gaps that end within a segment."""
        self._known = _known_gaps(fs, directory)
        bases = base_offsets(fs, directory)
        self._expected = bases[0] if bases else known_end
        for base, following in zip_longest(bases, bases[1:]):
            path = posixpath.join(directory, f"{base:020d}{LOG}")
            plan.segments.append(SegmentPlan(path, base, fs.size(path)))
            self._miss_up_to(base)
            self._take(plan.segments[-1], following)
        plan.stale_indexes = _stale_indexes(fs, directory)
        plan.records_end = self._expected if bases else 0
        plan.end = max(self._expected, known_end)
        if not bases or self._expected < known_end:
            plan.new_segment = known_end
            self._miss_up_to(known_end)
        plan.gaps = _joined(plan.gaps)

    def _miss_up_to(self, offset: Offset) -> None:
        if self._expected < offset:
            if self._contiguous and not is_known(self._known, self._expected, offset):
                self.plan.gaps.append((self._expected, offset))
            self._expected = offset

    def _take(self, segment: SegmentPlan, limit: Offset | None) -> None:
        """Plan one segment; nothing in it may reach beyond `limit`, where the next one begins. None for the last: more
        may be whole there than anybody noted."""
        with closing(self._fs.open(segment.path, read_only=True)) as file:
            scan = Scan(segment.size)
            found = walk(file, scan, segment.base_offset, deep=False)
            entries = [_Entry(batch.position, batch.header) for batch in found if batch.is_whole]
        segment.cuts += [Range(damaged.start, damaged.end, damaged.why) for damaged in scan.damaged]
        if scan.preallocated_bytes:
            segment.cuts.append(Range(segment.size - scan.preallocated_bytes, segment.size, "zeros"))
        broken = {damaged.start for damaged in scan.damaged} | {damaged.end for damaged in scan.damaged}
        _mend_epochs(segment, entries)
        previous: _Kept | None = None
        reached = 0
        """Position in the file up to which no bytes lie between the batches."""
        for number, entry in enumerate(entries):
            if number + 1 < len(entries):
                next_base: Offset | None = entries[number + 1].header.base_offset
            else:
                next_base = limit if limit is not None else self._known_end or None
            # One in its place has to lie beside it in the file: a file of other batches proves nothing.
            beside = number + 1 < len(entries) or (
                previous is not None and previous.entry.position + previous.entry.header.size == entry.position
            )
            first = not number or previous is not None
            is_behind, end = entry.position == reached, entry.position + entry.header.size
            sure = beside and first and not broken & {entry.position, end}
            kept = _Kept(entry, self._expected, len(self.plan.gaps))
            if sure and self._mend_base(segment, entry, next_base, limit):
                previous, reached = kept, end
            elif is_behind and limit is None and self._jumps(entry):
                _cut(segment, entry, self._expected)
                previous, reached = None, end
            elif self._is_misplaced(entry, limit):
                fits = limit is None or entry.header.next_offset <= limit
                if previous is not None and fits and _claimed_too_much(previous, entry):
                    self._uncount(segment, previous)
                    _cut(segment, previous.entry, previous.expected)
                    self._keep(segment, entry)
                    previous, reached = previous._replace(entry=entry), end
                else:
                    _cut(segment, entry, self._expected)
                    previous = None
            else:
                self._keep(segment, entry)
                previous, reached = kept, end

    def _jumps(self, entry: _Entry) -> bool:
        """Whether a batch right behind another claims offsets beyond all that are known to have been assigned: in a log
        without gaps, or if some of the skipped offsets were assigned.
        """
        header, expected, known_end = entry.header, self._expected, self._known_end
        if not expected < header.base_offset or not 0 < known_end < header.next_offset:
            return False
        return (self._contiguous or expected < known_end) and not is_known(self._known, expected, header.base_offset)

    def _is_misplaced(self, entry: _Entry, limit: Offset | None) -> bool:
        header = entry.header
        return header.base_offset < self._expected or (limit is not None and header.next_offset > limit)

    def _mend_base(self, segment: SegmentPlan, entry: _Entry, next_base: Offset | None, limit: Offset | None) -> bool:
        """Write the base offset back that the batches before and behind leave room for, and no other."""
        header, expected = entry.header, self._expected
        proven = expected + header.last_offset_delta + 1
        if not self._contiguous or header.base_offset == expected or next_base != proven:
            return False
        if not self._is_misplaced(entry, limit) and is_known(self._known, expected, header.base_offset):
            return False
        why = f"the base offset {header.base_offset} becomes {expected}, as the batches around it prove"
        segment.patches.append(Patch(entry.position, _INT64.pack(expected), why))
        self._count(segment, entry)
        self._expected = proven
        return True

    def _keep(self, segment: SegmentPlan, entry: _Entry) -> None:
        if self._expected < entry.header.base_offset:
            self.behind_gaps[entry.header.base_offset] = _BehindGap(entry.position, segment.batches, segment.records)
        self._miss_up_to(entry.header.base_offset)
        self._count(segment, entry)
        self._expected = entry.header.next_offset

    def _uncount(self, segment: SegmentPlan, kept: _Kept) -> None:
        """Undo the counting of this batch, the last one that was kept."""
        segment.batches -= 1
        segment.records -= kept.entry.header.count
        del self.plan.gaps[kept.gaps :]
        self._expected = kept.expected

    @staticmethod
    def _count(segment: SegmentPlan, entry: _Entry) -> None:
        segment.batches += 1
        segment.records += entry.header.count


def _claimed_too_much(previous: _Kept, entry: _Entry) -> bool:
    """Whether it is the batch before that does not fit: without it this one does."""
    return previous.entry.header.base_offset > previous.expected <= entry.header.base_offset


def _cut(segment: SegmentPlan, entry: _Entry, expected: Offset) -> None:
    header, start = entry.header, entry.position
    why = f"a batch that claims offsets {header.base_offset} to {header.last_offset}, where {expected} should follow"
    segment.cuts.append(Range(start, start + header.size, why))
    segment.patches = [patch for patch in segment.patches if not start <= patch.position < start + header.size]


def _mend_epochs(segment: SegmentPlan, entries: list[_Entry]) -> None:
    """Epochs never go back: one that rises above both neighbours or falls below both was changed."""
    epochs = [entry.header.leader_epoch for entry in entries]
    for number, epoch in enumerate(epochs):
        before = epochs[number - 1] if number else None
        after = epochs[number + 1] if number + 1 < len(epochs) else None
        high = after is not None and epoch > after and (before is None or before <= after)
        low = before is not None and epoch < before and (after is None or before <= after)
        right = before if before is not None else after
        if (high or low) and right is not None:
            epochs[number] = right
            position = entries[number].position + LEADER_EPOCH_POSITION
            segment.patches.append(
                Patch(
                    position,
                    _INT32.pack(right),
                    f"the leader epoch {epoch} becomes {right}, as the batches around it prove",
                )
            )


def apply(fs: FileSystem, plan: Plan) -> list[str]:
    """Carry the plan out; returns the side files. Raises `OSError`; run again after a crash it comes to the same end.

    What is to be cut is on disk in its side file before anything is cut, and gaps are known before they arise.
    """
    directory, kept = plan.directory, []
    parent = posixpath.dirname(directory)
    if not fs.is_dir(directory):
        fs.makedirs(directory)
        fs.fsync_dir(parent or ".")
    for segment in plan.segments:
        kept += [at_once(keep_aside(fs, segment.path, cut.start, cut.end)) for cut in segment.cuts]
    if plan.gaps:
        write_known_gaps(fs, directory, [*_known_gaps(fs, directory), *plan.gaps])
    for segment in plan.segments:
        if segment.is_dropped:
            _remove(fs, segment, INDEX, TIME_INDEX, LOG)
        elif segment.is_changed:
            _change(fs, segment)
    for name in plan.snapshots:
        fs.rename(posixpath.join(directory, name), posixpath.join(directory, name + CUT))
        kept.append(posixpath.join(directory, name + CUT))
    for path in plan.stale_indexes:
        if fs.exists(path):  # it went with its log otherwise
            fs.remove(path)
    if plan.log_start is not None:
        offsets = read_offset_checkpoint(fs, plan.log_start.path)
        offsets.pop(plan.log_start.partition, None)
        write_offset_checkpoint(fs, plan.log_start.path, offsets)
    if plan.new_segment is not None:
        file = fs.open(posixpath.join(directory, f"{plan.new_segment:020d}{LOG}"), create=True)
        file.fsync()
        file.close()
    fs.fsync_dir(directory)
    return kept


def _remove(fs: FileSystem, segment: SegmentPlan, *suffixes: str) -> None:
    for suffix in suffixes:
        path = segment.path.removesuffix(LOG) + suffix
        if fs.exists(path):
            fs.remove(path)


def _change(fs: FileSystem, segment: SegmentPlan) -> None:
    """Rewrite the file beside the old one and put it in its place. The node rebuilds its indexes."""
    temporary = segment.new_path + CLEANED  # which a start removes
    source = fs.open(segment.path, read_only=True)
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        _copy(source, file, segment)
        file.fsync()
    except OSError:
        fs.remove(temporary)
        raise
    finally:
        source.close()
        file.close()
    _remove(fs, segment, INDEX, TIME_INDEX)
    fs.fsync_dir(posixpath.dirname(segment.path))
    fs.rename(temporary, segment.new_path)
    if segment.begins_at is not None:
        fs.fsync_dir(posixpath.dirname(segment.path))
        _remove(fs, segment, LOG)


def _copy(source: File, file: File, segment: SegmentPlan) -> None:
    target = 0
    for start, end in segment.kept():
        for position in range(start, end, COPY_BYTES):
            data = source.pread(min(COPY_BYTES, end - position), position)
            file.pwrite((data,), target + position - start)
        for patch in segment.patches:
            if start <= patch.position < end:
                file.pwrite((patch.data,), target + patch.position - start)
        target += end - start
