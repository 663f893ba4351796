"""The identity of a node's log directories: read when they have one, given when they are new.

A fresh directory gets what `kafka-storage format` writes: `meta.properties` in each, and `bootstrap.checkpoint` with
the feature levels beside the metadata log, so that Apache Kafka could start on it as well.
"""

from __future__ import annotations

import contextlib
import posixpath
import random as random_module
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.metadata import features
from ottla.metadata.image import DIRECTORIES_RESERVED, MetadataImage
from ottla.metadata.writer import encode
from ottla.model import METADATA_TOPIC, Millis, NodeId, TopicPartition, uuid_from_base64, uuid_to_base64
from ottla.protocol.schemas.records import FeatureLevelRecord
from ottla.quorum.snapshot import BOOTSTRAP_FILE, write_snapshot
from ottla.storage.checkpoints.meta_properties import (
    BEFORE_IMPORT_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    random_directory_id,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.log_directories import parse_directory_name

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


class Identity(NamedTuple):
    """The identity of a node, by its directories."""

    cluster_id: str
    directory_ids: Mapping[str, UUID]
    """Directory id by path."""
    unmarked: tuple[str, ...] = ()
    """New directories of a cluster that is not: `mark` them when it is known that they replace none."""


def known_cluster_id(fs: FileSystem, paths: Sequence[str]) -> str | None:
    """The cluster that the directories say they are of; None if all are new. Raises OttlaError for damaged files."""
    for path in paths:
        meta = read_meta_properties(fs, path)
        if meta is not None and meta.cluster_id:
            return meta.cluster_id
    return None


def identify(
    fs: FileSystem,
    log_dirs: Sequence[str],
    metadata_log_dir: str,
    node_id: NodeId,
    random: random_module.Random,
    now: Millis,
    *,
    new_cluster: str | None = None,
    followed_cluster: str | None = None,
) -> Identity:
    """Read the identity of all directories, giving one to those that are new.

    Raises OttlaError, before anything is written, for directories of another node or of different clusters, for a
    directory with a metadata log but without `meta.properties`, whose cluster is unknown, and for logs without their
    metadata, which would all count as strays. A crash in the middle leaves what a new start completes.

    Beside a metadata log, what is new is only given an id and not yet marked with it.

    Where no directory is of any cluster yet, it is `new_cluster`, or a random one.

    A broker that follows the controllers of `followed_cluster` has no metadata of its own that could be missing, and
    writes no feature levels.
    """
    paths = list(dict.fromkeys((metadata_log_dir, *log_dirs)))
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        fs.makedirs(path)
        found[path] = read_meta_properties(fs, path)
    known = (meta.cluster_id for meta in found.values() if meta is not None and meta.cluster_id)
    cluster_id = next(known, followed_cluster)
    has_metadata = fs.exists(posixpath.join(metadata_log_dir, METADATA_DIRECTORY))
    for path, meta in found.items():
        if meta is not None:
            if meta.version == 0 and not (has_metadata and _is_migrated(fs, path)):
                raise OttlaError(
                    f"{path} belongs to a broker with ZooKeeper (its meta.properties has version 0): import the "
                    "cluster with `ottla migrate zookeeper`, or give another directory"
                )
            meta.check(path, cluster_id=cluster_id, node_id=node_id)
        elif cluster_id is None and fs.exists(posixpath.join(path, METADATA_DIRECTORY)):
            raise OttlaError(f"{path} has metadata but no meta.properties: restore that file, or empty the directory")
    if followed_cluster is not None:
        has_metadata = any(meta is not None for meta in found.values())
    elif not has_metadata:
        _check_no_logs(fs, log_dirs, metadata_log_dir)
    if cluster_id is None:
        cluster_id = new_cluster or random_directory_id(random)
    bootstrap = posixpath.join(metadata_log_dir, BOOTSTRAP_FILE)
    if followed_cluster is None and found[metadata_log_dir] is None and not fs.exists(bootstrap):
        fs.write_atomic(bootstrap, bootstrap_checkpoint(now))
    ids: dict[str, UUID] = {}
    unmarked = []
    for path, meta in found.items():
        directory_id = None if meta is None else meta.directory_id
        if directory_id is None:
            directory_id = random_directory_id(random)
            if meta is None and has_metadata:
                unmarked.append(path)
            else:
                _mark(fs, path, MetaProperties(cluster_id, node_id, directory_id))
        ids[path] = uuid_from_base64(directory_id)
    return Identity(cluster_id, ids, tuple(unmarked))


def _is_migrated(fs: FileSystem, path: str) -> bool:
    """Whether a directory of version 0 beside a metadata log may be used: Kafka keeps the version of brokers that it
    took to KRaft (KIP-866). An import of Ottla's makes it 1 in its last step."""
    return not fs.exists(posixpath.join(path, BEFORE_IMPORT_FILE))


def mark(fs: FileSystem, identity: Identity, node_id: NodeId) -> None:
    """Give the directories that are still `unmarked` their identity on disk."""
    for path in identity.unmarked:
        directory_id = uuid_to_base64(identity.directory_ids[path])
        _mark(fs, path, MetaProperties(identity.cluster_id, node_id, directory_id))


def _mark(fs: FileSystem, path: str, meta: MetaProperties) -> None:
    _fsync_name(fs, path)
    write_meta_properties(fs, path, meta)


NAMED_MAX = 5
"""Partitions that a message names."""


def lost_partitions(image: MetadataImage, node_id: NodeId, identity: Identity) -> list[TopicPartition]:
    """The node's partitions that are in a log directory that it does not know."""
    known = {*identity.directory_ids.values(), *DIRECTORIES_RESERVED}
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics
        for number, partition in topic.partitions.items()
        if node_id in partition.replicas and partition.directory(node_id) not in known
    ]


def check_lost(identity: Identity, lost: Sequence[TopicPartition], metadata_log_dir: str) -> None:
    """A directory without an identity may be a disk that is not mounted, so what was on it is not recreated unless
    that is asked for. Raises OttlaError where Kafka says that it is not formatted."""
    if lost and identity.unmarked:
        path = identity.unmarked[0]
        raise OttlaError(
            f"{path} has no meta.properties, but the records of {some_of(lost)} were in a log directory that is not "
            f"here: mount it or bring it back; or, to recreate these partitions empty, run "
            f"`grep -v ^directory.id {posixpath.join(metadata_log_dir, META_PROPERTIES_FILE)} > "
            f"{posixpath.join(path, META_PROPERTIES_FILE)}` (Kafka: kafka-storage format --ignore-formatted)"
        )


def some_of(partitions: Sequence[TopicPartition]) -> str:
    """The names of a few and how many more there are."""
    names = ", ".join(map(str, partitions[:NAMED_MAX]))
    return names if len(partitions) <= NAMED_MAX else f"{names} and {len(partitions) - NAMED_MAX} more"


def _check_no_logs(fs: FileSystem, log_dirs: Sequence[str], metadata_log_dir: str) -> None:
    for path in log_dirs:
        if path != metadata_log_dir and fs.exists(posixpath.join(path, METADATA_DIRECTORY)):
            raise OttlaError(
                f"the metadata log is in {path} and not in {metadata_log_dir}: set metadata.log.dir={path}, or name "
                "that directory first in log.dirs"
            )
        if any(parse_directory_name(name) is not None for name in fs.listdir(path)):
            raise OttlaError(
                f"{path} has logs of topics, but {metadata_log_dir} has no metadata of them ({METADATA_DIRECTORY}): "
                "name all directories in log.dirs as they were, and metadata.log.dir if it was set"
            )


def _fsync_name(fs: FileSystem, path: str) -> None:
    """Let a new directory survive power loss: its name is content of its parent, which may not be ours to fsync."""
    with contextlib.suppress(PermissionError):
        fs.fsync_dir(posixpath.dirname(path.rstrip("/")) or ".")


def bootstrap_checkpoint(
    now: Millis, more: Sequence[Any] = (), levels: Mapping[str, int] = features.BOOTSTRAP
) -> bytes:
    """The contents of `bootstrap.checkpoint`: feature levels, and `more` records behind them."""
    level = features.metadata_version(levels)
    records = [*(FeatureLevelRecord(name, value) for name, value in levels.items()), *more]
    values = [encode(record, level) for record in records]
    return b"".join(write_snapshot(values, epoch=0, last_timestamp=0, now=now))
