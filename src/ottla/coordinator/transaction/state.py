"""What a shard remembers, and the verbs in which the files beside this one speak: reply, write, timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.coordinator.effects import Effect, Now, Reply, Token, Write
from ottla.coordinator.timers import Timers
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import NewProducerId, SendMarkers
from ottla.coordinator.transaction.transaction import VALID_BEFORE, Entry, State, Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, ProducerId
from ottla.protocol.internal.transaction_records import TransactionRecord

ABORT: Final = ("abort",)
EXPIRE: Final = ("expire",)
"""Keys of timers."""

IDS_PER_STEP: Final = 1_000
"""Ids that one call looks at for those that timed out or expired: a millisecond."""

TOMBSTONES_PER_WRITE: Final = 500
"""An id has at most 32 KB, but real ones leave this far below max.message.bytes."""

RETRY_MS: Final[Millis] = 100
"""Until the end of a transaction is written again that could not be written."""

Observe = Callable[[str, str, Transaction], None]
"""Called with an event, the transactional id that it is about, and its transaction; for logs."""


def unobserved(event: str, transactional_id: str, transaction: Transaction) -> None:
    """Does nothing: the default observer."""


class ShardState:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(self, config: TransactionConfig, server_version: int, observe: Observe) -> None:
        self.config = config
        self.server_version = server_version
        self.observe = observe
        self.entries: dict[str, Entry] = {}
        self.ongoing: dict[str, Entry] = {}
        """**Invariant**: those of `entries` whose transaction is ONGOING."""
        self.to_abort: deque[str] = deque()
        self.to_expire: deque[str] = deque()
        """Ids that the running look for timed out transactions, or for unused ids, has still to see."""
        self.timers = Timers()
        self.now = Now(0, 0)
        """The instant of the call under way."""
        self.effects: list[Effect | NewProducerId | SendMarkers] = []
        self.loaded = False
        """False while the log is replayed from its start."""

    # Effects

    def reply(self, token: Token, response: dict[str, Any]) -> None:
        self.effects.append(Reply(token, response))

    def new_producer_id(self, token: Token | None, then: Callable[[ProducerId], None]) -> None:
        """Go on with `then` when there is a new id; the state may be another by then."""

        def go_on(producer_id: ProducerId, now: Now) -> None:
            self.now = now
            try:
                then(producer_id)
            except KafkaError as error:
                if token is not None:
                    self.reply(token, {"error_code": error.code})

        self.effects.append(NewProducerId(token, go_on))

    def write(
        self,
        transactional_id: str,
        following: Transaction,
        committed: Callable[[Entry], None] | None = None,
        failed: Callable[[Entry, ErrorCode], None] | None = None,
    ) -> None:
        """Log what follows the present state of an id; until that is committed, nobody else may change it."""
        entry = self.entries[transactional_id]
        before = entry.transaction.state
        assert before in VALID_BEFORE[following.state], f"{before} is not followed by {following.state}"
        entry.pending = following.state

        def landed() -> None:
            entry.pending = None
            if committed is not None:
                committed(entry)

        def fell(error: ErrorCode) -> None:
            entry.pending = None
            if not entry.is_logged and self.entries.get(transactional_id) is entry:
                del self.entries[transactional_id]
            if failed is not None:
                failed(entry, error)

        self.effects.append(Write([TransactionRecord(transactional_id, following.to_record())], landed, fell))

    # The log

    def replay(self, record: TransactionRecord) -> None:
        transactional_id, value = record
        if value is None:
            self.entries.pop(transactional_id, None)
            self.ongoing.pop(transactional_id, None)
            return
        transaction = Transaction.from_record(value)
        entry = self.entries.get(transactional_id)
        if entry is None:
            entry = self.entries[transactional_id] = Entry(transaction)
        else:
            entry.transaction = transaction
        if transaction.state is State.ONGOING:
            if transactional_id not in self.ongoing:
                entry.ongoing_since_ms = self.now.timer_ms
            self.ongoing[transactional_id] = entry
            if self.loaded and ABORT not in self.timers:
                self.schedule(ABORT, self.config.abort_interval_ms)
        else:
            self.ongoing.pop(transactional_id, None)

    def schedule(self, key: Any, delay_ms: Millis) -> None:
        self.timers.schedule(key, self.now.timer_ms + delay_ms)
