"""The log directories of a node as its controller knows them: which one each replica is in (KIP-858), which have failed
(KIP-112), and which get no new partitions (KIP-1066)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata import features

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.replication.partition import Partition
    from ottla.server.ports import DirectoryNode

_LOG = logging.getLogger("ottla.node")

LAST_REPORT_SECONDS_MAX = 1.0
"""How long a node that halts tries to tell the controller of its failed log directory, and serves nothing."""

Places = dict[tuple["UUID", int], "UUID"]
"""Log directories of partitions, by topic id and number."""


class DirectoryEvents:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: DirectoryNode) -> None:
        self._node = node

    @property
    def ids(self) -> Mapping[str, UUID]:
        """Ids of all log directories, by their normalized paths."""
        return {posixpath.normpath(path): found for path, found in self._node.metadata.directory_ids.items()}

    def usable(self) -> dict[str, UUID]:
        """The ids of those that are online."""
        ids = self.ids
        return {path: ids[path] for path in self._node.logs.online_dirs if path in ids}

    # Which replica is where.

    async def register(self) -> None:
        """Before this broker is unfenced: who leads what depends on where its replicas are. Raises KafkaError."""
        placed = self._node.replicas.take_placed()
        if placed and self._are_known:
            await self._assign(placed)

    def note_placed(self) -> None:
        """Let the metadata say in which of several log directories new partitions were put."""
        placed = self._node.replicas.take_placed()
        if placed and self._are_known:
            self._node.spawn(self._assign(placed))

    async def _assign(self, placed: Places) -> None:
        try:
            await self._node.lifecycle.assign_directories(placed)
        except KafkaError as error:
            self._node.replicas.place_again(placed)
            _LOG.warning("the metadata does not name the directories of logs yet", extra=fields(error=str(error)))

    @property
    def _are_known(self) -> bool:
        return features.supports_directories(self._node.image.features)

    # Moves between directories, for `LogMover`.

    async def assign(self, partition: Partition, directory: str) -> bool:
        """Tell the controller in which log directory a replica is about to be. False where it could not be told yet."""
        directory_id = self.usable().get(directory)
        if directory_id is None or not self._are_known:
            return True
        try:
            place = (partition.topic_id, partition.topic_partition.partition)
            await self._node.lifecycle.assign_directories({place: directory_id})
        except KafkaError as error:
            _LOG.warning("the metadata does not name the directory of a log yet", extra=fields(error=str(error)))
            return False
        return True

    def stays(self, partition: Partition, directory: str) -> None:
        """A replica is not going to be where the controller was told, but in this directory, which may be offline."""
        if not self._node.stopping:  # else the next start sees it
            place = (partition.topic_id, partition.topic_partition.partition)
            self._node.replicas.place_again({place: self.ids[directory]})
            self.note_placed()

    def moved(self, partition: Partition) -> None:
        """The log of a partition is another one, in another directory."""
        node = self._node
        node.replicas.moved(partition)
        self.note_placed()
        if node.replication is not None:
            node.replication.log_moved(partition, node.image)

    # Failed directories.

    def take_offline(self, directory: str, error: OSError) -> None:
        """A log directory failed: what is in it refuses everything until the next start, and the controller hears of
        it. Where no other one is left, or it is the metadata log's, the node then halts."""
        node = self._node
        directory_id = self.usable()[directory]
        node.logs.take_offline(directory, error)
        node.lifecycle.directory_failed(directory_id)
        is_needed = directory == posixpath.normpath(node.config.metadata_log_dir)
        if is_needed or not node.logs.online_dirs:
            which = "of the metadata log" if is_needed else "that was the last"
            why = f"log directory {directory}, {which}, failed: {error}"
            node.spawn(self._halt_when_reported(directory_id, why, error))

    async def _halt_when_reported(self, directory_id: UUID, why: str, error: OSError) -> None:
        """Others lead at once where the controller knows; without that they do once it misses this broker."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_SECONDS_MAX):
                await self._node.lifecycle.reported(directory_id)
        self._node.failure.halt(why, error)

    def not_reported(self, directory_id: UUID) -> None:
        """Stop: while this broker counts as alive, the partitions of a failed directory get no other leader."""
        ids = self._node.metadata.directory_ids
        path = next((path for path, each in ids.items() if each == directory_id), str(directory_id))
        limit_ms = self._node.config.log_dir_failure_timeout_ms
        why = f"the controller could not be told in {limit_ms} ms that log directory {path} failed"
        self._node.failure.give_up(why)

    # Cordoned directories.

    def note_cordoned(self) -> None:
        self._node.logs.cordoned = [posixpath.normpath(path) for path in self._node.config.cordoned_log_dirs]

    def cordoned_ids(self) -> tuple[UUID, ...] | None:
        """For the heartbeats; None where the controller knows of none, and there is none."""
        node = self._node
        registration = node.image.brokers.get(node.node_id)
        known = registration is not None and registration.cordoned_log_dirs
        if not (known or node.logs.cordoned) or not features.supports_cordoned_directories(node.image.features):
            return None
        return tuple(found for path, found in self.usable().items() if path in node.logs.cordoned)
