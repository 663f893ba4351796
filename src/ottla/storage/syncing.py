"""What of a log is on disk: syncing, group commit, and going offline when the disk has failed.

The half of `Log` that knows nothing of records. One fsync serves all who wait for it; what it covered counts as synced
only when it is over, because another sync may begin and end meanwhile.
"""

from __future__ import annotations

import asyncio
import posixpath
import threading
from collections.abc import Callable, Sequence

from ottla.clock import elapsed_s
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.metrics.instruments import Histogram
from ottla.model import Millis, Offset, TopicPartition
from ottla.storage.segment import Segment, sync_file
from ottla.storage.segment_list import SegmentList

_REPLACING = threading.Lock()
"""A sync on the loop (closing, truncating) may meet one in a thread, and both would use the same temporary file."""


class SyncedLog:
    """Segments with an end and with what is known to be on disk."""

    __slots__ = (
        "_changes", "_closed", "_end", "_failure", "_flushing", "_fs", "_now_ms", "_segments", "_syncing",
        "_truncations", "_unsynced", "_unwritten", "directory", "durable_offset", "flush_seconds",
        "last_flush_ms", "needs_background_flush", "recovery_point", "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        segments: SegmentList,
        now_ms: Millis,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.topic_partition = topic_partition
        self._segments = segments
        self._now_ms = now_ms
        """The latest time that a caller told."""
        self._end: Offset = 0
        self.recovery_point: Offset = 0
        """Everything below is on disk, indexes included: what recovery need not check."""
        self.durable_offset: Offset = 0
        """Everything below is on disk as far as the records go; at least `recovery_point`."""
        self._failure: OSError | None = None
        self._closed = False
        self._unsynced: dict[str, int] = {}
        """Files besides the segments' that the next full sync includes, each with the number of its last change; the
        directory and its parent stand for what was created in them, without which no content is worth anything."""
        self._unwritten: dict[str, Callable[[], bytes]] = {}
        """Those of `_unsynced` that are still to be replaced, and what gives their content then."""
        self._changes = 0
        self._flushing: asyncio.Future[None] | None = None
        self._syncing: asyncio.Future[None] | None = None
        """A full sync in a thread."""
        self._truncations = 0
        self.last_flush_ms = now_ms
        self.flush_seconds: Histogram | None = None
        """Where the times of syncs in threads are counted."""
        self.needs_background_flush = False
        """A segment was rolled or recovered: `flush_all_async` should run soon, so that recovery has less to check."""

    # Segments

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is active."""
        return tuple(self._segments.items)

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        """Of all log files."""
        return self._segments.size_bytes

    @property
    def garbage(self) -> list[tuple[Millis, str]]:
        """Files to remove and from when on; `LogManager` does it off the loop."""
        return self._segments.garbage

    @property
    def first_segment_offset(self) -> Offset:
        """Base offset of the oldest segment, at or below the log start."""
        return self._segments.bases[0]

    @property
    def max_timestamp_ms(self) -> Millis:
        """The largest time stamp of all segments, -1 without any."""
        return max(segment.max_timestamp for segment in self._segments.items)

    def has_run(self, segments: Sequence[Segment]) -> bool:
        """Whether these are still segments of the log, one after the other."""
        return self._segments.has_run(segments)

    # Syncing

    @property
    def failure(self) -> OSError | None:
        """The disk error after which this log refuses everything."""
        return self._failure

    @property
    def is_open(self) -> bool:
        """Neither closed nor offline."""
        return self._failure is None and not self._closed

    @property
    def truncations(self) -> int:
        """How often the log was cut since it was loaded."""
        return self._truncations

    def _check(self) -> None:
        if self._failure is not None or self._closed:
            raise self._storage_error()

    def _storage_error(self) -> KafkaError:
        reason = "it is closed" if self._failure is None else str(self._failure)
        return KafkaError(ErrorCode.kafka_storage_error, f"the log of {self.topic_partition} is offline: {reason}")

    def _fail(self, error: OSError) -> KafkaError:
        """From now on nothing is known of what is on disk: go offline, as Kafka does, until the next start."""
        if self._failure is None:
            self._failure = error
        return self._storage_error()

    def sync_later(self, path: str) -> None:
        """Let the next full sync include a file, or any sync a directory, which stands for what was created in it."""
        self._changes += 1
        self._unsynced[path] = self._changes

    def write_later(self, path: str, encode: Callable[[], bytes]) -> None:
        """Let the next full sync replace a file with what `encode` gives by then."""
        self.sync_later(path)
        self._unwritten[path] = encode

    def _sync(self, *, with_indexes: bool) -> tuple[Callable[[], None], Callable[[], None]]:
        """How to make the log durable as it is now: what to do, in a thread if need be, and what to call after.

        Raises `OSError`, as the work does.
        """
        end, truncations = self._end, self._truncations
        first = self.recovery_point if with_indexes else self.durable_offset
        sync_segments, finish_segments = self._segments.sync_work(first, with_indexes=with_indexes)
        fs, directories = self._fs, (self.directory, posixpath.dirname(self.directory))
        unsynced = {path: change for path, change in self._unsynced.items() if with_indexes or path in directories}
        contents = {path: encode() for path, encode in self._unwritten.items() if path in unsynced}

        def work() -> None:
            sync_segments()
            for path in unsynced:
                if self._closed:  # deleted meanwhile; a log of the same name may already be in its place
                    return
                if path in contents:
                    with _REPLACING:
                        fs.write_atomic(path, contents[path])
                elif path not in directories:
                    sync_file(fs, path)
            for path in directories:
                if path in unsynced:
                    fs.fsync_dir(path or ".")

        def done() -> None:
            finish_segments()
            for path, change in unsynced.items():
                if self._unsynced.get(path) == change:
                    del self._unsynced[path]
                    self._unwritten.pop(path, None)
            self.last_flush_ms = self._now_ms
            if truncations == self._truncations:
                self.durable_offset = max(self.durable_offset, end)
                if with_indexes:
                    self.recovery_point = max(self.recovery_point, end)

        return work, done

    def _is_synced(self, up_to: Offset | None) -> bool:
        wanted = self._end if up_to is None else min(up_to, self._end)
        return self.recovery_point >= wanted and not self._unsynced

    def flush(self, up_to: Offset | None = None) -> None:
        """Sync everything below `up_to` (default: all), indexes included, and move the recovery point. Blocks.

        Raises `KafkaError`; after a failed sync the log is offline, as nobody knows what the disk has.
        """
        self._check()
        self.needs_background_flush = False
        if self._is_synced(up_to):
            return
        try:
            work, done = self._sync(with_indexes=True)
            work()
        except OSError as error:
            raise self._fail(error) from error
        done()

    async def flush_async(self, up_to: Offset | None = None) -> None:
        """Wait until every record below `up_to` (default: log end) is on disk. One fsync serves all who wait.

        Syncs the log file only: recovery makes indexes anew. Raises `KafkaError`, and the log is offline then.
        """
        target = self._end if up_to is None else min(up_to, self._end)
        truncations = self._truncations
        while self.durable_offset < target and truncations == self._truncations:
            self._check()
            if self._flushing is None:
                self._flushing = asyncio.ensure_future(self._group_flush())
            await asyncio.shield(self._flushing)

    async def _group_flush(self) -> None:
        try:
            await self._sync_in_thread(with_indexes=False)
        finally:
            self._flushing = None

    async def flush_all_async(self) -> None:
        """Like `flush`, with the waiting in a thread. Raises `KafkaError`."""
        self._check()
        self.needs_background_flush = False
        for _ in range(2):
            if self._is_synced(None):
                return
            running = self._syncing
            if running is None:
                running = self._syncing = asyncio.ensure_future(self._full_sync())
                await asyncio.shield(running)
                return
            # Two would replace the same files. The second one to wait for began after this call.
            await asyncio.wait([running])
            self._check()

    async def _full_sync(self) -> None:
        try:
            await self._sync_in_thread(with_indexes=True)
        finally:
            self._syncing = None

    async def _sync_in_thread(self, *, with_indexes: bool) -> None:
        try:
            work, done = self._sync(with_indexes=with_indexes)
            began_s = elapsed_s()
            await self._fs.run(work)
            if self.flush_seconds is not None:
                self.flush_seconds.add(elapsed_s() - began_s)
        except OSError as error:
            if self._closed:  # deleted meanwhile: its files are not where they were
                raise self._storage_error() from error
            raise self._fail(error) from error
        done()
