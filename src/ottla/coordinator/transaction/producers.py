"""InitProducerId with a transactional id: who asks is the producer from now on, and those before it are fenced."""

from __future__ import annotations

from ottla.coordinator.effects import Token
from ottla.coordinator.transaction import ending
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.requests import InitProducerId, ProducerIdAndEpoch
from ottla.coordinator.transaction.state import ShardState
from ottla.coordinator.transaction.transaction import (
    EPOCH_EXHAUSTED,
    NO_TIMEOUT,
    PREPARED,
    Entry,
    State,
    Transaction,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_TIMESTAMP, ProducerId


def init_producer_id(state: ShardState, token: Token, request: InitProducerId, fresh: ProducerId | None = None) -> None:
    """Replies with a producer id and epoch, or CONCURRENT_TRANSACTIONS when a transaction had to be aborted first.
    Raises KafkaError."""
    check(state.config, request)
    entry = state.entries.get(request.transactional_id)
    if entry is None:
        if fresh is None:
            _with_new_id(state, token, request)
            return
        blank = Transaction(
            producer_id=fresh,
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=_timeout(request),
            state=State.EMPTY,
            last_update_ms=state.now.wall_ms,
        )
        entry = state.entries[request.transactional_id] = Entry(blank)
    now, expected = entry.transaction, request.expected
    if entry.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if expected is not None and not _may_be(now, expected):  # KIP-360: the producer says which it was
        raise KafkaError(ErrorCode.producer_fenced)
    if now.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)  # its outcome is decided: the client asks again
    if now.state is State.ONGOING:  # fence it and abort first (KIP-98); the client asks again
        if ending.fence(state, request.transactional_id, token, fresh):
            state.reply(token, {"error_code": ErrorCode.concurrent_transactions})
        else:
            _with_new_id(state, token, request)
        return
    if now.is_exhausted and (expected is None or expected.producer_epoch == now.producer_epoch):
        if fresh is None:  # the epochs of the id, int16, are used up
            _with_new_id(state, token, request)
            return
        last = NO_PRODUCER_EPOCH if expected is None else now.producer_epoch
        _initialize(state, token, request, now._replace(producer_id=fresh, producer_epoch=0, last_producer_epoch=last))
        return
    _initialize(state, token, request, _with_next_epoch(now, expected))


def check(config: TransactionConfig, request: InitProducerId) -> None:
    """Check a request independently of the transaction's state. Raises KafkaError."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    if request.two_phase_commit and not config.two_phase_commit:
        raise KafkaError(ErrorCode.transactional_id_authorization_failed)
    if request.keep_prepared:  # not in Kafka 4.3 either
        raise KafkaError(ErrorCode.unsupported_version)
    if not request.two_phase_commit and not 0 < request.timeout_ms <= config.max_timeout_ms:
        raise KafkaError(ErrorCode.invalid_transaction_timeout)


def _timeout(request: InitProducerId) -> int:
    return NO_TIMEOUT if request.two_phase_commit else request.timeout_ms


def _with_new_id(state: ShardState, token: Token, request: InitProducerId) -> None:
    state.new_producer_id(token, lambda producer_id: init_producer_id(state, token, request, producer_id))


def _may_be(now: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether the id is the producer's, or was so before its epochs were used up and the answer got lost."""
    return (
        now.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == now.producer_id
        or (expected.producer_id == now.previous_producer_id and expected.producer_epoch >= EPOCH_EXHAUSTED)
    )


def _with_next_epoch(now: Transaction, expected: ProducerIdAndEpoch | None) -> Transaction:
    """The transaction with the epoch to give, and the epoch by which a retry of this request is recognised."""
    epoch = now.producer_epoch
    if expected is None:
        return now._replace(producer_epoch=epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
    if epoch == NO_PRODUCER_EPOCH or (expected.producer_epoch == epoch and expected.producer_id == now.producer_id):
        return now._replace(producer_epoch=epoch + 1, last_producer_epoch=epoch)
    if expected.producer_epoch == now.last_producer_epoch:  # a retry: the epoch has been given already
        return now
    raise KafkaError(ErrorCode.producer_fenced)


def _initialize(state: ShardState, token: Token, request: InitProducerId, given: Transaction) -> None:
    """Log and answer the producer id and epoch of `given`. What a retry is given again keeps the previous id, so that
    one more retry is recognised as well."""
    now = state.entries[request.transactional_id].transaction
    is_retry = given is now
    following = given._replace(
        state=State.EMPTY,
        previous_producer_id=now.previous_producer_id if is_retry else now.producer_id,
        timeout_ms=_timeout(request),
        partitions={},
        start_ms=NO_TIMESTAMP,
        last_update_ms=state.now.wall_ms,
    )
    state.write(
        request.transactional_id,
        following,
        lambda entry: state.observe("initialized", request.transactional_id, entry.transaction),
    )
    answer = {"producer_id": following.producer_id, "producer_epoch": following.producer_epoch}
    state.reply(token, {"error_code": ErrorCode.none, **answer})
