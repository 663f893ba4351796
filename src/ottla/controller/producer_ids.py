"""Blocks of producer ids (Kafka's `ProducerIdControlManager`, KIP-730)."""

from __future__ import annotations

from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.model import NodeId
from ottla.protocol.internal.metadata_records import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1


def allocate(image: MetadataImage, node_id: NodeId, broker_epoch: int) -> Decision[range]:
    """A block for one broker. Ids of a block that a crash leaves unused are never handed out again."""
    first = image.next_producer_id
    following = first + PRODUCER_ID_BLOCK_SIZE
    if following > _PRODUCER_ID_MAX:
        raise KafkaError(
            ErrorCode.unknown_server_error, "Exhausted all producerIds as the next block's end exceeds long"
        )
    return Decision(range(first, following), [ProducerIdsRecord(node_id, broker_epoch, following)])
