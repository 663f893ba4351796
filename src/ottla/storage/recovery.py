"""Opening the segments of a log, and repairing them after a crash (Kafka's `LogLoader`, `LogSegment.recover`).

After a clean stop everything is trusted. Otherwise what lies below the recovery point is trusted, as it was fsynced
with its indexes; from there on every batch has to have its checksum and its place, and the log ends before the first
that has not. So recovery takes time by the unflushed tail, not by the log.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import File, FileSystem
from ottla.model import Buffer, LeaderEpoch, Millis, Offset
from ottla.protocol.record_batch import CRC_POSITION, HEADER_SIZE, BatchHeader, CorruptBatch, compute_crc
from ottla.protocol.record_batch import read_batch_header as read_header
from ottla.storage.index_file import RELATIVE_OFFSET_MAX
from ottla.storage.producer_snapshot import read_end_marker
from ottla.storage.producer_state import ProducerStateManager
from ottla.storage.segment import DELETED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, Segment
from ottla.storage.segment_list import CLEANED, SWAP
from ottla.storage.transaction_index import AbortedTransaction

READ_BYTES = 1024 * 1024
"""What recovery reads before it yields to the event loop; a larger batch is read whole."""

BATCHES_AT_ONCE = 1_000
"""Batches whose producers or epochs are noted before yielding to the event loop."""

RECALL_BYTES = 2 * 1024 * 1024
"""How much of the log before a producer snapshot is looked through for what the snapshot leaves out: with 16 KiB
batches the last five of some twenty producers."""

_NAME_DIGITS = 20
_OLD_FORMATS = (0, 1)

OpenSegment = Callable[[Offset, int], Segment]
"""Makes a `Segment` of a base offset and the size of its file."""


@dataclass(slots=True)
class LoadedSegments:
    """What `load_segments` found."""

    segments: list[Segment]
    next_offset: Offset
    recovered_bytes: int = 0
    """Read and checked because they were not known to be fsynced."""
    truncated_bytes: int = 0
    """Cut off because they were no whole, valid batches."""
    repaired: bool = False
    """Something was cut off a file, which a power failure must not bring back."""
    epochs: list[tuple[LeaderEpoch, Offset]] = field(default_factory=list)
    """Leader epochs with their first offsets in the part that was checked."""
    names: list[str] = field(default_factory=list)
    """Files of the directory."""


def segment_offset(name: str) -> Offset | None:
    """The offset that a file of a segment or a snapshot has in its name."""
    digits = name[:_NAME_DIGITS]
    if len(name) > _NAME_DIGITS and digits.isdecimal() and name[_NAME_DIGITS] == ".":
        return int(digits)
    return None


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

    Yields to the event loop between pieces of what it checks; stopped there, the next start finds a log that was not
    recovered yet.

    `contiguous` says that the log was never compacted: a segment that ends below the next one's base then has lost
    batches to a power failure, and the log ends there. (Kafka keeps the later segments and the hole.)

    Raises `OSError`, and `KafkaError` for message formats older than Kafka 0.11's.
    """
    names = finish_interrupted_work(fs, directory, fs.listdir(directory))
    files = set(names)
    bases = sorted(int(name[:-4]) for name in names if name.endswith(LOG) and segment_offset(name) is not None)
    loaded = LoadedSegments([], bases[0] if bases else 0, names=names)
    known = set(bases)
    for name in names:
        offset = segment_offset(name)
        if name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)) and offset is not None and offset not in known:
            fs.remove(posixpath.join(directory, name))
    for number, base in enumerate(bases):
        segment = open_segment(base, fs.size(posixpath.join(directory, f"{base:020d}{LOG}")))
        last = number == len(bases) - 1
        end = None if last else bases[number + 1]
        indexed = {f"{base:020d}{INDEX}", f"{base:020d}{TIME_INDEX}"} <= files
        loaded.segments.append(segment)
        trusted: Offset | None = None
        # A segment that ends at the recovery point may have been closed, its time index completed, after that fsync.
        if not clean_shutdown and (end is None or end >= recovery_point):
            trusted = recovery_point if indexed else base
        elif not indexed:
            trusted = base
        if trusted is not None:
            yield from _recover(loaded, segment, trusted)
            unflushed = not clean_shutdown and end is not None and end > max(recovery_point, log_start_offset)
            hole = contiguous and unflushed and loaded.next_offset < bases[number + 1]
            if (loaded.truncated_bytes or hole) and not last:
                _drop(fs, directory, names, bases[number + 1 :])
                break
        elif last:
            loaded.next_offset = yield from _trusted_end(loaded, segment)
    return loaded


def _trusted_end(loaded: LoadedSegments, segment: Segment) -> Generator[None, None, Offset]:
    """The log end after a clean stop; an index that leads astray, or a file that was damaged since, is repaired."""
    try:
        return segment.load_tail(trust_time_index=True)
    except KafkaError:
        yield from _recover(loaded, segment, segment.base_offset)
        return loaded.next_offset


def finish_interrupted_work(fs: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Remove what deletion left, and finish or undo a compaction (`.cleaned`, `.swap`); returns the files that stay."""

    def path(name: str) -> str:
        return posixpath.join(directory, name)

    def remove(name: str) -> None:
        fs.remove(path(name))
        present.discard(name)

    present = set(names)
    for name in names:
        if name.endswith(DELETED) and not name.endswith(".checkpoint" + DELETED):
            remove(name)
    cleaned = [
        (offset, name) for name in present if name.endswith(CLEANED) and (offset := segment_offset(name)) is not None
    ]
    swaps = [(offset, name) for name in present if name.endswith(SWAP) and (offset := segment_offset(name)) is not None]
    cut = min((offset for offset, _ in cleaned), default=None)
    for offset, name in swaps:
        if cut is not None and offset >= cut:  # a split that did not get as far as replacing its original
            remove(name)
    for _, name in cleaned:
        remove(name)
    swaps = [(offset, name) for offset, name in swaps if name in present]
    if not swaps:
        return sorted(present)
    # A compacted segment is complete in its swap files; the originals it replaces start inside its range.
    logs = [(offset, name) for offset, name in swaps if name.endswith(LOG + SWAP)]
    if logs:
        first = min(offset for offset, _ in logs)
        end = max(max(_end_of_file(fs, path(name), offset), offset + 1) for offset, name in logs)
        for name in sorted(present):
            offset = segment_offset(name)
            if offset is not None and first <= offset < end and not name.endswith(SWAP):
                remove(name)
    # The log before its indexes: as long as it is a swap file, what has its base offset counts as the original's.
    for _, name in sorted(swaps, key=lambda swap: (swap[0], not swap[1].endswith(LOG + SWAP))):
        target = name.removesuffix(SWAP)
        fs.rename(path(name), path(target))
        present.discard(name)
        present.add(target)
    return sorted(present)


def _end_of_file(fs: FileSystem, path: str, base_offset: Offset) -> Offset:
    """The offset after the last whole batch of a log file."""
    file = fs.open(path, read_only=True)
    try:
        end, position, size = base_offset, 0, file.size()
        while position + HEADER_SIZE <= size:
            header = read_header(file.pread(HEADER_SIZE, position))
            end = header.next_offset
            position += header.size
        return end
    except CorruptBatch:
        return end
    finally:
        file.close()


def _drop(fs: FileSystem, directory: str, names: list[str], bases: list[Offset]) -> None:
    """Delete the segments behind the place where the log was cut."""
    for name in names:
        if segment_offset(name) in bases and name.endswith((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)):
            fs.remove(posixpath.join(directory, name))
    fs.fsync_dir(directory)  # or a power failure might bring them back behind what is appended next


def _recover(loaded: LoadedSegments, segment: Segment, trusted: Offset) -> Generator[None, None, None]:
    """Check a segment from `trusted` on, rebuild its index entries from there, cut it before the first bad batch."""
    file_size = segment.size
    index = segment.offset_index
    keep = index.count_below(trusted)
    start = index.positions[keep - 1] if keep else 0
    file = segment.open().file
    next_offset = segment.base_offset
    if keep and not _starts_batch(file, start, file_size, segment, index.offsets[keep - 1]):
        keep = start = 0
    loaded.repaired |= index.truncate(keep)
    times = segment.time_index
    kept_times = times.count_below(segment.base_offset + index.offsets[keep - 1]) if keep else 0
    loaded.repaired |= times.truncate(kept_times)
    largest = times.last_entry
    segment.reset()
    segment.size = start
    if keep:
        # What lies between the last index entries and the trusted offset may have had the largest timestamp.
        first = min(index.position_before(largest[1]), start)
        for batch in segment.batches(first):
            if batch.max_timestamp > largest[0]:
                largest = batch.max_timestamp, batch.last_offset
            next_offset = batch.last_offset + 1
    segment.set_max_timestamp(*largest)
    loaded.next_offset = yield from _scan(loaded, segment, file, file_size, next_offset)
    segment.index_changes += 1
    loaded.recovered_bytes += segment.size - start
    if segment.size < file_size:
        loaded.truncated_bytes += file_size - segment.size
        loaded.repaired = True
        file.truncate(segment.size)
        file.fsync()  # or a power failure might bring back the old tail behind what is appended next
    segment.transaction_index.truncate_to(trusted)
    segment.close_to_appends()


def _starts_batch(file: File, position: int, size: int, segment: Segment, relative_offset: int) -> bool:
    """Whether the batch of an index entry is at the position that the entry gives."""
    try:
        header = read_header(file.pread(HEADER_SIZE, position))
    except CorruptBatch:
        return False
    entry = segment.base_offset + relative_offset
    return position + header.size <= size and segment.base_offset <= header.base_offset <= entry


def _scan(
    loaded: LoadedSegments, segment: Segment, file: File, file_size: int, next_offset: Offset
) -> Generator[None, None, Offset]:
    """Note valid batches from `segment.size` on; returns the offset after the last."""
    data, start = b"", segment.size
    epoch = loaded.epochs[-1][0] if loaded.epochs else -1
    while file_size - segment.size >= HEADER_SIZE:
        position = segment.size
        if position + HEADER_SIZE > start + len(data):
            yield
            data, start = file.pread(READ_BYTES, position), position
        try:
            header = read_header(data, position - start)
        except CorruptBatch as error:
            _refuse_old_format(data, position - start, segment, error)
            break
        size = header.size
        if position + size > file_size:
            break
        if position + size > start + len(data):
            yield
            data, start = file.pread(max(size, READ_BYTES), position), position
        if not _fits(header, segment.base_offset, next_offset):
            break
        if position + size > start + len(data) or compute_crc(data, position - start, size) != header.crc:
            break
        next_offset = header.next_offset
        segment.note_batch(header.base_offset, next_offset - 1, size, header.max_timestamp)
        if header.leader_epoch > epoch:
            epoch = header.leader_epoch
            loaded.epochs.append((epoch, header.base_offset))
    return next_offset


def _fits(header: BatchHeader, base_offset: Offset, next_offset: Offset) -> bool:
    return (
        header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and header.count >= 0
        and header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
    )


def _refuse_old_format(data: bytes, position: int, segment: Segment, error: CorruptBatch) -> None:
    """Do not cut away a log that Kafka before 0.11 wrote: it is whole, only unreadable here."""
    magic = data[position + CRC_POSITION - 1] if len(data) - position >= CRC_POSITION else None
    if segment.size == 0 and magic in _OLD_FORMATS and any(data[position : position + CRC_POSITION]):
        offset = int.from_bytes(data[position : position + 8], "big")
        if offset == segment.base_offset:
            message = f"{segment.path(LOG)} has message format {magic}, which is not supported"
            raise KafkaError(ErrorCode.unsupported_for_message_format, message) from error


def epochs_of_batches(segments: list[Segment]) -> Generator[None, None, list[tuple[LeaderEpoch, Offset]]]:
    """Leader epochs with their first offsets, from all batches. Yields to the event loop now and then."""
    found: list[tuple[LeaderEpoch, Offset]] = []
    for segment in segments:
        for count, batch in enumerate(segment.batches(0), 1):
            epoch = segment.read_header(batch).leader_epoch
            if not found or epoch > found[-1][0]:
                found.append((epoch, batch.base_offset))
            if count % BATCHES_AT_ONCE == 0:
                yield
    return found


def replay_producers(
    state: ProducerStateManager, segments: list[Segment], log_start: Offset, log_end: Offset, now_ms: Millis
) -> Generator[None, None, None]:
    """Load the latest producer snapshot and replay what was appended after it, transaction indexes included.

    Takes a snapshot at the start of the last segment on the way, so that the next start has less to read. Yields now
    and then.
    """
    state.truncate_and_reload(log_start, log_end, now_ms)
    if state.wants_recall(now_ms):
        state.recall(_producer_headers_before(segments, state.map_end_offset))
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        end = log_end if last else segments[number + 1].base_offset
        if end <= state.map_end_offset:
            continue
        if last and segment.base_offset > state.map_end_offset:
            state.map_end_offset = segment.base_offset
            if number:
                state.take_snapshot(sync=False)
        start = state.map_end_offset
        for count, batch in enumerate(segment.batches(segment.offset_index.position_before(start)), 1):
            if count % BATCHES_AT_ONCE == 0:
                yield
            if batch.producer_id >= 0 and batch.last_offset >= start:
                note_producer(state, segment, segment.read_header(batch), partial(segment.read_batch, batch))
    state.map_end_offset = log_end


def _producer_headers_before(segments: list[Segment], end: Offset) -> Iterator[BatchHeader]:
    """The headers of idempotent batches in the last `RECALL_BYTES` of the log before `end`, in order."""
    wanted = RECALL_BYTES
    starts: list[tuple[Segment, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= end or wanted <= 0:
            continue
        index = segment.offset_index
        stop = segment.size if starts or segment is segments[-1] else index.position_before(end)
        start = index.boundary_at_or_before(max(0, stop - wanted))
        starts.append((segment, start))
        wanted -= stop - start
    for segment, start in reversed(starts):
        for batch in segment.batches(start):
            if batch.base_offset >= end:
                return
            if batch.producer_id >= 0:
                yield segment.read_header(batch)


def note_producer(
    state: ProducerStateManager, segment: Segment, header: BatchHeader, read: Callable[[], Buffer]
) -> None:
    """Update the state with a batch that is in the log; `read` gets its bytes if they are needed. Raises `OSError`."""
    marker = read_end_marker(read()) if header.is_control else None
    completed = state.update(header, marker=marker)
    if completed is not None and completed.is_aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
            )
        )
        segment.index_changes += 1
