"""The vocabulary of a commit log: names for the numbers that travel between modules.

Everything here is pure and imports nothing of Ottla. Units are part of the name: an `Offset` counts records, a
`Millis` is milliseconds since the Unix epoch or a duration in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

NodeId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
Millis: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
Sequence: TypeAlias = int
TopicId: TypeAlias = UUID

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
UNKNOWN_OFFSET = -1

ZERO_UUID = UUID(int=0)
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition by its topic's name. Its text form is the name of its directory in a log directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, which a topic of the same name created later does not share (KIP-516)."""

    topic_id: TopicId
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
