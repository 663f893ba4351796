"""What a replica of the metadata log does on its disk beside the event loop: fsyncs, cuts of the log, `quorum-state`.

Each of them goes on after an error that passes (a full disk, no file descriptor: `is_passing`) as soon as there is
room, and counts for nothing before. Any other error ends the node. All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from ottla.clock import Clock
from ottla.drivers.quorum.metadata_log import MetadataLog
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.model import Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.state import Ready
from ottla.storage.log.log_health import is_passing
from ottla.storage.log.truncation import RETRY_SECONDS, RETRY_SECONDS_MAX

_LOG = logging.getLogger("ottla.controller")

LOG_SECONDS = 60.0
"""A voter without room says so as often as this at most."""


async def write_snapshot(
    fs: FileSystem,
    log: MetadataLog,
    settings: QuorumSettings,
    snapshot: SnapshotId,
    batches: Iterator[bytearray],
    clock: Clock,
    readable: Callable[[], Awaitable[None]],
) -> bool:
    """See `QuorumNode.write_snapshot`. Without it the log still has everything, and the next one is due soon."""
    try:
        await fs.run(lambda: log.store_snapshot(snapshot, batches))
        log.adopt_snapshot(snapshot)
        await readable()
        log.clean(clock.now_ms(), settings.retention_ms, settings.retention_bytes)
    except (OSError, KafkaError) as error:
        what = fields(snapshot=snapshot.filename, error=str(error))
        _LOG.warning("a snapshot of the metadata could not be written, or older ones not removed", extra=what)
        return False
    return True


class MetadataFlusher:
    """Fsyncs the log in the background: one fsync serves all appends until it begins."""

    def __init__(
        self,
        log: MetadataLog,
        fail: Callable[[BaseException], object],
        flushed: Callable[[], None],
        readable: Callable[[], Awaitable[None]],
    ) -> None:
        """`flushed` is called when more is on disk, `fail` with what the disk raises; `readable` waits while the log is
        being cut."""
        self._log = log
        self._fail = fail
        self._flushed = flushed
        self._readable = readable
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """There is more to fsync."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        log = self._log.log
        try:
            while log.durable_offset < log.log_end_offset:
                try:
                    await log.flush_async()
                except KafkaError as error:
                    if error.code == ErrorCode.not_leader_or_follower:
                        await self._readable()  # a decision was rolled back meanwhile; what was before it still counts
                    elif log.is_open and is_passing(error) and not self._stopped:
                        await asyncio.sleep(RETRY_SECONDS)  # no file could be opened to be fsynced
                    else:
                        raise
                    continue
                self._flushed()
        except BaseException as error:  # nobody may wait for ever, not even when this task is cancelled
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def stop(self) -> None:
        """The node stops: what finds no descriptor now is not fsynced."""
        self._stopped = True

    async def idle(self) -> None:
        """Waits until all is on disk, or the disk has failed."""
        await _until_idle(lambda: self._task)


class MetadataCutter:
    """Drops records from the files of the log: what its leader does not have, or all, for a snapshot.

    Meanwhile the log refuses everything. A node that is elected in that time writes the first records of its epoch when
    the files are whole again.
    """

    def __init__(
        self, log: MetadataLog, fail: Callable[[BaseException], object], resume: Callable[[Ready], None]
    ) -> None:
        """`fail` is called with what the disk raises, `resume` with what was held back, once the log takes it."""
        self._log = log
        self._fail = fail
        self._resume = resume
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._held: list[Ready] = []
        """Work that a leader does first: one item at most."""

    @property
    def is_cutting(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def holds_back(self) -> bool:
        """Whether a leader waits to write its first records."""
        return bool(self._held)

    def hold_back(self, ready: Ready) -> Ready:
        """The part of `ready` that can be done now; the rest goes to `resume`."""
        if not self.is_cutting or not ready.control_records:
            return ready
        self._held.append(Ready(control_records=ready.control_records))
        return ready._replace(control_records=())

    async def cut(self, end: Offset | None, start_at: Offset = 0) -> None:
        """Drop the records from `end` on, or (None) all, when the log starts and ends at `start_at`. Raises
        KafkaError."""
        task = self._task = asyncio.get_running_loop().create_task(
            self._log.truncate(end, start_at, lambda: self._stopped)
        )
        try:
            await asyncio.shield(task)
        except KafkaError as error:
            self._fail(error)
            raise
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: self._was_cut())
            raise
        self._was_cut()

    def stop(self) -> None:
        """The node stops: a cut that finds no room is left to the next start."""
        self._stopped = True

    def _was_cut(self) -> None:
        held, self._held = self._held, []
        for ready in held:
            self._resume(ready)

    async def idle(self) -> None:
        """Waits while the files are being cut, when nothing of the log can be read."""
        await _until_idle(lambda: self._task)


class QuorumStateWriter:
    """Writes `quorum-state`: the newest state, however many came while the one before was written.

    On a full disk it tries again until there is room. Until then `refused` says why: nothing that the state promises
    may leave the node.
    """

    def __init__(
        self,
        fs: FileSystem,
        log: MetadataLog,
        fail: Callable[[BaseException], object],
        written: Callable[[], object],
    ) -> None:
        """`fail` is called with what the disk raises; after that nothing more is to be promised. `written` is called
        when the newest state is on disk after an attempt that found no room."""
        self._fs = fs
        self._log = log
        self._fail = fail
        self._written = written
        self._newest: QuorumStateFile | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.Handle | None = None
        self._delay_s = RETRY_SECONDS
        self._logged_s = -LOG_SECONDS
        self._stopped = False
        self.refused: KafkaError | None = None
        """Why the newest state is not on disk, since the last attempt; None while all is well or is being written."""

    def begin(self, state: QuorumStateFile) -> None:
        self._newest = state
        self._begin()

    def _begin(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while (state := self._newest) is not None:
                self._newest = None
                try:
                    await self._fs.run(lambda state=state: self._log.write_quorum_state(state))  # type: ignore[misc]
                except OSError as error:
                    if not is_passing(error):
                        raise
                    self._newest = self._newest or state
                    self._refuse(error)
                    return
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
            return
        if self.refused is not None:
            self.refused, self._delay_s = None, RETRY_SECONDS
            _LOG.warning("quorum-state can be written again: this node takes part in elections")
            self._written()

    def _refuse(self, error: OSError) -> None:
        """The state before is still in the file: try again in a while."""
        self.refused = KafkaError(ErrorCode.kafka_storage_error, f"quorum-state cannot be written now: {error}")
        self.refused.__cause__ = error
        loop = asyncio.get_running_loop()
        if loop.time() - self._logged_s >= LOG_SECONDS:
            self._logged_s = loop.time()
            why = fields(log=self._log.directory, error=str(error))
            _LOG.error("quorum-state cannot be written: this node takes no part in elections until it can", extra=why)
        if not self._stopped:
            self._retry = loop.call_later(self._delay_s, self._begin)
        self._delay_s = min(2 * self._delay_s, RETRY_SECONDS_MAX)

    async def idle(self) -> None:
        """Waits until the newest state is on disk, there was no room for it (`refused`), or the disk has failed."""
        await _until_idle(lambda: self._task)

    async def stop(self) -> None:
        """Wait for a running attempt; no other one follows if it finds no room."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        await self.idle()


async def _until_idle(current: Callable[[], asyncio.Task[None] | None]) -> None:
    """Return when the current task, and those that have followed it meanwhile, have ended."""
    while (task := current()) is not None and not task.done():
        await asyncio.wait([task])
