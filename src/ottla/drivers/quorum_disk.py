"""What a replica of the metadata log does on its disk beside the event loop: fsyncs, cuts of the log, `quorum-state`.

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.drivers.metadata_log import MetadataLog
from ottla.drivers.tasks import until_idle
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.quorum.state import Ready


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
                    if error.code != ErrorCode.not_leader_or_follower:
                        raise
                    await self._readable()
                    continue  # a decision was rolled back meanwhile; what was before it still counts
                self._flushed()
        except BaseException as error:  # nobody may wait for ever, not even when this task is cancelled
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    async def idle(self) -> None:
        """Waits until all is on disk, or the disk has failed."""
        await until_idle(lambda: self._task)


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
        self._held: list[Ready] = []
        """What a leader writes first: one at most."""

    @property
    def is_cutting(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def holds_back(self) -> bool:
        """Whether a leader waits to write its first records."""
        return bool(self._held)

    def hold_back(self, ready: Ready) -> Ready:
        """What of `ready` can be done now; the rest goes to `resume`."""
        if not self.is_cutting or not ready.control_records:
            return ready
        self._held.append(Ready(control_records=ready.control_records))
        return ready._replace(control_records=())

    async def cut(self, end: Offset | None, start_at: Offset = 0) -> None:
        """Drop the records from `end` on, or (None) all, when the log starts and ends at `start_at`. Raises
        KafkaError."""
        task = self._task = asyncio.get_running_loop().create_task(self._log.truncate(end, start_at))
        try:
            await asyncio.shield(task)
        except KafkaError as error:
            self._fail(error)
            raise
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: self._was_cut())
            raise
        self._was_cut()

    def _was_cut(self) -> None:
        held, self._held = self._held, []
        for ready in held:
            self._resume(ready)

    async def idle(self) -> None:
        """Waits while the files are being cut, when nothing of the log can be read."""
        await until_idle(lambda: self._task)


class QuorumStateWriter:
    """Writes `quorum-state`: the newest state, however many came while the one before was written."""

    def __init__(self, fs: FileSystem, log: MetadataLog, fail: Callable[[BaseException], object]) -> None:
        """`fail` is called with what the disk raises; after that nothing more is to be promised."""
        self._fs = fs
        self._log = log
        self._fail = fail
        self._newest: QuorumStateFile | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, state: QuorumStateFile) -> None:
        self._newest = state
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while (state := self._newest) is not None:
                self._newest = None
                await self._fs.run(lambda state=state: self._log.write_quorum_state(state))  # type: ignore[misc]
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    async def idle(self) -> None:
        """Waits until the newest state is on disk, or the disk has failed."""
        await until_idle(lambda: self._task)
