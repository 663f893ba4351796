"""Requests of clients to the transaction coordinator, independent of API versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.model import Millis, ProducerEpoch, ProducerId, TopicPartition


class ProducerIdAndEpoch(NamedTuple):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class InitProducerId(NamedTuple):
    transactional_id: str
    timeout_ms: Millis
    expected: ProducerIdAndEpoch | None = None
    """The producer's previous id and epoch, if it has one (KIP-360)."""
    two_phase_commit: bool = False
    keep_prepared: bool = False
    """KIP-939."""


class AddPartitions(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Collection[TopicPartition]
    client_version: int = 0
    """2 from brokers on behalf of clients that have each transaction in an epoch of its own, else 0."""


class EndTxn(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    client_version: int = 0
    """2 from version 5 of the API on, else 0."""


TransactionRequest = InitProducerId | AddPartitions | EndTxn
