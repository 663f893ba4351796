"""Reads the logs of a node in the background and looks for damage: slowly, off the loop, each log now and then.

What was appended was checked then, and what is read while a node starts are the ends of segments only; a byte that
changed on the disk since would be met by a reader, or by nobody until this copy is the only one. The scrubber reads
every log once after a start and again when `ottla.log.scrub.interval.ms` is over; a log that somebody suspects (a
reader, a coordinator that loads it, the cleaner, a follower) comes first, from the suspected place on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.model import LeaderEpoch, Millis, Offset, TopicPartition
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.checkpoints.partition_metadata import write_partition_metadata
from ottla.storage.log.log import Log
from ottla.storage.log_manager import LogManager
from ottla.storage.recovery.damage import Damage, DamagedLog, is_known, read_known_gaps
from ottla.storage.recovery.log_check import SegmentCheck, joined
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_files import LOG, SegmentFile

_LOG = logging.getLogger("ottla.logs")

STEP_BYTES = 128 * 1024
"""Read and checked at once: of small batches that takes a thread some milliseconds of the interpreter's lock."""

LOAD_MAX = 0.05
"""Share of a core that checking may take, whatever the rate says."""

LOOK_EVERY_S = 60.0
"""How often the scrubber looks which logs are due, where none is suspected."""

SUSPECTED_AGAIN_S = 10.0
"""A log that was found to be sound is not checked again for the same reason before that: clients retry."""

WHOLE = "what lies behind it was not looked at"

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the log."""


class ScrubSettings(NamedTuple):
    """The settings `ottla.log.scrub.*` of a node as they are now."""

    bytes_per_second: int = 8 << 20
    """0: only suspected logs are read."""
    interval_ms: Millis = 7 * 86_400_000


class ScrubTotals:
    """Totals of the scrubber since the start."""

    __slots__ = ("bytes_read", "damaged", "epochs_mended", "logs")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.logs = 0
        """Checked from their first byte to their last."""
        self.damaged = 0
        """Logs found to be damaged."""
        self.epochs_mended = 0
        """Wrong leader-epoch-checkpoints."""


class _Stale(Exception):
    """The log is not what it was: what was read of it says nothing."""


class _SegmentGone(Exception):
    """The segment is not one of the log any more."""


class _Begun(NamedTuple):
    """A check of a log."""

    log: Log
    truncations: int
    """How often it had been cut then."""
    hurry: bool


class LogScrubber:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        fs: FileSystem,
        logs: LogManager,
        settings: Callable[[], ScrubSettings],
        found: Callable[[Log, DamagedLog], None],
        epoch_max: Callable[[TopicPartition], LeaderEpoch],
    ) -> None:
        """`found` is called with a log that is damaged; `epoch_max` gives the newest leader epoch of a partition, -1
        if that is unknown."""
        self._fs = fs
        self._logs = logs
        self._settings = settings
        self._found = found
        self._epoch_max = epoch_max
        self._suspected: dict[Log, Offset] = {}
        """Suspected logs, with the offset from which on to check."""
        self._checked_s: dict[Log, float] = {}
        """When a log was made or found to be sound; one that was recreated is another one."""
        self._suspicions_s: dict[Log, float] = {}
        """When a suspected log was found to be sound."""
        self._due: deque[Log] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.totals = ScrubTotals()

    # Life

    def scrub_all(self) -> None:
        """Read what is on disk now, which was not looked at when the node started; of logs that are made later all was
        checked when it was appended."""
        self._due.extend(self._logs)
        self._news.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No file is read after that."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def suspect(self, log: Log, offset: Offset | None = None) -> None:
        """Check a log soon: damage was met at `offset` or anywhere."""
        start = log.log_start_offset if offset is None else offset
        now_s = self._now_s()
        if now_s - self._suspicions_s.get(log, -SUSPECTED_AGAIN_S) >= SUSPECTED_AGAIN_S:
            self._suspected[log] = min(start, self._suspected.get(log, start))
            self._news.set()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if not await self._scrub_next():
                    await self._wait(LOOK_EVERY_S)
            except Exception as error:  # a bug in it must not end the search for damage
                _LOG.error("a log cannot be scrubbed", exc_info=error)
                await self._wait(LOOK_EVERY_S)

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless a log is suspected or the node stops."""
        if self._suspected or self._stopping:
            return
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def _scrub_next(self) -> bool:
        """Check the log whose turn it is; False where there is none."""
        if await self._check_suspected():
            return True
        if not self._due:
            self._find_due()
        while self._due:
            log = self._due.popleft()
            if self._is_served(log):
                await self._name(log)
                await self.check(log)
                return True
        return False

    async def _check_suspected(self) -> bool:
        """Check the logs that are suspected; False where there are none."""
        checked = False
        while self._suspected and not self._stopping:
            log, offset = self._suspected.popitem()
            if self._is_served(log):
                checked = True
                await self.check(log, offset, hurry=True)
                self._suspicions_s[log] = self._now_s()
        return checked

    def _find_due(self) -> None:
        settings, now_s = self._settings(), self._now_s()
        for remembered in (self._checked_s, self._suspicions_s):
            for log in [log for log in remembered if not self._is_served(log)]:
                del remembered[log]
        if settings.bytes_per_second > 0:
            interval_s = settings.interval_ms / 1000
            for log in self._logs:
                if now_s - self._checked_s.setdefault(log, now_s) >= interval_s:
                    self._due.append(log)

    def _is_served(self, log: Log) -> bool:
        return log.is_open and self._logs.get(log.topic_partition) is log

    # Checking

    async def check(self, log: Log, start: Offset | None = None, *, hurry: bool = False) -> bool:
        """Check a log, from the segment of `start` on if that is given; False where it is damaged, or what was read
        says nothing. Tells of damage, and mends a wrong leader-epoch-checkpoint."""
        begun = _Begun(log, log.truncations, hurry)
        found: list[SegmentCheck] = []
        try:
            gaps = await self._fs.run(partial(_known_gaps, self._fs, log.directory))
            segments = log.segments
            for number, segment in enumerate(segments):
                end = segments[number + 1].base_offset if number + 1 < len(segments) else None
                if end is None or end > (log.log_start_offset if start is None else start):
                    with contextlib.suppress(_SegmentGone):  # retention or the cleaner took it
                        found.append(await self._check_segment(begun, segment, gaps))
        except _Stale:
            return False
        except DamagedLog as damaged:
            self.totals.damaged += 1
            self._checked_s[log] = self._now_s()  # it is known
            self._found(log, damaged)
            return False
        if start is None:
            self.totals.logs += 1
            self._checked_s[log] = self._now_s()
        self._compare_epochs(log, found)
        return True

    async def _check_segment(self, begun: _Begun, segment: Segment, gaps: list[tuple[Offset, Offset]]) -> SegmentCheck:
        """Raises `DamagedLog`, and `_Stale` where the log was cut or closed meanwhile."""
        log = begun.log

        def may_be_missing(first: Offset, stop: Offset) -> bool:
            return stop <= log.log_start_offset or has_gaps(log) or is_known(gaps, first, stop)

        self._ensure_same(begun, segment)
        path, begin = segment.path(LOG), segment.base_offset
        try:  # a descriptor of its own: those that readers use stay open
            handle = await self._fs.run(lambda: SegmentFile(self._fs.open(path, read_only=True)))
        except OSError as error:
            self._ensure_same(begun, segment)
            raise _unreadable(log, path, error) from error
        self._ensure_same(begun, segment)
        # Now, not when the check began: the active one of before may have been rolled, hours ago.
        limit = next((each.base_offset for each in log.segments if each.base_offset > begin), log.log_end_offset)
        epoch_max = self._epoch_max(log.topic_partition)
        begins = next(iter(log.epochs.entries), None)
        check = SegmentCheck(
            handle, begin, segment.size, adjoins=may_be_missing, limit=limit, epoch_max=epoch_max, begins=begins
        )
        while not check.is_done:
            began_s = self._now_s()
            try:
                size = await self._fs.run(partial(check.step, STEP_BYTES))
            except OSError as error:
                self._ensure_same(begun, segment)
                raise _unreadable(log, path, error) from error
            self._ensure_same(begun, segment)
            self.totals.bytes_read += size
            if not check.is_done:
                await self._pace(size, self._now_s() - began_s, hurry=begun.hurry)
                if not begun.hurry:
                    await self._check_suspected()
                self._ensure_same(begun, segment)
        if check.wrong is not None:
            raise DamagedLog(Damage(log.directory, path, check.position, check.wrong, WHOLE))
        return check

    def _ensure_same(self, begun: _Begun, segment: Segment) -> None:
        log = begun.log
        if self._stopping or not self._is_served(log) or log.truncations != begun.truncations:
            raise _Stale
        if not log.has_run((segment,)):
            raise _SegmentGone

    async def _pace(self, size: int, took_s: float, *, hurry: bool) -> None:
        """Rest, so that the rate is kept and little of a core is used; a suspected log is read in half of the time."""
        rate = self._settings().bytes_per_second
        rest_s = took_s if hurry else took_s * (1 / LOAD_MAX - 1)
        if rate > 0 and not hurry:
            rest_s = max(rest_s, size / rate - took_s)
        if hurry:
            await asyncio.sleep(rest_s)
        elif rest_s > 0:
            await self._wait(rest_s)

    # What is mended here

    def _compare_epochs(self, log: Log, found: list[SegmentCheck]) -> None:
        """Correct the log's leader epochs where they differ from its batches."""
        epochs = joined([check.epochs for check in found])
        newest = [check.newest for check in found if check.newest is not None]
        if not epochs or not any(log.epochs.contradicts(*each) for each in (*epochs, *newest)):
            return
        self.totals.epochs_mended += 1
        _LOG.error(
            "wrong leader-epoch-checkpoint rebuilt from the batches",
            extra=fields(log=log.directory, entries=len(log.epochs.entries)),
        )
        log.mend_epochs(epochs, newest[-1][1])

    async def _name(self, log: Log) -> None:
        """Write the partition's identity into a directory of Kafka's."""
        topic_id = log.topic_id
        if log.directory not in self._logs.unnamed or topic_id is None:
            return
        key = log.topic_partition
        work = partial(write_partition_metadata, self._fs, log.directory, topic_id, key)
        try:
            await self._fs.run(work)
        except OSError as error:
            _LOG.warning("partition.metadata was not changed", extra=fields(log=log.directory, error=str(error)))
        self._logs.unnamed.pop(log.directory, None)


def has_gaps(log: Log) -> bool:
    """Whether offsets may be missing in a log that is sound: it is or was compacted."""
    return log.config.compact or log.cleaned_offset is not None


def _known_gaps(fs: FileSystem, directory: str) -> list[tuple[Offset, Offset]]:
    try:
        return read_known_gaps(fs, directory)
    except (CorruptFile, OSError):
        return []


def _unreadable(log: Log, path: str, error: OSError) -> Exception:
    if error.errno in _PASSING:
        return _Stale()
    return DamagedLog(Damage(log.directory, path, None, f"it cannot be read: {error}", WHOLE))
