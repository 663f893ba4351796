"""Copies of logs in another log directory, which take the place of the originals once they have everything (KIP-113).

A copy lies in `<topic>-<partition>.<uuid>-future`, and is taken up again after a restart. Once it has everything it is
given its partition's name, and follows the log until it is served instead.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Callable, Generator, Iterable, Iterator
from uuid import UUID

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import TopicPartition
from ottla.steps import at_once
from ottla.storage.checkpoints.partition_metadata import partition_metadata_path, write_partition_metadata
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.offline_logs import DIRECTORY_NAME_MAX, Opening, parse_renamed, renamed_directory
from ottla.storage.recovery.directory_loader import LogOpener
from ottla.storage.recovery.duplicate_logs import mark_copy, unmark_copy
from ottla.storage.scheduled_deletions import ScheduledDeletions

SUFFIX = "future"
_SUFFIX_LENGTH = len(f".{0:032x}-{SUFFIX}")


def check_name(key: TopicPartition) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION for a topic whose name leaves no room for the suffix."""
    if len(str(key)) + _SUFFIX_LENGTH > DIRECTORY_NAME_MAX:
        raise KafkaError(ErrorCode.invalid_topic_exception, "The topic name is too long.")


class FutureLogs:
    """The future logs of a node; used only by the event loop's thread."""

    def __init__(self, fs: FileSystem, opener: LogOpener, deletions: ScheduledDeletions, clock: Clock) -> None:
        self._fs = fs
        self._opener = opener
        self._deletions = deletions
        self._clock = clock
        self._logs: dict[TopicPartition, Log] = {}
        self.unfinished: dict[TopicPartition, str] = {}
        """Copies that a restart interrupted, and their directories."""

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def get(self, key: TopicPartition) -> Log | None:
        return self._logs.get(key)

    def find_unfinished(self, directories: Iterable[str], failed: Callable[[str, OSError], None]) -> None:
        """Note the copies that a restart interrupted, when all log directories are loaded: another one may say that a
        log is a copy. `failed` is told of those that cannot be read."""
        for directory in directories:
            try:
                self._find_unfinished(directory)
            except OSError as error:
                failed(directory, error)

    def _find_unfinished(self, directory: str) -> None:
        for name in self._fs.listdir(directory):
            key = parse_renamed(name, SUFFIX)
            if key is None:
                continue
            path = posixpath.join(directory, name)
            if self.unfinished.setdefault(key, path) != path:
                self.discard(key, path)

    def discard(self, key: TopicPartition, path: str) -> None:
        """A copy that is not open is wanted no more. Raises OSError."""
        target = renamed_directory(
            posixpath.join(posixpath.dirname(path), str(key)), key, self._opener.random, "delete"
        )
        self._fs.rename(path, target)
        self._deletions.add(0, target)

    def taking_up(
        self, key: TopicPartition, path: str, topic_id: UUID, config: LogConfig
    ) -> Generator[None, None, Log | None]:
        """Open a copy of before a restart: what of it is whole. None, and it is deleted, where it is another topic's.
        Yields to the event loop. Raises KafkaError, OSError."""
        # Nobody knows what of it is on disk, nor whether it was compacted.
        log = yield from self._opener.opening(key, path, config, Opening(cleaned_offset=0))
        if log.topic_id != topic_id:
            log.close()
            self.discard(key, path)
            return None
        self._logs[key] = log
        return log

    def create(self, key: TopicPartition, topic_id: UUID, config: LogConfig, directory: str) -> Log:
        """An empty copy in a log directory. Raises KafkaError as `check_name`, and KAFKA_STORAGE_ERROR."""
        check_name(key)
        path = renamed_directory(posixpath.join(directory, str(key)), key, self._opener.random, SUFFIX)
        log = at_once(self._opener.opening(key, path, config, Opening()))
        try:
            write_partition_metadata(self._fs, path, topic_id, key, fsync=False)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        log.flusher.fsync_later(partition_metadata_path(path))
        log.topic_id = topic_id
        log.cleaned_offset = 0  # it may have the gaps of the log, until it is in its place
        self._logs[key] = log
        return log

    def drop(self, key: TopicPartition) -> None:
        """The copy is wanted no more. Raises KafkaError where its disk fails."""
        log = self._logs.pop(key, None)
        if log is not None:
            log.rename_for_deletion()
            self._deletions.add(self._clock.now_ms(), log.directory)

    def keep(self, key: TopicPartition) -> None:
        """The copy goes on after a restart, where nothing goes on now: the node stops, or the log is offline."""
        log = self._logs.pop(key, None)
        if log is None:
            return
        log.health.fail(OSError(errno.ECANCELED, "its move is interrupted"))  # nothing of it need be fsynced
        with contextlib.suppress(KafkaError):  # its disk failed
            if log.directory.endswith(SUFFIX):
                log.close()
            else:
                log.rename_for_deletion(SUFFIX)

    def close(self) -> None:
        """What is there goes on after the next start."""
        for key in list(self._logs):
            self.keep(key)

    async def name(self, log: Log) -> Log:
        """Give the copy, which is on disk, the name of `log`, and open it there. Both directories have one of that name
        from now on, and a file says which is the copy (`duplicate_logs.py`). Raises KafkaError.
        """
        key = log.topic_partition
        future = self._logs[key]
        await future.close_async()

        def mark() -> None:
            unmark_copy(self._fs, log.directory)  # a crash at the end of an earlier move may have left one
            mark_copy(self._fs, future.directory)

        directory = posixpath.dirname(future.directory)
        path = posixpath.join(directory, str(key))
        opening = Opening(future.log_start_offset, future.log_end_offset, clean_shutdown=True, cleaned_offset=0)
        try:
            await self._fs.run(mark)
            self._fs.rename(future.directory, path)
            found = self._logs[key] = at_once(self._opener.opening(key, path, log.config, opening))
            await self._fs.run(lambda: self._fs.fsync_dir(directory))
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        return found

    def finish(self, log: Log) -> Log:
        """The copy, which has everything and the name of `log`: the caller serves it instead before it does anything
        else. Raises KafkaError."""
        found = self._logs[log.topic_partition]
        assert found.log_end_offset == log.log_end_offset
        found.advance_log_start(log.log_start_offset)
        found.update_config(log.config)
        found.high_watermark = log.high_watermark
        found.cleaned_offset = log.cleaned_offset
        del self._logs[log.topic_partition]
        return found

    async def ended(self, log: Log, new: Log) -> None:
        """The log that was replaced is renamed for its deletion: on disk first, or a power failure would bring it back
        beside a new one that does not say what it is. Raises KafkaError."""

        def work() -> None:
            self._fs.fsync_dir(posixpath.dirname(log.directory))
            unmark_copy(self._fs, new.directory)

        try:
            await self._fs.run(work)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
