"""What a start says on a full disk: how much room it needs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ottla.errors import KafkaError, OttlaError
from ottla.filesystem import FileSystem
from ottla.storage.checkpoints.offset_checkpoint import clean_shutdown_path
from ottla.storage.log.log_health import NO_ROOM
from ottla.storage.log_directories import parse_directory_name

START_BYTES = 1 << 20
"""For what every start writes: an election and a registration in the metadata log, markers, checkpoints, first
entries of indexes. Some hundred kilobytes with many partitions."""

INDEX_BYTES_MIN = 4096
"""One entry of each index (8 and 12 bytes) for so many bytes of a log."""


def is_full_disk(error: BaseException) -> bool:
    """Whether a full disk caused an error: there may be room again later."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in NO_ROOM):
        cause = cause.__cause__
    return cause is not None


def full_disk_error(fs: FileSystem, directories: Sequence[str], error: Exception) -> OttlaError | None:
    """The sentence for an error that a full disk caused, None for any other."""
    if not is_full_disk(error) or not isinstance(error, KafkaError | OSError):
        return None
    told = []
    for directory in directories:
        try:
            told.append(
                f"{directory} has {fs.free_bytes(directory)[1]} bytes free and needs about {room_needed(fs, directory)}"
            )
        except OSError:
            continue
    return OttlaError(f"the disk is full, so the node cannot start: {'; '.join(told)}: free some space")


def room_needed(fs: FileSystem, directory: str) -> int:
    """Bytes that a start may write into a log directory, generously. Raises `OSError`."""
    needed = START_BYTES
    clean = fs.exists(clean_shutdown_path(directory))
    for name in fs.listdir(directory):
        path = posixpath.join(directory, name)
        if parse_directory_name(name) is None or not fs.is_dir(path):
            continue
        needed += INDEX_BYTES_MIN
        if not clean:
            logs = [posixpath.join(path, each) for each in fs.listdir(path) if each.endswith(".log")]
            needed += sum(map(fs.size, logs)) // INDEX_BYTES_MIN * 20
    return needed
