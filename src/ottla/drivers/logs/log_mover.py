"""Moves replicas from one log directory of a node to another while they are used (KIP-113).

Kafka's `ReplicaAlterLogDirsManager`: a copy is filled from the log until it has everything and is on disk. Then it is
given its name, the controller hears of the new directory (KIP-858), and the copy takes the log's place. A move goes on
after a restart. `replica.alter.log.dirs.io.max.bytes.per.second` says how fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import Offset, TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.throttle import UNLIMITED, Rate
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.drivers.ports import MoverHost

_LOG = logging.getLogger("ottla.logs")

COPY_BYTES = 1 << 20
"""Bytes copied at once, as `replica.fetch.max.bytes`: they are written on the event loop."""
POLL_S = 0.05
"""Between two looks at a log that can be read no further just now."""
ASSIGN_RETRY_S = 1.0
"""Between two tries to tell the controller in which directory a replica is about to be."""
LogState: TypeAlias = tuple[int, Offset | None]
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class LogMover:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: MoverHost, spawn: Callable[[Any], asyncio.Task[None]]) -> None:
        self._node = node
        self._spawn = spawn
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Logs that were replaced and are still to be deleted."""
        self._rate = Rate(
            node.config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            node.config.alter_log_dirs_replication_quota_window_num,
        )

    def move(self, partition: Partition, directory: str) -> None:
        """Move a replica to another log directory; another move of it is given up. Returns at once. Raises KafkaError:
        KAFKA_STORAGE_ERROR where the log or the directory cannot be used, INVALID_TOPIC_EXCEPTION."""
        key, futures = partition.topic_partition, self._node.logs.futures
        log = self._log_of(partition)
        if partition.is_offline:
            raise KafkaError(ErrorCode.kafka_storage_error, f"the log of {key} is offline")
        future = futures.get(key)
        if future is not None and posixpath.dirname(future.directory) == directory:
            return
        self._give_up(key)
        if posixpath.dirname(log.directory) == directory:
            return
        futures.create(key, partition.topic_id, log.config, directory)
        _LOG.info("moving a replica to another log directory", extra=fields(partition=key, directory=directory))
        self._tasks[key] = self._spawn(self._run(partition))

    def resume(self) -> None:
        """Go on with the moves that a restart interrupted."""
        logs = self._node.logs
        for key, path in list(logs.futures.unfinished.items()):
            partition = self._node.replicas.get(*key)
            directory = posixpath.dirname(path)
            if directory not in logs.online_dirs or key in self._node.replicas.missing or key in logs.offline_logs:
                continue  # the copy stays for a later start
            del logs.futures.unfinished[key]
            if partition is not None and posixpath.dirname(self._log_of(partition).directory) != directory:
                _LOG.info("resuming a move to another log directory", extra=fields(partition=key, directory=directory))
                self._tasks[key] = self._spawn(self._run(partition, path))
                continue
            self._discard(key, path)

    async def stop(self) -> None:
        """Wait for what has been replaced to be deleted."""
        if self._ending:
            await asyncio.wait(self._ending)

    def _log_of(self, partition: Partition) -> Log:
        assert isinstance(partition.log, Log)
        return partition.log

    def _give_up(self, key: TopicPartition) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
        futures = self._node.logs.futures
        futures.drop(key)
        path = futures.unfinished.pop(key, None)
        if path is not None:
            self._discard(key, path)

    def _discard(self, key: TopicPartition, path: str) -> None:
        try:
            self._node.logs.futures.discard(key, path)
        except OSError as error:
            _LOG.warning("a copy of a log is kept where it is", extra=fields(log=path, error=str(error)))

    def _is_wanted(self, partition: Partition) -> bool:
        key = partition.topic_partition
        return self._node.replicas.get(*key) is partition and self._tasks.get(key) is asyncio.current_task()

    async def _run(self, partition: Partition, path: str | None = None) -> None:
        """`path`: of a copy to be taken up."""
        key, log, futures = partition.topic_partition, self._log_of(partition), self._node.logs.futures
        goes_on, state = True, _state(log)
        try:
            if path is not None:
                await self._take_up(partition, log, path)
            future = futures.get(key)
            if future is not None:
                await self._copy(partition, log, future, state)
            goes_on = False
        except (KafkaError, OSError) as error:
            goes_on = False
            _LOG.warning("a replica was not moved", extra=fields(partition=key, error=str(error)))
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
                if goes_on or partition.is_offline:  # after the next start
                    futures.keep(key)
                else:
                    with contextlib.suppress(KafkaError):  # its disk failed
                        futures.drop(key)

    async def _take_up(self, partition: Partition, log: Log, path: str) -> None:
        """Open the copy, and drop from it what the log has not: both may have lost their ends."""
        key, logs = partition.topic_partition, self._node.logs
        try:
            future = await run_yielding(logs.futures.taking_up(key, path, partition.topic_id, log.config))
        except asyncio.CancelledError:
            if not self._is_wanted(partition):
                self._discard(key, path)
            raise
        while future is not None and self._is_wanted(partition):
            end = common_end(log, future)
            if end == future.log_end_offset:
                return
            failed = await (
                logs.start_over({future: log.log_start_offset}) if end is None else logs.truncate({future: end})
            )
            if failed:
                raise failed[future]

    async def _copy(self, partition: Partition, log: Log, future: Log, state: LogState) -> None:
        """Fill the copy and put it in the place of the log, unless the partition goes meanwhile. `state` is of when
        the copy began."""
        logs = self._node.logs
        is_flushed = is_named = is_assigned = False
        try:
            while self._is_wanted(partition) and not partition.is_offline:
                if not log.is_open:  # it is being cut
                    await asyncio.sleep(POLL_S)
                elif _state(log) != state or future.log_end_offset < log.log_start_offset:
                    state, is_flushed = _state(log), False
                    failed = await logs.start_over({future: log.log_start_offset})
                    if failed:
                        raise failed[future]
                elif future.log_end_offset < log.log_end_offset:
                    await self._copy_some(partition, log, future)
                elif not is_flushed:
                    await future.flush_all_async()
                    is_flushed = True
                elif not is_named:
                    future = await logs.futures.name(log)
                    is_named = True
                elif not is_assigned:
                    is_assigned = True  # also where the answer does not come
                    if not await self._node.directories.assign(partition, posixpath.dirname(future.directory)):
                        is_assigned = False
                        await asyncio.sleep(ASSIGN_RETRY_S)
                else:
                    self._finish(partition, log)
                    is_assigned = False
                    return
        finally:
            if is_assigned and self._node.replicas.get(*partition.topic_partition) is partition:
                self._node.directories.stays(partition, posixpath.dirname(log.directory))

    async def _copy_some(self, partition: Partition, log: Log, future: Log) -> None:
        state = _state(log)
        records = log.read(future.log_end_offset, COPY_BYTES, up_to=log.log_end_offset)
        if records is None:
            await asyncio.sleep(POLL_S)
            return
        data = await self._node.fs.run(records.read)
        if _state(log) != state:
            return
        try:
            future.append_as_follower(bytearray(data), now_ms=self._node.clock.now_ms())
        except KafkaError as error:
            log.health.suspect(error, records.first_offset)
            raise
        self._rate.record(len(data), self._now_ms())
        while self._is_used_up() and self._is_wanted(partition):  # noqa: ASYNC110  by time, and by a setting
            await asyncio.sleep(POLL_S)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _is_used_up(self) -> bool:
        text = self._node.config.dynamic_text(RATE)
        limit = int(text) if text is not None and text.isdecimal() else UNLIMITED
        return self._rate.bytes_per_second(self._now_ms()) > limit

    def _finish(self, partition: Partition, log: Log) -> None:
        """Serve the copy instead of the log, whose files go afterwards."""
        new = self._node.logs.replace_by_future(log)
        partition.replace_log(new)
        self._node.directories.moved(partition)
        ending = asyncio.get_running_loop().create_task(self._end(log, new))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        found = fields(partition=partition.topic_partition, directory=posixpath.dirname(new.directory))
        _LOG.info("a replica was moved to another log directory", extra=found)

    async def _end(self, log: Log, new: Log) -> None:
        try:
            await self._node.logs.end_move(log, new)
        except KafkaError as error:
            _LOG.warning("a replaced log could not be deleted", extra=fields(log=log.directory, error=str(error)))


def _state(log: Log) -> LogState:
    """Changes where what was copied may not be what the log has now: its end was cut, or it was compacted."""
    return log.truncations, log.cleaned_offset


def common_end(log: Log, copy: Log) -> Offset | None:
    """Up to where a copy may have what the log has, by their leader epochs (KIP-101); where that is not the copy's end
    it is to be cut there, and looked at again. None: nothing is known to be in both."""
    epoch = copy.latest_epoch
    if copy.log_end_offset == copy.log_start_offset:
        return copy.log_end_offset
    if epoch is None:
        return None
    found, end = log.end_offset_for_epoch(epoch)
    if found != epoch:
        found, own_end = copy.end_offset_for_epoch(found) if found >= 0 else (-1, -1)
        end = min(end, own_end)
    end = min(end, copy.log_end_offset)
    return end if found >= 0 and end >= max(copy.log_start_offset, log.log_start_offset) else None
