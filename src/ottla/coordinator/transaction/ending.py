"""How transactions end: by their producer, by one that fences it, or because they took too long.

The outcome is decided when the record of a prepared state is committed; the client is answered then. Markers are sent
to every partition of the transaction, and when the last is written, so is the record that the transaction is complete.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.effects import Token
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.coordinator.transaction.requests import EndTxn
from ottla.coordinator.transaction.state import RETRY_MS, ShardState
from ottla.coordinator.transaction.transaction import (
    AT_REST,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    PREPARED,
    VERSION_2,
    Entry,
    State,
    Transaction,
    partition_set,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Millis, ProducerEpoch, ProducerId, TopicPartition

OUTCOMES = {True: (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), False: (State.PREPARE_ABORT, State.COMPLETE_ABORT)}
"""The prepared and the complete state, by whether the transaction is committed."""


def end(state: ShardState, token: Token, request: EndTxn, fresh: ProducerId | None = None) -> None:
    """Replies with the producer's id and epoch from now on (-1 before KIP-890). Raises KafkaError."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    entry = state.entries.get(request.transactional_id)
    if entry is None:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if request.client_version >= VERSION_2:
        is_done = _is_done(entry, request)
        answer = {"producer_id": entry.transaction.producer_id, "producer_epoch": entry.transaction.producer_epoch}
    else:
        is_done = _is_done_before_version_2(entry, request)
        answer = {"producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
    if is_done:
        state.reply(token, {"error_code": ErrorCode.none, **answer})
        return
    if request.client_version >= VERSION_2 and entry.transaction.is_exhausted and fresh is None:
        state.new_producer_id(token, lambda producer_id: end(state, token, request, producer_id))
        return
    following = prepared(
        entry.transaction,
        is_commit=request.is_commit,
        client_version=request.client_version,
        next_producer_id=NO_PRODUCER_ID if fresh is None else fresh,
        now_ms=state.now.wall_ms,
    )
    begin(state, request.transactional_id, following)
    if request.client_version >= VERSION_2:
        after = completed(following, state.now.wall_ms)
        answer = {"producer_id": after.producer_id, "producer_epoch": after.producer_epoch}
    state.reply(token, {"error_code": ErrorCode.none, **answer})


def _is_done(entry: Entry, request: EndTxn) -> bool:
    """Whether the request repeats one that has succeeded (KIP-890). Raises KafkaError."""
    now = entry.transaction
    # The epoch was used up: the transaction went on with another producer id, at epoch 0.
    is_after_overflow = (
        now.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_EXHAUSTED
        and now.producer_epoch == 0
    )
    is_after_bump = now.producer_epoch == request.producer_epoch + 1
    if entry.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if now.producer_id != request.producer_id and not is_after_overflow:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    is_repeated = is_after_bump or is_after_overflow
    if now.producer_epoch != request.producer_epoch and not (is_repeated and now.state in _COMPLETE):
        raise KafkaError(ErrorCode.producer_fenced)  # InitProducerId or a timeout has raised the epoch
    if now.state is State.ONGOING:
        return False
    if is_repeated:  # the answer was lost: the same outcome again is success, the other one is a bug of the client
        if now.state is OUTCOMES[request.is_commit][1]:
            return True
        raise KafkaError(ErrorCode.invalid_txn_state)
    if request.is_commit:  # an empty transaction can be aborted, which gives the producer a new epoch
        raise KafkaError(ErrorCode.invalid_txn_state)
    return False


_COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def _is_done_before_version_2(entry: Entry, request: EndTxn) -> bool:
    now = entry.transaction
    if now.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if now.producer_epoch != request.producer_epoch:
        raise KafkaError(ErrorCode.producer_fenced)
    if entry.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if now.state is State.ONGOING:
        return False
    if now.state is OUTCOMES[request.is_commit][1]:
        return True
    raise KafkaError(ErrorCode.invalid_txn_state)


def prepared(
    now: Transaction, *, is_commit: bool, client_version: int, next_producer_id: ProducerId, now_ms: Millis
) -> Transaction:
    """The record to log when the outcome of a transaction is decided."""
    epoch, last = now.producer_epoch, now.last_producer_epoch
    if client_version >= VERSION_2:
        epoch, last = min(epoch + 1, EPOCH_MAX), epoch  # markers carry it: late writes of the old epoch are fenced
    return now._replace(
        state=OUTCOMES[is_commit][0],
        producer_epoch=epoch,
        previous_producer_id=now.producer_id,
        next_producer_id=next_producer_id,
        last_producer_epoch=last,
        client_version=client_version,
        start_ms=now_ms if now.state in AT_REST else now.start_ms,  # an empty transaction can be aborted
        last_update_ms=now_ms,
    )


def fence(state: ShardState, transactional_id: str, token: Token | None, fresh: ProducerId | None = None) -> bool:
    """Abort an ongoing transaction under an epoch that its producer does not have; False where a new producer id has to
    be got first, and `fence` is called again. The epoch is nobody's: whoever asks next gets a later one."""
    entry = state.entries.get(transactional_id)
    if entry is None or entry.pending is not None or entry.transaction.state is not State.ONGOING:
        return True
    now = entry.transaction
    if state.server_version >= VERSION_2:
        if now.is_exhausted and fresh is None:
            return False
        following = prepared(
            now,
            is_commit=False,
            client_version=state.server_version,
            next_producer_id=NO_PRODUCER_ID if fresh is None else fresh,
            now_ms=state.now.wall_ms,
        )
    else:
        following = prepared(
            now._replace(producer_epoch=min(now.producer_epoch + 1, EPOCH_MAX), last_producer_epoch=NO_PRODUCER_EPOCH),
            is_commit=False,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=state.now.wall_ms,
        )
    begin(state, transactional_id, following)
    return True


def begin(state: ShardState, transactional_id: str, following: Transaction) -> None:
    """Log the outcome; then send the markers."""
    state.write(transactional_id, following, lambda entry: send_markers(state, transactional_id, entry))


def send_markers(state: ShardState, transactional_id: str, entry: Entry) -> None:
    """The outcome is committed, here or by the coordinator before this one."""
    transaction = entry.transaction
    assert transaction.state in PREPARED
    is_commit = transaction.state is State.PREPARE_COMMIT
    entry.pending = OUTCOMES[is_commit][1]
    entry.unwritten = partition_set(transaction.partitions)
    if not entry.unwritten:
        complete(state, transactional_id)
        return
    state.effects.append(
        SendMarkers(
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            is_commit,
            tuple(entry.unwritten),
            transaction.client_version,
        )
    )


def markers_written(
    state: ShardState,
    transactional_id: str,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    partitions: Iterable[TopicPartition],
) -> None:
    """Markers of a transaction with this producer id and epoch are in these partitions, or need not be any more."""
    entry = state.entries.get(transactional_id)
    if entry is None or entry.transaction.state not in PREPARED or not entry.unwritten:
        return
    # A late answer about an earlier transaction of the id.
    if (entry.transaction.producer_id, entry.transaction.producer_epoch) != (producer_id, producer_epoch):
        return
    for partition in partitions:
        entry.unwritten.pop(partition, None)
    if not entry.unwritten:
        complete(state, transactional_id)


def completed(now: Transaction, now_ms: Millis) -> Transaction:
    """The record to log when all markers of a prepared transaction are written."""
    has_next = now.bumps_epoch and now.next_producer_id != NO_PRODUCER_ID
    return now._replace(
        state=OUTCOMES[now.state is State.PREPARE_COMMIT][1],
        producer_id=now.next_producer_id if has_next else now.producer_id,
        producer_epoch=0 if has_next else now.producer_epoch,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions={},  # their markers are written
        last_update_ms=now_ms,
    )


def complete(state: ShardState, transactional_id: str) -> None:
    """Log that a transaction is over. While the log does not take it, it is tried again."""
    entry = state.entries.get(transactional_id)
    if entry is None or entry.transaction.state not in PREPARED or entry.unwritten:
        return

    def again(entry: Entry, error: ErrorCode) -> None:
        # A full disk is NOT_COORDINATOR too, and may have room again while this node still coordinates.
        entry.pending = OUTCOMES[entry.transaction.state is State.PREPARE_COMMIT][1]
        state.schedule(("complete", transactional_id), RETRY_MS)

    following = completed(entry.transaction, state.now.wall_ms)
    state.write(
        transactional_id,
        following,
        lambda entry: state.observe("completed", transactional_id, entry.transaction),
        again,
    )
