"""What the transaction coordinator asks of its driver beside writes and replies (`coordinator/effects.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.effects import Now, Token
from ottla.model import ProducerEpoch, ProducerId, TopicPartition


@dataclass(slots=True)
class NewProducerId:
    """Get a producer id that nobody else has, and call `then` with it. If none can be had, `token` gets the KafkaError;
    without a token nobody waits."""

    token: Token | None
    then: Callable[[ProducerId, Now], None]


class SendMarkers(NamedTuple):
    """Have the leaders of `partitions` write that the transaction ended, and report with `markers_written` which did.
    What cannot be written yet is to be tried again; what was deleted counts as written."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int
