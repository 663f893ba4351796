"""Compacts the logs of a node, the dirtiest first (Kafka's `LogCleaner`).

The loop decides and swaps; threads read and write, a few hundred kilobytes at a time. Before each step the loop looks
whether the log is still what it was: a truncation, a deletion, a failed disk or a changed policy ends a cleaning, and
nothing stays of the group of segments it was at. A log that cannot be cleaned is left alone until the next start, with
an error in the log of the node and in its metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ottla.clock import Clock
from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.model import Millis, Offset
from ottla.storage.checkpoints.offset_checkpoint import CLEANER_OFFSET_CHECKPOINT
from ottla.storage.cleaner.cleaner_manager import Dirt, group_segments, measure
from ottla.storage.log.log import Log
from ottla.storage.log_manager import LogManager
from ottla.storage.segments.segment import Segment

if TYPE_CHECKING:
    # At run time they come with the first cleaning: a node with nothing to clean starts without them.
    from ottla.storage.cleaner.cleaner_filter import BatchFilter
    from ottla.storage.cleaner.cleaner_map import OffsetMap
    from ottla.storage.cleaner.cleaner_round import MapBuilder

_LOG = logging.getLogger("ottla.cleaner")
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the log: no space, descriptors or memory just now."""
_IO_BYTES_MIN = 4096


class CleanerSettings(NamedTuple):
    """The settings `log.cleaner.*` of a node as they are now."""

    enable: bool = True
    threads: int = 1
    io_bytes_per_second: float = float("inf")
    dedupe_buffer_bytes: int = 134_217_728
    io_buffer_bytes: int = 524_288
    load_factor: float = 0.9
    backoff_ms: Millis = 15_000


class Cleaning(NamedTuple):
    """Result of a cleaning, for metrics and tests."""

    first: Offset
    end: Offset
    bytes_indexed: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    map_utilization: float
    seconds: float


@dataclass(slots=True)
class CleanerTotals:
    """Totals of all cleanings since the start."""

    cleanings: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class CleaningAborted(Exception):
    """The log is not what it was when the cleaning began, or the node stops."""


class Throttle:
    """Spreads the bytes of all cleanings of a node over time."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def delay(self, size: int, bytes_per_second: float, now: float) -> float:
        """Seconds to wait after `size` bytes."""
        self._free_at = max(self._free_at, now) + (size / bytes_per_second if bytes_per_second > 0 else 0.0)
        return self._free_at - now


class LogCleaner:
    """Started once the logs are loaded, stopped before they are closed."""

    def __init__(
        self,
        fs: FileSystem,
        logs: LogManager,
        clock: Clock,
        random: random_module.Random,
        settings: Callable[[], CleanerSettings],
    ) -> None:
        self._fs = fs
        self._logs = logs
        self._clock = clock
        self._random = random
        self._settings = settings
        self._throttle = Throttle()
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._stopping = False
        self._changed = asyncio.Event()
        """Set for a moment when settings change or the node stops: its waiters look again."""
        self._in_progress: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self.last: Cleaning | None = None
        self.totals = CleanerTotals()
        self.max_dirty_ratio = 0.0
        """Dirty ratio of the dirtiest log at the last check."""
        self.max_delay_ms: Millis = 0
        """How far the most overdue log is beyond `max.compaction.lag.ms`, at the last look."""
        self.last_look_ms: Millis = 0

    # Life

    def start(self) -> None:
        """Begin with as many workers as `log.cleaner.threads` says."""
        self._adjust()

    def settings_changed(self) -> None:
        """Follow changed settings at once."""
        self._adjust()
        self._changed.set()
        self._changed = asyncio.Event()

    def _adjust(self) -> None:
        settings = self._settings()
        if self._stopping or not settings.enable:
            return
        for number in range(settings.threads):
            if number not in self._workers:
                task = asyncio.get_running_loop().create_task(self._work(number))
                self._workers[number] = task
                task.add_done_callback(lambda _, number=number: self._workers.pop(number, None))  # type: ignore[misc]

    async def stop(self) -> None:
        """End what is being cleaned; no file is written after that."""
        self._stopping = True
        self._changed.set()
        workers = list(self._workers.values())
        if workers:
            await asyncio.wait(workers)

    async def _work(self, number: int) -> None:
        while not self._stopping and number < self._settings().threads:
            cleaned = False
            try:
                cleaned = await self.clean_dirtiest()
            except Exception:
                _LOG.exception("the log cleaner failed")
            if not cleaned:
                await self._wait(self._settings().backoff_ms / 1000)

    async def _wait(self, seconds: float) -> None:
        """Sleep, unless settings change or the node stops."""
        if not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    @property
    def dead_workers(self) -> int:
        """How many workers should be there and are not."""
        settings = self._settings()
        return max(settings.threads - len(self._workers), 0) if settings.enable and not self._stopping else 0

    # Choosing

    @property
    def uncleanable(self) -> set[Log]:
        """Logs that are left alone because of an error in them; not those that were deleted since."""
        self._uncleanable = {log for log in self._uncleanable if self._logs.get(log.topic_partition) is log}
        return self._uncleanable

    @staticmethod
    def dirty_bytes(log: Log) -> int:
        """About what there is to compact in a log, whether or not it may be compacted yet; looks into no file."""
        first = max(log.cleaned_offset or 0, log.log_start_offset)
        return sum(segment.size for segment in log.segments[:-1] if segment.base_offset >= first)

    def _measure(self, log: Log, now_ms: Millis) -> Dirt | None:
        cleaned = log.cleaned_offset
        first_dirty = log.log_start_offset if cleaned is None else cleaned
        if log.active_segment.base_offset <= first_dirty <= log.log_end_offset:
            return None  # the usual case, and there may be ten thousand of them
        return measure(
            log.segments,
            log.config,
            cleaned=cleaned,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            last_stable=log.last_stable_offset,
            now_ms=now_ms,
        )

    def choose(self, now_ms: Millis) -> tuple[Log, Dirt] | None:
        """The log with the largest share of dirt among those that are due."""
        self.last_look_ms = now_ms
        best: tuple[Log, Dirt] | None = None
        uncleanable = self.uncleanable
        ratios, delays = [0.0], [0]
        for log in self._logs:
            if not log.config.compact or log in self._in_progress or log in uncleanable or not log.is_open:
                continue
            if self._logs.futures.get(log.topic_partition) is not None:  # a copy may have what would go, as in Kafka
                continue
            try:
                dirt = self._measure(log, now_ms)
            except (OSError, KafkaError) as error:
                self._give_up(log, error)
                continue
            if dirt is None:
                continue
            ratios.append(dirt.ratio)
            delays.append(dirt.delay_ms)
            if dirt.is_due(log.config) and (best is None or dirt.ratio > best[1].ratio):
                best = log, dirt
        self.max_dirty_ratio, self.max_delay_ms = max(ratios), max(delays)
        return best

    def _give_up(self, log: Log, error: Exception) -> None:
        self._uncleanable.add(log)
        log.health.suspect(error, None)
        expected = isinstance(error, OSError | KafkaError)
        _LOG.error(
            "log marked uncleanable until the next start",
            exc_info=None if expected else error,
            extra=fields(partition=log.topic_partition, directory=log.directory, error=str(error)),
        )

    # Cleaning

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if none does, or nothing came of it."""
        chosen = self.choose(self._clock.now_ms())
        if chosen is None:
            return False
        log, dirt = chosen
        self._in_progress.add(log)
        truncations = log.truncations
        try:
            await self._clean(log, dirt)
        except CleaningAborted:
            _LOG.debug("compaction aborted", extra=fields(partition=log.topic_partition))
            return False
        except Exception as error:
            reason = error.__cause__ if isinstance(error, KafkaError) else error
            if isinstance(reason, OSError) and reason.errno in _PASSING:
                _LOG.warning(
                    "compaction failed, will be retried", extra=fields(partition=log.topic_partition, error=str(error))
                )
            elif log.is_open and log.truncations == truncations:  # else it failed or was deleted, which others logged
                self._give_up(log, error)
            return False
        finally:
            self._in_progress.discard(log)
        return True

    async def _clean(self, log: Log, dirt: Dirt) -> None:
        from ottla.storage.cleaner.cleaner_filter import BatchFilter
        from ottla.storage.cleaner.cleaner_map import OffsetMap
        from ottla.storage.cleaner.cleaner_transactions import CleanedTransactions

        begun_s = asyncio.get_running_loop().time()
        settings = self._settings()
        check = partial(self._check, log, log.truncations)
        # A power failure may not take the newer record of a key when the older one is gone. And the loader takes
        # a gap between two segments for a loss if it lies behind the recovery point that is on disk.
        await self._logs.fsync_to(log, dirt.uncleanable)
        if log.cleaned_offset is None:
            # From here on the log may have gaps, whatever policy it is given later: the loader has to know.
            log.cleaned_offset = dirt.first_dirty
            await self._logs.checkpoint(CLEANER_OFFSET_CHECKPOINT)
        check()
        threads = max(settings.threads, 1)
        offsets = OffsetMap(
            settings.dedupe_buffer_bytes // threads,
            settings.load_factor,
            dirt.uncleanable - dirt.first_dirty,
            self._random,
        )
        io_bytes = max(settings.io_buffer_bytes // threads // 2, _IO_BYTES_MIN)
        try:
            builder = await self._fill(log, dirt, offsets, io_bytes, check)
            end = offsets.latest + 1
            batches = BatchFilter(
                offsets,
                CleanedTransactions(),
                round_end=dirt.uncleanable,
                delete_retention_ms=log.config.delete_retention_ms,
                now_ms=self._clock.now_ms(),
                record_bytes_max=log.config.max_decompressed_message_bytes,
            )
            read = written = 0
            segments = [segment for segment in log.segments if segment.base_offset < end]
            limits = [*(each.base_offset for each in log.segments[len(segments) :]), dirt.uncleanable]
            groups = group_segments(segments, log.config, dirt.uncleanable)
            for group, following in zip_longest(groups, groups[1:]):
                limit = following[0].base_offset if following else limits[0]
                sizes = await self._clean_group(log, group, limit, batches, io_bytes, check)
                read, written = read + sizes[0], written + sizes[1]
        finally:
            offsets.close()
        await self._fs.run(partial(self._fs.fsync_dir, log.directory))
        check()
        log.cleaned_offset = end
        await self._logs.checkpoint(CLEANER_OFFSET_CHECKPOINT)
        counts = batches.counts
        done = Cleaning(
            dirt.first_dirty,
            end,
            builder.bytes_read,
            read,
            written,
            counts.records_read,
            counts.records_kept,
            offsets.utilization,
            asyncio.get_running_loop().time() - begun_s,
        )
        self._note(log, done, counts.keyless)

    def _note(self, log: Log, done: Cleaning, keyless: int) -> None:
        self.last = done
        self.totals.cleanings += 1
        self.totals.bytes_read += done.bytes_indexed + done.bytes_read
        self.totals.bytes_written += done.bytes_written
        _LOG.info("compacted", extra=fields(partition=log.topic_partition, **done._asdict()))
        if keyless:
            _LOG.warning(
                "records without a key were removed", extra=fields(partition=log.topic_partition, records=keyless)
            )

    def _check(self, log: Log, truncations: int) -> None:
        """Raises `CleaningAborted` if it makes no sense to go on."""
        if (
            self._stopping
            or not log.is_open
            or log.truncations != truncations
            or not log.config.compact
            or self._logs.get(log.topic_partition) is not log
            or not self._settings().enable
        ):
            raise CleaningAborted

    async def _pace(self, size: int) -> None:
        rate = self._settings().io_bytes_per_second
        delay = self._throttle.delay(size, rate, asyncio.get_running_loop().time())
        if delay > 0.001:
            await self._wait(delay)

    async def _fill(
        self, log: Log, dirt: Dirt, offsets: OffsetMap, io_bytes: int, check: Callable[[], None]
    ) -> MapBuilder:
        """Map the latest offset of every key of the dirty part, or of as much of it as there is room for."""
        from ottla.storage.cleaner.cleaner_round import MapBuilder, Source

        offsets.latest = dirt.first_dirty - 1
        aborted = log.aborted_transactions(dirt.first_dirty, dirt.uncleanable)
        builder = MapBuilder(offsets, dirt.first_dirty, aborted, log.config.max_decompressed_message_bytes)
        segments = log.segments
        for segment, following in pairwise(segments):  # the active one is not dirty yet
            if following.base_offset <= dirt.first_dirty:
                continue
            if segment.base_offset >= dirt.uncleanable or builder.full:
                break
            if not log.has_run((segment,)):  # retention took it since the look
                raise CleaningAborted
            source = Source(segment.open(), segment.base_offset, following.base_offset, segment.size)
            if segment.base_offset < dirt.first_dirty:
                source.position = segment.offset_index.position_before(dirt.first_dirty)
            while True:
                size = await self._fs.run(partial(builder.step, source, io_bytes))
                await self._pace(size)
                check()
                if source.is_done or builder.full:
                    break
        return builder

    async def _clean_group(
        self,
        log: Log,
        group: Sequence[Segment],
        end: Offset,
        batches: BatchFilter,
        io_bytes: int,
        check: Callable[[], None],
    ) -> tuple[int, int]:
        """Rewrite segments, which end at `end`, and put the result in their place; returns bytes read and written."""
        from ottla.storage.cleaner.cleaner_filter import LastRecord
        from ottla.storage.cleaner.cleaner_round import GroupCleaner, Source

        batches.last_records = {
            producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in log.producer_state.producers.items()
        }

        def check_group() -> None:
            check()
            if not log.has_run(group):  # retention took some of them
                raise CleaningAborted

        check_group()
        mtime_ms = self._fs.mtime_ms(group[-1].path(".log"))
        cleaner = GroupCleaner(self._fs, log.directory, batches, group[0].base_offset, log.config.index_interval_bytes)
        swapped = False
        try:
            for number, segment in enumerate(group):
                following = group[number + 1].base_offset if number + 1 < len(group) else end
                source = Source(segment.open(), segment.base_offset, following, segment.size)
                batches.transactions.add_aborted(log.aborted_transactions(source.base_offset, source.end_offset))
                while not source.is_done:
                    size = await self._fs.run(partial(cleaner.step, source, io_bytes))
                    await self._pace(size)
                    check_group()
            if len(group) == 1 and cleaner.unchanged and not group[0].transaction_index.entries:
                return cleaner.bytes_read, 0
            new = await self._fs.run(partial(cleaner.output.finish, mtime_ms))
            check_group()
            swapped = True
            log.replace_segments(group, new, self._clock.now_ms())
            return cleaner.bytes_read, cleaner.output.size
        finally:
            if not swapped:
                cleaner.output.close()
                if log.is_open or log.truncator.is_busy:  # else a log of the same name may be where this one was
                    with contextlib.suppress(OSError):
                        await self._fs.run(cleaner.output.discard)
