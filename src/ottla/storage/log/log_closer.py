"""Closing a log: what a clean start needs is written and fsynced, then the files are closed; or the directory is
renamed, for a log that is deleted."""

from __future__ import annotations

import random as random_module

from ottla.model import TopicPartition
from ottla.storage.log.log_parts import LogParts
from ottla.storage.log.log_writer import LogWriter
from ottla.storage.log.truncation import Truncator
from ottla.storage.offline_logs import renamed_directory
from ottla.storage.recovery.damage import RecoveryResult


class LogCloser:
    """Closes one log."""

    __slots__ = ("_parts", "_random", "_recovery", "_topic_partition", "_truncator", "_writer")

    def __init__(
        self,
        topic_partition: TopicPartition,
        random: random_module.Random,
        parts: LogParts,
        recovery: RecoveryResult,
        writer: LogWriter,
        truncator: Truncator,
    ) -> None:
        self._topic_partition = topic_partition
        self._random = random
        self._parts = parts
        self._recovery = recovery
        self._writer = writer
        self._truncator = truncator

    @property
    def _needs_fsync(self) -> bool:
        """Whether the files have anything to lose: an empty log that gets lost is made again."""
        state = self._parts.state
        return bool(state.log_end or self._recovery.repaired or state.truncations)

    async def close_async(self) -> None:
        """`close`, with the fsyncs in a thread. Raises `KafkaError`."""
        _, _, health, segments, flusher, _, producers = self._parts
        if health.is_open:
            try:
                self._writer.close_to_appends(segments.active)
                if producers.snapshot_offsets or not producers.is_empty:
                    snapshot = producers.take_snapshot(fsync=False)
                    if snapshot is not None:
                        flusher.fsync_later(snapshot)
                        flusher.fsync_later(segments.directory)
            except OSError as error:
                raise health.fail(error) from error
            if self._needs_fsync:
                await flusher.flush_all_async()
        if not health.is_closed:
            self._let_go()

    def close(self) -> None:
        """Write what a clean start needs (indexes, producer snapshot), fsync, close the files. Raises `KafkaError`."""
        _, _, health, segments, flusher, _, producers = self._parts
        if health.is_closed:
            return
        if health.is_open:
            try:
                self._writer.close_to_appends(segments.active)
                if producers.snapshot_offsets or not producers.is_empty:
                    producers.take_snapshot(fsync=not producers.is_empty)
                if self._needs_fsync:
                    flusher.flush()
            except OSError as error:
                raise health.fail(error) from error
        self._let_go()

    def _let_go(self) -> None:
        self._parts.health.close()
        self._truncator.wait()
        self._parts.segments.close()

    def rename_for_deletion(self, suffix: str) -> None:
        """Rename the directory to `<topic>-<partition>.<uuid>-<suffix>` and close; readers keep their slices.

        Raises `KafkaError`.
        """
        fs, _, health, segments, _, _, _ = self._parts
        target = renamed_directory(segments.directory, self._topic_partition, self._random, suffix)
        self._let_go()
        try:
            fs.rename(segments.directory, target)
        except OSError as error:
            raise health.fail(error) from error
        segments.directory = target
        segments.scheduled_deletions.clear()
