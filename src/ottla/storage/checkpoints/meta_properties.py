"""`meta.properties`: which cluster, node and directory a log directory belongs to (Kafka's MetaProperties, version 1).

A Java properties file. Kafka refuses to start on a directory of another cluster or node; so does `check`.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from random import Random

from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.model import NodeId, uuid_from_base64, uuid_to_base64
from ottla.model import random_uuid as _random_uuid
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile

META_PROPERTIES_FILE = "meta.properties"
BEFORE_IMPORT_FILE = "meta.properties.zookeeper"
"""As the broker with ZooKeeper had it, beside an import of `ottla migrate zookeeper`; empty where there was none."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log directory. Version 0 files (before KRaft) may lack anything."""

    cluster_id: str | None
    node_id: NodeId | None
    directory_id: str | None = None
    """Base64 of a uuid (KIP-858)."""
    version: int = 1

    def check(self, path: str, *, cluster_id: str | None, node_id: NodeId) -> None:
        """Raise `OttlaError` if the directory at `path` belongs to another cluster or node."""
        if cluster_id is not None and self.cluster_id not in (None, cluster_id):
            raise OttlaError(
                f"{path} belongs to cluster {self.cluster_id}, not to {cluster_id}: "
                "give another directory or empty this one"
            )
        if self.node_id not in (None, node_id):
            raise OttlaError(
                f"{path} belongs to node {self.node_id}, not to node {node_id}: set node.id={self.node_id} "
                "or give another directory"
            )


def meta_properties_path(directory: str) -> str:
    return posixpath.join(directory, META_PROPERTIES_FILE)


def random_directory_id(random: Random) -> str:
    """An id for a new log directory or cluster, in Kafka's base64 form."""
    return uuid_to_base64(_random_uuid(random))


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The file's text. Java starts it with a comment and the date; only the comment is written here."""
    node = "broker.id" if meta.version == 0 else "node.id"
    pairs = {
        node: None if meta.node_id is None else str(meta.node_id),
        "directory.id": meta.directory_id,
        "version": str(meta.version),
        "cluster.id": meta.cluster_id,
    }
    lines = ["#", *(f"{key}={value}" for key, value in pairs.items() if value is not None)]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(path: str, data: bytes) -> MetaProperties:
    """Raises `CorruptFile` when the version is unknown, a number is none, or version 1 lacks what it must have."""
    if not data.strip():
        raise CorruptFile(
            f"{path} is empty: restore it from a backup, or copy it from another log directory of this node and give "
            f"it its own directory.id; without cluster.id and node.id the owner of the directory is unknown"
        )
    try:
        properties = _parse(data.decode())
        version = int(properties.get("version", "0"))
        node_text = properties.get("broker.id" if version == 0 else "node.id")
        meta = MetaProperties(
            cluster_id=properties.get("cluster.id"),
            node_id=None if node_text is None else int(node_text),
            directory_id=properties.get("directory.id"),
            version=version,
        )
        if meta.directory_id is not None:
            uuid_from_base64(meta.directory_id)
    except ValueError as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    if version == 0 and "version" not in properties and node_text is None:
        raise CorruptFile(f"{path} is damaged: it has neither version nor node.id")
    if version not in (0, 1):
        raise CorruptFile(f"{path} has version {version}, but this release reads only versions 0 and 1")
    if version == 1 and (meta.cluster_id is None or meta.node_id is None):
        raise CorruptFile(f"{path} lacks cluster.id or node.id")
    return meta


def _parse(text: str) -> dict[str, str]:
    """Java properties as far as they occur here: comments, `=` or `:` between key and value, backslash escapes."""
    properties = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((i for i in (stripped.find("="), stripped.find(":")) if i >= 0), default=len(stripped))
        properties[stripped[:at].strip()] = stripped[at + 1 :].strip().replace("\\", "")
    return properties


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """None without the file. Raises `CorruptFile`."""
    path = meta_properties_path(directory)
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode_meta_properties(path, data)


def write_meta_properties(fs: FileSystem, directory: str, meta: MetaProperties) -> None:
    fs.write_atomic(meta_properties_path(directory), encode_meta_properties(meta))
