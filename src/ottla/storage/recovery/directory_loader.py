"""Loading the logs of a log directory when a node starts (Kafka's `LogManager.loadLogs`)."""

from __future__ import annotations

import contextlib
import posixpath
import random as random_module
from collections.abc import Callable, Generator, Mapping

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import TopicPartition
from ottla.storage.checkpoints.checkpoint_files import CheckpointFiles, Offsets
from ottla.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
    read_clean_shutdown,
    remove_clean_shutdown,
)
from ottla.storage.checkpoints.partition_metadata import partition_metadata_path, read_identity, read_partition_metadata
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.log_loader import loading_log
from ottla.storage.log_directories import DELETE_SUFFIX, Warn, parse_directory_name
from ottla.storage.offline_logs import OfflineLog, Opening, lost_directories
from ottla.storage.producers.producer_state import ProducerSettings
from ottla.storage.recovery.damage import DamagedLog, Misplaced
from ottla.storage.recovery.duplicate_logs import closed, conflict, copy_of_a_move, settle, unmark_copy
from ottla.storage.scheduled_deletions import ScheduledDeletions
from ottla.storage.segments.segment_cache import SegmentCache

_FATES = {
    "stray": "is renamed and kept",
    "future": "continues as the copy of a move",
    "delete": "is deleted, as the move was complete",
}


class LogOpener:
    """What the logs of a node have in common when they are opened."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        cache: SegmentCache,
        config_of: Callable[[str], LogConfig],
        producers: ProducerSettings,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self.random = random
        self._cache = cache
        self.config_of = config_of
        self.producers = producers
        self.unnamed: dict[str, TopicPartition] = {}
        """Directories whose `partition.metadata` does not say which partition's they are, as Kafka's do not."""

    def opening(
        self,
        key: TopicPartition,
        path: str,
        config: LogConfig,
        as_checkpointed: Opening,
    ) -> Generator[None, None, Log]:
        """Open or create the log at `path`, yielding within a recovery. Raises `KafkaError`."""
        try:
            identity = read_identity(self._fs, path)
        except CorruptFile:
            identity = None  # torn by a power failure; `LogManager.create` writes it again
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        topic_id = None if identity is None else identity.topic_id
        if identity is not None and identity.directory is None:
            self.unnamed[path] = key
        elif identity is not None and identity.directory != str(key):
            what = f"its partition.metadata says that it is the directory of {identity.directory}"
            raise DamagedLog(Misplaced(path, partition_metadata_path(path), None, what, ""))
        return loading_log(
            self._fs,
            path,
            key,
            topic_id,
            config,
            log_start_offset=as_checkpointed.log_start_offset,
            recovery_point=as_checkpointed.recovery_point,
            clean_shutdown=as_checkpointed.clean_shutdown,
            cleaned_offset=as_checkpointed.cleaned_offset,
            now_ms=self._clock.now_ms(),
            random=self.random,
            producers=self.producers,
            cache=self._cache,
        )


class DirectoryLoader:
    """Loads one log directory: every log with what the checkpoints say of it.

    `find` gives the log that already is a partition's, `take` gets each log that was loaded, `detach` gives one that
    is not to be served after all.
    """

    def __init__(
        self,
        fs: FileSystem,
        opener: LogOpener,
        checkpoints: CheckpointFiles,
        deletions: ScheduledDeletions,
        warn: Warn,
        find: Callable[[TopicPartition], Log | None],
        take: Callable[[Log], None],
        detach: Callable[[TopicPartition], Log | None],
    ) -> None:
        self._fs = fs
        self._opener = opener
        self._checkpoints = checkpoints
        self._deletions = deletions
        self._warn = warn
        self._find = find
        self._take = take
        self._detach = detach
        self.offline_logs: dict[TopicPartition, OfflineLog] = {}
        """Logs that are on disk and cannot be opened."""
        self.previous_broker_epoch = -1
        """From the clean-shutdown markers: the epoch of the broker that shut down cleanly, -1 after a crash."""
        self._copies: list[Log] = []
        """Logs that a crash left as copies of moves."""

    def loading(self, directory: str, skip: frozenset[str]) -> Generator[str, None, None]:
        """Load all logs but those of the topics in `skip`; yields how far it is before each, and within a recovery.

        A log that fails is one of `offline_logs` then. Raises `OSError` where the directory cannot be used.
        """
        broker_epoch = read_clean_shutdown(self._fs, directory)
        remove_clean_shutdown(self._fs, directory)  # first, so that a crash while loading leads to recovery
        if broker_epoch is not None:
            self.previous_broker_epoch = max(self.previous_broker_epoch, broker_epoch)
        recovery_points = self._checkpoints.read(directory, RECOVERY_POINT_CHECKPOINT) or {}
        log_starts = self._checkpoints.read(directory, LOG_START_OFFSET_CHECKPOINT) or {}
        high_watermarks = self._checkpoints.read(directory, REPLICATION_OFFSET_CHECKPOINT) or {}
        cleaned = self._checkpoints.read(directory, CLEANER_OFFSET_CHECKPOINT)
        # Damaged, it does not say which logs may have gaps: any may, and all are dirty from their start on.
        is_damaged = cleaned is None
        offsets: dict[str, Offsets] = {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            LOG_START_OFFSET_CHECKPOINT: log_starts,
            REPLICATION_OFFSET_CHECKPOINT: high_watermarks,
            CLEANER_OFFSET_CHECKPOINT: cleaned or {},
        }
        clean = broker_epoch is not None
        if clean:  # both are where the log ended
            ends = {key: max(offset, recovery_points.get(key, 0)) for key, offset in high_watermarks.items()}
            recovery_points = {**recovery_points, **ends}
        names = self._fs.listdir(directory)
        total = sum(parse_directory_name(name) is not None for name in names)
        doing, number = "loading" if clean else "recovering", 0
        for name in names:
            path = posixpath.join(directory, name)
            if name.endswith(DELETE_SUFFIX) and self._fs.is_dir(path):
                self._deletions.add(0, path)
                continue
            key = parse_directory_name(name)
            if key is None:
                continue
            number += 1
            if key.topic in skip:
                continue
            progress = f"{doing} log {number} of {total} in {directory}"
            yield progress
            offline = self.offline_logs.get(key)
            if offline is not None and not self._fs.is_dir(offline.directory):  # here it is
                del self.offline_logs[key]
            opening = Opening(
                log_starts.get(key, 0),
                recovery_points.get(key, 0),
                clean,
                (cleaned or {}).get(key, 0 if is_damaged else None),
            )
            try:
                steps = self._opener.opening(key, path, self._opener.config_of(key.topic), opening)
                log = yield from _with_text(progress, steps)
            except KafkaError as error:
                self._leave_offline(key, path, error, opening, offsets)
                continue
            log.high_watermark = high_watermarks.get(key, 0)
            if not clean and copy_of_a_move(self._fs, (log,)) is not None:
                self._copies.append(log)
            try:
                kept = self._settled(log)
            except KafkaError as error:
                log.close()
                self._leave_offline(key, path, error, opening, offsets)
            else:
                self._take(kept)
        for key, damage in lost_directories(directory, names, recovery_points):
            if key.topic not in skip and self._find(key) is None and key not in self.offline_logs:
                opening = Opening(log_starts.get(key, 0), recovery_points[key], clean)
                self._leave_offline(key, posixpath.join(directory, str(key)), damage, opening, offsets)

    def _settled(self, log: Log) -> Log:
        """The log to serve: this one, unless another directory holds one of the same partition that has more. Raises
        KafkaError where none can be."""
        key = log.topic_partition
        offline = self.offline_logs.get(key)
        if offline is not None:
            raise conflict(log.directory, offline.directory, "the other cannot be opened")
        first = self._find(key)
        if first is None:
            return log
        directories = log.directory, first.directory
        kept, spare, suffix = settle(self._fs, first, log)
        self._warn(
            f"two log directories hold the same partition: one contains all of the other, which {_FATES[suffix]}",
            partition=key,
            served=kept.directory,
            was=directories[kept is log],
            renamed=spare.directory,
        )
        if suffix == "delete":
            self._deletions.add(0, spare.directory)
            self._copies.append(kept)
        return kept

    def unmark_copies(self) -> None:
        """All log directories are loaded: what is served is no copy any more, as its move was at its end."""
        for log in self._copies:
            if self._find(log.topic_partition) is log:
                with contextlib.suppress(OSError):  # the end of the next move, or the next start, does it
                    unmark_copy(self._fs, log.directory)
        self._copies.clear()

    def _leave_offline(
        self,
        key: TopicPartition,
        path: str,
        error: KafkaError,
        opening: Opening,
        offsets: Mapping[str, Offsets],
    ) -> None:
        topic_id = None
        with contextlib.suppress(OSError):
            topic_id = read_partition_metadata(self._fs, path)
        if isinstance(error, DamagedLog) and isinstance(error.damage, Misplaced):
            topic_id = None  # it is the id of the topic that the directory was made for
        checkpointed = {name: found[key] for name, found in offsets.items() if key in found}
        first = self._detach(key)
        if first is not None:
            self.offline_logs[key] = closed(first, conflict(first.directory, path, "neither is served"))
            if not isinstance(error, DamagedLog):
                error = conflict(path, first.directory, str(error))
        other = self.offline_logs.get(key)
        self.offline_logs[key] = OfflineLog(key, path, topic_id, error, opening, checkpointed, other)

    def offline_in(self, directory: str) -> list[OfflineLog]:
        """The `offline_logs` and their copies in this log directory."""
        return [each for log in self.offline_logs.values() for each in log.copies if each.log_dir == directory]


def _with_text(text: str, steps: Generator[None, None, Log]) -> Generator[str, None, Log]:
    """The same steps, with a text at each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            log: Log = end.value
            return log
        yield text
