"""Gives directories their identity before the first start, as `kafka-storage format` does (KIP-853).

A node of Ottla needs that only where several controllers begin a cluster together, or where its quorum is to be a
dynamic one: then the voters are in a snapshot that stands for an empty log.
"""

from __future__ import annotations

import posixpath
import random as random_module
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.drivers.metadata.directories import METADATA_DIRECTORY, bootstrap_checkpoint
from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.metadata.features import BOOTSTRAP
from ottla.model import Millis, NodeId, uuid_from_base64
from ottla.protocol.schemas.records import Voter, VoterEndpoint
from ottla.quorum.snapshot import BOOTSTRAP_FILE, SnapshotId, write_snapshot
from ottla.quorum.voters import KRAFT_VERSION_MAX, Configuration, ReplicaKey, VoterSet, voter
from ottla.storage.checkpoints.meta_properties import (
    MetaProperties,
    random_directory_id,
    read_meta_properties,
    write_meta_properties,
)


class InitialController(NamedTuple):
    """`id@host:port:directory`, of `--initial-controllers`."""

    node_id: NodeId
    host: str
    port: int
    directory_id: str


def parse_initial_controllers(text: str) -> list[InitialController]:
    """Raises OttlaError."""
    found = []
    for item in text.split(","):
        number, at, rest = item.strip().partition("@")
        place, _, directory_id = rest.rpartition(":")
        host, _, port = place.rpartition(":")
        try:
            uuid_from_base64(directory_id)
            found.append(InitialController(int(number), host.strip("[]"), int(port), directory_id))
        except ValueError:
            at = ""
        if not at or not host:
            raise OttlaError(f"--initial-controllers must be ID@HOST:PORT:DIRECTORY-ID,..., not {item!r}")
    return found


def voter_records(voters: Iterable[InitialController], listener: str) -> Sequence[Any]:
    """What the first snapshot of a dynamic quorum says: its level, and the controllers, at `listener`."""
    chosen: list[Voter] = [
        voter(
            ReplicaKey(each.node_id, uuid_from_base64(each.directory_id)),
            [VoterEndpoint(listener, each.host, each.port)],
        )
        for each in voters
    ]
    return Configuration(-1, KRAFT_VERSION_MAX, VoterSet(chosen)).records()


class Formatted(NamedTuple):
    path: str
    is_new: bool


def format_directories(
    fs: FileSystem,
    paths: Sequence[str],
    metadata_log_dir: str,
    node_id: NodeId,
    cluster_id: str,
    random: random_module.Random,
    now: Millis,
    *,
    voters: Sequence[InitialController] | None = None,
    listener: str = "CONTROLLER",
    ignore_formatted: bool = False,
    credentials: Sequence[Any] = (),
    levels: Mapping[str, int] = BOOTSTRAP,
) -> list[Formatted]:
    """Write `meta.properties`, the feature `levels`, and who votes if that is given: then this node's metadata
    directory gets the id that it has among them, and `listener` is the name of the one they are reached at.
    `credentials` are records of SCRAM users that the cluster begins with (KIP-900). Raises OttlaError, before anything
    is written, for a directory that has an identity."""
    everywhere = list(dict.fromkeys((metadata_log_dir, *paths)))
    found: dict[str, MetaProperties | None] = {}
    for path in everywhere:
        meta = found[path] = read_meta_properties(fs, path) if fs.exists(path) else None
        if meta is not None:
            meta.check(path, cluster_id=cluster_id, node_id=node_id)
            if not ignore_formatted:
                raise OttlaError(f"{path} is formatted already; add --ignore-formatted to leave it as it is")
    own = next((each.directory_id for each in voters or () if each.node_id == node_id), None)
    for path, meta in found.items():
        if meta is not None:
            continue
        fs.makedirs(path)
        directory_id = own if own is not None and path == metadata_log_dir else random_directory_id(random)
        if path == metadata_log_dir:
            data = bootstrap_checkpoint(now, credentials, levels)
            fs.write_atomic(posixpath.join(path, BOOTSTRAP_FILE), data, private=True)
            if voters is not None:
                _write_voters(fs, path, voters, listener, now)
        write_meta_properties(fs, path, MetaProperties(cluster_id, node_id, directory_id))
    return [Formatted(path, meta is None) for path, meta in found.items()]


def _write_voters(fs: FileSystem, path: str, voters: Sequence[InitialController], listener: str, now: Millis) -> None:
    directory = posixpath.join(path, METADATA_DIRECTORY)
    fs.makedirs(directory, private=True)
    records = voter_records(voters, listener)
    data = b"".join(write_snapshot((), epoch=0, last_timestamp=0, now=now, voters=records))
    fs.write_atomic(posixpath.join(directory, SnapshotId(0, 0).filename), data)
    fs.fsync_dir(path)
