"""Periodic sweeps: transactions that take too long are aborted, unused ids are deleted.

A sweep looks at its ids in steps, so that many of them do not hold up others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from ottla.coordinator.effects import Write
from ottla.coordinator.transaction import ending
from ottla.coordinator.transaction.state import ABORT, EXPIRE, IDS_PER_STEP, TOMBSTONES_PER_WRITE, ShardState
from ottla.coordinator.transaction.transaction import AT_REST, NO_TIMEOUT, Entry, State
from ottla.errors import ErrorCode
from ottla.protocol.internal.transaction_records import TransactionRecord


def expired(state: ShardState, key: Hashable) -> None:
    """A timer came to its end."""
    if key == ABORT:
        if not state.to_abort:
            state.to_abort.extend(state.ongoing)
        _step(state, state.to_abort, _abort_if_late)
        if state.to_abort:
            state.schedule(ABORT, 1)
        elif state.ongoing:
            state.schedule(ABORT, state.config.abort_interval_ms)
    elif key == EXPIRE:
        if not state.to_expire:
            state.to_expire.extend(state.entries)
        _delete(state, _step(state, state.to_expire, _is_unused))
        state.schedule(EXPIRE, 1 if state.to_expire else state.config.expiry_interval_ms)
    else:
        assert isinstance(key, tuple)
        ending.complete(state, key[1])


def _step(state: ShardState, left: deque[str], look: Callable[[ShardState, str], bool]) -> list[str]:
    """The ids, of the next few, for which `look` is true."""
    some = [left.popleft() for _ in range(min(IDS_PER_STEP, len(left)))]
    return [transactional_id for transactional_id in some if look(state, transactional_id)]


def _abort_if_late(state: ShardState, transactional_id: str) -> bool:
    entry = state.ongoing.get(transactional_id)
    if entry is None or entry.pending is not None:
        return False
    now = entry.transaction
    # Clocks differ between nodes and may be set back: a start in the future of this clock does not delay the timeout.
    took_ms = max(state.now.wall_ms - now.start_ms, state.now.timer_ms - entry.ongoing_since_ms)
    if now.timeout_ms == NO_TIMEOUT or took_ms <= now.timeout_ms:
        return False
    state.observe("timed out", transactional_id, now)
    if not ending.fence(state, transactional_id, None):
        producer_id = now.producer_id

        def go_on(fresh: int) -> None:
            if entry.transaction.producer_id == producer_id:
                ending.fence(state, transactional_id, None, fresh)

        state.new_producer_id(None, go_on)
    return True


def _is_unused(state: ShardState, transactional_id: str) -> bool:
    entry = state.entries.get(transactional_id)
    if entry is None or entry.pending is not None or entry.transaction.state not in AT_REST:
        return False
    return entry.transaction.last_update_ms <= state.now.wall_ms - state.config.id_expiration_ms


def _delete(state: ShardState, transactional_ids: list[str]) -> None:
    for start in range(0, len(transactional_ids), TOMBSTONES_PER_WRITE):
        some = transactional_ids[start : start + TOMBSTONES_PER_WRITE]
        entries = [state.entries[each] for each in some]
        for entry in entries:
            entry.pending = State.DEAD
        records = [TransactionRecord(each, None) for each in some]
        state.effects.append(Write(records, None, _undo(entries)))


def _undo(entries: list[Entry]) -> Callable[[ErrorCode], None]:
    def failed(_: ErrorCode) -> None:
        for entry in entries:
            entry.pending = None

    return failed
