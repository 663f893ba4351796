"""Opening the segments of a log, and repairing them after a crash (Kafka's `LogLoader`, `LogSegment.recover`).

After a clean stop everything was fsynced; otherwise what lies below the recovery point, indexes included. What was
fsynced is trusted as far as names, sizes, and the first and last batches of segments agree; what is not valid in it is
damage (`damage.py`), and nothing cuts it. From the recovery point on every batch has to have its checksum and its
place, and the log ends before the first that has not. So recovery takes time by the unflushed tail, not by the log.
"""

from __future__ import annotations

import posixpath
import shlex
import struct
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import File, FileSystem
from ottla.model import LeaderEpoch, Offset
from ottla.protocol.records.record_batch import (
    CRC_POSITION,
    HEADER_SIZE,
    MAGIC_POSITION,
    BatchHeader,
    CorruptBatch,
    compute_crc,
)
from ottla.protocol.records.record_batch import read_batch_header as read_header
from ottla.steps import at_once
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.recovery.damage import (
    Damage,
    DamagedLog,
    RecoveryResult,
    free_name,
    is_known,
    keep_aside,
    read_known_gaps,
)
from ottla.storage.recovery.scan import Scan, walk
from ottla.storage.segments.index_file import GAP_IN_SEGMENT_MAX, RELATIVE_OFFSET_MAX
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_files import (
    DELETED,
    FSYNCED_GAPS,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_offset,
)
from ottla.storage.segments.segment_list import CLEANED, SWAP

READ_BYTES = 1024 * 1024
"""What recovery reads before it yields to the event loop; a larger batch is read whole."""

BATCHES_AT_ONCE = 1_000
"""Batches whose producers or epochs are noted before yielding to the event loop."""

QUICK_BATCHES_MAX = 1_000
"""Headers that are looked at behind the last index entry of a segment that is trusted; with more the index is
rebuilt."""

_OLD_FORMATS = (0, 1)
_INDEX_ENTRY = struct.Struct(">II")

OpenSegment = Callable[[Offset, int], Segment]
"""Makes a `Segment` of a base offset and the size of its file."""


@dataclass(slots=True)
class LoadedSegments:
    """What `load_segments` found."""

    segments: list[Segment]
    next_offset: Offset
    gaps_end: Offset = 0
    """Where the last gap between two segments ends that was taken for compaction, 0 without any."""
    epochs: list[tuple[LeaderEpoch, Offset]] = field(default_factory=list)
    """Leader epochs with their first offsets in the part that was checked."""
    seen: list[tuple[LeaderEpoch, Offset]] = field(default_factory=list)
    """Leader epoch and offset of batches that were fsynced and looked at: of each segment the first and the last."""
    names: list[str] = field(default_factory=list)
    """Files of the directory."""
    recovery: RecoveryResult = field(default_factory=RecoveryResult)


def load_segments(
    fs: FileSystem,
    directory: str,
    open_segment: OpenSegment,
    *,
    log_start_offset: Offset,
    recovery_point: Offset,
    clean_shutdown: bool,
    contiguous: bool,
) -> Generator[None, None, LoadedSegments]:
    """Open all segments of a directory, repairing what a crash left behind. There may be none.

    Yields between pieces of what it checks; left off there, the next start finds a log that was not recovered yet.

    `contiguous` says that the log was never compacted: a segment that ends below the next one's base then has lost
    batches. One of any other log has, if the log is marked (`FSYNCED_GAPS`) and what is missing was not fsynced. What
    was fsynced is never cut: where it is not valid any more this raises `DamagedLog`. What was not, ends before the
    first batch that is invalid or missing; whole batches behind it are kept in side files. (Kafka deletes them, or
    keeps the later segments and the hole.)

    Raises `OSError`, and `KafkaError` for message formats older than Kafka 0.11's.
    """
    names = fs.listdir(directory)
    orphan = _orphan_of_a_lost_log(fs, directory, names) if clean_shutdown else None
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):  # seldom: it is not loaded with each node
        from ottla.storage.recovery.interrupted_work import finish_interrupted_work

        names = finish_interrupted_work(fs, directory, names)
    bases = sorted(int(name[:-4]) for name in names if name.endswith(LOG) and segment_offset(name) is not None)
    loaded = LoadedSegments([], bases[0] if bases else 0, names=names)
    # Without a checkpoint a clean stop says that all there is was fsynced.
    fsynced_end = None if clean_shutdown and not recovery_point else recovery_point
    loading = _Loading(fs, directory, loaded, log_start_offset, fsynced_end, clean_shutdown, contiguous)
    if orphan is not None:
        raise loading.damaged(orphan, None, "it is missing, while its index is there", "later segments are whole")
    if not bases and fsynced_end is not None and fsynced_end > log_start_offset:
        what = f"it has no log file, but records up to offset {fsynced_end} were fsynced"
        raise loading.damaged(directory, None, what, "nothing lies behind it")
    known = set(bases)
    for name in names:
        offset = segment_offset(name)
        if name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)) and offset is not None and offset not in known:
            fs.remove(posixpath.join(directory, name))
    for number, base in enumerate(bases):
        segment = open_segment(base, fs.size(posixpath.join(directory, f"{base:020d}{LOG}")))
        loaded.segments.append(segment)
        following = bases[number + 1] if number + 1 < len(bases) else None
        ended = yield from loading.take(segment, following, bases[number + 1 :])
        if ended:
            break
    loading.check_end()
    return loaded


def _orphan_of_a_lost_log(fs: FileSystem, directory: str, names: list[str]) -> str | None:
    """The log file that an index with entries lies beside, after a clean stop, which leaves no deletion half done."""
    present = set(names)
    for name in names:
        log = name.removesuffix(INDEX) + LOG
        if (
            name.endswith(INDEX)
            and segment_offset(name) is not None
            and log not in present
            and not {log + suffix for suffix in (DELETED, CLEANED, SWAP)} & present
            and _last_entry(fs, posixpath.join(directory, name)) not in (None, (0, 0))
        ):
            return posixpath.join(directory, log)
    return None


class _Loading:
    """Opens one segment after the other, and knows what of them was fsynced."""

    __slots__ = (
        "_clean", "_contiguous", "_directory", "_fs", "_fsynced_end", "_gaps", "_loaded", "_log_start", "_names",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        loaded: LoadedSegments,
        log_start: Offset,
        fsynced_end: Offset | None,
        clean: bool,
        contiguous: bool,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._loaded = loaded
        self._names = frozenset(loaded.names)
        self._log_start = log_start
        self._fsynced_end = fsynced_end
        """Below it everything was fsynced; None: everything that there is."""
        self._clean = clean
        self._contiguous = contiguous
        self._gaps: list[tuple[Offset, Offset]] | None = None

    def damaged(self, path: str, position: int | None, what: str, behind: str) -> DamagedLog:
        return DamagedLog(Damage(self._directory, path, position, what, behind))

    def _is_fsynced(self, offset: Offset) -> bool:
        return self._fsynced_end is None or offset < self._fsynced_end

    def _is_known_gap(self, first: Offset, end: Offset) -> bool:
        if self._gaps is None:
            try:
                self._gaps = read_known_gaps(self._fs, self._directory)
            except CorruptFile:
                self._gaps = []
        return is_known(self._gaps, first, end)

    def take(self, segment: Segment, following: Offset | None, later: list[Offset]) -> Generator[None, None, bool]:
        """Check a segment as far as it has to be; returns whether the log ends in it although others follow."""
        loaded, base = self._loaded, segment.base_offset
        stem = f"{base:020d}"
        indexed = {stem + INDEX, stem + TIME_INDEX} <= self._names
        if not self._clean and (following is None or self._fsynced_end is None or following >= self._fsynced_end):
            # One that ends at the recovery point may have been closed, its time index completed, after the last fsync.
            start = (self._fsynced_end or 0) if indexed else base
        elif not indexed:
            start = base
        else:
            end = self._quick_end(segment, following)
            if end is not None:
                loaded.next_offset = end
                if following is None:
                    loaded.next_offset = yield from self._tail(segment)
                return (yield from self._meets(segment, following, later))
            start = base
        cut = yield from self._recover(segment, start, following)
        if cut is None:
            return (yield from self._meets(segment, following, later))
        yield from self._end_here(segment, *cut, later)
        return True

    def _quick_end(self, segment: Segment, following: Offset | None) -> Offset | None:
        """Where a segment that is trusted ends; None where it does not look as it was left, and has to be read."""
        if following is not None and following <= self._log_start:
            return following  # nobody reads it any more
        if not segment.size:
            if following is not None and _last_index_entry(self._fs, segment) != (0, 0):
                what = "it is empty, but its index has entries"
                raise self.damaged(segment.path(LOG), 0, what, "the segments behind it are untouched")
            return segment.base_offset
        if following is None:  # its index is loaded anyhow, and its file stays open
            index = segment.offset_index
            entry = (index.offsets[-1], index.positions[-1]) if len(index) else (0, 0)
            file = segment.open().file
            return self._walk_tail(file, segment, entry)
        entry = _last_index_entry(self._fs, segment)
        with closing(self._fs.open(segment.path(LOG), read_only=True)) as file:
            end = self._walk_tail(file, segment, entry)
        return None if end is not None and end > following else end

    def _walk_tail(self, file: File, segment: Segment, entry: tuple[int, int]) -> Offset | None:
        """Hold the first batch and those behind the last index entry against names and index, by their headers."""
        base, size = segment.base_offset, segment.size
        relative, position = entry
        try:
            first = read_header(file.pread(HEADER_SIZE, 0))
            if first.base_offset < base or not self._adjoins(base, first.base_offset):
                return None
            expected = None if position else base
            for _ in range(QUICK_BATCHES_MAX):
                header = read_header(file.pread(HEADER_SIZE, position)) if position else first
                if expected is None:
                    if not base <= header.base_offset <= base + relative:
                        return None
                elif header.base_offset < expected or not self._adjoins(expected, header.base_offset):
                    return None
                if header.last_offset_delta < 0:
                    return None
                expected = header.next_offset
                position += header.size
                if position >= size:
                    self._loaded.seen += [(each.leader_epoch, each.base_offset) for each in (first, header)]
                    return expected if position == size else None
        except CorruptBatch:
            pass
        return None

    def _adjoins(self, expected: Offset, found: Offset) -> bool:
        """Whether a batch may begin at `found` where `expected` is next."""
        return found == expected or not self._contiguous or self._is_known_gap(expected, found)

    def _meets(self, segment: Segment, following: Offset | None, later: list[Offset]) -> Generator[None, None, bool]:
        """Look whether the next segment begins where this one ends; returns whether the log ends here instead."""
        end = self._loaded.next_offset
        if following is None or following <= self._log_start or end == following:
            return False
        path = segment.path(LOG)
        if end > following:
            what = f"it ends at offset {end}, but the next segment begins at {following}"
            raise self.damaged(path, segment.size, what, f"{len(later)} segments lie behind it")
        if self._is_known_gap(end, following):
            return False
        if not self._contiguous and self._is_compacted(end, following):
            self._loaded.gaps_end = following
            return False
        if self._contiguous and (self._clean or self._is_fsynced(end)):
            what = f"offsets {end} to {following - 1} are missing: the next segment begins at {following}"
            raise self.damaged(path, segment.size, what, f"{len(later)} segments lie behind it")
        yield from self._end_here(segment, None, "", later)
        return True

    def _is_compacted(self, end: Offset, following: Offset) -> bool:
        """Whether a gap between two segments is to be taken for the work of the cleaner, or of a compacted leader."""
        is_marked = FSYNCED_GAPS in self._names
        return self._clean or self._is_fsynced(end) or not is_marked or following - end >= GAP_IN_SEGMENT_MAX

    def check_end(self) -> None:
        """Look whether all that was fsynced is there."""
        loaded, fsynced_end = self._loaded, self._fsynced_end
        if not loaded.segments:
            return
        last = loaded.segments[-1]
        end = max(loaded.next_offset, last.base_offset)
        if fsynced_end is not None and end < fsynced_end > self._log_start:
            what = f"the log ends at offset {end}, but records up to {fsynced_end} were fsynced, as the checkpoints say"
            raise self.damaged(last.path(LOG), last.size, what, "nothing lies behind it")
        if end < self._log_start:
            if self._clean:
                what = f"the log ends at offset {end}, but begins at {self._log_start}, as the checkpoint says"
                raise self.damaged(last.path(LOG), last.size, what, "nothing lies behind it")
            at_once(self._move_to_side_files([segment.base_offset for segment in loaded.segments]))
            loaded.segments.clear()

    def _tail(self, segment: Segment) -> Generator[None, None, Offset]:
        """The log end after a clean stop; an index that leads astray is rebuilt."""
        if not segment.size:
            return segment.base_offset
        from ottla.storage.segments.segment_rescan import load_tail  # not at the first start

        try:
            return load_tail(segment, trust_time_index=True)
        except KafkaError:
            cut = yield from self._recover(segment, segment.base_offset, None)
            assert cut is None, "its batches were looked at before"
            return self._loaded.next_offset

    # What has to be read

    def _recover(
        self, segment: Segment, trusted: Offset, limit: Offset | None
    ) -> Generator[None, None, tuple[int, str] | None]:
        """Check a segment from `trusted` on and rebuild its index entries from there.

        Returns the position of its first invalid batch and what is wrong there, None without any. Raises `DamagedLog`
        where what is invalid was fsynced.
        """
        loaded = self._loaded
        file_size = segment.size
        index = segment.offset_index
        keep = index.count_below(trusted)
        start = index.positions[keep - 1] if keep else 0
        file = segment.open().file
        next_offset = segment.base_offset
        if keep and not _starts_batch(file, start, file_size, segment, index.offsets[keep - 1]):
            keep = start = 0
        loaded.recovery.repaired |= index.truncate(keep)
        times = segment.time_index
        kept_times = times.count_below(segment.base_offset + index.offsets[keep - 1]) if keep else 0
        loaded.recovery.repaired |= times.truncate(kept_times)
        largest = times.last_entry
        segment.reset()
        segment.size = start
        if keep:
            # What lies between the last index entries and the trusted offset may have had the largest timestamp.
            first = min(index.position_before(largest[1]), start)
            try:
                for batch in segment.batches(first):
                    if batch.max_timestamp > largest[0]:
                        largest = batch.max_timestamp, batch.last_offset
                    next_offset = batch.last_offset + 1
            except KafkaError:
                segment.size = file_size
                return (yield from self._recover(segment, segment.base_offset, limit))
        segment.set_max_timestamp(*largest)
        loaded.next_offset = next_offset
        wrong = yield from self._scan(segment, file, file_size, limit)
        segment.index_changes += 1
        loaded.recovery.recovered_bytes += segment.size - start
        if not self._clean:
            segment.transaction_index.truncate_to(max(trusted, self._fsynced_end or 0))
        if wrong is None:
            segment.close_to_appends()
            return None
        position, (offset, why) = segment.size, wrong
        if self._is_fsynced(offset):
            behind = yield from self._behind(segment, file, file_size)
            raise self.damaged(segment.path(LOG), position, why, behind)
        return position, why

    def _scan(
        self, segment: Segment, file: File, file_size: int, limit: Offset | None
    ) -> Generator[None, None, tuple[Offset, str] | None]:
        """Note valid batches from `segment.size` on, none of which may reach beyond `limit`.

        Returns None at the end of the file, or what is wrong before it, and an offset that tells whether what should
        be there was fsynced.
        """
        loaded = self._loaded
        data, start = b"", segment.size
        gap: Offset | None = None  # where one before the last valid batch begins: it may come from a raised base offset
        epoch = loaded.epochs[-1][0] if loaded.epochs else -1
        while segment.size < file_size:
            position, expected = segment.size, loaded.next_offset
            if file_size - position < HEADER_SIZE:
                _refuse_old_format(file, position, segment, expected)
                return expected, f"{file_size - position} bytes are no batch header"
            if position + HEADER_SIZE > start + len(data):
                yield
                data, start = file.pread(READ_BYTES, position), position
            try:
                header = read_header(data, position - start)
            except CorruptBatch as error:
                _refuse_old_format(file, position, segment, expected)
                return expected, error.message or "no batch begins here"
            size = header.size
            if position + size > file_size:
                return expected, f"a batch of {size} bytes is cut short after {file_size - position}"
            if position + size > start + len(data):
                yield
                data, start = file.pread(max(size, READ_BYTES), position), position
            claims = f"a batch claims offsets {header.base_offset} to {header.last_offset}"
            if not _fits(header, segment.base_offset, expected):
                is_in_order = gap is not None and gap <= header.base_offset < expected
                return header.base_offset if is_in_order else expected, f"{claims}, where {expected} is next"
            if limit is not None and header.last_offset >= limit:
                return expected, f"{claims}, but the next segment begins at {limit}"
            if self._is_fsynced(expected) and not self._adjoins(expected, header.base_offset):
                return expected, f"offsets {expected} to {header.base_offset - 1} are missing"
            if position + size > start + len(data) or compute_crc(data, position - start, size) != header.crc:
                return expected, "the batch's checksum does not match its bytes"
            if 0 <= header.leader_epoch < epoch and not self._is_fsynced(expected):  # left of what was cut there
                return expected, f"its leader epoch {header.leader_epoch} comes after epoch {epoch}"
            gap = expected if header.base_offset > expected else None
            loaded.next_offset = header.next_offset
            segment.note_batch(header.base_offset, header.last_offset, size, header.max_timestamp)
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                loaded.epochs.append((epoch, header.base_offset))
                if self._is_fsynced(header.base_offset):  # behind that the file may lack what the batches say
                    loaded.seen.append((epoch, header.base_offset))
        return None

    def _behind(self, segment: Segment, file: File, file_size: int) -> Generator[None, None, str]:
        """What is whole behind the first invalid batch, in words."""
        scan = yield from look_behind(file, segment.size, file_size, self._loaded.next_offset)
        behind = scan.damaged[0].behind if scan.damaged else f"{scan.batches} whole batches lie behind it in this file"
        others = [
            name
            for name in self._loaded.names
            if name.endswith(LOG) and (segment_offset(name) or 0) > segment.base_offset
        ]
        if not others:
            return behind
        size = sum(self._fs.size(posixpath.join(self._directory, name)) for name in others)
        return f"{behind}, and {len(others)} later segments with {size} bytes"

    # What was not fsynced and ends the log

    def _end_here(
        self, segment: Segment, position: int | None, wrong: str, later: list[Offset]
    ) -> Generator[None, None, None]:
        """End the log in `segment`, at `position` if its file goes on there. The newest files go first, so that a crash
        leaves no gap."""
        loaded, recovery = self._loaded, self._loaded.recovery
        yield from self._move_to_side_files(later)
        if position is not None:
            file = segment.open().file
            file_size = file.size()
            scan = yield from look_behind(file, position, file_size, loaded.next_offset)
            if scan.batches:
                kept = yield from keep_aside(self._fs, segment.path(LOG), position, file_size)
                recovery.note_kept(kept, scan.batches, scan.records, file_size - position)
            recovery.truncated_bytes += file_size - position
            file.truncate(position)
            file.fsync()  # or a power failure might bring back the old tail behind what is appended next
        recovery.repaired = True
        segment.close_to_appends()

    def _move_to_side_files(self, bases: list[Offset]) -> Generator[None, None, None]:
        """Take segments out of the log: whole batches are kept in side files."""
        fs, recovery = self._fs, self._loaded.recovery
        for base in reversed(bases):
            path = posixpath.join(self._directory, f"{base:020d}{LOG}")
            size = fs.size(path)
            with closing(fs.open(path, read_only=True)) as file:
                scan = yield from look_behind(file, 0, size, 0)
            recovery.truncated_bytes += size
            if scan.batches:
                target = free_name(fs, f"{path}.0", path, 0, size)
                fs.rename(path, target)
                recovery.note_kept(target, scan.batches, scan.records, size)
            else:
                fs.remove(path)
            for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                name = f"{base:020d}{suffix}"
                if fs.exists(posixpath.join(self._directory, name)):
                    fs.remove(posixpath.join(self._directory, name))
            recovery.repaired = True
        if bases:
            fs.fsync_dir(self._directory)  # or a power failure might bring them back behind what is appended next


def look_behind(file: File, start: int, size: int, offset_min: Offset) -> Generator[None, None, Scan]:
    """Count the whole batches from `start` on."""
    scan = Scan(size)
    for number, _ in enumerate(walk(file, scan, offset_min, deep=False, start=start), 1):
        if number % BATCHES_AT_ONCE == 0:
            yield
    return scan


def _last_entry(fs: FileSystem, path: str) -> tuple[int, int] | None:
    """(relative offset, position) of the last entry of an offset index, None without any; no more of it is read."""
    with closing(fs.open(path, read_only=True)) as file:
        count = file.size() // OffsetIndex.ENTRY_SIZE
        if not count:
            return None
        data = file.pread(OffsetIndex.ENTRY_SIZE, (count - 1) * OffsetIndex.ENTRY_SIZE)
        relative, position = _INDEX_ENTRY.unpack(data)
        return relative, position


def _last_index_entry(fs: FileSystem, segment: Segment) -> tuple[int, int]:
    """The same of a segment, (0, 0) without any."""
    found = _last_entry(fs, segment.path(INDEX))
    if found is None or any(found):
        return found or (0, 0)
    index = segment.offset_index  # Kafka fills the file of an open segment with zeros
    return (index.offsets[-1], index.positions[-1]) if len(index) else (0, 0)


def _starts_batch(file: File, position: int, size: int, segment: Segment, relative_offset: int) -> bool:
    """Whether the batch of an index entry is at the position that the entry gives."""
    try:
        header = read_header(file.pread(HEADER_SIZE, position))
    except CorruptBatch:
        return False
    entry = segment.base_offset + relative_offset
    return position + header.size <= size and segment.base_offset <= header.base_offset <= entry


def _fits(header: BatchHeader, base_offset: Offset, next_offset: Offset) -> bool:
    return (
        header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.count >= 0
        and header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
    )


def _refuse_old_format(file: File, position: int, segment: Segment, next_offset: Offset) -> None:
    """Refuse to cut a message that Kafka before 0.11 wrote: it is whole, only not to be read here.

    Where a segment begins, its head is proof enough: then the whole file is of that format.
    """
    from ottla.protocol.records.message_set import check_message, size_of  # only old logs need it

    head = file.pread(CRC_POSITION, position)
    if len(head) < CRC_POSITION or head[MAGIC_POSITION] not in _OLD_FORMATS or not any(head):
        return
    offset = int.from_bytes(head[:8], "big")
    if not (segment.size == 0 and offset == segment.base_offset):
        try:
            size = size_of(head, 0)
            if offset < next_offset or position + size > file.size():
                return
            check_message(file.pread(size, position))
        except CorruptBatch:
            return
    log = segment.path(LOG)
    directory = shlex.quote(posixpath.dirname(posixpath.dirname(log)))
    message = (
        f"{log} has message format {head[MAGIC_POSITION]}, of Kafka before 0.11: "
        f"run `ottla log convert {directory}` first"
    )
    raise KafkaError(ErrorCode.unsupported_for_message_format, message)
