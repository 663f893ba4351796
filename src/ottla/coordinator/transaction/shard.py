"""The transaction coordinator of one partition of `__transaction_state`: the ids that hash to it.

    calls in     requests with a token, `advance` when a deadline is past, `markers_written`, records to `replay`
    effects out  `take()` after every call: writes, replies, markers to send, producer ids to get, in their order

Decide, then replay: a decision is the transaction as it is to be, written whole; it counts when its record is
committed and replayed. Until then the id is `pending` and everybody else is told to come again. After a failover the
log is replayed, and the markers of what was decided are sent again. Requests that fail before anything happens raise
KafkaError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.coordinator.effects import Effect, Now, Token
from ottla.coordinator.transaction import ending, partitions, producers, sweeps
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import NewProducerId, SendMarkers
from ottla.coordinator.transaction.requests import AddPartitions, EndTxn, InitProducerId, TransactionRequest
from ottla.coordinator.transaction.state import ABORT, EXPIRE, Observe, ShardState, unobserved
from ottla.coordinator.transaction.transaction import PREPARED, VERSION_2
from ottla.errors import ErrorCode
from ottla.model import NO_PRODUCER_ID, UNKNOWN_OFFSET, Millis, Offset, ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.internal.transaction_records import TransactionRecord


class TransactionShard:
    def __init__(
        self, config: TransactionConfig, server_version: int = VERSION_2, observe: Observe = unobserved
    ) -> None:
        """`server_version` as in `set_server_version`; `observe` hears of events, for logs."""
        self.state = ShardState(config, server_version, observe)

    def set_server_version(self, version: int) -> None:
        """The finalized level of `transaction.version`: how transactions end that their producer does not end."""
        self.state.server_version = version

    # Effects and timers

    def take(self) -> list[Effect | NewProducerId | SendMarkers]:
        """Take the effects since the last call."""
        effects, self.state.effects = self.state.effects, []
        return effects

    def next_deadline(self) -> Millis | None:
        """When to call `advance`, on the timer clock; None while nothing is due."""
        return self.state.timers.next_deadline()

    def advance(self, now: Now) -> None:
        """Let every deadline that is past expire."""
        self.state.now = now
        while (key := self.state.timers.pop_expired(now.timer_ms)) is not None:
            sweeps.expired(self.state, key)

    # The log

    def replay(
        self, record: TransactionRecord, offset: Offset = UNKNOWN_OFFSET, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a committed record: each of the log's while loading, then those of our own writes. Raises
        MalformedRecord."""
        self.state.replay(record)

    def replay_transaction_end(self, producer_id: ProducerId, committed: bool) -> None:
        """No transaction has records in this topic."""

    def on_loaded(self, now: Now) -> None:
        """The log is replayed: what was decided is carried out, and what is open may time out."""
        state = self.state
        state.now = now
        state.loaded = True
        state.schedule(EXPIRE, state.config.expiry_interval_ms)
        if state.ongoing:
            state.schedule(ABORT, state.config.abort_interval_ms)
        for transactional_id, entry in state.entries.items():
            entry.ongoing_since_ms = now.timer_ms
            if entry.transaction.state in PREPARED:
                ending.send_markers(state, transactional_id, entry)

    def unload(self, now: Now, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Resign. Nobody waits here: waiters for a write or a producer id are answered by the driver."""
        self.state.now = now
        self.state.effects.clear()

    # Requests

    def ask(self, token: Token, request: TransactionRequest, now: Now) -> None:
        """Decide on a request; `token` gets the reply. Raises KafkaError."""
        self.state.now = now
        DECISIONS[type(request)](self.state, token, request)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        written: Iterable[TopicPartition],
        now: Now,
    ) -> None:
        self.state.now = now
        ending.markers_written(self.state, transactional_id, producer_id, producer_epoch, written)


DECISIONS: Final[Mapping[type, Callable[[ShardState, Token, Any], None]]] = {
    InitProducerId: producers.init_producer_id,
    AddPartitions: partitions.add,
    EndTxn: ending.end,
}
"""What decides on a request, by its type."""
