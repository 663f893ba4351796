"""`partition.metadata`: which partition of which topic a directory belongs to (KIP-516).

Kafka's two lines, `version: 0` and `topic_id: <base64>`, and one of Ottla's, `directory: <topic>-<partition> <CRC-32 of
all before it>`: two directories that changed places, or a copy under another name, show by it. Kafka reads the first
two lines only, and never replaces the file. A directory that Kafka made has no third line until the scrubber has added
it.
"""

from __future__ import annotations

import posixpath
import zlib
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import ZERO_UUID, TopicId, TopicPartition, uuid_from_base64, uuid_to_base64
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile

PARTITION_METADATA_FILE = "partition.metadata"
_VERSION = 0
_DIRECTORY = "directory"


class PartitionIdentity(NamedTuple):
    """The owner of a partition directory, as far as its file says."""

    topic_id: TopicId
    directory: str | None
    """Name of the partition's directory; None in a file of Kafka's."""


def partition_metadata_path(directory: str) -> str:
    return posixpath.join(directory, PARTITION_METADATA_FILE)


def write_partition_metadata(
    fs: FileSystem, directory: str, topic_id: TopicId, key: TopicPartition | None = None, *, fsync: bool = True
) -> None:
    """Replace the file. Without `key` it has Kafka's lines only. Raises `OSError`."""
    content = f"version: {_VERSION}\ntopic_id: {uuid_to_base64(topic_id)}"
    if key is not None:
        content += f"\n{_DIRECTORY}: {key}"
        content += f" {zlib.crc32(content.encode()):08x}"
    fs.write_atomic(partition_metadata_path(directory), content.encode(), fsync=fsync)


def read_partition_metadata(fs: FileSystem, directory: str) -> TopicId | None:
    """The topic id, None without the file. Raises `CorruptFile`."""
    identity = read_identity(fs, directory)
    return None if identity is None else identity.topic_id


def read_identity(fs: FileSystem, directory: str) -> PartitionIdentity | None:
    """What the file says, None without it. Raises `CorruptFile`. Higher versions are read as version 0, as in Kafka."""
    path = partition_metadata_path(directory)
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        lines = data.decode().splitlines()
        (_, version), (_, topic_id) = (line.split() for line in lines[:2])
        uuid = uuid_from_base64(topic_id)
        if int(version) < _VERSION or uuid == ZERO_UUID:
            raise ValueError(version)
        return PartitionIdentity(uuid, _directory_of(data))
    except ValueError as error:
        raise CorruptFile(f"{path} does not hold a version and a topic id: {data[:100]!r}") from error


def _directory_of(data: bytes) -> str | None:
    """The directory in the third line, None without one. Raises ValueError where the checksum is not that of the
    content: the topic id may be wrong as well."""
    lines = data.split(b"\n", 2)
    if len(lines) < 3 or not lines[2].startswith(f"{_DIRECTORY}: ".encode()):
        return None
    content, _, checksum = data.rpartition(b" ")
    if int(checksum, 16) != zlib.crc32(content):
        raise ValueError("the checksum does not match")
    return content.rpartition(b" ")[2].decode()
