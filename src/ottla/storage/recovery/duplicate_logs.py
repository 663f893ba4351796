"""Two log directories that hold a log of the same partition when a node starts.

A crash at the end of a replica's move between directories leaves both, and so does a failed disk that is back. Kafka
refuses to start then. Here the move goes on, or has ended: its copy has a file that says what it is. Otherwise a log
that the other one has in it is renamed (`...-stray`) and kept; where it cannot be told which of the two is right, the
partition stays offline, and everything else is served.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from ottla.storage.log.log import Log
from ottla.storage.offline_logs import OfflineLog, Opening
from ottla.storage.recovery.damage import Damage, DamagedLog

LAST_BATCH_BYTES = 1 << 20
"""Read at least this much of the last batch, or all of it."""

COPY_FILE = "copy-of-a-move"
"""Marks a log with its partition's name that is not served yet, as it is the copy of a move between log directories.
Kafka ignores the file."""


def mark_copy(fs: FileSystem, directory: str) -> None:
    """Mark a copy durably. Blocks. Raises OSError."""
    fs.open(posixpath.join(directory, COPY_FILE), create=True).close()
    fs.fsync_dir(directory)


def unmark_copy(fs: FileSystem, directory: str) -> None:
    """Make the copy the log that is served, durably. Blocks. Raises OSError."""
    path = posixpath.join(directory, COPY_FILE)
    if fs.exists(path):
        fs.remove(path)
        fs.fsync_dir(directory)


def copy_of_a_move(fs: FileSystem, logs: Sequence[Log]) -> Log | None:
    """The one of these that is; None where that cannot be told. Raises OSError."""
    found = [log for log in logs if fs.exists(posixpath.join(log.directory, COPY_FILE))]
    return found[0] if len(found) == 1 else None


def is_within(short: Log, long: Log) -> bool:
    """Whether `long` has everything that `short` has: the same epochs up to its end, and the same last batch there.

    Logs of one partition that have a batch with the same checksum and epoch at the same offset have the same before it.
    Raises KafkaError or OSError where one cannot be read.
    """
    end = short.log_end_offset
    if end > long.log_end_offset:
        return False
    if short.log_start_offset == end:
        return True
    if long.log_start_offset >= end:
        return False
    if short.epoch_for_offset(end - 1) != long.epoch_for_offset(end - 1):
        return False
    here, there = (log.read(end - 1, LAST_BATCH_BYTES, up_to=end) for log in (short, long))
    return here is not None and there is not None and here.read() == there.read()


def conflict(directory: str, other: str, why: str) -> DamagedLog:
    """What is told of a log, beside the one in another directory."""
    return DamagedLog(Duplicated(directory, directory, None, f"{other} holds the same partition", why))


class Duplicated(Damage):
    """Damage that no repair of one log can fix."""

    __slots__ = ()

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.what}; {self.behind}; nothing was changed. Stop the node and rename the wrong one: "
            f"a replica may have been moved, or a failed disk may have returned"
        )


class Settled(NamedTuple):
    """What is to be done with two logs of one partition."""

    kept: Log
    """The one to serve: it has what the other one has."""
    spare: Log
    """The other one, which is closed."""
    suffix: str
    """Suffix of its current name."""


def settle(fs: FileSystem, first: Log, second: Log) -> Settled:
    """Find of two logs of one partition the one to serve, and rename the other one: a copy that a move between log
    directories had not put in its place yet becomes one again; what such a copy was put in the place of is to be
    deleted, and has nothing that is not on disk here too; any other is kept for a person.

    Raises KafkaError: both stay as they are, and neither is to be served.
    """
    try:
        copy = copy_of_a_move(fs, (first, second))
        original = first if copy is second else second
        if copy is not None and is_within(copy, original):
            settled = Settled(original, copy, "future")
        elif copy is not None and is_within(original, copy):
            copy.flush()
            settled = Settled(copy, original, "delete")
        elif copy is None and is_within(second, first):
            settled = Settled(first, second, "stray")
        elif copy is None and is_within(first, second):
            settled = Settled(second, first, "stray")
        else:
            why = f"one has offsets {_range(first)}, the other {_range(second)}, and neither contains the other"
            raise conflict(first.directory, second.directory, why)
        settled.spare.close()
    except OSError as error:
        raise conflict(first.directory, second.directory, f"they cannot be compared ({error})") from error
    settled.spare.rename_for_deletion(settled.suffix)
    return settled


def _range(log: Log) -> str:
    return f"{log.log_start_offset} to {log.log_end_offset}"


def closed(log: Log, error: KafkaError) -> OfflineLog:
    """A log that was opened and is not to be served, for the checkpoints to go on saying what they said. Closes it."""
    with contextlib.suppress(KafkaError):  # its disk failed, and the next start recovers it
        log.close()
    start, end, cleaned = log.log_start_offset, log.recovery_point, log.cleaned_offset
    checkpointed = {
        RECOVERY_POINT_CHECKPOINT: end,
        LOG_START_OFFSET_CHECKPOINT: start,
        REPLICATION_OFFSET_CHECKPOINT: log.high_watermark,
    }
    if cleaned is not None:
        checkpointed[CLEANER_OFFSET_CHECKPOINT] = cleaned
    opening = Opening(start, end, log.failure is None, cleaned)
    return OfflineLog(log.topic_partition, log.directory, log.topic_id, error, opening, checkpointed)
