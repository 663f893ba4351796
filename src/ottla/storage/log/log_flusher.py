"""Getting a log onto the disk: full fsyncs, and group commit for those that wait for single records.

One fsync serves all who wait for it; what it covered counts as fsynced only when it is over, because another fsync may
begin and end meanwhile.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable
from typing import Protocol

from ottla.clock import elapsed_s
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.metrics.instruments import Histogram
from ottla.model import Offset
from ottla.storage.log.log_health import NO_DESCRIPTOR, LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.segments.segment_files import LOG, fsync_file


def _retrieve(flush: asyncio.Future[None]) -> None:
    """The log's waiters hear of its failure; nobody need wait for the fsync itself."""
    if not flush.cancelled():
        flush.exception()


class _NotWritten(Exception):
    """Entries of an index, or a file beside the segments, could not be written and still wait for it, or no file could
    be opened to be fsynced. No fsync failed: on a full disk the log is as good as before, and the next one tries
    again."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _replace(fs: FileSystem, path: str, data: bytes) -> None:
    try:
        fs.write_atomic(path, data)
    except OSError as error:
        raise _NotWritten(error) from error


class FlushedSegments(Protocol):
    """What fsyncing asks of the segments of a log."""

    @property
    def directory(self) -> str: ...
    def fsync_work(self, first: Offset, *, with_indexes: bool) -> tuple[Callable[[], None], Callable[[], None]]: ...


class LogFlusher:
    """Knows which files of a log are not on disk yet; knows nothing of records."""

    __slots__ = (
        "_changes", "_failure", "_flushing", "_fs", "_fsyncing", "_health", "_segments", "_state", "_unflushed",
        "_unwritten", "flush_seconds", "is_due", "last_flush_ms", "on_fsynced",
    )  # fmt: skip

    def __init__(self, fs: FileSystem, health: LogHealth, state: LogState, segments: FlushedSegments) -> None:
        self._fs = fs
        self._health = health
        self._state = state
        self._segments = segments
        self._unflushed: dict[str, int] = {}
        """Files besides the segments' that the next full fsync includes, each with the number of its last change; the
        directory and its parent stand for what was created in them, without which no content is worth anything."""
        self._unwritten: dict[str, Callable[[], bytes]] = {}
        """Files in `_unflushed` that are still to be replaced, with a function that returns their content."""
        self._changes = 0
        self._failure: OSError | None = None
        """Failure of an fsync, from the moment that its thread met it: the disk may lack what was dirty then, and a
        later fsync that succeeds in another thread does not write that."""
        self._flushing: asyncio.Future[None] | None = None
        self._fsyncing: asyncio.Future[None] | None = None
        """A full fsync in a thread."""
        self.last_flush_ms = state.now_ms
        self.flush_seconds: Histogram | None = None
        """Where the times of fsyncs in threads are counted."""
        self.on_fsynced: Callable[[], None] | None = None
        """Called after each fsync."""
        self.is_due = False
        """A segment was rolled or recovered: `flush_all_async` should run soon, so that recovery has less to check."""

    def fsync_later(self, path: str) -> None:
        """Let the next full fsync include a file, or any fsync a directory, which stands for what was created in it,
        and a log file that a failed write was cut off from: records behind what comes back of that would be lost."""
        self._changes += 1
        self._unflushed[path] = self._changes

    @property
    def has_unfsynced_names(self) -> bool:
        """Whether files of the log's directory were made, renamed or removed since the directory was fsynced."""
        return self._segments.directory in self._unflushed

    def write_later(self, path: str, encode: Callable[[], bytes]) -> None:
        """Replace a file at the next full fsync with what `encode` returns then."""
        self.fsync_later(path)
        self._unwritten[path] = encode

    def _plan(self, *, with_indexes: bool) -> tuple[Callable[[], None], Callable[[], None]]:
        """How to make the log durable as it is now: what to do, in a thread if need be, and what to call after, which
        raises `KafkaError` where another fsync failed meanwhile.

        Raises `_NotWritten`, as the work does, which also raises `OSError`.
        """
        state, health = self._state, self._health
        end, truncations = state.log_end, state.truncations
        first = state.recovery_point if with_indexes else state.durable
        try:
            fsync_segments, finish_segments = self._segments.fsync_work(first, with_indexes=with_indexes)
        except OSError as error:
            raise _NotWritten(error) from error
        directory = self._segments.directory
        fs, directories = self._fs, (directory, posixpath.dirname(directory))
        unflushed = {
            path: change
            for path, change in self._unflushed.items()
            if with_indexes or path in directories or path.endswith(LOG)
        }
        contents = {path: encode() for path, encode in self._unwritten.items() if path in unflushed}

        def fsync() -> None:
            fsync_segments()
            for path in unflushed:
                if health.is_closed:  # deleted meanwhile; a log of the same name may already be in its place
                    return
                if path in contents:
                    with fs.replacing:  # an fsync on the loop (closing, truncating) may meet one in a thread
                        _replace(fs, path, contents[path])
                elif path not in directories:
                    fsync_file(fs, path)
            for path in directories:
                if path in unflushed:
                    fs.fsync_dir(path or ".")

        def work() -> None:
            try:
                fsync()
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    raise _NotWritten(error) from error
                self._failure = self._failure or error
                raise

        def done() -> None:
            if self._failure is not None:
                raise health.fail(self._failure)
            finish_segments()
            for path, change in unflushed.items():
                if self._unflushed.get(path) == change:
                    del self._unflushed[path]
                    self._unwritten.pop(path, None)
            self.last_flush_ms = state.now_ms
            state.note_fsynced(end, truncations, with_indexes=with_indexes)

        return work, done

    def _is_fsynced(self, up_to: Offset | None) -> bool:
        end = self._state.log_end
        wanted = end if up_to is None else min(up_to, end)
        return self._state.recovery_point >= wanted and not self._unflushed

    def flush(self, up_to: Offset | None = None) -> None:
        """Fsync everything below `up_to` (default: all), indexes included, and move the recovery point. Blocks.

        Raises `KafkaError`; after a failed fsync the log is offline, as the content of the disk is unknown.
        """
        self._health.check()
        self.is_due = False
        if self._is_fsynced(up_to):
            return
        try:
            work, done = self._plan(with_indexes=True)
            work()
        except _NotWritten as error:
            self.is_due = True
            raise self._health.refuse(error.reason) from error
        except OSError as error:
            raise self._health.fail(error) from error
        done()
        self.notify()

    def notify(self) -> None:
        """Called when more may be on disk, or the log is usable again."""
        if self.on_fsynced is not None:
            self.on_fsynced()

    async def flush_async(self, up_to: Offset | None = None) -> None:
        """Wait until every record below `up_to` (default: log end) is on disk. One fsync serves all who wait.

        Fsyncs the log file only: recovery rebuilds indexes. Raises `KafkaError`: KAFKA_STORAGE_ERROR, and the log is
        offline then; NOT_LEADER_OR_FOLLOWER if the log was cut meanwhile, as the leader of these records is unknown
        then.
        """
        state = self._state
        target = state.log_end if up_to is None else min(up_to, state.log_end)
        truncations = state.truncations
        while state.durable < target:
            self._health.check()
            await asyncio.shield(self._begin())
            if truncations != state.truncations:
                raise KafkaError(ErrorCode.not_leader_or_follower, "the log was truncated meanwhile")

    def begin_flush(self) -> None:
        """Begin a group fsync, unless one is running. At its end `on_fsynced` is called, or it has failed."""
        if self._health.is_open:
            self._begin()

    def _begin(self) -> asyncio.Future[None]:
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._group_flush())
            self._flushing.add_done_callback(_retrieve)
        return self._flushing

    async def idle(self) -> None:
        """Wait for the fsyncs that have begun."""
        running = [each for each in (self._flushing, self._fsyncing) if each is not None]
        if running:
            await asyncio.wait(running)

    async def _group_flush(self) -> None:
        try:
            await self._fsync_in_thread(with_indexes=False)
        finally:
            self._flushing = None
        self.notify()

    async def flush_all_async(self) -> None:
        """Like `flush`, with the waiting in a thread. Raises `KafkaError`."""
        self._health.check()
        self.is_due = False
        for _ in range(2):
            if self._is_fsynced(None):
                return
            running = self._fsyncing
            if running is None:
                running = self._fsyncing = asyncio.ensure_future(self._full_fsync())
                await asyncio.shield(running)
                return
            # Two would replace the same files. The second one to wait for began after this call.
            await asyncio.wait([running])
            self._health.check()

    async def _full_fsync(self) -> None:
        try:
            await self._fsync_in_thread(with_indexes=True)
        finally:
            self._fsyncing = None
        self.notify()

    async def _fsync_in_thread(self, *, with_indexes: bool) -> None:
        health = self._health
        try:
            work, done = self._plan(with_indexes=with_indexes)
            began_s = elapsed_s()
            await self._fs.run(work)
            if self.flush_seconds is not None:
                self.flush_seconds.add(elapsed_s() - began_s)
        except _NotWritten as error:
            if health.is_closed:
                raise health.error() from error
            self.is_due = True
            raise health.refuse(error.reason) from error
        except OSError as error:
            if health.is_closed:  # deleted meanwhile: its files are not where they were
                raise health.error() from error
            raise health.fail(error) from error
        done()
