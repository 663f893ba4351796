"""The partitions of a transaction: clients add them, or their leaders do so for them, or only ask."""

from __future__ import annotations

from collections.abc import Collection

from ottla.coordinator.effects import Token
from ottla.coordinator.transaction.requests import AddPartitions
from ottla.coordinator.transaction.state import ShardState
from ottla.coordinator.transaction.transaction import AT_REST, PREPARED, Entry, State, partition_set
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ProducerEpoch, ProducerId, TopicPartition


def add(state: ShardState, token: Token, request: AddPartitions) -> None:
    """The first partitions begin the transaction. Raises KafkaError."""
    entry = _entry(state, request.transactional_id)
    if entry.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    _check_producer(entry, request.producer_id, request.producer_epoch)
    now = entry.transaction
    is_new = now.state is not State.ONGOING
    if is_new or not all(map(now.partitions.__contains__, request.partitions)):  # else nothing changes: a retry
        following = now._replace(
            state=State.ONGOING,
            partitions=partition_set(now.partitions) | partition_set(request.partitions),
            previous_producer_id=now.producer_id,
            client_version=request.client_version,
            start_ms=state.now.wall_ms if now.state in AT_REST else now.start_ms,  # its timeout counts from here
            last_update_ms=state.now.wall_ms,
        )
        state.write(request.transactional_id, following)
    state.reply(token, {"error_code": ErrorCode.none})


def verify(
    state: ShardState,
    transactional_id: str,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Whether partitions are in the running transaction; those that are not have TRANSACTION_ABORTABLE. A write under
    way does not matter: a client is told of a partition only when it is in the log. Raises KafkaError."""
    entry = _entry(state, transactional_id)
    _check_producer(entry, producer_id, producer_epoch)
    inside = entry.transaction.partitions
    return {each: ErrorCode.none if each in inside else ErrorCode.transaction_abortable for each in partitions}


def _entry(state: ShardState, transactional_id: str) -> Entry:
    if not transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    entry = state.entries.get(transactional_id)
    if entry is None:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    return entry


def _check_producer(entry: Entry, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> None:
    now = entry.transaction
    if now.producer_id != producer_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if now.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.producer_fenced)
    if now.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
