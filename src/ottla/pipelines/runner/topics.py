"""The topics of a run: created where they are missing, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla import arrow
from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import FetchLimits
from ottla.client.security import PLAINTEXT, Security
from ottla.model import Millis, Offset, TopicPartition

LOOK_TIMEOUT_S: Final = 2.0
"""For what is only shown: a node that does not answer holds nothing up."""


class Topics:
    """Not thread-safe, as its `Cluster` is not."""

    def __init__(self, bootstrap: str, *, request_timeout_s: float = 30.0, security: Security = PLAINTEXT) -> None:
        self._cluster = Cluster(
            ClientConfig(
                parse_addresses(bootstrap), "ottla-pipeline", request_timeout_s=request_timeout_s, security=security
            )
        )

    def close(self) -> None:
        self._cluster.close()

    def ensure(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create it where it is missing; one that is there stays as it is. Raises KafkaError, OSError."""
        if self._cluster.partitions([topic]):
            return
        self._cluster.create_topic(topic, partitions, configs)

    def partitions(self, topic: str) -> int:
        """How many it has; 0 for one that does not exist."""
        return len(self._cluster.partitions([topic]))

    def id(self, topic: str) -> str:
        """Id of a topic; a recreated topic has another one. Zeros if the cluster has none."""
        return str(next(iter(self._cluster.partitions([topic]).values())).topic_id)

    def ends(self, topics: set[str], *, read_committed: bool = True) -> dict[TopicPartition, Offset]:
        """Where each partition ends for readers of committed records, or of all. Raises KafkaError, OSError."""
        found = self._cluster.partitions(topics)
        known = self._cluster.offsets(dict.fromkeys(found, LATEST), read_committed=read_committed)
        return {at: one.offset for at, one in known.items()}

    def committed(self, group: str) -> dict[TopicPartition, Offset]:
        """The offsets of a consumer group. Raises KafkaError, OSError."""
        return self._cluster.committed_offsets(group)

    def commit(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Set offsets of a group without members; those of partitions that are gone are left out. Raises KafkaError,
        OSError."""
        there = self._cluster.partitions({at.topic for at in offsets})
        self._cluster.commit_offsets(group, {at: offset for at, offset in offsets.items() if at in there})

    def records(self, topic: str) -> int:
        """Between the beginning and the end; 0 for a topic that does not exist."""
        found = self._cluster.partitions([topic])
        first = self._cluster.offsets(dict.fromkeys(found, EARLIEST))
        last = self._cluster.offsets(dict.fromkeys(found, LATEST))
        return sum(last[at].offset - first[at].offset for at in found)

    def timestamp(self, at: TopicPartition, offset: Offset) -> Millis | None:
        """Timestamp of the record at an offset, in ms since the epoch; None if there is no record any more."""
        fields = arrow.schema(["timestamp"])
        limits = FetchLimits(bytes_max=1, wait_ms_max=0)
        for batch in arrow.batches(
            self._cluster, at.topic, at.partition, offset, offset + 1, fields, read_committed=False, limits=limits
        ):
            if batch.num_rows:
                return int(batch.column(0)[0].value // 1000)
        return None
