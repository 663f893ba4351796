"""The share coordinator of every partition of `__share_group_state` that this node leads (`coordinator_shards.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.clock import elapsed_s
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.requests import Prune, StateRequest, WriteState
from ottla.coordinator.share.shard import ShareShard, partition_of
from ottla.drivers.coordinators.coordinator_load import LoadTimes
from ottla.drivers.coordinators.coordinator_shard import Shard, ShardKind
from ottla.drivers.coordinators.coordinator_shards import Shards
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.metrics.windows import Windows
from ottla.model import SHARE_STATE_TOPIC, NodeId, Offset, TopicPartition
from ottla.protocol.internal.share_records import SharePartitionKey, decode_record, encode_record
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.drivers.ports import CoordinatorHost, PublishedMetadata, Waiter

_LOG = logging.getLogger("ottla.share")

SHARDS_PER_TURN: Final = 8
"""Shards that look for the state of deleted topics between two looks at other clients."""


class _Timed:
    """A waiter whose time counts."""

    __slots__ = ("_began_s", "_times_ms", "_waiter")

    def __init__(self, waiter: Waiter, times_ms: Windows) -> None:
        self._waiter = waiter
        self._times_ms = times_ms
        self._began_s = elapsed_s()

    def complete(self, result: Any) -> None:
        self._times_ms.record(1000 * (elapsed_s() - self._began_s), asyncio.get_running_loop().time())
        self._waiter.complete(result)


class ShareLed(Shard):
    """One partition of `__share_group_state` led by this node."""

    core: ShareShard


class ShareCoordinatorDriver:
    """All methods belong to the event loop's thread. Requests raise NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or
    COORDINATOR_NOT_AVAILABLE where the share-partition's shard is elsewhere, not loaded yet or gone; replies have the
    fields of the API's PartitionResult."""

    def __init__(self, node: CoordinatorHost, metadata: PublishedMetadata) -> None:
        self._node = node
        self._config = ShareCoordinatorConfig.from_settings(node.config)
        kind = ShardKind(
            SHARE_STATE_TOPIC,
            "share partitions",
            self._new_shard,
            encode_record,
            decode_record,
            node.config.share_coordinator_state_topic_compression_codec,
            node.config.share_coordinator_load_buffer_size,
            commit_timeout_ms=node.config.share_coordinator_write_timeout_ms,
            count=lambda shard: len(shard.core),
            perform=self._prune,
            loads_all_records=True,
        )
        self._shards: Shards[ShareLed] = Shards(node, kind)
        self._effects = self._shards.effects
        metadata.subscribe(self._on_metadata)
        self._shards.begin()

        self.writes = 0
        """Asked by leaders of share-partitions."""
        self.write_ms = Windows()
        """How long they took, the commit included."""
        self.pruned: dict[int, Offset] = {}
        """Where the state of a partition was pruned last."""

    async def stop(self) -> None:
        self._shards.stop()

    def _new_shard(self, partition: Partition) -> ShareLed:
        return ShareLed(partition, ShareShard(self._config, self._partition_count))

    def _partition_count(self, topic_id: UUID) -> int:
        topic = self._node.image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics:
            self._drop_topics({*delta.deleted_topics}, [*self._shards.by_number.values()])

    def _drop_topics(self, topic_ids: Collection[UUID], shards: list[ShareLed]) -> None:
        for shard in shards[:SHARDS_PER_TURN]:
            if shard.error is None:
                shard.core.delete_topics(topic_ids, self._effects.now())
                self._effects.work(shard)
        if rest := shards[SHARDS_PER_TURN:]:
            asyncio.get_running_loop().call_soon(self._drop_topics, topic_ids, rest)

    # Where share-partitions live

    def partition_of(self, key: SharePartitionKey) -> int:
        topic = self._node.image.topic(SHARE_STATE_TOPIC)
        count = self._node.config.share_coordinator_state_topic_num_partitions
        return partition_of(key, count if topic is None else len(topic.partitions))

    def find(self, key: SharePartitionKey, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that keeps a share-partition. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists."""
        return self._shards.find(self.partition_of(key), listener_name)

    def loading(self) -> int:
        """Partitions of `__share_group_state` whose state is not known yet."""
        return self._shards.loading()

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions of `__share_group_state` that are not served because of what is on disk; and why."""
        return self._shards.damaged()

    def load_times(self) -> LoadTimes:
        return self._shards.load_times

    def shards(self) -> dict[str, int]:
        """Partitions of `__share_group_state` led here, by Kafka's name of how they are."""
        return self._shards.states()

    def known(self) -> int:
        """Share-partitions whose state this node keeps."""
        return sum(len(shard.core) for shard in self._shards.by_number.values())

    # Requests

    def ask(self, waiter: Waiter, request: StateRequest) -> None:
        """Replies a StateRow."""
        shard = self._shards.serving(self.partition_of(request.key))
        if isinstance(request, WriteState):
            self.writes += 1
            waiter = _Timed(waiter, self.write_ms)
        shard.core.ask(waiter, request, self._effects.now())
        self._effects.work(shard)

    # Effects

    def _prune(self, shard: ShareLed, effect: Prune) -> None:
        where = fields(partition=shard.partition.topic_partition, before=effect.before_offset)
        from ottla.replication.record_deletion import delete_records  # rare

        try:
            delete_records(shard.partition, effect.before_offset)
            self.pruned[shard.partition.topic_partition.partition] = effect.before_offset
        except KafkaError as error:  # the next look, five minutes later, finds more to delete
            _LOG.warning("state of share groups cannot be pruned", extra={**where, **fields(error=str(error))})
        else:
            _LOG.debug("state of share groups pruned", extra=where)
