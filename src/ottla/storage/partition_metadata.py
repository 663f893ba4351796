"""`partition.metadata`: which topic a partition's directory belongs to (KIP-516).

Two lines, `version: 0` and `topic_id: <base64>`, without a newline at the end.
"""

from __future__ import annotations

import posixpath

from ottla.filesystem import FileSystem
from ottla.model import ZERO_UUID, TopicId, uuid_from_base64, uuid_to_base64
from ottla.storage.checkpoints import CorruptFile

PARTITION_METADATA_FILE = "partition.metadata"
_VERSION = 0


def partition_metadata_path(directory: str) -> str:
    return posixpath.join(directory, PARTITION_METADATA_FILE)


def write_partition_metadata(fs: FileSystem, directory: str, topic_id: TopicId, *, fsync: bool = True) -> None:
    content = f"version: {_VERSION}\ntopic_id: {uuid_to_base64(topic_id)}"
    fs.write_atomic(partition_metadata_path(directory), content.encode(), fsync=fsync)


def read_partition_metadata(fs: FileSystem, directory: str) -> TopicId | None:
    """The topic id, None without the file. Raises `CorruptFile`. Higher versions are read as version 0, as in Kafka."""
    path = partition_metadata_path(directory)
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        (_, version), (_, topic_id) = (line.split() for line in data.decode().splitlines()[:2])
        uuid = uuid_from_base64(topic_id)
        if int(version) < _VERSION or uuid == ZERO_UUID:
            raise ValueError(version)
    except ValueError as error:
        raise CorruptFile(f"{path} does not hold a version and a topic id: {data[:100]!r}") from error
    return uuid
