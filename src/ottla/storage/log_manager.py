"""All logs of a node: which there are, creation, deletion, retention, checkpoints and the clean-shutdown marker.

Kafka's `LogManager` without its threads: the server calls `periodic` and `background` about every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import random as random_module
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.metrics.instruments import Histogram
from ottla.model import Millis, Offset, TopicPartition
from ottla.steps import at_once
from ottla.storage.checkpoints.checkpoint_files import CheckpointFiles
from ottla.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    write_clean_shutdown,
)
from ottla.storage.checkpoints.partition_metadata import partition_metadata_path, write_partition_metadata
from ottla.storage.config import LogConfig
from ottla.storage.flush_scheduler import FlushScheduler
from ottla.storage.flush_timer import FlushTimer
from ottla.storage.future_logs import FutureLogs
from ottla.storage.log.log import Log
from ottla.storage.log_directories import LogDirectories, Warn, log_warning
from ottla.storage.offline_logs import OfflineLog, Opening, move_away
from ottla.storage.producers.producer_state import ProducerSettings
from ottla.storage.recovery.directory_loader import DirectoryLoader, LogOpener
from ottla.storage.scheduled_deletions import ScheduledDeletions
from ottla.storage.segments.segment_cache import OPEN_FILES_MAX, SegmentCache

if TYPE_CHECKING:
    from ottla.storage.log.batched_truncation import Truncations

_LOG = logging.getLogger("ottla.logs")

PROGRESS_LOGGED_EVERY_MS = 10_000
"""How often a long load says how far it is."""

CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""Default of producer.id.expiration.check.interval.ms."""
CACHE_TRIM_INTERVAL_MS = 10_000


class LogManager:
    """The logs under `log_dirs`. Only the event loop's thread uses it."""

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        clock: Clock,
        random: random_module.Random,
        *,
        topic_config: Callable[[str], LogConfig] | None = None,
        producers: ProducerSettings | None = None,
        producer_expiry_interval_ms: Millis = PRODUCER_EXPIRY_INTERVAL_MS,
        retention_check_interval_ms: Millis = 300_000,
        recovery_point_checkpoint_interval_ms: Millis = 60_000,
        high_watermark_checkpoint_interval_ms: Millis = 5_000,
        log_start_checkpoint_interval_ms: Millis = 60_000,
        open_files_max: int = OPEN_FILES_MAX,
        warn: Warn = log_warning,
    ) -> None:
        """`topic_config` gives the configuration of a topic's logs while loading; `defaults` serves without it.

        `flush.ms` of a topic is kept whatever `log.flush.scheduler.interval.ms` says: by timers after
        `start_flush_timer`, before and without it at the pace of `background`.
        """
        self._fs = fs
        self._clock = clock
        self._warn = warn
        self._directories = LogDirectories(fs, log_dirs, warn)
        self._checkpoints = CheckpointFiles(fs, warn)
        self._deletions = ScheduledDeletions(fs, warn)
        self._cache = SegmentCache(open_files_max=open_files_max)
        self.producers = producers or ProducerSettings()
        config_of = topic_config or (lambda topic: defaults)
        self._opener = LogOpener(fs, clock, random, self._cache, config_of, self.producers)
        self.unnamed = self._opener.unnamed
        """Directories whose `partition.metadata` does not say which partition's they are."""
        self._loader = DirectoryLoader(
            fs, self._opener, self._checkpoints, self._deletions, warn, self.get, self._add, self.detach
        )
        self.futures = FutureLogs(fs, self._opener, self._deletions, clock)
        self._flushes = FlushScheduler(self._is_served, self._report)
        self._flush_timer: FlushTimer | None = None
        self._logs: dict[TopicPartition, Log] = {}
        self._by_directory: dict[str, dict[TopicPartition, Log]] = {}
        self._by_topic: dict[str, dict[int, Log]] = {}
        self._truncations: Truncations | None = None
        self._reported: set[TopicPartition] = set()
        self._intervals: dict[str, Millis] = {
            "retention": retention_check_interval_ms,
            RECOVERY_POINT_CHECKPOINT: recovery_point_checkpoint_interval_ms,
            REPLICATION_OFFSET_CHECKPOINT: high_watermark_checkpoint_interval_ms,
            LOG_START_OFFSET_CHECKPOINT: log_start_checkpoint_interval_ms,
            "producers": producer_expiry_interval_ms,
            "cache": CACHE_TRIM_INTERVAL_MS,
        }
        self._last: dict[str, Millis] = {}
        self.cordoned: Collection[str] = ()
        """Log directories that get new partitions only where there is no other."""
        self.progress: str | None = None
        """How far `loading` is, in words; None before and after."""
        self.flush_seconds: Histogram | None = None
        """Where the times of fsyncs are counted."""
        self.on_log_failed: Callable[[str, OSError], None] = lambda directory, error: None
        """Called with the log directory of a log whose disk failed, and with the error."""
        self.on_log_suspected: Callable[[Log, Offset | None], None] = lambda log, offset: None
        """Called where a reader met damage in a log, from that offset on."""

    # Directories

    @property
    def log_dirs(self) -> list[str]:
        return self._directories.paths

    @property
    def online_dirs(self) -> list[str]:
        return self._directories.online

    @property
    def offline_dirs(self) -> list[str]:
        return self._directories.offline

    @property
    def full_dirs(self) -> dict[str, int]:
        return self._directories.full(self._clock.now_ms())

    def lock(self) -> None:
        """Take the `.lock` of every log directory. Raises `OttlaError` when another process holds one."""
        self._directories.lock()

    def take_offline(self, directory: str, error: OSError) -> list[Log]:
        """The disk of a log directory failed: nothing in it is used until the next start (KIP-112). Returns its logs,
        which refuse everything from now on; none where it was offline already."""
        if directory not in self.online_dirs:
            return []
        self._directories.take_offline(directory, error)
        failed = self.logs_in(directory)
        for log in failed:
            log.health.fail(error)
        return failed

    # Loading

    @property
    def offline_logs(self) -> dict[TopicPartition, OfflineLog]:
        """Logs that are on disk and cannot be opened: nothing takes their place."""
        return self._loader.offline_logs

    @property
    def previous_broker_epoch(self) -> int:
        """From the clean-shutdown markers: the epoch of the broker that shut down cleanly, -1 after a crash."""
        return self._loader.previous_broker_epoch

    def load(self, *, skip: frozenset[str] = frozenset({"__cluster_metadata"})) -> None:
        """`loading` without yielding to the event loop."""
        at_once(self.loading(skip=skip))

    def loading(self, *, skip: frozenset[str] = frozenset({"__cluster_metadata"})) -> Generator[None, None, None]:
        """Load every partition directory of every log directory except those of the topics in `skip`.

        A directory that fails goes offline and a log that fails is left out, with a warning; the rest is served.
        Yields to the event loop before each log, and within a recovery. Stopped there nothing is marked clean.
        """
        logged_ms = self._clock.now_ms()
        for directory in self.online_dirs:
            try:
                for progress in self._loader.loading(directory, skip):
                    self.progress = progress
                    if self._clock.now_ms() - logged_ms >= PROGRESS_LOGGED_EVERY_MS:
                        logged_ms = self._clock.now_ms()
                        _LOG.info("loading logs", extra=fields(progress=progress))
                    yield
            except OSError as error:
                self._lose(directory, error)
        self.futures.find_unfinished(self.online_dirs, self._lose)
        if not self.offline_dirs:
            self._loader.unmark_copies()
        self.progress = None
        if self.offline_logs or any(log.recovery.is_news for log in self._logs.values()):
            from ottla.storage.recovery.load_report import log_offline_logs, log_recoveries  # not in a usual start

            log_recoveries(list(self._logs.values()), self._warn)
            log_offline_logs(self.offline_logs.values())
        now_ms = self._clock.now_ms()
        self._last = dict.fromkeys(self._intervals, now_ms)

    def _lose(self, directory: str, error: OSError) -> None:
        """A log directory failed while it was loaded."""
        self._directories.take_offline(directory, error)
        for log in self.logs_in(directory):
            self.detach(log.topic_partition)

    # The set of logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def logs_in(self, directory: str) -> list[Log]:
        """The logs of one log directory."""
        return list(self._by_directory.get(directory, {}).values())

    def _add(self, log: Log) -> None:
        topic, partition = key = log.topic_partition
        directory = posixpath.dirname(log.directory)
        self._logs[key] = self._by_directory.setdefault(directory, {})[key] = log
        log.flusher.flush_seconds = self.flush_seconds
        log.health.on_failure = lambda error: self.on_log_failed(directory, error)
        log.health.on_full_disk = lambda: self._directories.refused(directory, self._clock.now_ms())
        log.truncator.checkpoint = partial(self._checkpoint_now, directory, RECOVERY_POINT_CHECKPOINT)
        log.health.on_suspicion = lambda offset: self.on_log_suspected(log, offset)
        if self._flush_timer is not None:
            log.watch_unflushed(self._flush_timer.note)
        self._by_topic.setdefault(topic, {})[partition] = log

    def detach(self, key: TopicPartition) -> Log | None:
        """Serve the log no more; its files stay as they are. Returns it."""
        log = self._logs.pop(key, None)
        if log is not None:
            del self._by_directory[posixpath.dirname(log.directory)][key]
            partitions = self._by_topic[key.topic]
            del partitions[key.partition]
            if self._flush_timer is not None:
                self._flush_timer.discard(log)
            if not partitions:
                del self._by_topic[key.topic]
        return log

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig | None = None,
        *,
        log_dir: str | None = None,
    ) -> Log:
        """The existing log or a new one, in the directory with the fewest logs. Writes `partition.metadata`.

        Raises `KafkaError`: KAFKA_STORAGE_ERROR if the disk fails or no directory is online, or the log on disk is
        damaged; INCONSISTENT_TOPIC_ID if it belongs to another topic of that name.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            config = config or self._opener.config_of(topic_partition.topic)
            if topic_partition in self.offline_logs:
                log = self._open_offline(topic_partition, config)
            else:
                directory = log_dir or self._directories.choose(self.cordoned, self.logs_in)
                self._purge_checkpoints(directory, topic_partition)
                path = posixpath.join(directory, str(topic_partition))
                log = at_once(self._opener.opening(topic_partition, path, config, Opening()))
        if log.topic_id is None:
            self.name(log, topic_id)
        elif log.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.inconsistent_topic_id,
                f"Tried to assign topic ID {topic_id} to log for topic partition {topic_partition}, but log already "
                f"contained topic ID {log.topic_id}",
            )
        self._add(log)
        return log

    def _open_offline(self, key: TopicPartition, config: LogConfig) -> Log:
        """Try a log again whose disk failed, as the checkpoints say. Raises `KafkaError`; a damaged one stays."""
        offline = self.offline_logs[key]
        if offline.damage is not None:
            raise offline.error
        log = at_once(self._opener.opening(key, offline.directory, config, offline.opening))
        log.high_watermark = offline.checkpointed.get(REPLICATION_OFFSET_CHECKPOINT, 0)
        del self.offline_logs[key]
        return log

    def _purge_checkpoints(self, directory: str, key: TopicPartition) -> None:
        """Take a deleted log of this name out of the checkpoints: after a crash its offsets would cut the new one."""
        for name in CHECKPOINTS:
            if self._checkpoints.has(directory, name, key):
                self._checkpoint_now(directory, name)

    def _checkpoint_now(self, directory: str, name: str) -> None:
        self._checkpoints.write_now(directory, name, self._offsets(name, directory))

    async def truncate(self, offsets: Mapping[Log, Offset]) -> dict[Log, KafkaError]:
        """Drop the records of each log from its offset on, in one batch of work for the disk; returns what failed.

        A log that is being cut refuses everything, and when it is open again no checkpoint calls fsynced what may grow
        there. What has begun comes to its end if the caller is cancelled.
        """
        return await self._cutting().cut(offsets, starts_over=False)

    async def start_over(self, offsets: Mapping[Log, Offset]) -> dict[Log, KafkaError]:
        """The same, but each log drops everything, and starts and ends at its offset."""
        return await self._cutting().cut(offsets, starts_over=True)

    def _cutting(self) -> Truncations:
        """Made with the first cut: a node that is alone makes none."""
        if self._truncations is None:
            from ottla.storage.log.batched_truncation import Truncations

            self._truncations = Truncations(self._fs, self._checkpoint_newest, self._flush_again)
        return self._truncations

    async def _checkpoint_newest(self, directory: str, name: str) -> None:
        """Raises `KafkaError`."""
        await self._checkpoints.write_newest(directory, name, partial(self._offsets, name, directory))

    def _flush_again(self, log: Log) -> None:
        """What is to be fsynced of a log, and when, may have changed."""
        if self._flush_timer is not None:
            self._flush_timer.settings_changed(log)

    def name(self, log: Log, topic_id: UUID) -> None:
        """Write down whose log it is. Raises `KafkaError`."""
        try:
            # The log's next fsync includes the file; before that there is nothing worth knowing whose it is.
            write_partition_metadata(self._fs, log.directory, topic_id, log.topic_partition, fsync=False)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        log.flusher.fsync_later(partition_metadata_path(log.directory))
        log.topic_id = topic_id

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Give the new configuration to every log of a topic."""
        for log in self._by_topic.get(topic, {}).values():
            log.update_config(config)
            self._flush_again(log)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Detach the log and rename its directory; its files go after `file.delete.delay.ms`, by `background`."""
        log = self.detach(topic_partition)
        if log is not None:
            self.schedule_deletion(log)

    def schedule_deletion(self, log: Log) -> None:
        """The second half of `delete`, for a log that `detach` gave; before the next log of that name is made."""
        self._rename_for_deletion(log, "delete")
        self._deletions.add(self._clock.now_ms() + log.config.file_delete_delay_ms, log.directory)

    def replace_by_future(self, log: Log) -> Log:
        """Replace a log by its copy in another directory, which is returned; to be followed by `end_move`. Raises
        `KafkaError`."""
        new = self.futures.finish(log)
        log.health.on_offline = log.health.on_failure = log.health.on_full_disk = None
        self.detach(log.topic_partition)
        self._add(new)
        return new

    async def end_move(self, log: Log, new: Log) -> None:
        """Delete a replaced log, once all its records are on disk in the other directory. Raises `KafkaError`,
        and the log stays: the next start serves the one that has what the other has."""
        if not new.health.is_closed:
            await new.flush_all_async()
        self.schedule_deletion(log)
        await self.futures.ended(log, new)
        await self.checkpoint(*CHECKPOINTS)

    def rename_damaged(self, log: Log) -> None:
        """Detach a damaged log and rename it (`...-stray`); a person deletes it. Raises `KafkaError`."""
        self.detach(log.topic_partition)
        log.rename_for_deletion("stray")

    def detach_offline(self, key: TopicPartition, suffix: str) -> None:
        """A log that cannot be opened is no longer wanted: rename its directory, if there is one."""
        log = self.offline_logs.pop(key, None)
        for each in () if log is None else log.copies:
            target = move_away(self._fs, each, suffix, self._opener.random, self._warn)
            if target is not None and suffix == "delete":
                delay_ms = self._opener.config_of(key.topic).file_delete_delay_ms
                self._deletions.add(self._clock.now_ms() + delay_ms, target)

    def rename_strays(self, is_stray: Callable[[Log | OfflineLog], bool]) -> list[TopicPartition]:
        """Detach and rename (`...-stray`) logs that the metadata no longer assigns here; a person deletes them."""
        strays = [log for log in self._logs.values() if is_stray(log)]
        for log in strays:
            self.detach(log.topic_partition)
            self._rename_for_deletion(log, "stray")
            text = "stray log renamed and kept: it is not in the metadata"
            self._warn(text, partition=log.topic_partition, log=log.directory)
        lost = [log.topic_partition for log in self.offline_logs.values() if is_stray(log)]
        for key in lost:
            self.detach_offline(key, "stray")
        return [*(log.topic_partition for log in strays), *lost]

    def _rename_for_deletion(self, log: Log, suffix: str) -> None:
        with self._reporting(log):
            log.rename_for_deletion(suffix)

    # Periodic tasks

    def _is_due(self, task: str, now_ms: Millis) -> bool:
        last = self._last.setdefault(task, now_ms)
        if 0 <= now_ms - last < self._intervals[task]:
            return False
        self._last[task] = now_ms
        return True

    def periodic(self, now_ms: Millis) -> None:
        """Do periodic tasks that are quick: retention, producer expiry, the limit of cached indexes."""
        if self._is_due("retention", now_ms):
            for log in self:
                if log.is_open:
                    with self._reporting(log):
                        log.delete_old_segments(now_ms)
        if self._is_due("producers", now_ms):
            for log in self:
                log.producer_state.remove_expired(now_ms)
        if self._is_due("cache", now_ms):
            self._cache.trim_indexes()

    @contextlib.contextmanager
    def _reporting(self, log: Log) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            self._report(log, error)

    def _report(self, log: Log, error: KafkaError) -> None:
        if log.topic_partition not in self._reported:
            self._reported.add(log.topic_partition)
            self._warn("a log failed", partition=log.topic_partition, error=str(error))

    async def background(self, now_ms: Millis) -> None:
        """Do periodic disk work: fsyncs (rolled segments, flush.ms), checkpoints, removal of files."""
        await self.flush_due(now_ms)
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            if self._is_due(name, now_ms):
                await self.checkpoint(name)
        await self.delete_scheduled(now_ms)

    def _is_served(self, log: Log) -> bool:
        return self._logs.get(log.topic_partition) is log

    def start_flush_timer(self) -> None:
        """From now on an fsync begins when the oldest unflushed record of a log is `flush.ms` old.

        Call it in the running event loop, and `close_logs` at the end.
        """
        timer = self._flush_timer = FlushTimer(self._is_served, self._report)
        self._flushes.has_timer = True
        for log in self._logs.values():
            log.watch_unflushed(timer.note)
            timer.settings_changed(log)

    async def flush_due(self, now_ms: Millis) -> None:
        """Fsync the logs that rolled or were recovered, whose `flush.ms` is over, or that are idle. One at a time."""
        await self._flushes.flush_due(self._logs.values(), now_ms)

    async def checkpoint(self, *names: str) -> None:
        """Write the offset checkpoints of these names, where they changed."""
        for name in names:
            for directory in self.online_dirs:
                await self._checkpoints.write(directory, name, self._offsets(name, directory))

    def _offsets(self, name: str, directory: str) -> dict[TopicPartition, Offset]:
        """What a checkpoint file should say. Log starts that the first segment has in its name are left out."""
        logs = self.logs_in(directory)
        found = {
            log.topic_partition: log.checkpointed[name]
            for log in self._loader.offline_in(directory)
            if name in log.checkpointed
        }
        if name == RECOVERY_POINT_CHECKPOINT:
            return found | {log.topic_partition: log.recovery_point for log in logs}
        if name == CLEANER_OFFSET_CHECKPOINT:
            return found | {log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset is not None}
        if name == REPLICATION_OFFSET_CHECKPOINT:
            return found | {log.topic_partition: log.high_watermark for log in logs}
        return found | {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > max(log.first_segment_offset, 0)
        }

    async def fsync_to(self, log: Log, offset: Offset) -> None:
        """Have everything below `offset` of a log on disk, and the recovery point that says so. Raises `KafkaError`."""
        if log.recovery_point < offset:
            await log.flush_all_async()
        directory = posixpath.dirname(log.directory)
        if self._checkpoints.written(directory, RECOVERY_POINT_CHECKPOINT).get(log.topic_partition, -1) < offset:
            await self._checkpoint_newest(directory, RECOVERY_POINT_CHECKPOINT)

    async def delete_scheduled(self, now_ms: Millis) -> int:
        """Unlink, off the loop, the files and directories whose delay is over; returns how many."""
        for log in self._logs.values():
            if log.scheduled_deletions:
                self._deletions.take(log.scheduled_deletions)
        if self._deletions.has_due_directory(now_ms):
            # Or the next start would take a partition of the same name for one whose directory was lost.
            await self.checkpoint(*CHECKPOINTS)
        return await self._deletions.delete_due(now_ms)

    # The end

    async def close_logs(self, threads_per_directory: int) -> None:
        """Close every log with its fsyncs off the event loop, so many of each directory at once; then `shutdown`."""
        if self._flush_timer is not None:
            await self._flush_timer.close()
        if self._truncations is not None:
            await self._truncations.stop()
        workers = []
        for directory in self.online_dirs:
            logs = self.logs_in(directory)
            following = iter(logs)
            workers += [self._close_each(following) for _ in range(min(threads_per_directory, len(logs)))]
        await asyncio.gather(*workers)

    async def _close_each(self, logs: Iterator[Log]) -> None:
        for log in logs:
            with self._reporting(log):
                await log.close_async()

    def shutdown(self, *, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers, release the locks. Blocks."""
        self.futures.close()
        for directory in self.offline_dirs:
            for log in self.logs_in(directory):  # files are closed; their content on disk is unknown
                with contextlib.suppress(KafkaError):
                    log.close()
        for directory in self.online_dirs:
            # What was not checked after a crash must not count as fsynced next time.
            clean = all(log.opening.clean_shutdown for log in self._loader.offline_in(directory))
            for log in self.logs_in(directory):
                with self._reporting(log):
                    log.close()
                clean = clean and log.failure is None
            try:
                for name in CHECKPOINTS:
                    self._checkpoints.write_last(directory, name, self._offsets(name, directory))
                if clean:
                    write_clean_shutdown(self._fs, directory, broker_epoch)
            except OSError as error:
                self._warn("a log directory was not closed cleanly", directory=directory, error=str(error))
        self.abandon()

    def abandon(self) -> None:
        """Detach all logs and release the locks; what is on disk stays as it is."""
        self._logs.clear()
        self._by_directory.clear()
        self.offline_logs.clear()
        self._by_topic.clear()
        self._directories.unlock()
