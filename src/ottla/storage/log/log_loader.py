"""Opening a log: finds or makes its files, recovers what a crash left, and puts the parts of a `Log` together.

Kafka's `LogLoader`, with `recovery` for what concerns single segments.
"""

from __future__ import annotations

import logging
import posixpath
import random as random_module
from collections.abc import Generator
from uuid import UUID

from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.model import Millis, Offset, TopicPartition
from ottla.steps import without_pauses
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.checkpoints.partition_metadata import partition_metadata_path
from ottla.storage.config import LogConfig
from ottla.storage.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from ottla.storage.log.log import Log
from ottla.storage.log.log_flusher import LogFlusher
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_parts import LogParts
from ottla.storage.log.log_state import LogState
from ottla.storage.producers.producer_state import SNAPSHOT_SUFFIX, ProducerSettings, ProducerStateManager
from ottla.storage.recovery.rebuild import epochs_of_batches, mend_transaction_indexes, replay_producers
from ottla.storage.recovery.segment_recovery import LoadedSegments, load_segments
from ottla.storage.segments.segment_cache import SegmentCache
from ottla.storage.segments.segment_files import FSYNCED_GAPS, INDEX, TIME_INDEX, TRANSACTION_INDEX, segment_offset
from ottla.storage.segments.segment_list import SegmentList

_LOG = logging.getLogger("ottla.logs")


def loading_log(
    fs: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    config: LogConfig,
    *,
    log_start_offset: Offset = 0,
    recovery_point: Offset = 0,
    clean_shutdown: bool = False,
    cleaned_offset: Offset | None = None,
    now_ms: Millis,
    random: random_module.Random,
    producers: ProducerSettings | None = None,
    cache: SegmentCache | None = None,
) -> Generator[None, None, Log]:
    """Open the log in `directory`, creating it if need be, and recover it unless it was shut down cleanly.

    Yields to the event loop between pieces of a recovery. `recovery_point` is what the checkpoint says was fsynced.
    Raises `KafkaError`: KAFKA_STORAGE_ERROR when the disk fails, UNSUPPORTED_FOR_MESSAGE_FORMAT for logs written
    before Kafka 0.11.
    """
    state, health = LogState(now_ms), LogHealth(topic_partition)
    segments = SegmentList(fs, SegmentCache() if cache is None else cache, directory, config, random)
    flusher = LogFlusher(fs, health, state, segments)
    try:
        if not fs.is_dir(directory):
            fs.makedirs(directory)
            flusher.fsync_later(directory)
            flusher.fsync_later(posixpath.dirname(directory))
        loaded = yield from load_segments(
            fs,
            directory,
            lambda base_offset, size: segments.open(base_offset, size, now_ms),
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            contiguous=not config.compact and cleaned_offset is None,
        )
        _take_segments(loaded, state, segments, flusher, log_start_offset)
        _take_mark(fs, loaded, segments, recovery_point, clean_shutdown)
        checked = loaded.recovery.is_news
        state.recovery_point = state.log_end if clean_shutdown and not checked else min(recovery_point, state.log_end)
        state.durable = state.recovery_point
        state.cleaned = cleaned_offset
        flusher.is_due = state.recovery_point < state.log_end
        epochs = yield from _load_epochs(fs, loaded, state, segments, flusher)
        if not clean_shutdown:
            _fsync_unclean_files(directory, flusher, epochs)
            _remove_unflushed_snapshots(fs, directory, loaded.names, max(state.recovery_point, segments.bases[0]))
        _fsync_rebuilt_indexes(flusher, segments)
        producer_state = ProducerStateManager(
            fs, directory, topic_partition, settings=producers, file_names=loaded.names
        )
        yield from _load_producers(producer_state, state, segments, clean_shutdown)
        mended = yield from mend_transaction_indexes(fs, segments.items, loaded.names)
        if mended:
            found = fields(partition=topic_partition, files=",".join(mended))
            _LOG.warning("damaged transaction index rebuilt from its segment", extra=found)
    except OSError as error:
        raise health.fail(error) from error
    parts = LogParts(fs, state, health, segments, flusher, epochs, producer_state)
    return Log(topic_partition, topic_id, config, random, parts, loaded.recovery)


load_log = without_pauses(loading_log)
"""The same without yielding to the event loop."""


def _take_segments(
    loaded: LoadedSegments, state: LogState, segments: SegmentList, flusher: LogFlusher, log_start_offset: Offset
) -> None:
    segments.take(loaded.segments)
    state.log_end = loaded.next_offset
    if segments.items and state.log_end < log_start_offset:  # segment files were taken away from below us
        segments.drop_from(0, state.now_ms)
    if not segments.items:
        segments.add(log_start_offset, state.now_ms)
        flusher.fsync_later(segments.directory)
        state.log_end = log_start_offset
    if not state.log_end:  # a log that is closed empty is not fsynced
        flusher.fsync_later(segments.directory)
        flusher.fsync_later(posixpath.dirname(segments.directory))
    state.log_start = state.high_watermark = max(log_start_offset, segments.bases[0])


def _take_mark(
    fs: FileSystem, loaded: LoadedSegments, segments: SegmentList, recovery_point: Offset, clean: bool
) -> None:
    """Let the list know whether the mark of fsynced gaps is true of the log, and whether it surely is on disk."""
    is_marked = FSYNCED_GAPS in loaded.names
    if loaded.gaps_end <= recovery_point:
        segments.wants_mark = not (is_marked and clean)
    elif is_marked:  # the checkpoint of recovery points was lost
        fs.remove(posixpath.join(segments.directory, FSYNCED_GAPS))
        fs.fsync_dir(segments.directory)


def _load_epochs(
    fs: FileSystem, loaded: LoadedSegments, state: LogState, segments: SegmentList, flusher: LogFlusher
) -> Generator[None, None, LeaderEpochs]:
    directory = segments.directory
    try:
        epochs = LeaderEpochs(fs, directory)
    except CorruptFile:
        fs.remove(posixpath.join(directory, LEADER_EPOCH_CHECKPOINT))
        epochs = LeaderEpochs(fs, directory)
    if any(epochs.contradicts(epoch, offset) for epoch, offset in loaded.seen):
        # Well-formed and wrong: followers would be sent to where the log never diverged, and this one would be, too.
        _LOG.error(
            "wrong leader-epoch-checkpoint rebuilt from the batches",
            extra=fields(log=directory, entries=len(epochs.entries)),
        )
        epochs.replace((yield from epochs_of_batches(segments.items)))
        flusher.write_later(epochs.path, epochs.encode)
        flusher.is_due = True
    if not epochs.entries and loaded.recovery.recovered_bytes < segments.size_bytes:
        # The file is gone or was damaged. The batches know as well, also those that were not checked.
        loaded.epochs = yield from epochs_of_batches(segments.items)
    latest = epochs.latest_epoch
    for epoch, offset in loaded.epochs:
        if epoch >= 0 and (latest is None or epoch > latest):
            epochs.note(epoch, offset)
            if not epochs.is_written:
                flusher.write_later(epochs.path, epochs.encode)
            latest = epoch
    epochs.truncate_from_end(state.log_end)
    epochs.truncate_from_start(state.log_start)
    return epochs


def _fsync_unclean_files(directory: str, flusher: LogFlusher, epochs: LeaderEpochs) -> None:
    """Let the next full fsync include what the process that was killed may have written and not fsynced."""
    flusher.fsync_later(directory)
    flusher.fsync_later(posixpath.dirname(directory))
    flusher.fsync_later(partition_metadata_path(directory))
    if epochs.entries:
        flusher.write_later(epochs.path, epochs.encode)


def _fsync_rebuilt_indexes(flusher: LogFlusher, segments: SegmentList) -> None:
    """Let the next full fsync include indexes that recovery wrote: it leaves out segments below the recovery point, and
    one that ends there, which was recovered too, may be among them by then."""
    for segment in segments.items:
        if segment.index_changes:
            for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                flusher.fsync_later(segment.path(suffix))


def _remove_unflushed_snapshots(fs: FileSystem, directory: str, names: list[str], known: Offset) -> None:
    """The transaction index is rebuilt from the end of the newest snapshot, so no snapshot may end above the fsynced
    offset.

    A snapshot at the start of the log's first segment has no batches before it, and is the only source of that state.
    """
    for name in [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]:
        offset = segment_offset(name)
        if offset is not None and offset > known:
            fs.remove(posixpath.join(directory, name))
            names.remove(name)


def _load_producers(
    producer_state: ProducerStateManager, state: LogState, segments: SegmentList, clean_shutdown: bool
) -> Generator[None, None, None]:
    strays = set(producer_state.snapshot_offsets) - set(segments.bases)
    if len(strays) > 1:
        producer_state.remove_stray_snapshots(segments.bases)
    if clean_shutdown and not producer_state.snapshot_offsets:
        producer_state.map_end_offset = state.log_end  # a clean stop leaves none only where there were no producers
    else:
        yield from replay_producers(producer_state, segments.items, state.log_start, state.log_end, state.now_ms)
