"""Cuts many logs at once, in one batch of work for the disk; `truncation.py` has the steps for one."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.storage.checkpoints.offset_checkpoint import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from ottla.storage.log.log import Log
from ottla.storage.log.truncation import Truncation, cut_files, work_at

BEGUN_PER_STEP = 16
"""Beginning a truncation takes some 50 us, if indexes must be written."""


class Truncations:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, fs: FileSystem, write_checkpoint: Callable[[str, str], Awaitable[None]], ended: Callable[[Log], None]
    ) -> None:
        """`write_checkpoint` writes that of a log directory and a name, with the offsets of the moment it begins;
        `ended` is called with each log that is open again."""
        self._fs = fs
        self._write_checkpoint = write_checkpoint
        self._ended = ended
        self._running: set[asyncio.Task[dict[Log, KafkaError]]] = set()
        self._closing = False

    async def stop(self) -> None:
        """Bring to an end what has begun."""
        self._closing = True
        if self._running:
            await asyncio.wait(self._running)

    async def cut(self, offsets: Mapping[Log, Offset], *, starts_over: bool) -> dict[Log, KafkaError]:
        """`LogManager.truncate` and `start_over`."""
        if not offsets:
            return {}
        task = asyncio.ensure_future(self._cut(offsets, starts_over))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _cut(self, offsets: Mapping[Log, Offset], starts_over: bool) -> dict[Log, KafkaError]:
        cuts: dict[Log, Truncation] = {}
        failed: dict[Log, KafkaError] = {}
        for number, (log, offset) in enumerate(offsets.items(), 1):
            try:
                cuts[log] = log.truncator.begin(offset, starts_over=starts_over)
            except KafkaError as error:
                failed[log] = error
            if number % BEGUN_PER_STEP == 0:
                await asyncio.sleep(0)
        for cut in cuts.values():
            await cut.fsyncs_ended()

        checkpoints: dict[str, KafkaError | None] = {}

        async def attempt() -> list[KafkaError]:
            for directory in dict.fromkeys(posixpath.dirname(log.directory) for log in cuts):
                checkpoints[directory] = await self._checkpoint(directory, cuts)
            ready = [cut for log, cut in cuts.items() if checkpoints[posixpath.dirname(log.directory)] is None]
            await self._fs.run(partial(work_at, ready))
            return [each for each in checkpoints.values() if each is not None]

        if cuts:
            await cut_files(cuts.values(), attempt, lambda: self._closing)
        for log in cuts:
            try:
                log.truncator.end(checkpoints[posixpath.dirname(log.directory)])
            except KafkaError as error:
                failed[log] = error
            self._ended(log)
        return failed

    async def _checkpoint(self, directory: str, cuts: Mapping[Log, Truncation]) -> KafkaError | None:
        """Write the checkpoints of a directory before the files of its logs are cut, or a crash in between leaves logs
        that lack what was fsynced; returns the error if they cannot be written."""
        names = [RECOVERY_POINT_CHECKPOINT]
        if any(cut.is_clean_point_moved for log, cut in cuts.items() if posixpath.dirname(log.directory) == directory):
            names.append(CLEANER_OFFSET_CHECKPOINT)
        try:
            for name in names:
                await self._write_checkpoint(directory, name)
        except KafkaError as error:
            return error
        return None
