"""All logs of a node: loading, creation, deletion, retention, checkpoints and the clean-shutdown marker.

Kafka's `LogManager` without its threads: the server calls `periodic` and `background` about every second.
"""

from __future__ import annotations

import logging
import posixpath
import random as random_module
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.filesystem import FileLock, FileSystem
from ottla.logs import fields
from ottla.metrics.instruments import Histogram
from ottla.model import Millis, Offset, TopicPartition
from ottla.steps import at_once
from ottla.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
    read_clean_shutdown,
    read_offset_checkpoint,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_offset_checkpoint,
)
from ottla.storage.config import LONG_MAX, LogConfig
from ottla.storage.log import Log
from ottla.storage.log_loader import loading_log
from ottla.storage.partition_metadata import (
    partition_metadata_path,
    read_partition_metadata,
    write_partition_metadata,
)
from ottla.storage.producer_state import PRODUCER_ID_EXPIRATION_MS
from ottla.storage.segment_cache import OPEN_FILES_MAX, SegmentCache

_LOG = logging.getLogger("ottla.logs")

RECOVERIES_LOGGED_MAX = 100
"""Logs that recovery tells of one by one; it tells the sum of all anyhow."""

PROGRESS_LOGGED_EVERY_MS = 10_000
"""How often a long load says how far it is."""

LOCK_FILE = ".lock"
CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX = "-delete", "-stray", "-future"

PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""Default of producer.id.expiration.check.interval.ms."""
CACHE_TRIM_INTERVAL_MS = 10_000

IDLE_SYNC_AFTER_MS = 60_000
IDLE_SYNCS_MAX = 20
"""Logs that were not written for that long are synced, so many per call of `background`: a crash then finds little to
check and a stop little to sync, and as the kernel has written their pages by then it costs next to nothing."""

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})\Z")


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds; None for any other, those being deleted included."""
    match = _PARTITION_DIRECTORY.match(name)
    return None if match is None else TopicPartition(match["topic"], int(match["partition"]))


def _saying(text: str, steps: Generator[None, None, Log]) -> Generator[str, None, Log]:
    """The same steps, with a text at each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            log: Log = end.value
            return log
        yield text


class Warn(Protocol):
    """Takes an event that is worth a warning, and its fields."""

    def __call__(self, event: str, /, **found: object) -> None: ...


def _warn(event: str, /, **found: object) -> None:
    _LOG.warning(event, extra=fields(**found))


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
        producer_id_expiration_ms: Millis = PRODUCER_ID_EXPIRATION_MS,
        producer_expiry_interval_ms: Millis = PRODUCER_EXPIRY_INTERVAL_MS,
        retention_check_interval_ms: Millis = 300_000,
        flush_scheduler_interval_ms: Millis = LONG_MAX,
        recovery_point_checkpoint_interval_ms: Millis = 60_000,
        log_start_checkpoint_interval_ms: Millis = 60_000,
        open_files_max: int = OPEN_FILES_MAX,
        warn: Warn = _warn,
    ) -> None:
        """`topic_config` gives the configuration of a topic's logs while loading; `defaults` serves without it.

        `flush.ms` of a topic is kept whatever `flush_scheduler_interval_ms` says, at the pace of `background`.
        """
        self._fs = fs
        self.log_dirs = [posixpath.normpath(path) for path in log_dirs]
        self._defaults = defaults
        self._clock = clock
        self._random = random
        self._topic_config = topic_config
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._warn = warn
        self._cache = SegmentCache(open_files_max=open_files_max)
        self._logs: dict[TopicPartition, Log] = {}
        self._by_topic: dict[str, dict[int, Log]] = {}
        self._locks: dict[str, FileLock] = {}
        self._offline: dict[str, str] = {}
        """Why a directory is offline."""
        self._reported: set[TopicPartition] = set()
        self._garbage: list[tuple[Millis, str]] = []
        """Files and directories to remove, and from when on."""
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}
        """What the checkpoint files hold, by path."""
        self._turns: dict[str, int] = {}
        """Counts what was written or is being written, by path."""
        self._writing = threading.Lock()
        self._intervals: dict[str, Millis] = {
            "retention": retention_check_interval_ms,
            "recovery points": recovery_point_checkpoint_interval_ms,
            "log starts": log_start_checkpoint_interval_ms,
            "producers": producer_expiry_interval_ms,
            "cache": CACHE_TRIM_INTERVAL_MS,
        }
        self._last: dict[str, Millis] = {}
        self.progress: str | None = None
        """How far `loading` is, in words; None before and after."""
        self.flush_seconds: Histogram | None = None
        """Where the times of syncs are counted."""
        self.previous_broker_epoch = -1
        """From the clean-shutdown markers: the epoch of the broker that stopped in good order, -1 after a crash."""

    # Directories

    def lock(self) -> None:
        """Take the `.lock` of every log directory. Raises `OttlaError` when another process holds one."""
        for directory in self.log_dirs:
            try:
                self._fs.makedirs(directory)
                self._locks[directory] = self._fs.lock(posixpath.join(directory, LOCK_FILE))
            except BlockingIOError as error:
                self._unlock()
                raise OttlaError(
                    f"the data directory {directory} is in use by another process; stop that one or choose another"
                ) from error
            except OSError as error:
                self._offline[directory] = (error.strerror or str(error)).lower()
        if not self.online_dirs:
            reasons = "; ".join(f"{directory}: {reason}" for directory, reason in self._offline.items())
            raise OttlaError(f"no data directory can be used: {reasons}; name one that can be written to")
        for directory, reason in self._offline.items():
            self._warn("a data directory goes offline", directory=directory, error=reason)

    def _unlock(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    @property
    def online_dirs(self) -> list[str]:
        return [directory for directory in self.log_dirs if directory not in self._offline]

    @property
    def offline_dirs(self) -> list[str]:
        return list(self._offline)

    def _take_offline(self, directory: str, error: OSError) -> None:
        self._warn("a data directory goes offline", directory=directory, error=str(error))
        self._offline[directory] = str(error)
        for log in self.logs_in(directory):
            self.forget(log.topic_partition)

    # Loading

    def load(self, *, skip: frozenset[str] = frozenset({"__cluster_metadata"})) -> None:
        """`loading` without giving way."""
        at_once(self.loading(skip=skip))

    def loading(self, *, skip: frozenset[str] = frozenset({"__cluster_metadata"})) -> Generator[None, None, None]:
        """Load every partition directory of every log directory except those of the topics in `skip`.

        A directory that fails goes offline and a log that fails is left out, with a warning; the rest is served.
        Gives way before each log, and within a recovery. Left off there nothing is marked clean.
        """
        told_ms = self._clock.now_ms()
        for directory in self.online_dirs:
            try:
                for progress in self._load_directory(directory, skip):
                    self.progress = progress
                    if self._clock.now_ms() - told_ms >= PROGRESS_LOGGED_EVERY_MS:
                        told_ms = self._clock.now_ms()
                        _LOG.info("loading goes on", extra=fields(progress=progress))
                    yield
            except OSError as error:
                self._take_offline(directory, error)
        self.progress = None
        checked = [log for log in self._logs.values() if log.recovered_bytes or log.truncated_bytes]
        if checked:
            self._warn(
                "the last stop was not clean", logs=len(checked),
                checked_bytes=sum(log.recovered_bytes for log in checked),
                cut_off_bytes=sum(log.truncated_bytes for log in checked),
            )  # fmt: skip
        for log in checked[:RECOVERIES_LOGGED_MAX]:
            found = fields(
                partition=log.topic_partition, checked_bytes=log.recovered_bytes, cut_off_bytes=log.truncated_bytes,
                end_offset=log.log_end_offset,
            )  # fmt: skip
            _LOG.info("log recovered", extra=found)
        now_ms = self._clock.now_ms()
        self._last = dict.fromkeys(self._intervals, now_ms)

    def _load_directory(self, directory: str, skip: frozenset[str]) -> Generator[str, None, None]:
        """Yields how far it is."""
        broker_epoch = read_clean_shutdown(self._fs, directory)
        remove_clean_shutdown(self._fs, directory)  # first, so that a crash while loading leads to recovery
        if broker_epoch is not None:
            self.previous_broker_epoch = max(self.previous_broker_epoch, broker_epoch)
        recovery_points = self._read_checkpoint(directory, RECOVERY_POINT_CHECKPOINT)
        log_starts = self._read_checkpoint(directory, LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT)
        cleaned = self._read_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT)
        path = posixpath.join(directory, CLEANER_OFFSET_CHECKPOINT)
        # Damaged, it does not tell which logs may have gaps: any may, and all are dirty from their start on.
        is_damaged = path not in self._written
        names = self._fs.listdir(directory)
        total = sum(parse_directory_name(name) is not None for name in names)
        doing, number = "loading" if broker_epoch is not None else "recovering", 0
        for name in names:
            path = posixpath.join(directory, name)
            if name.endswith(DELETE_SUFFIX) and self._fs.is_dir(path):
                self._garbage.append((0, path))
                continue
            key = parse_directory_name(name)
            if key is None:
                continue
            number += 1
            if key.topic in skip:
                continue
            progress = f"{doing} log {number} of {total} in {directory}"
            yield progress
            if key in self._logs:
                self._warn(
                    "a log is left alone: another is the same partition's", log=path, other=self._logs[key].directory
                )
                continue
            try:
                opening = self._opening(
                    key,
                    path,
                    self._config_of(key.topic),
                    log_start_offset=log_starts.get(key, 0),
                    recovery_point=recovery_points.get(key, 0),
                    clean_shutdown=broker_epoch is not None,
                    cleaned_offset=cleaned.get(key, 0 if is_damaged else None),
                )
                log = yield from _saying(progress, opening)
            except KafkaError as error:
                self._warn("a log cannot be loaded", log=path, error=str(error))
                continue
            log.high_watermark = high_watermarks.get(key, 0)
            self._remember(log)

    def _opening(
        self,
        key: TopicPartition,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: Offset = 0,
        recovery_point: Offset = 0,
        clean_shutdown: bool = False,
        cleaned_offset: Offset | None = None,
    ) -> Generator[None, None, Log]:
        try:
            topic_id = read_partition_metadata(self._fs, path)
        except CorruptFile:
            topic_id = None  # torn by a power failure; `create` writes it anew
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        return loading_log(
            self._fs,
            path,
            key,
            topic_id,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            cleaned_offset=cleaned_offset,
            now_ms=self._clock.now_ms(),
            random=self._random,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            cache=self._cache,
        )

    def _config_of(self, topic: str) -> LogConfig:
        return self._defaults if self._topic_config is None else self._topic_config(topic)

    def _read_checkpoint(self, directory: str, name: str) -> Mapping[TopicPartition, Offset]:
        path = posixpath.join(directory, name)
        try:
            found = read_offset_checkpoint(self._fs, path)
        except CorruptFile as error:
            self._warn("a damaged checkpoint is not used", file=path, error=str(error))
            return {}
        self._written[path] = found
        return found

    # The set of logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def logs_in(self, directory: str) -> list[Log]:
        """The logs of one log directory."""
        return [log for log in self._logs.values() if posixpath.dirname(log.directory) == directory]

    def _remember(self, log: Log) -> None:
        topic, partition = log.topic_partition
        self._logs[log.topic_partition] = log
        log.count_flush_seconds(self.flush_seconds)
        self._by_topic.setdefault(topic, {})[partition] = log

    def forget(self, key: TopicPartition) -> Log | None:
        """Serve the log no more; its files stay as they are."""
        log = self._logs.pop(key, None)
        if log is not None:
            partitions = self._by_topic[key.topic]
            del partitions[key.partition]
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

        Raises `KafkaError`: KAFKA_STORAGE_ERROR if the disk fails or no directory is online, INCONSISTENT_TOPIC_ID if
        the log on disk belongs to another topic of that name.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            directory = self._choose_directory() if log_dir is None else log_dir
            path = posixpath.join(directory, str(topic_partition))
            self._purge_checkpoints(directory, topic_partition)
            log = at_once(self._opening(topic_partition, path, config or self._config_of(topic_partition.topic)))
        if log.topic_id is None:
            self._name(log, topic_id)
        elif log.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.inconsistent_topic_id,
                f"Tried to assign topic ID {topic_id} to log for topic partition {topic_partition}, but log already "
                f"contained topic ID {log.topic_id}",
            )
        self._remember(log)
        return log

    def _purge_checkpoints(self, directory: str, key: TopicPartition) -> None:
        """Take a deleted log of this name out of the checkpoints: after a crash its offsets would cut the new one."""
        for name in CHECKPOINTS:
            path = posixpath.join(directory, name)
            if key in self._written.get(path, {}):
                self._checkpoint_now(directory, name)

    def _checkpoint_now(self, directory: str, name: str) -> None:
        path = posixpath.join(directory, name)
        offsets = self._offsets(name, directory)
        try:
            self._checkpoint_work(path, offsets)()
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        self._written[path] = offsets

    def _checkpoint_work(self, path: str, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], bool]:
        """How to write a checkpoint, here or in a thread; False if a newer one was asked for, which then stays.

        One at a time: two writers would share the temporary file, and an older content would bring back what
        `_purge_checkpoints` took out.
        """
        turn = self._turns[path] = self._turns.get(path, 0) + 1

        def work() -> bool:
            with self._writing:
                if self._turns[path] != turn:
                    return False
                write_offset_checkpoint(self._fs, path, offsets)
                return True

        return work

    def truncate_to(self, log: Log, offset: Offset) -> None:
        """Cut a log; before it grows again the checkpoint has to say that what comes there is not synced.

        Raises `KafkaError`.
        """
        log.truncate_to(offset)
        directory = posixpath.dirname(log.directory)
        self._checkpoint_now(directory, RECOVERY_POINT_CHECKPOINT)
        if log.cleaned_offset is not None and offset <= log.cleaned_offset:
            self._checkpoint_now(directory, CLEANER_OFFSET_CHECKPOINT)

    def _choose_directory(self) -> str:
        online = self.online_dirs
        if not online:
            raise KafkaError(ErrorCode.kafka_storage_error, "no log directory is online")
        if len(online) == 1:
            return online[0]
        counts = dict.fromkeys(online, 0)
        for log in self._logs.values():
            parent = posixpath.dirname(log.directory)
            counts[parent] = counts.get(parent, 0) + 1
        return min(online, key=counts.__getitem__)

    def _name(self, log: Log, topic_id: UUID) -> None:
        try:
            # The log's next sync includes the file; before that there is nothing worth knowing whose it is.
            write_partition_metadata(self._fs, log.directory, topic_id, sync=False)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        log.sync_later(partition_metadata_path(log.directory))
        log.topic_id = topic_id

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Give the new configuration to every log of a topic."""
        for log in self._by_topic.get(topic, {}).values():
            log.update_config(config)

    def set_producer_expiration(self, expiration_ms: Millis) -> None:
        """Follow a change of producer.id.expiration.ms."""
        self._producer_id_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producer_state.set_expiration_ms(expiration_ms)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget the log and rename its directory; its files go after `file.delete.delay.ms`, by `background`."""
        log = self.forget(topic_partition)
        if log is not None:
            self.discard(log)

    def discard(self, log: Log) -> None:
        """The second half of `delete`, for a log that `forget` gave; before the next log of that name is made."""
        self._set_aside(log, "delete")
        self._garbage.append((self._clock.now_ms() + log.config.file_delete_delay_ms, log.directory))

    def delete_strays(self, is_stray: Callable[[Log], bool]) -> list[TopicPartition]:
        """Set aside (`...-stray`) the logs that the metadata no longer assigns to this node; a person deletes them."""
        strays = [log for log in self._logs.values() if is_stray(log)]
        for log in strays:
            self.forget(log.topic_partition)
            self._set_aside(log, "stray")
            self._warn(
                "the metadata does not know a log, which is kept", partition=log.topic_partition, log=log.directory
            )
        return [log.topic_partition for log in strays]

    def _set_aside(self, log: Log, suffix: str) -> None:
        try:
            log.rename_for_deletion(suffix)
        except KafkaError as error:
            self._report(log, error)

    # What happens now and then

    def _is_due(self, task: str, now_ms: Millis) -> bool:
        last = self._last.setdefault(task, now_ms)
        if 0 <= now_ms - last < self._intervals[task]:
            return False
        self._last[task] = now_ms
        return True

    def periodic(self, now_ms: Millis) -> None:
        """Do what is due and quick: retention, producer expiry, the limit of cached indexes."""
        if self._is_due("retention", now_ms):
            for log in self:
                if log.failure is None:
                    try:
                        log.delete_old_segments(now_ms)
                    except KafkaError as error:
                        self._report(log, error)
        if self._is_due("producers", now_ms):
            for log in self:
                log.producer_state.remove_expired(now_ms)
        if self._is_due("cache", now_ms):
            self._cache.trim_indexes()

    def _report(self, log: Log, error: KafkaError) -> None:
        if log.topic_partition not in self._reported:
            self._reported.add(log.topic_partition)
            self._warn("a log fails", partition=log.topic_partition, error=str(error))

    async def background(self, now_ms: Millis) -> None:
        """Do what is due and waits for the disk: syncs (rolled segments, flush.ms), checkpoints, removal of files."""
        await self.flush_due(now_ms)
        if self._is_due("recovery points", now_ms):
            await self.checkpoint(RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
        if self._is_due("log starts", now_ms):
            await self.checkpoint(LOG_START_OFFSET_CHECKPOINT)
        await self.remove_deleted(now_ms)

    async def flush_due(self, now_ms: Millis) -> None:
        """Sync the logs that rolled or were recovered, whose `flush.ms` is over, or that are idle. One at a time."""
        due = []
        idle: list[Log] = []
        for log in self._logs.values():
            flush_ms = log.config.flush_ms
            late = flush_ms != LONG_MAX and log.durable_offset < log.log_end_offset
            if log.needs_background_flush or (late and now_ms - log.last_flush_ms >= flush_ms):
                due.append(log)
            elif log.recovery_point < log.log_end_offset and now_ms - log.last_append_ms >= IDLE_SYNC_AFTER_MS:
                idle.append(log)
        for log in due + idle[:IDLE_SYNCS_MAX]:
            if log.failure is None and self._logs.get(log.topic_partition) is log:
                try:
                    await log.flush_all_async()
                    log.last_flush_ms = now_ms
                except KafkaError as error:
                    if self._logs.get(log.topic_partition) is log:
                        self._report(log, error)

    async def checkpoint(self, *names: str) -> None:
        """Write the offset checkpoints of these names, where they changed."""
        for name in names:
            for directory in self.online_dirs:
                offsets = self._offsets(name, directory)
                path = posixpath.join(directory, name)
                if offsets != self._written.get(path, {}):
                    try:
                        is_newest = await self._fs.run(self._checkpoint_work(path, offsets))
                    except OSError as error:
                        self._warn("a checkpoint is not up to date", file=path, error=str(error))
                        continue
                    if is_newest:
                        self._written[path] = offsets

    def _offsets(self, name: str, directory: str) -> dict[TopicPartition, Offset]:
        """What a checkpoint file should say. Log starts that the first segment tells by its name are left out."""
        logs = self.logs_in(directory)
        if name == RECOVERY_POINT_CHECKPOINT:
            return {log.topic_partition: log.recovery_point for log in logs}
        if name == CLEANER_OFFSET_CHECKPOINT:
            return {log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset is not None}
        if name == REPLICATION_OFFSET_CHECKPOINT:
            return {log.topic_partition: log.high_watermark for log in logs}
        return {
            log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > log.first_segment_offset
        }

    async def remove_deleted(self, now_ms: Millis) -> int:
        """Unlink, off the loop, the files and directories whose delay is over; returns how many."""
        for log in self._logs.values():
            if log.scheduled_deletions:
                self._garbage += log.scheduled_deletions
                log.scheduled_deletions.clear()
        due = [path for due_ms, path in self._garbage if due_ms <= now_ms]
        if not due:
            return 0
        self._garbage = [entry for entry in self._garbage if entry[0] > now_ms]
        fs = self._fs

        def remove() -> None:
            for path in due:
                try:
                    if path.endswith(DELETE_SUFFIX):
                        fs.rmtree(path)
                    else:
                        fs.remove(path)
                except FileNotFoundError:
                    pass

        try:
            await fs.run(remove)
        except OSError as error:
            self._warn("deleted files stay on disk", error=str(error))
        return len(due)

    # The end

    def shutdown(self, *, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers, release the locks. Blocks."""
        for directory in self.online_dirs:
            clean = True
            for log in self.logs_in(directory):
                try:
                    log.close()
                except KafkaError as error:
                    self._report(log, error)
                clean = clean and log.failure is None
            try:
                for name in CHECKPOINTS:
                    path = posixpath.join(directory, name)
                    offsets = self._offsets(name, directory)
                    if offsets != self._written.get(path) or not self._fs.exists(path):
                        self._checkpoint_work(path, offsets)()
                if clean:
                    write_clean_shutdown(self._fs, directory, broker_epoch)
            except OSError as error:
                self._warn("a directory is not closed in good order", directory=directory, error=str(error))
        self.abandon()

    def abandon(self) -> None:
        """Know no log any more and release the locks; what is on disk stays as it is."""
        self._logs.clear()
        self._by_topic.clear()
        self._unlock()
