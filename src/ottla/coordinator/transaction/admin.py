"""What operators ask: how a transaction is, and which there are (KIP-664, KIP-994)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.transaction.state import ShardState
from ottla.coordinator.transaction.transaction import PREPARED, Entry, State
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, ProducerId

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import (
        DescribeTransactionsResponseTransactionState,
        ListTransactionsResponseTransactionState,
    )


class Filter(NamedTuple):
    """Empty collections and None let all pass."""

    states: Collection[str] = ()
    """Titles; unknown ones let nothing pass."""
    producer_ids: Collection[ProducerId] = ()
    duration_ms: Millis = -1
    """Only transactions that began longer ago; also ids that never had a transaction, as in Kafka."""


def describe(state: ShardState, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
    """Raises KafkaError."""
    if not transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    entry = state.entries.get(transactional_id)
    if entry is None or not entry.is_logged or entry.pending is State.DEAD:
        raise KafkaError(ErrorCode.transactional_id_not_found)
    now = entry.transaction
    topics: dict[str, list[int]] = {}
    for topic, number in entry.unwritten if now.state in PREPARED else now.partitions:
        topics.setdefault(topic, []).append(number)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": now.state.title,
        "transaction_timeout": now.timeout_ms,
        "transaction_start_time": now.start_ms,
        "producer_id": now.producer_id,
        "producer_epoch": now.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def row(
    state: ShardState, transactional_id: str, wanted: Filter, now_ms: Millis
) -> ListTransactionsResponseTransactionState | None:
    """One of the list; None if it is not wanted."""
    entry = state.entries.get(transactional_id)
    if entry is None or not _is_wanted(entry, wanted, now_ms):
        return None
    now = entry.transaction
    return {
        "transactional_id": transactional_id,
        "producer_id": now.producer_id,
        "transaction_state": now.state.title,
    }


def _is_wanted(entry: Entry, wanted: Filter, now_ms: Millis) -> bool:
    now = entry.transaction
    if not entry.is_logged or entry.pending is State.DEAD:
        return False
    if wanted.producer_ids and now.producer_id not in wanted.producer_ids:
        return False
    if wanted.states and now.state.title not in wanted.states:
        return False
    return wanted.duration_ms < 0 or now_ms - now.start_ms > wanted.duration_ms
