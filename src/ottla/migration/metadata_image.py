"""The image in a node's metadata directory, read from its files: the node may run meanwhile."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from ottla.drivers.metadata.directories import METADATA_DIRECTORY
from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.replay import ReplayError
from ottla.model import LeaderEpoch, NodeId, Offset
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.records.record_batch import iterate_batches
from ottla.protocol.schemas.records import VotersRecord
from ottla.quorum.snapshot import SnapshotId, parse_snapshot_name, read_batches, read_snapshot


class Loaded(NamedTuple):
    image: MetadataImage
    epoch: LeaderEpoch
    """Epoch of the last batch, also of one without metadata."""
    end: Offset
    voters: tuple[NodeId, ...] = ()
    """The controllers that vote by the log itself (`kraft.version` 1); empty where the settings say it."""


def load_image(fs: FileSystem, metadata_log_dir: str, cluster_id: str) -> Loaded:
    """Everything that the newest snapshot and the log hold, also what is not committed yet. Raises OttlaError."""
    directory = posixpath.join(metadata_log_dir, METADATA_DIRECTORY)
    if not fs.exists(directory):
        raise OttlaError(f"{directory} is not there: name the settings of a controller")
    names = fs.listdir(directory)
    snapshots = sorted(each for each in map(parse_snapshot_name, names) if each is not None)
    loader = MetadataLoader(MetadataDelta(MetadataImage(cluster_id=cluster_id)))
    try:
        epoch, end = _replayed(fs, directory, loader, snapshots[-1] if snapshots else None)
    except (MalformedRecord, ReplayError) as error:
        raise OttlaError(f"{directory}: {error}") from error
    voters = loader.voter_records.get(VotersRecord)
    return Loaded(loader.image(), epoch, end, () if voters is None else tuple(each.voter_id for each in voters.voters))


def _replayed(
    fs: FileSystem, directory: str, loader: MetadataLoader, snapshot: SnapshotId | None
) -> tuple[LeaderEpoch, Offset]:
    epoch, end = -1, 0
    if snapshot is not None:
        for header, items in read_snapshot(fs.read_bytes(posixpath.join(directory, snapshot.filename))):
            loader.add(header, items, snapshot)
        epoch, end = snapshot.epoch, snapshot.end_offset
    for name in sorted(name for name in fs.listdir(directory) if name.endswith(".log")):
        data = memoryview(fs.read_bytes(posixpath.join(directory, name)))
        for position, header in iterate_batches(data):
            if header.base_offset < end:
                continue
            if header.base_offset > end:
                raise OttlaError(f"{directory}: the records from {end} to {header.base_offset} are missing")
            for known, items in read_batches(data[position : position + header.size]):
                loader.add(known, items, None)
            epoch, end = header.leader_epoch, header.last_offset + 1
    return epoch, end
