"""The vocabulary of a commit log: names for the numbers that travel between modules.

Everything here is pure and imports nothing of Ottla. Units are part of the name: an `Offset` counts records, a
`Millis` is milliseconds since the Unix epoch or a duration in milliseconds.
"""

from __future__ import annotations

import binascii
from random import Random
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
Buffer: TypeAlias = bytes | bytearray | memoryview
TimestampAndOffset: TypeAlias = tuple[Millis, Offset, LeaderEpoch]
"""A record that a look-up by timestamp has found."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
UNKNOWN_OFFSET = -1
UNKNOWN_SOFTWARE = "unknown"
"""Name and version of a client that does not say what it is (KIP-511)."""

NO_GUARD = 0
"""In place of the guard of a verification (`storage/producers/producer_entry.py`): nobody was asked, for the
transaction is known where the batch goes, or there is none."""
NOT_TRANSACTIONAL = -1
"""In its place too: the request has no transactional id, and may write to no transaction."""

ZERO_UUID = UUID(int=0)
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})


class MeantNode(NamedTuple):
    """The node that a connection is meant to reach (KIP-1242): an address may have come to another one's."""

    cluster_id: str
    node_id: NodeId

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


class TopicPartition(NamedTuple):
    """A partition by its topic's name. Its text form is the name of its directory in a log directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_base64(uuid: UUID) -> str:
    """A uuid as Kafka writes it in files and messages: URL-safe base64 of the 16 bytes, without padding."""
    return binascii.b2a_base64(uuid.bytes, newline=False).decode().rstrip("=").translate(_TO_URL_SAFE)


def uuid_from_base64(text: str) -> UUID:
    """The inverse of `uuid_to_base64`; accepts padding. Raises `ValueError` on anything but 16 bytes of base64."""
    unpadded = text.rstrip("=")
    if len(unpadded) != 22 or len(text) > 24:
        raise ValueError(f"{text[:24]!r} is not the base64 form of a uuid")
    try:
        raw = binascii.a2b_base64(unpadded.translate(_FROM_URL_SAFE) + "==", strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not the base64 form of a uuid") from error
    return UUID(bytes=raw)


def random_uuid(random: Random) -> UUID:
    """A version 4 uuid that is not reserved and whose base64 form does not start with a dash, as Kafka draws them."""
    while True:
        uuid = UUID(int=random.getrandbits(128), version=4)
        if not uuid_to_base64(uuid).startswith("-"):
            return uuid


_TO_URL_SAFE = str.maketrans("+/", "-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")
