"""What a log directory's checkpoints say of its partitions, for those who look into it without a node."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import METADATA_TOPIC, OFFSETS_TOPIC, Offset, TopicPartition
from ottla.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
    clean_shutdown_path,
    read_offset_checkpoint,
)

COMPACTED_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
"""Compacted by their nature, cleaned or not."""


class DirectoryCheckpoints(NamedTuple):
    """A file that cannot be read counts as one that says nothing."""

    recovery_points: Mapping[TopicPartition, Offset]
    log_starts: Mapping[TopicPartition, Offset]
    high_watermarks: Mapping[TopicPartition, Offset]
    cleaned: Mapping[TopicPartition, Offset] | None
    """None if unknown: any log may have gaps then."""
    is_clean: bool
    """Whether the node shut down cleanly."""

    def known_end(self, partition: TopicPartition) -> Offset:
        """Offset up to which there were fsynced records."""
        end = self.recovery_points.get(partition, 0)
        return max(end, self.high_watermarks.get(partition, 0)) if self.is_clean else end

    def is_contiguous(self, partition: TopicPartition) -> bool:
        """Whether the log was never compacted, so that a gap between offsets is a loss."""
        if partition.topic == METADATA_TOPIC:
            return True
        return partition.topic not in COMPACTED_TOPICS and self.cleaned is not None and partition not in self.cleaned


def read_directory_checkpoints(fs: FileSystem, directory: str) -> DirectoryCheckpoints:
    """Read the checkpoints of a node's log directory."""

    def read(name: str) -> Mapping[TopicPartition, Offset] | None:
        try:
            return read_offset_checkpoint(fs, posixpath.join(directory, name))
        except CorruptFile:
            return None

    return DirectoryCheckpoints(
        read(RECOVERY_POINT_CHECKPOINT) or {},
        read(LOG_START_OFFSET_CHECKPOINT) or {},
        read(REPLICATION_OFFSET_CHECKPOINT) or {},
        read(CLEANER_OFFSET_CHECKPOINT),
        fs.exists(clean_shutdown_path(directory)),
    )
