"""The log directories of a node: their locks, which of them can be used, and how directories of logs are named."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Collection, Sequence, Sized
from typing import Protocol

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.filesystem import FileLock, FileSystem
from ottla.logs import fields
from ottla.model import Millis, TopicPartition

_LOG = logging.getLogger("ottla.logs")

LOCK_FILE = ".lock"
DELETE_SUFFIX = "-delete"

REFUSED_MS: Millis = 30_000
"""For so long after a write was refused for lack of room its directory counts as full: producers try again sooner."""

ROOM_BYTES_MIN = 1 << 20
"""A directory with less free space than a batch of the default maximum size counts as full."""

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})\Z")


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds; None for any other, those being deleted included."""
    match = _PARTITION_DIRECTORY.match(name)
    return None if match is None else TopicPartition(match["topic"], int(match["partition"]))


class Warn(Protocol):
    """Takes an event that is worth a warning, and its fields."""

    def __call__(self, event: str, /, **found: object) -> None: ...


def log_warning(event: str, /, **found: object) -> None:
    _LOG.warning(event, extra=fields(**found))


class LogDirectories:
    """The `log.dirs`. A directory goes offline when its disk fails, and stays so until the next start."""

    def __init__(self, fs: FileSystem, paths: Sequence[str], warn: Warn) -> None:
        self._fs = fs
        self._warn = warn
        self.paths = [posixpath.normpath(path) for path in paths]
        self._locks: dict[str, FileLock] = {}
        self._offline: dict[str, str] = {}
        """Why a directory is offline."""
        self._refused_ms: dict[str, Millis] = {}
        """When a write was last refused for lack of room."""

    def lock(self) -> None:
        """Take the `.lock` of every log directory. Raises `OttlaError` when another process holds one."""
        for directory in self.paths:
            try:
                self._fs.makedirs(directory)
                self._locks[directory] = self._fs.lock(posixpath.join(directory, LOCK_FILE))
            except BlockingIOError as error:
                self.unlock()
                raise OttlaError(
                    f"the data directory {directory} is in use by another process; stop that process or choose "
                    f"another directory"
                ) from error
            except OSError as error:
                self._offline[directory] = (error.strerror or str(error)).lower()
        if not self.online:
            reasons = "; ".join(f"{directory}: {reason}" for directory, reason in self._offline.items())
            raise OttlaError(f"no data directory can be used: {reasons}; give a writable one")
        for directory, reason in self._offline.items():
            self._warn("log directory offline", directory=directory, error=reason)

    def unlock(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    @property
    def online(self) -> list[str]:
        return [directory for directory in self.paths if directory not in self._offline]

    @property
    def offline(self) -> list[str]:
        return list(self._offline)

    def choose(self, cordoned: Collection[str], logs_in: Callable[[str], Sized]) -> str:
        """The one with the fewest logs, and none that is cordoned where there are others. Raises
        KAFKA_STORAGE_ERROR without any."""
        online = [each for each in self.online if each not in cordoned] or self.online
        if not online:
            raise KafkaError(ErrorCode.kafka_storage_error, "no log directory is online")
        if len(online) == 1:
            return online[0]
        return min(online, key=lambda each: len(logs_in(each)))

    def refused(self, directory: str, now_ms: Millis) -> None:
        """A write was refused there for lack of room."""
        self._refused_ms[directory] = now_ms

    def full(self, now_ms: Millis) -> dict[str, int]:
        """The bytes that are free in those without room: a write was refused just now, or the next one is likely to be.
        A quota may refuse where the file system says that there is room."""
        found = {}
        for directory in self.online:
            try:
                free = self._fs.free_bytes(directory)[1]
            except OSError:
                continue
            refused_ms = self._refused_ms.get(directory)
            if free < ROOM_BYTES_MIN or (refused_ms is not None and 0 <= now_ms - refused_ms < REFUSED_MS):
                found[directory] = free
        return found

    def take_offline(self, directory: str, error: OSError) -> None:
        self._warn("log directory offline", directory=directory, error=str(error))
        self._offline[directory] = str(error)
