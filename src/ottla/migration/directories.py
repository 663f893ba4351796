"""The log directories of this host's nodes: what an import writes beside the logs, and how it is undone.

Beside `meta.properties` a file keeps what was there before. Every step can be done again; a directory counts as
imported once its `meta.properties` has version 1, which is written last.
"""

from __future__ import annotations

import posixpath
import random as random_module
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.drivers.metadata.directories import METADATA_DIRECTORY
from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.migration.decision import Decision, decode_decision
from ottla.model import NodeId, TopicId
from ottla.quorum.snapshot import BOOTSTRAP_FILE, SnapshotId
from ottla.storage.checkpoints.meta_properties import (
    BEFORE_IMPORT_FILE,
    MetaProperties,
    meta_properties_path,
    random_directory_id,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.checkpoints.partition_metadata import (
    partition_metadata_path,
    read_partition_metadata,
    write_partition_metadata,
)
from ottla.storage.log_directories import LOCK_FILE, parse_directory_name

DECISION_FILE: Final = "ottla-import.json"
"""What was decided, for a roll-back on a host whose ensemble has forgotten it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of this host, by its settings file."""

    settings: str
    """The file's name, for messages."""
    node_id: NodeId
    is_broker: bool
    is_controller: bool
    log_dirs: Sequence[str]
    metadata_log_dir: str
    voters: frozenset[NodeId]
    """By the settings; empty where they leave it to the metadata log (a dynamic quorum)."""
    controller_listener: str = ""
    may_delete: bool = True
    """`delete.topic.enable`: without it Kafka drops the wish to delete a topic."""

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys((self.metadata_log_dir, *(self.log_dirs if self.is_broker else ()))))


class Snapshot(NamedTuple):
    """The metadata that every controller begins with."""

    id: SnapshotId
    data: bytes
    topic_ids: Mapping[str, TopicId]
    directory_ids: Mapping[NodeId, str]
    """The ids of the metadata directories of controllers that are named in it, with a dynamic quorum."""


def lock_all(fs: FileSystem, nodes: Sequence[Node], stack: ExitStack) -> None:
    """Hold the lock of every directory until the stack is closed. Raises OttlaError where a process has one."""
    for node in nodes:
        for path in node.paths:
            if not fs.exists(path):
                continue
            try:
                held = fs.lock(posixpath.join(path, LOCK_FILE))
            except BlockingIOError:
                raise OttlaError(f"{path} is in use: node {node.node_id} still runs; stop it first") from None
            stack.callback(held.release)


def check_directories(fs: FileSystem, node: Node, cluster_id: str, decided: Decision | None) -> list[str]:
    """Raises OttlaError for directories that an import must not touch. Returns what is worth a note."""
    notes = []
    for path in node.paths:
        meta = read_meta_properties(fs, path) if fs.exists(path) else None
        if meta is None:
            if fs.exists(path) and any(parse_directory_name(name) is not None for name in fs.listdir(path)):
                raise OttlaError(f"{path} has logs but no meta.properties: whose it is cannot be told")
            notes.append(f"{path} is new to node {node.node_id}")
            continue
        meta.check(path, cluster_id=cluster_id, node_id=node.node_id)
        if meta.cluster_id is None and meta.version == 0:
            notes.append(f"{path} does not say of which cluster it is (it is older than 0.10.1)")
        if fs.exists(posixpath.join(path, METADATA_DIRECTORY)) and (
            decided is None or not fs.exists(posixpath.join(path, BEFORE_IMPORT_FILE))
        ):
            raise OttlaError(f"{path} has a metadata log already ({METADATA_DIRECTORY}): it is no longer of ZooKeeper")
    earlier = decision_of(fs, node)
    if earlier is not None and decided is not None and earlier.seed != decided.seed:
        raise OttlaError(
            f"{node.settings}: the directories of node {node.node_id} are of an import before this one: undo it with "
            "--rollback"
        )
    return notes


def check_topic_ids(fs: FileSystem, node: Node, topic_ids: Mapping[str, TopicId]) -> None:
    """Raises OttlaError where a log says that it is of another topic of the same name."""
    for path in node.log_dirs if node.is_broker else ():
        for name, topic_id in _partitions(fs, path, topic_ids):
            directory = posixpath.join(path, name)
            known = read_partition_metadata(fs, directory)
            if known is not None and known != topic_id:
                raise OttlaError(
                    f"{partition_metadata_path(directory)} has topic id {known}, and the topic's is {topic_id}: move "
                    "the directory away if it is of an older topic of that name"
                )


def _partitions(fs: FileSystem, path: str, topic_ids: Mapping[str, TopicId]) -> list[tuple[str, TopicId]]:
    if not fs.exists(path):
        return []
    found = []
    for name in fs.listdir(path):
        key = parse_directory_name(name)
        if key is not None and key.topic in topic_ids:
            found.append((name, topic_ids[key.topic]))
    return found


def write_directories(
    fs: FileSystem, node: Node, decided: Decision, snapshot: Snapshot, random: random_module.Random
) -> None:
    """Give a node's directories what it needs to start on them. Raises OttlaError, OSError."""
    for path in node.paths:
        fs.makedirs(path)
        _keep_before(fs, path)
        fs.write_atomic(posixpath.join(path, DECISION_FILE), decided.encode(), private=True)
    if node.is_controller:
        _write_snapshot(fs, node.metadata_log_dir, snapshot)
    for path in node.log_dirs if node.is_broker else ():
        for name, topic_id in _partitions(fs, path, snapshot.topic_ids):
            directory = posixpath.join(path, name)
            if read_partition_metadata(fs, directory) is None:
                write_partition_metadata(fs, directory, topic_id)
    for path in reversed(node.paths):  # that of the metadata last: without it a node does not start
        meta = read_meta_properties(fs, path)
        directory_id = meta.directory_id if meta is not None else None
        if path == node.metadata_log_dir:
            directory_id = snapshot.directory_ids.get(node.node_id, directory_id)
        made = MetaProperties(decided.cluster_id, node.node_id, directory_id or random_directory_id(random))
        if meta is None or meta.version == 0 or meta.directory_id != directory_id or directory_id is None:
            write_meta_properties(fs, path, made)


def _keep_before(fs: FileSystem, path: str) -> None:
    kept = posixpath.join(path, BEFORE_IMPORT_FILE)
    if fs.exists(kept):
        return
    meta = meta_properties_path(path)
    fs.write_atomic(kept, fs.read_bytes(meta) if fs.exists(meta) else b"")


def _write_snapshot(fs: FileSystem, path: str, snapshot: Snapshot) -> None:
    directory = posixpath.join(path, METADATA_DIRECTORY)
    file = posixpath.join(directory, snapshot.id.filename)
    if fs.exists(directory) and any(name.endswith(".log") for name in fs.listdir(directory)):
        return  # the node has run since
    fs.makedirs(directory, private=True)
    fs.write_atomic(file, snapshot.data, private=True)
    fs.fsync_dir(path)


def is_imported(fs: FileSystem, node: Node) -> bool:
    """Whether something of an import is in the node's directories."""
    return any(fs.exists(posixpath.join(path, BEFORE_IMPORT_FILE)) for path in node.paths)


def is_of_import(fs: FileSystem, node: Node, decided: Decision) -> bool:
    """Whether the metadata log of a controller is that of the imported cluster: it was imported, or joined later."""
    if is_imported(fs, node):
        return True
    meta = read_meta_properties(fs, node.metadata_log_dir)
    return (
        meta is not None
        and meta.version == 1
        and (meta.cluster_id, meta.node_id)
        == (
            decided.cluster_id,
            node.node_id,
        )
    )


def decision_of(fs: FileSystem, node: Node) -> Decision | None:
    """What was decided, by the node's own directories. Raises BadZnode."""
    for path in node.paths:
        file = posixpath.join(path, DECISION_FILE)
        if fs.exists(file):
            return decode_decision(file, fs.read_bytes(file))
    return None


def stray_logs(fs: FileSystem, node: Node) -> list[str]:
    """Logs that a node has renamed: old releases of Kafka do not start beside such a name."""
    paths = [path for path in node.paths if fs.exists(path)]
    return [
        posixpath.join(path, name) for path in paths for name in sorted(fs.listdir(path)) if name.endswith("-stray")
    ]


def undo_directories(fs: FileSystem, node: Node, decided: Decision) -> None:
    """Give a node's directories back what they had before; the logs stay as they are. Raises OSError.

    Topic ids that ZooKeeper does not know go, or a later release of Kafka that makes ids would refuse the logs.
    """
    for path in node.paths:
        kept = posixpath.join(path, BEFORE_IMPORT_FILE)
        if not fs.exists(kept):
            continue
        if node.is_broker and not decided.with_ids:
            for name in fs.listdir(path):
                directory = posixpath.join(path, name)
                file = partition_metadata_path(directory)
                if parse_directory_name(name) is not None and fs.exists(file):
                    fs.remove(file)
                    fs.fsync_dir(directory)
        metadata = posixpath.join(path, METADATA_DIRECTORY)
        if fs.exists(metadata):
            fs.rmtree(metadata)
        for name in (BOOTSTRAP_FILE, DECISION_FILE):
            if fs.exists(file := posixpath.join(path, name)):
                fs.remove(file)
        before = fs.read_bytes(kept)
        if before:
            fs.write_atomic(meta_properties_path(path), before)
        elif fs.exists(meta_properties_path(path)):
            fs.remove(meta_properties_path(path))
        fs.remove(kept)
        fs.fsync_dir(path)
