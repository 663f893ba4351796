"""What is rebuilt from the batches of a log: leader epochs, and the state of producers with their transaction indexes.

After recovery the batches are trusted as far as it has looked; where one proves wrong all the same, it is damage.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Buffer, LeaderEpoch, Millis, Offset, ProducerId
from ottla.protocol.records.record_batch import BatchHeader, read_end_marker
from ottla.steps import at_once
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.log.log_health import is_passing
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.producers.producer_state import SNAPSHOT_SUFFIX, ProducerStateManager
from ottla.storage.recovery.damage import Damage, DamagedLog
from ottla.storage.recovery.segment_recovery import BATCHES_AT_ONCE, look_behind
from ottla.storage.segments.batch_scan import FoundBatch
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_files import LOG, TRANSACTION_INDEX
from ottla.storage.segments.transaction_index import AbortedTransaction

RECALL_BYTES = 2 * 1024 * 1024
"""How much of the log before a producer snapshot is looked through for what the snapshot leaves out: with 16 KiB
batches the last five of some twenty producers."""


def _trusted_batches(segment: Segment, position: int) -> Iterator[FoundBatch]:
    """The batches of a segment that recovery trusts or has checked. Raises `DamagedLog`."""
    try:
        for batch in segment.batches(position):
            position = batch.position + batch.size
            yield batch
    except KafkaError as error:
        file = segment.open().file
        scan = at_once(look_behind(file, position, file.size(), segment.base_offset))
        what = scan.damaged[0].why if scan.damaged else error.message or "no batch begins here"
        behind = scan.damaged[0].behind if scan.damaged else "nothing lies behind it"
        raise DamagedLog(Damage(segment.directory, segment.path(LOG), position, what, behind)) from error


def epochs_of_batches(segments: list[Segment]) -> Generator[None, None, list[tuple[LeaderEpoch, Offset]]]:
    """Leader epochs with their first offsets, from all batches. Yields to the event loop now and then."""
    found: list[tuple[LeaderEpoch, Offset]] = []
    for segment in segments:
        for count, batch in enumerate(_trusted_batches(segment, 0), 1):
            epoch = segment.read_header(batch).leader_epoch
            if not found or epoch > found[-1][0]:
                found.append((epoch, batch.base_offset))
            elif epoch < found[-1][0]:
                what = f"its leader epoch {epoch} comes after epoch {found[-1][0]}"
                behind = "the batches before it, or this one, have a wrong epoch"
                raise DamagedLog(Damage(segment.directory, segment.path(LOG), batch.position, what, behind))
            if count % BATCHES_AT_ONCE == 0:
                yield
    return found


def replay_producers(
    state: ProducerStateManager, segments: list[Segment], log_start: Offset, log_end: Offset, now_ms: Millis
) -> Generator[None, None, None]:
    """Load the latest producer snapshot and replay what was appended after it, transaction indexes included.

    Records that were deleted count as long as their segments are there: a retry of them is still a duplicate, as it
    was before the restart (Kafka forgets it). Where they cannot be read, the state begins at the log start.
    Takes a snapshot at the start of the last segment on the way, so that the next start has less to read. Yields now
    and then. Raises `DamagedLog`.
    """
    if segments[0].base_offset < log_start:
        try:
            yield from _replay_from(state, segments, segments[0].base_offset, log_end, now_ms)
        except DamagedLog:
            pass  # of what is served, or not: that shows now
        else:
            state.on_log_start_offset(log_start)
            return
    yield from _replay_from(state, segments, log_start, log_end, now_ms)


def _replay_from(
    state: ProducerStateManager, segments: list[Segment], start: Offset, log_end: Offset, now_ms: Millis
) -> Generator[None, None, None]:
    state.truncate_and_reload(start, log_end, now_ms)
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
                _take_snapshot(state)
        begin = state.map_end_offset
        for count, batch in enumerate(_trusted_batches(segment, segment.offset_index.position_before(begin)), 1):
            if count % BATCHES_AT_ONCE == 0:
                yield
            if batch.producer_id >= 0 and batch.last_offset >= begin:
                note_producer(state, segment, segment.read_header(batch), partial(segment.read_batch, batch))
    state.map_end_offset = log_end


def _take_snapshot(state: ProducerStateManager) -> None:
    """The next start has less to read with it; where there is no room now, it has to read more. Raises `OSError`."""
    try:
        state.take_snapshot(fsync=False)
    except OSError as error:
        if not is_passing(error):
            raise


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
        for batch in _trusted_batches(segment, start):
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


def mend_transaction_indexes(
    fs: FileSystem, segments: list[Segment], names: Collection[str]
) -> Generator[None, None, list[str]]:
    """Rebuild transaction indexes that have bad entries or those of another segment (`LogSegment.sanityCheck`).

    Returns their paths. An index that is gone, or lacks its last entries, looks as if there had been fewer aborts.
    """
    mended = []
    present = set(names)
    for number, segment in enumerate(segments):
        if f"{segment.base_offset:020d}{TRANSACTION_INDEX}" not in present:
            continue
        index = segment.transaction_index
        end = segments[number + 1].base_offset if number + 1 < len(segments) else None
        markers = [entry.last_offset for entry in index.entries]
        in_place = not markers or (markers[0] >= segment.base_offset and (end is None or markers[-1] < end))
        if not index.is_whole or not in_place:
            index.replace((yield from _aborted_transactions(fs, segments, number)))
            mended.append(index.path)
    return mended


def _aborted_transactions(
    fs: FileSystem, segments: list[Segment], number: int
) -> Generator[None, None, list[AbortedTransaction]]:
    """The transactions that a marker in a segment aborts, from its batches and those since an earlier snapshot."""
    first = number
    while (begun := _begun_transactions(fs, segments[first])) is None and first:
        first -= 1
    open_since = begun or {}
    found: list[AbortedTransaction] = []
    for segment in segments[first : number + 1]:
        for count, batch in enumerate(_trusted_batches(segment, 0), 1):
            if count % BATCHES_AT_ONCE == 0:
                yield
            if batch.producer_id < 0:
                continue
            header = segment.read_header(batch)
            if not header.is_control:
                if header.is_transactional:
                    open_since.setdefault(batch.producer_id, batch.base_offset)
                continue
            marker = read_end_marker(segment.read_batch(batch))
            since = open_since.pop(batch.producer_id, None) if marker is not None else None
            if marker is not None and marker.is_abort and since is not None and segment is segments[number]:
                stable = min(open_since.values(), default=batch.last_offset + 1)
                found.append(AbortedTransaction(batch.producer_id, since, batch.last_offset, stable))
    return found


def _begun_transactions(fs: FileSystem, segment: Segment) -> dict[ProducerId, Offset] | None:
    """Producer id to first offset of the transactions that are open where a segment begins; None if no snapshot is
    there."""
    path = posixpath.join(segment.directory, f"{segment.base_offset:020d}{SNAPSHOT_SUFFIX}")
    try:
        producers = decode_snapshot(path, fs.read_bytes(path))
    except (FileNotFoundError, CorruptFile):
        return None
    return {
        producer_id: entry.current_txn_first_offset
        for producer_id, entry in producers
        if entry.current_txn_first_offset is not None
    }
