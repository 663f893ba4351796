"""The files of a log directory that are no segments: checkpoints, snapshots, identities."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import uuid_to_base64
from ottla.storage.checkpoints import offset_checkpoint as checkpoints
from ottla.storage.checkpoints.meta_properties import META_PROPERTIES_FILE, decode_meta_properties
from ottla.storage.checkpoints.partition_metadata import PARTITION_METADATA_FILE, read_identity
from ottla.storage.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from ottla.storage.producers.producer_snapshot import decode_snapshot

Row = tuple[object, ...]
QUORUM_STATE_FILE = "quorum-state"


class Contents(NamedTuple):
    """Rows of one kind, for a table."""

    kind: str
    columns: tuple[str, ...]
    rows: list[Row]


def producer_snapshot(fs: FileSystem, path: str) -> Contents:
    columns = (
        "PRODUCER>",
        "EPOCH>",
        "LAST SEQUENCE>",
        "LAST OFFSET>",
        "OFFSET DELTA>",
        "TIMESTAMP>",
        "COORDINATOR EPOCH>",
        "OPEN SINCE OFFSET>",
    )
    rows: list[Row] = []
    for producer_id, entry in decode_snapshot(path, fs.read_bytes(path)):
        batch = entry.batches[-1] if entry.batches else None
        last: Row = (-1, -1, 0) if batch is None else (batch.last_sequence, batch.last_offset, batch.offset_delta)
        rows.append(
            (
                producer_id,
                entry.producer_epoch,
                *last,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        )
    return Contents("producer", columns, rows)


def leader_epochs(fs: FileSystem, path: str) -> Contents:
    entries = LeaderEpochs(fs, posixpath.dirname(path) or ".").entries
    return Contents("leader_epoch", ("EPOCH>", "START OFFSET>"), [tuple(entry) for entry in entries])


def offset_checkpoint(fs: FileSystem, path: str) -> Contents:
    offsets = checkpoints.read_offset_checkpoint(fs, path)
    rows: list[Row] = [(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
    return Contents("offset", ("TOPIC", "PARTITION>", "OFFSET>"), rows)


def meta_properties(fs: FileSystem, path: str) -> Contents:
    meta = decode_meta_properties(path, fs.read_bytes(path))
    rows: list[Row] = [
        ("cluster.id", meta.cluster_id),
        ("node.id", meta.node_id),
        ("directory.id", meta.directory_id),
        ("version", meta.version),
    ]
    return Contents("property", ("NAME", "VALUE"), rows)


def partition_metadata(fs: FileSystem, path: str) -> Contents:
    identity = read_identity(fs, posixpath.dirname(path) or ".")
    rows: list[Row] = [("topic_id", None if identity is None else uuid_to_base64(identity.topic_id))]
    if identity is not None and identity.directory is not None:
        rows.append(("directory", identity.directory))
    return Contents("property", ("NAME", "VALUE"), rows)


def json_file(fs: FileSystem, path: str) -> Contents:
    """quorum-state and the clean-shutdown marker. Raises CorruptFile."""
    try:
        members = json.loads(fs.read_bytes(path) or b"{}")
        rows: list[Row] = [
            (name, value if isinstance(value, str | int) else json.dumps(value)) for name, value in members.items()
        ]
    except (ValueError, AttributeError) as error:
        raise checkpoints.CorruptFile(f"{path} is not a JSON object: {error}") from error
    return Contents("property", ("NAME", "VALUE"), rows)


READERS: dict[str, Callable[[FileSystem, str], Contents]] = {
    LEADER_EPOCH_CHECKPOINT: leader_epochs,
    checkpoints.RECOVERY_POINT_CHECKPOINT: offset_checkpoint,
    checkpoints.LOG_START_OFFSET_CHECKPOINT: offset_checkpoint,
    checkpoints.REPLICATION_OFFSET_CHECKPOINT: offset_checkpoint,
    checkpoints.CLEANER_OFFSET_CHECKPOINT: offset_checkpoint,
    checkpoints.CLEAN_SHUTDOWN_FILE: json_file,
    META_PROPERTIES_FILE: meta_properties,
    PARTITION_METADATA_FILE: partition_metadata,
    QUORUM_STATE_FILE: json_file,
}
"""Keyed by file name. All raise OSError, `CorruptFile` among them."""
