"""Logs that are on disk and cannot be opened: damaged ones, those whose directory is gone, and where the disk failed.

Nothing takes their place. What checkpoints say of them stays, so that the next start knows what was fsynced.
"""

from __future__ import annotations

import posixpath
import random as random_module
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset, TopicPartition
from ottla.storage.log_directories import Warn
from ottla.storage.recovery.damage import Damage, DamagedLog

DIRECTORY_NAME_MAX = 255
_RENAMED = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.[0-9a-f]{32}-(?P<suffix>delete|stray|future)")


@dataclass(slots=True)
class Opening:
    """What the checkpoints say of a log, with which it is opened."""

    log_start_offset: Offset = 0
    recovery_point: Offset = 0
    clean_shutdown: bool = False
    cleaned_offset: Offset | None = None


@dataclass(slots=True)
class OfflineLog:
    """A log that should be here and cannot be opened."""

    topic_partition: TopicPartition
    directory: str
    """Its own directory; it may not exist."""
    topic_id: UUID | None
    error: KafkaError
    opening: Opening
    checkpointed: Mapping[str, Offset]
    """Its entries in the offset checkpoints, by file name."""
    other: OfflineLog | None = None
    """The same partition's log in another log directory."""

    @property
    def copies(self) -> list[OfflineLog]:
        """This log, and those of the same partition in other log directories."""
        return [self] if self.other is None else [self, *self.other.copies]

    @property
    def damage(self) -> Damage | None:
        """Why it stays offline; None where the disk failed, which may pass."""
        return self.error.damage if isinstance(self.error, DamagedLog) else None

    @property
    def log_dir(self) -> str:
        return posixpath.dirname(self.directory)


def lost_directories(
    directory: str, names: Iterable[str], recovery_points: Mapping[TopicPartition, Offset]
) -> Iterator[tuple[TopicPartition, DamagedLog]]:
    """Partitions whose directory is gone although records in it were fsynced, by the names that are left.

    Those whose renamed directory still waits to be deleted were deleted; the caller knows which are elsewhere, and
    whether the metadata still knows them.
    """
    present = set(names)
    renamed = [(match["topic"], int(match["partition"])) for name in present if (match := _RENAMED.fullmatch(name))]
    for key, end in recovery_points.items():
        if not end or str(key) in present or _was_renamed(key, renamed):
            continue
        path = posixpath.join(directory, str(key))
        what = f"the directory is missing, and records up to offset {end} in it were fsynced"
        yield key, DamagedLog(Damage(path, path, None, what, "nothing of it remains"))


def renamed_directory(directory: str, key: TopicPartition, random: random_module.Random, suffix: str) -> str:
    """What a partition's directory is called while it waits to be deleted, or for a person."""
    ending = f"-{key.partition}.{random.getrandbits(128):032x}-{suffix}"
    return posixpath.join(posixpath.dirname(directory), key.topic[: DIRECTORY_NAME_MAX - len(ending)] + ending)


def move_away(fs: FileSystem, log: OfflineLog, suffix: str, random: random_module.Random, warn: Warn) -> str | None:
    """Rename the directory of a log that is wanted no more; returns its new name, None where there is none."""
    if not fs.is_dir(log.directory):
        return None
    target = renamed_directory(log.directory, log.topic_partition, random, suffix)
    try:
        fs.rename(log.directory, target)
    except OSError as error:
        warn("an offline log could not be renamed", log=log.directory, error=str(error))
        return None
    if suffix != "delete":
        warn("an unusable log was renamed and kept", partition=log.topic_partition, log=target)
    return target


def parse_renamed(name: str, suffix: str) -> TopicPartition | None:
    """The partition of a renamed directory with this suffix."""
    match = _RENAMED.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match and match["suffix"] == suffix else None


def _was_renamed(key: TopicPartition, renamed: Iterable[tuple[str, int]]) -> bool:
    """A long topic's name is cut short when its directory is renamed."""
    return any(
        partition == key.partition and (topic == key.topic or (len(topic) > 200 and key.topic.startswith(topic)))
        for topic, partition in renamed
    )
