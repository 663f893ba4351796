"""Reading and writing the offset checkpoints of the log directories, each where it changed."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset, TopicPartition
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile, read_offset_checkpoint, write_offset_checkpoint
from ottla.storage.log_directories import Warn

Offsets = Mapping[TopicPartition, Offset]


class CheckpointFiles:
    """Knows what the files hold, so that what did not change is not written again."""

    def __init__(self, fs: FileSystem, warn: Warn) -> None:
        self._fs = fs
        self._warn = warn
        self._written: dict[str, Offsets] = {}
        """What the files hold, by path; a file that could not be read is not in it."""
        self._turns: dict[str, int] = {}
        """Counts what was written or is being written, by path."""
        self._writing = fs.mutex()

    def read(self, directory: str, name: str) -> Offsets | None:
        """What a checkpoint says, nothing where there is none; None with a warning when it is damaged."""
        path = posixpath.join(directory, name)
        try:
            found = read_offset_checkpoint(self._fs, path)
        except CorruptFile as error:
            self._warn("damaged checkpoint ignored", file=path, error=str(error))
            return None
        self._written[path] = found
        return found

    def has(self, directory: str, name: str, key: TopicPartition) -> bool:
        """Whether the file, as far as is known, says something of a partition."""
        return key in self._written.get(posixpath.join(directory, name), {})

    def write_now(self, directory: str, name: str, offsets: Offsets) -> None:
        """Write a checkpoint, blocking. Raises `KafkaError`."""
        path = posixpath.join(directory, name)
        try:
            self._work(path, offsets)()
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        self._written[path] = offsets

    async def write_newest(self, directory: str, name: str, offsets: Callable[[], Offsets]) -> None:
        """Write what `offsets` gives off the loop, whoever else writes meanwhile. Raises `KafkaError`."""
        path = posixpath.join(directory, name)
        is_newest = False
        while not is_newest:
            content = offsets()
            try:
                is_newest = await self._fs.run(self._work(path, content))
            except OSError as error:
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        self._written[path] = content

    def written(self, directory: str, name: str) -> Offsets:
        """What was last written of a checkpoint; empty if nothing was since the start."""
        return self._written.get(posixpath.join(directory, name), {})

    def write_last(self, directory: str, name: str, offsets: Offsets) -> None:
        """Write a checkpoint at the end, blocking, where it changed or is missing. Raises `OSError`."""
        path = posixpath.join(directory, name)
        if offsets != self._written.get(path) or not self._fs.exists(path):
            self._work(path, offsets)()

    async def write(self, directory: str, name: str, offsets: Offsets) -> None:
        """Write a checkpoint off the loop, where it changed; a failure is a warning, the next attempt may succeed."""
        path = posixpath.join(directory, name)
        if offsets == self._written.get(path, {}):
            return
        try:
            is_newest = await self._fs.run(self._work(path, offsets))
        except OSError as error:
            self._warn("a checkpoint cannot be written", file=path, error=str(error))
            return
        if is_newest:
            self._written[path] = offsets

    def _work(self, path: str, offsets: Offsets) -> Callable[[], bool]:
        """How to write a checkpoint, here or in a thread; False if a newer one was asked for, which then stays.

        One at a time: two writers would share the temporary file, and an older content would bring back a deleted
        log that a newer one left out.
        """
        turn = self._turns[path] = self._turns.get(path, 0) + 1

        def work() -> bool:
            with self._writing:
                if self._turns[path] != turn:
                    return False
                write_offset_checkpoint(self._fs, path, offsets)
                return True

        return work
