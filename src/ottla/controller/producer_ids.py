"""Blocks of producer ids (Kafka's `ProducerIdControlManager`, KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.brokers import known
from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas.records import ProducerIdsRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1


def allocate(
    image: MetadataImage, request: sent.AllocateProducerIdsRequest
) -> Decision[sent.AllocateProducerIdsResponse]:
    """AllocateProducerIds: a block for one broker. Ids that a crash leaves unused are never handed out again.

    Raises KafkaError as `known`, and UNKNOWN_SERVER_ERROR when there are no more.
    """
    broker = known(image, request)
    first = image.next_producer_id
    following = first + PRODUCER_ID_BLOCK_SIZE
    if following > _PRODUCER_ID_MAX:
        raise KafkaError(
            ErrorCode.unknown_server_error, "Exhausted all producerIds as the next block's end exceeds long"
        )
    response: sent.AllocateProducerIdsResponse = {
        "error_code": ErrorCode.none,
        "producer_id_start": first,
        "producer_id_len": PRODUCER_ID_BLOCK_SIZE,
    }
    return Decision(response, [ProducerIdsRecord(broker.id, broker.epoch, following)])
