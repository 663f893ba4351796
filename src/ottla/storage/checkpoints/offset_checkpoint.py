"""The small text files that a log directory keeps beside its logs.

An offset checkpoint maps partitions to offsets: a version line, a count line, then `topic partition offset` lines
(Kafka's CheckpointFile, version 0). All are replaced atomically, so a reader sees the old file or the new one.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.filesystem import FileSystem
from ottla.model import Offset, TopicPartition

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

_VERSION = 0
T = TypeVar("T")


class CorruptFile(OSError):
    """A file of the log directory that cannot be read as what its name says. Names the file and the line."""


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries)).encode()


def decode_checkpoint(path: str, data: bytes, parse: Callable[[list[str]], T]) -> list[T]:
    """The entries of a checkpoint, each given to `parse` as its words.

    An empty file has no entries, as Kafka creates them so. Raises `CorruptFile` when version, count or a line is not
    what it has to be; `parse` says so by raising `ValueError`.
    """
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"checkpoint {path} is not text") from error
    if not lines:
        return []
    line = lines[0]
    try:
        if int(line) != _VERSION:
            raise CorruptFile(f"checkpoint {path} has version {line}, but this release reads only version {_VERSION}")
        if len(lines) == 1:
            return []
        line = lines[1]
        expected = int(line)
        entries = []
        for line in lines[2:]:
            entries.append(parse(line.split()))
    except ValueError as error:
        raise CorruptFile(f"checkpoint {path} has a malformed line: {line[:100]!r}") from error
    if len(entries) != expected:
        raise CorruptFile(f"checkpoint {path} announces {expected} entries but has {len(entries)}")
    return entries


def _parse_offset(words: list[str]) -> tuple[TopicPartition, Offset]:
    topic, partition, offset = words
    return TopicPartition(topic, int(partition)), int(offset)


def read_offset_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """Offsets by partition; empty when there is no such file. Raises `CorruptFile`."""
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return {}
    return dict(decode_checkpoint(path, data, _parse_offset))


def write_offset_checkpoint(
    fs: FileSystem, path: str, offsets: Mapping[TopicPartition, Offset], *, fsync: bool = True
) -> None:
    """Replace the checkpoint at `path`. Raises `OSError`; the old file then still stands."""
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    fs.write_atomic(path, encode_checkpoint(lines), fsync=fsync)


def clean_shutdown_path(directory: str) -> str:
    return posixpath.join(directory, CLEAN_SHUTDOWN_FILE)


def write_clean_shutdown(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write the clean shutdown marker of a log directory; the broker epoch proves it to the controller (KIP-966)."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    fs.write_atomic(clean_shutdown_path(directory), content.encode())


def read_clean_shutdown(fs: FileSystem, directory: str) -> int | None:
    """The broker epoch of the marker; -1 if the marker holds none (written before KIP-966); None without a marker."""
    try:
        data = fs.read_bytes(clean_shutdown_path(directory))
    except FileNotFoundError:
        return None
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def remove_clean_shutdown(fs: FileSystem, directory: str) -> None:
    """Take the marker away, durably: a crash from here on must lead to recovery."""
    path = clean_shutdown_path(directory)
    if fs.exists(path):
        fs.remove(path)
        fs.fsync_dir(directory)
