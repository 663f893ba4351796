"""The shards of a coordinator, which Kafka's `CoordinatorRuntime` has: one for every partition of its topic that this
node leads (`coordinator_shard.py`).

A shard is loaded from its log when the node becomes leader and given up when it stops being it. What it decides is
carried out by `coordinator_effects.py`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Generic

from ottla.clock import elapsed_s
from ottla.drivers.coordinators.coordinator_effects import Effects
from ottla.drivers.coordinators.coordinator_load import LoadTimes, load
from ottla.drivers.coordinators.coordinator_shard import S, ShardKind
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import Endpoint
from ottla.model import LeaderEpoch, NodeId, Offset, TopicPartition
from ottla.protocol.internal.codec import MalformedRecord
from ottla.replication.partition import ACKS_ALL, Partition

if TYPE_CHECKING:
    from ottla.drivers.ports import CoordinatorHost

BUSY_LOOK_S = 0.05
"""Between two looks whether a log that is being truncated can be read. That takes as long as the disk does."""


class Shards(Generic[S]):
    """All methods belong to the event loop's thread."""

    def __init__(self, node: CoordinatorHost, kind: ShardKind[S]) -> None:
        self._node = node
        self._kind = kind
        self.by_number: dict[int, S] = {}
        self._logger = logging.getLogger(f"ottla.{kind.what}")
        self.effects = Effects(node, kind)
        self.stopping = False
        self._begun = False
        self.load_times = LoadTimes()
        node.replicas.on_leadership.append(self.on_leadership)

    def begin(self) -> None:
        """Load the partitions that this node leads now that it is registered. Before, the metadata may still name it as
        the leader from before its death: a record appended in that old epoch could take the offset of a committed one
        that its disk has lost.
        """
        self._begun = True
        for partition in self._node.replicas:
            if partition.topic_partition.topic == self._kind.topic and partition.is_leader:
                self.on_leadership(partition)

    def stop(self) -> None:
        self.stopping = True
        for number in [*self.by_number]:
            self._unload(number)

    # Where they are

    def find(self, number: int, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that leads a partition. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists, and while
        the leader's process seems to be gone."""
        image = self._node.image
        registration = image.partition(self._kind.topic, number)
        broker = None if registration is None else image.brokers.get(registration.leader)
        gone = broker is None or broker.fenced or self._node.lost.get(broker.id) == broker.epoch
        endpoint = None if broker is None or gone else broker.endpoints.get(listener_name)
        if broker is None or endpoint is None or (broker.id == self._node.node_id and self._is_offline(number)):
            raise KafkaError(ErrorCode.coordinator_not_available)
        return broker.id, endpoint

    def serving(self, number: int) -> S:
        """Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE."""
        shard = self.by_number.get(number)
        if shard is None:
            offline = self._is_offline(number)
            raise KafkaError(ErrorCode.coordinator_not_available if offline else ErrorCode.not_coordinator)
        if shard.error is not None:
            raise KafkaError(shard.error)
        return shard

    def _is_offline(self, number: int) -> bool:
        """Whether the partition should be here, and its log or what is in it cannot be read."""
        shard = self.by_number.get(number)
        if shard is not None:
            return shard.damage is not None
        return TopicPartition(self._kind.topic, number) in self._node.replicas.missing

    def loading(self) -> int:
        """Shards whose state is not known yet."""
        return sum(shard.error is ErrorCode.coordinator_load_in_progress for shard in self.by_number.values())

    def states(self) -> dict[str, int]:
        """How many shards are loading, active (they serve) and failed (damaged)."""
        loading, failed = self.loading(), len(self.damaged())
        return {"loading": loading, "active": len(self.by_number) - loading - failed, "failed": failed}

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions that are not served because of what is on disk; and why."""
        return {
            shard.partition.topic_partition: shard.damage
            for shard in self.by_number.values()
            if shard.damage is not None
        }

    # Loading

    def on_leadership(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        if topic != self._kind.topic or self.stopping or not self._begun:
            return
        shard = self.by_number.get(number)
        if not partition.is_leader:
            self._unload(number)
            return
        if shard is not None and shard.partition is partition and shard.leader_epoch == partition.leader_epoch:
            return
        if shard is not None and (shard.task is not None or shard.pending or shard.partition is not partition):
            # In the new epoch nobody hears any more what became of the writes of the old one; the log will say it.
            self._unload(number)
            shard = None
        if shard is None:
            shard = self.by_number[number] = self._kind.new_shard(partition)
            if partition.log.log_end_offset == partition.log.log_start_offset:
                self.load_times.add(0.0)
                self._loaded(shard)
            else:
                shard.task = asyncio.get_running_loop().create_task(self._load(shard))
        shard.leader_epoch = partition.leader_epoch

    async def _load(self, shard: S) -> None:
        what = self._kind.what
        began_s = elapsed_s()
        try:
            partition = shard.partition
            while not partition.log.is_open and partition.log.failure is None and partition.is_leader:  # noqa: ASYNC110
                # It was a follower until now, and cuts off what its leader did not have. A log that is closed is of a
                # node that stops, which cancels this.
                await asyncio.sleep(BUSY_LOOK_S)
            epoch, end, fs = partition.leader_epoch, partition.log.log_end_offset, self._node.fs
            all_records, buffer_bytes = self._kind.loads_all_records, self._kind.buffer_bytes
            await load(shard.core, partition.log, fs, buffer_bytes, self._kind.decode, all_records=all_records)
            await _committed(partition, end, epoch)
            self.load_times.add((elapsed_s() - began_s) * 1000)
            self._loaded(shard)
        except Exception as error:  # a bug too, or those that wait for the end of the load would do so for ever
            # Nobody else coordinates them: clients look for the coordinator until the log is repaired.
            shard.error = ErrorCode.coordinator_not_available
            shard.damage = f"its {what} cannot be loaded: {error}"
            shard.partition.log.health.suspect(error, None)
            unexpected = not isinstance(error, KafkaError | MalformedRecord | OSError)
            found = fields(partition=shard.partition.topic_partition, error=str(error))
            self._logger.error("%s cannot be loaded", what, exc_info=unexpected, extra=found)

    def _loaded(self, shard: S) -> None:
        count = self._kind.count(shard)
        if count:
            where = {"partition": shard.partition.topic_partition, self._kind.what: count}
            self._logger.info("%s loaded", self._kind.what, extra=fields(**where))
        shard.error = None
        shard.task = None
        shard.core.on_loaded(self.effects.now())
        self.effects.work(shard)

    def _unload(self, number: int) -> None:
        shard = self.by_number.pop(number, None)
        if shard is None:
            return
        shard.error = ErrorCode.not_coordinator
        self._kind.on_unload(shard)
        if shard.task is not None:
            shard.task.cancel()
        self.effects.give_up(shard)


async def _committed(partition: Partition, end_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Wait until what a new leader found in its log is committed: what is told to a client before could be lost with
    this node. Raises KafkaError."""
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    wait = partition.wait(end_offset, leader_epoch, ACKS_ALL, partial(_settle, future))
    try:
        error = await future
    finally:
        if wait is not None:
            partition.stop_waiting(wait)
    if error not in (ErrorCode.none, ErrorCode.not_enough_replicas_after_append):
        raise KafkaError(error)


def _settle(future: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
    if not future.done():
        future.set_result(error)
