"""Cutting a log: what a follower does with records that its leader does not have.

In three steps, so that the files of many logs are cut in a disk thread, one batch for all. `begin`, on the event loop,
moves every offset: from then on nothing counts above the cut, and the log refuses reads and appends
(NOT_LEADER_OR_FOLLOWER). `work` may run in a thread: it touches files, and copies of segments and producer state that
nobody else has. `end`, on the loop again, puts the copies in place. A crash in between leaves a log that recovers to
something between the old end and the new one, if the recovery point of `begin` is on disk before `work`. `work`
fsyncs the renames of whole segments before it cuts the last one, so that a power failure never brings dropped segments
back behind records that were appended and fsynced after the cut.

Batches go as a whole: a cut inside a batch ends the log where the batch began, as its file does. (Kafka's log would end
inside the batch, refuse the leader's copy of it, and end before it after a restart.) In a gap that compaction left, the
log ends at the cut, for which an empty segment stands: offsets that were consumed are not given again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.steps import at_once
from ottla.storage.log.log_health import NO_DESCRIPTOR, is_passing
from ottla.storage.log.log_parts import LogParts
from ottla.storage.producers.producer_state import ProducerStateManager
from ottla.storage.recovery.rebuild import replay_producers
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_cache import SegmentCache

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.05, 1.0
"""How long a cut waits for room on a full disk before its first further attempt, and at most."""


async def cut_files(
    truncations: Collection[Truncation],
    attempt: Callable[[], Awaitable[Collection[KafkaError]]],
    gives_up: Callable[[], bool],
) -> None:
    """Await `attempt`, which calls `work` of all of them and returns what else failed, until no error passes any more
    (`is_passing`). Meanwhile the logs refuse everything: their files may have records that count no more. `gives_up`:
    whether the node stops. Raises what `attempt` raises."""
    delay_s = RETRY_SECONDS
    while True:
        lacks_room = any(map(is_passing, await attempt())) or any(each.lacks_room for each in truncations)
        if not lacks_room or gives_up() or all(each.is_over for each in truncations):
            return
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, RETRY_SECONDS_MAX)


def work_at(truncations: Collection[Truncation]) -> None:
    """Cut the files of all of them. Blocks."""
    for each in truncations:
        each.work()


def _fsync_directory(fs: FileSystem, path: str) -> None:
    """Raises `OSError`: one that passes only where the directory could not be opened."""
    try:
        fs.fsync_dir(path)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise
        raise OSError(errno.EIO, f"fsync in a truncation failed: {error}", path) from None


class Truncation:
    """One log on its way to a new end. Each step is done once, in their order."""

    __slots__ = (
        "_dropped", "_epochs", "_error", "_files_end", "_gate", "_is_cut", "_kept", "_parts", "_producers",
        "_recovery_point", "_renamed", "is_clean_point_moved", "offset", "starts_over",
    )  # fmt: skip

    def __init__(self, parts: LogParts, offset: Offset, *, starts_over: bool) -> None:
        """`starts_over`: the log drops everything, and starts and ends at `offset`."""
        self._parts = parts
        self.offset = offset
        """Where the log is to end; `work` moves it to the start of the batch that it is inside."""
        self.starts_over = starts_over or offset < parts.segments.bases[0]
        self.is_clean_point_moved = False
        """Whether compaction had come further."""
        self._dropped: list[Segment] = []
        """Taken out of the list, newest first."""
        self._kept: list[Segment] = []
        """Copies, made by `work`; the last one becomes the active segment."""
        self._files_end = offset
        """Where the batches end that are left, at or below the new end."""
        self._recovery_point = parts.state.recovery_point
        """As it was before."""
        self._producers: ProducerStateManager | None = None
        """Another instance for the log, if anything is cut."""
        self._epochs: bytes | None = None
        """What the checkpoint of the leader epochs is to say, if that changes."""
        self._renamed: list[str] = []
        self._error: OSError | KafkaError | None = None
        """What `work` met the last time."""
        self._is_cut = False
        """Whether `work` has done all that it has to."""
        self._gate = parts.fs.mutex()
        """Held while `work` is at the files."""

    def begin(self) -> None:
        """Raises `KafkaError` for a log that cannot be used, or where the disk fails."""
        parts, offset = self._parts, self.offset
        state, segments, epochs = parts.state, parts.segments, parts.epochs
        parts.health.check()
        if offset >= state.log_end and not self.starts_over:
            self._epochs = epochs.cut_from_end(state.log_end)
            parts.health.begin_work()
            return
        cleaned = state.cleaned
        if self.starts_over:
            self._dropped = segments.detach_from(0)
            segments.add_placeholder(offset, state.now_ms)
            self._epochs = epochs.drop_all()
            state.restart_at(offset)
        else:
            number = segments.index_of(offset)
            try:
                segments.items[number].write_indexes()
            except OSError as error:
                raise parts.health.refuse(error) from error
            self._dropped = segments.detach_from(number + 1)
            self._epochs = epochs.cut_from_end(offset)
            state.truncate(offset)
            # Only `work` looks into files: the batch that is cut begins anywhere from the last index entry on.
            state.recovery_point = min(state.recovery_point, segments.items[number].known_boundary(offset))
        self.is_clean_point_moved = cleaned is not None and offset <= cleaned
        self._producers = parts.producer_state.without_content()
        parts.health.begin_work()

    async def fsyncs_ended(self) -> None:
        """Wait for those that began before: they know the files as they were."""
        await self._parts.flusher.idle()

    @property
    def is_over(self) -> bool:
        """Whether the log is closed, so that nothing is left to do."""
        return self._parts.health.is_closed

    @property
    def lacks_room(self) -> bool:
        """Whether the disk was full, or no file could be opened: `work` is to be called again."""
        return self._error is not None and is_passing(self._error) and not self._parts.health.is_closed

    def work(self, note: Callable[[Offset], None] | None = None) -> None:
        """Cut the files, after `note` has heard of the new end; once they are cut, nothing. Blocks; raises nothing,
        `end` does."""
        with self._gate:
            if self._parts.health.is_closed or self._is_cut:  # deleted: another log may be in its place
                return
            self._error = None
            try:
                self._work(note)
                self._is_cut = True
            except (OSError, KafkaError) as error:
                self._error = error

    def _work(self, note: Callable[[Offset], None] | None) -> None:
        """Every part of it may be done twice."""
        fs, state, _, segments, _, epochs, producer_state = self._parts
        producers = self._producers
        if producers is not None:
            self._kept = self._kept or segments.private_copies()  # what an attempt has cut stays cut
            if not self.starts_over:
                self.offset = self._kept[-1].batch_start(self.offset)
        if note is not None:
            note(self.offset)
        for segment in self._dropped:  # newest first, so that a crash leaves no gap
            self._renamed += segment.rename_to_deleted()
        if self.starts_over:
            self._kept[-1].create_files()
        # The renames are on disk before anything is cut or appended.
        if self._epochs is not None:
            with fs.replacing:
                fs.write_atomic(epochs.path, self._epochs)  # fsyncs the directory
        elif self._dropped:
            _fsync_directory(fs, segments.directory)
        if producers is not None:
            if not self.starts_over:
                self._cut_last()
            producers = self._producers = producer_state.without_content()
            producers.note_cut(producer_state, self.offset)
            producers.find_snapshots()
            if self.starts_over:
                producers.truncate_fully_and_start_at(self.offset)
            else:
                at_once(replay_producers(producers, self._kept, state.log_start, self.offset, state.now_ms))

    def _cut_last(self) -> None:
        """Cut the segment that ends the log, and make the files of an empty one where the log ends in a gap."""
        from ottla.storage.segments.segment_rescan import truncate  # not at a start

        fs, state, _, segments, _, _, _ = self._parts
        last = self._kept[-1]
        self._files_end = truncate(last, self.offset)
        if self._files_end < self.offset:
            last.close_to_appends()
            segments.unmark_gaps()
            Segment.create(
                fs,
                SegmentCache(),
                segments.directory,
                self.offset,
                now_ms=state.now_ms,
                index_interval_bytes=last.index_interval_bytes,
                jitter_ms=0,
            )

    def wait(self) -> None:
        """Until `work` is not at the files, and never will be once the log is closed. Blocks for as long as one log
        takes, where a topic is deleted in that moment."""
        with self._gate:
            pass

    def end(self, error: OSError | KafkaError | None = None) -> None:
        """The log can be used again, unless its files are not cut and `error`, or what `work` met, says why. Raises
        `KafkaError`, and it is offline then."""
        _, state, health, segments, flusher, _, producer_state = self._parts
        error = None if self._is_cut else error or self._error
        if health.is_closed:
            raise health.error()
        if error is not None:
            raise health.fail(error if isinstance(error, OSError) else OSError(str(error))) from error
        if self._kept:
            segments.replace_active(self._kept[-1])
        if self.starts_over:
            flusher.fsync_later(segments.directory)
        elif self._kept:
            self._end_at_a_batch()
        for path in self._renamed:
            segments.schedule_deletion(path, state.now_ms)
        if self._producers is not None:
            producer_state.take_over(self._producers)
            producer_state.on_high_watermark(state.high_watermark)
        health.end_work()
        flusher.notify()

    def _end_at_a_batch(self) -> None:
        """Move the offsets from where `begin` put them to where the files end."""
        _, state, health, segments, flusher, epochs, _ = self._parts
        if self.offset < state.log_end:
            state.truncate(self.offset)
            if epochs.cut_from_end(self.offset) is not None:
                flusher.write_later(epochs.path, epochs.encode)
        state.recovery_point = min(self._recovery_point, self._files_end)
        state.durable = min(state.durable, self._files_end)
        if self._files_end < self.offset:
            try:
                segments.add(self.offset, state.now_ms)  # its files are there
            except OSError as error:
                raise health.fail(error) from error
            flusher.fsync_later(segments.directory)


class Truncator:
    """Cuts one log, again and again."""

    __slots__ = ("_current", "_parts", "checkpoint", "on_truncated")

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts
        self._current: Truncation | None = None
        self.on_truncated: Callable[[Offset], None] | None = None
        """Called as soon as nothing counts any more from an offset on."""
        self.checkpoint: Callable[[], None] | None = None
        """Writes the recovery point to disk. Blocks. Raises `KafkaError`."""

    @property
    def is_busy(self) -> bool:
        """Whether it is between `begin` and `end`."""
        return self._parts.health.is_busy

    def truncate(self, offset: Offset, *, starts_over: bool = False) -> None:
        """All at once. Blocks. Raises `KafkaError`; where the checkpoint of the recovery point fails, nothing is cut.
        Only a log that starts over writes that checkpoint."""
        if starts_over and self.checkpoint is not None:
            self._parts.health.check()
            self._parts.state.recovery_point = 0  # on disk before the files go, as in `Truncations`
            self.checkpoint()
        self.begin(offset, starts_over=starts_over).work()
        self.end()

    def begin(self, offset: Offset, *, starts_over: bool = False) -> Truncation:
        """Drop the records from `offset` on, but not from the files: the result's `work` does that. Raises
        `KafkaError`."""
        truncation = Truncation(self._parts, offset, starts_over=starts_over)
        truncation.begin()
        self._current = truncation
        if self.on_truncated is not None:
            self.on_truncated(0 if starts_over else offset)
        return truncation

    def end(self, error: KafkaError | None = None) -> None:
        """The log can be used again, unless `error` says why not. Raises `KafkaError`, and it is offline then."""
        truncation, self._current = self._current, None
        if truncation is not None:
            state = self._parts.state
            begun_at = state.log_end
            truncation.end(error)
            if state.log_end < begun_at and self.on_truncated is not None:
                self.on_truncated(state.log_end)

    def wait(self) -> None:
        """Let no work on the files go on, for a log that is closed."""
        if self._current is not None:
            self._current.wait()
