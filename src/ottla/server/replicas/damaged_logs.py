"""What a node does about damage in its logs while it runs: the same as about damage that it meets when it starts.

Where other replicas are in sync the controller hears that this one is lost (DirectoryId.LOST, KIP-858): another one
leads, and this one is in sync no more. Then the log is renamed (`-stray`), and fetched again from the leader. Where no
other replica is in sync nothing is given up, as this log may have what no other has: it is served, and an error of the
log, `/health` and a metric say so, until another one is in sync. Nothing is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.drivers.logs.scrubber import LogScrubber
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.image import DIRECTORY_LOST, NO_LEADER
from ottla.model import LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration
    from ottla.server.ports import ReplicaNode
    from ottla.storage.log.log import Log
    from ottla.storage.recovery.damage import DamagedLog

_LOG = logging.getLogger("ottla.logs")

RETRY_S = 1.0
"""After which what could not be done is tried again."""


class DamagedLogs:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: ReplicaNode, closers: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Begins at once; `closers` get what ends it."""
        self._node = node
        self.scrubber = LogScrubber(node.fs, node.logs, node.log_settings.of_scrubber, self._found, self._epoch_of)
        self._known: dict[Log, DamagedLog] = {}
        self._quiet: set[TopicPartition] = set()
        """Damaged logs that are followed no more, where the controller knows no directories."""
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        node.metadata.publisher.subscribe(self._apply)
        closers.append(self.stop)
        self.scrubber.start()
        self._reconsider()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.scrubber.stop()

    def damaged(self) -> Mapping[TopicPartition, str]:
        """Logs that are served although they are damaged, and where they are."""
        return {
            log.topic_partition: str(error.damage)
            for log, error in self._known.items()
            if self._node.logs.get(log.topic_partition) is log
        }

    def _epoch_of(self, key: TopicPartition) -> LeaderEpoch:
        partition = self._node.replicas.get(*key)
        return -1 if partition is None else partition.leader_epoch

    def _found(self, log: Log, error: DamagedLog) -> None:
        """A log that is in use is damaged."""
        if log not in self._known:
            self._known[log] = error
            _LOG.error("a log is damaged", extra=fields(partition=log.topic_partition, error=str(error.damage)))
        self._reconsider()

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._known or self._node.logs.offline_logs:
            self._reconsider()

    # What is to be done.

    def _reconsider(self) -> None:
        """Take the next possible step for each damaged log."""
        if self._node.stopping:
            return
        lost: dict[tuple[UUID, int], UUID] = {}
        waits = False
        for log in list(self._known):
            key = log.topic_partition
            if self._node.logs.get(key) is not log:  # deleted, moved away, or given up
                del self._known[log]
                continue
            registration = self._registration(key)
            if registration is not None and self._may_begin_again(key, registration):
                self._give_up(log)
            elif registration is not None:
                waits = True
                lost.update(self._to_report(key, registration))
        for key, offline in self._node.logs.offline_logs.items():
            registration = self._registration(key)
            if offline.damage is not None and registration is not None:
                waits = True
                lost.update(self._to_report(key, registration))
        if lost and (self._asking is None or self._asking.done()):
            self._asking = self._node.spawn(self._report(lost))
        if waits and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._reconsider()

    def _registration(self, key: TopicPartition) -> PartitionRegistration | None:
        """A partition's registration, None if no replica of it should be here."""
        found = self._node.image.partition(*key)
        return found if found is not None and self._node.node_id in found.replicas else None

    def _may_begin_again(self, key: TopicPartition, registration: PartitionRegistration) -> bool:
        """Whether a log that is in use may be given up. Its leader may be about to have it join the in-sync set, by
        what it was, and this node would be the last to know. So the controller hears first that it is lost: then it
        either takes it out of the set again, or refuses the leader, who has not seen that change."""
        if not self._node.replicas.may_start_over(registration):
            return False
        if features.supports_directories(self._node.image.features):
            return registration.directory(self._node.node_id) == DIRECTORY_LOST
        is_quiet = key in self._quiet  # nothing else can be said to such a controller: it is not followed for a while
        self._quiet.add(key)
        return is_quiet

    def _to_report(self, key: TopicPartition, registration: PartitionRegistration) -> dict[tuple[UUID, int], UUID]:
        """The directory to report to the controller for a damaged log: LOST, if another replica has all committed
        records. If that was reported and still no other replica could lead, its old directory again.
        """
        node, image = self._node, self._node.image
        topic = image.topic(key.topic)
        if topic is None:
            return {}
        node_id, place = node.node_id, (topic.id, key.partition)
        if not features.supports_directories(image.features):
            if registration.leader not in (NO_LEADER, node_id):
                self._stop_following(*place)  # it falls out of the set; a leader has no way to
            return {}
        is_lost = registration.directory(node_id) == DIRECTORY_LOST
        if registration.leader == NO_LEADER:
            partition = node.replicas.get(*key)
            if is_lost and partition is not None:
                node.replicas.moved(partition)
                node.directories.note_placed()
            return {}
        others = [each for each in registration.isr if each != node_id and self._is_active(each)]
        return {place: DIRECTORY_LOST} if others and (node_id in registration.isr or not is_lost) else {}

    def _is_active(self, node_id: int) -> bool:
        broker = self._node.image.brokers.get(node_id)
        return broker is not None and broker.active

    async def _report(self, lost: dict[tuple[UUID, int], UUID]) -> None:
        node = self._node
        for place in lost:  # or it would be in sync again before it is given up
            self._stop_following(*place)
        try:
            await node.lifecycle.assign_directories(lost)
        except KafkaError as error:
            _LOG.warning("damaged logs could not be reported to the controller yet", extra=fields(error=str(error)))

    def _stop_following(self, topic_id: UUID, number: int) -> None:
        partition = self._node.replicas.by_id.get(topic_id, {}).get(number)
        if partition is not None and self._node.replication is not None:
            self._node.replication.fetchers.leave(partition)

    def _give_up(self, log: Log) -> None:
        node, key = self._node, log.topic_partition
        partition = node.replicas.get(*key)
        error = self._known.pop(log)
        self._quiet.discard(key)
        if partition is None:
            return
        where = fields(partition=key, error=str(error.damage))
        _LOG.error("a damaged log is renamed and fetched again from its leader", extra=where)
        try:
            node.replicas.give_up(partition, node.image)
        except KafkaError as failure:
            _LOG.error("a damaged log cannot be renamed", extra=fields(partition=key, error=str(failure)))
        if node.replication is not None:
            node.replication.apply(None, node.image)
