"""The share coordinator of one partition of `__share_group_state`: the share-partitions whose keys hash to it.

    calls in     requests with a token, `advance` when a deadline is past, records to `replay`
    effects out  `take()` after every call: writes, replies and prunings, in the order in which they must happen

Decide, then replay: what is known changes in `replay` only. A share-partition's state is a snapshot and the updates
since; each record is decided on all that was written before, so while one is on its way to the log the next requests
for the same share-partition wait for it. A request is always replied to, with the error in the reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.coordinator.effects import Effect, Now, Reply, Token, Write
from ottla.coordinator.partitioning import partition_for
from ottla.coordinator.share.combining import UNCHANGED, combine, combine_into
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.requests import (
    InitializeState,
    Prune,
    ReadState,
    StateRequest,
    SummarizeState,
    WriteState,
)
from ottla.coordinator.timers import Timers
from ottla.errors import ErrorCode
from ottla.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, UNKNOWN_OFFSET, Millis, Offset, ProducerId, uuid_to_base64
from ottla.protocol.internal.share_records import (
    KEYS_CACHED,
    NAME_CACHED_MAX,
    NOT_COUNTED,
    SharePartitionKey,
    ShareRecord,
)
from ottla.protocol.schemas.records import ShareSnapshotValue, ShareUpdateValue, StateBatch

RECORDS_PER_WRITE: Final = 100
"""A snapshot may have a batch for each of some thousand records in flight: 100 KB; most have a few."""

_COLD: Final = ("cold",)
_PRUNE: Final = ("prune",)

_MESSAGES: Final = {
    ErrorCode.fenced_leader_epoch: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.fenced_state_epoch: "The coordinator rejected the request because the state epoch did not match.",
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
}  # fmt: skip


def partition_of(key: SharePartitionKey, partition_count: int) -> int:
    """The partition of `__share_group_state` that keeps a share-partition."""
    found = _partition_of if len(key.group_id) > NAME_CACHED_MAX else _cached_partition_of
    return found(key, partition_count)


def _partition_of(key: SharePartitionKey, partition_count: int) -> int:
    return partition_for(f"{key.group_id}:{uuid_to_base64(key.topic_id)}:{key.partition}", partition_count)


_cached_partition_of = lru_cache(KEYS_CACHED)(_partition_of)


class _Entry:
    __slots__ = ("combined", "leader_epoch_max", "state_epoch_max", "updates", "value")

    def __init__(self, value: ShareSnapshotValue, leader_epoch: int, state_epoch: int) -> None:
        self.value = value
        """All that is known, as a snapshot would have it, but for its batches once there was an update."""
        self.leader_epoch_max, self.state_epoch_max = leader_epoch, state_epoch
        """The newest that were seen, with which older ones are fenced."""
        self.updates = 0
        """Since the last snapshot that there was because of their number (not of an initialization, say), as in
        Kafka."""
        self.combined: list[StateBatch] | None = None
        """The batches of the snapshot and of the updates since; None where there was none."""

    @property
    def state_batches(self) -> Sequence[StateBatch]:
        return self.value.state_batches if self.combined is None else self.combined

    def whole(self) -> ShareSnapshotValue:
        """All that is known, as a snapshot has it."""
        return self.value.replaced(state_batches=tuple(self.state_batches))


class _ForgetState(NamedTuple):
    """The topic of a share-partition was deleted."""

    key: SharePartitionKey


_Request: TypeAlias = StateRequest | _ForgetState


class _Waiter(NamedTuple):
    """A request that nothing was decided on yet."""

    token: Token
    request: _Request
    until_ms: Millis
    """When it has waited for long enough, on the timer clock."""


class ShareShard:
    __slots__ = (
        "_effects", "_entries", "_last_deletion", "_now", "_partition_count", "_pruned", "_snapshots", "_timers",
        "_waiting", "config",
    )  # fmt: skip

    def __init__(self, config: ShareCoordinatorConfig, partition_count: Callable[[UUID], int]) -> None:
        """`partition_count` says how many partitions a topic has now; 0 for one that there is not."""
        self.config = config
        self._partition_count = partition_count
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._snapshots: dict[SharePartitionKey, Offset] = {}
        """**Invariant**: of the keys of `_entries`, where the last snapshot is; and nothing before the first of them is
        needed."""
        self._last_deletion: Offset | None = None
        self._pruned: Offset | None = None
        self._waiting: dict[SharePartitionKey, deque[_Waiter]] = {}
        """Requests that wait for a record of their key to be written. A leader has few requests in flight."""
        self._effects: list[Effect | Prune] = []
        self._timers = Timers()
        self._now = Now(0, 0)

    def __len__(self) -> int:
        """Share-partitions whose state is known."""
        return len(self._entries)

    # Effects and timers

    def take(self) -> list[Effect | Prune]:
        """Take the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self) -> Millis | None:
        """When to call `advance`, on the timer clock; None before the log is loaded."""
        return self._timers.next_deadline()

    def advance(self, now: Now) -> None:
        """Let every deadline that is past expire."""
        self._now = now
        while (key := self._timers.pop_expired(now.timer_ms)) is not None:
            if key == _COLD:
                self._snapshot_cold()
                self._timers.schedule(_COLD, now.timer_ms + self.config.cold_snapshot_interval_ms)
            elif isinstance(key, SharePartitionKey):
                self._give_up(key)
            else:
                self._prune()
                self._timers.schedule(_PRUNE, now.timer_ms + self.config.prune_interval_ms)

    # The log

    def replay(
        self, record: ShareRecord, offset: Offset = UNKNOWN_OFFSET, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a committed record: each of the log's while loading (all of them, for an update says only what is new),
        then those of our own writes."""
        key, value = record
        if value is None:
            self._entries.pop(key, None)
            self._snapshots.pop(key, None)
            self._last_deletion = offset
        elif isinstance(value, ShareSnapshotValue):
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(value, value.leader_epoch, value.state_epoch)
            else:
                entry.value = value
                entry.combined = None
                if entry.updates >= self.config.updates_per_snapshot:
                    entry.updates = 0
                entry.leader_epoch_max = max(entry.leader_epoch_max, value.leader_epoch)
                entry.state_epoch_max = max(entry.state_epoch_max, value.state_epoch)
            self._snapshots[key] = offset
        else:
            self._replay_update(key, value, offset)

    def _replay_update(self, key: SharePartitionKey, value: ShareUpdateValue, offset: Offset) -> None:
        entry = self._entries.get(key)
        if entry is None:  # its snapshot is not in the log: Kafka goes on with what there is
            start = ShareSnapshotValue(value.snapshot_epoch, 0, value.leader_epoch, value.start_offset)
            entry = self._entries[key] = _Entry(start, value.leader_epoch, 0)
            self._snapshots[key] = offset
        known = entry.value
        start_offset = known.start_offset if value.start_offset == UNCHANGED else value.start_offset
        if entry.combined is None:
            entry.combined = [*combine(known.state_batches, (), start_offset)]
        combine_into(entry.combined, value.state_batches, start_offset)
        entry.value = ShareSnapshotValue(
            snapshot_epoch=known.snapshot_epoch,
            state_epoch=known.state_epoch,
            leader_epoch=known.leader_epoch if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=value.delivery_complete_count,
            create_timestamp=known.create_timestamp,
            write_timestamp=known.write_timestamp,
        )
        entry.updates += 1
        entry.leader_epoch_max = max(entry.leader_epoch_max, value.leader_epoch)

    def replay_transaction_end(self, producer_id: ProducerId, committed: bool) -> None:
        """No transaction has records in this topic."""

    def on_loaded(self, now: Now) -> None:
        """The log is replayed."""
        self._now = now
        self._timers.schedule(_COLD, now.timer_ms + self.config.cold_snapshot_interval_ms)
        self._timers.schedule(_PRUNE, now.timer_ms + self.config.prune_interval_ms)

    def unload(self, now: Now) -> None:
        """Resign; what waits for a write is answered NOT_COORDINATOR, so that it looks for the new coordinator."""
        self._now = now
        effects, self._effects = self._effects, []
        is_lost = False
        for effect in effects:
            if isinstance(effect, Write):
                is_lost = True
            elif isinstance(effect, Reply):
                lost = {"error_code": ErrorCode.not_coordinator} if is_lost else {}
                self._effects.append(Reply(effect.token, {**effect.response, **lost}))
        for key in [*self._waiting]:
            self._failed(key, ErrorCode.not_coordinator)

    # Requests. A reply has the fields of the API's PartitionResult.

    def ask(self, token: Token, request: _Request, now: Now) -> None:
        """Decide on a request; `token` gets the reply, with the error in it."""
        self._now = now
        if isinstance(request, SummarizeState):
            self._reply(token, self.summary(request.key))
            return
        waiting = self._waiting.get(request.key)
        if waiting is None:
            self._decide(token, request)
            return
        until_ms = now.timer_ms + self.config.write_timeout_ms
        if not waiting:
            self._timers.schedule(request.key, until_ms)
        waiting.append(_Waiter(token, request, until_ms))

    def summary(self, key: SharePartitionKey) -> dict[str, Any]:
        """The committed summary (ReadShareGroupStateSummary)."""
        error = self._error(key)
        if error is not None:
            return error
        entry = self._entries.get(key)
        known = ShareSnapshotValue(start_offset=UNCHANGED) if entry is None else entry.value
        return {
            **_result(key),
            "state_epoch": known.state_epoch,
            "leader_epoch": known.leader_epoch,
            "start_offset": known.start_offset,
            "delivery_complete_count": known.delivery_complete_count,
        }

    def delete_topics(self, topic_ids: Collection[UUID], now: Now) -> None:
        """Topics were deleted: nobody will ask for them again."""
        for key in [key for key in self._entries if key.topic_id in topic_ids]:
            self.ask(None, _ForgetState(key), now)

    # Decisions

    def _decide(self, token: Token, request: _Request) -> None:
        if isinstance(request, WriteState):
            self._change(token, request)
        elif isinstance(request, ReadState):
            self._read(token, request)
        elif isinstance(request, InitializeState):
            self._initialize(token, request)
        elif isinstance(request, _ForgetState):
            self._remove(request.key)
        else:
            self._delete(token, request.key)

    def _initialize(self, token: Token, request: InitializeState) -> None:
        key, entry = request.key, self._entries.get(request.key)
        error = _negative(key, state_epoch=request.state_epoch)
        if error is None and entry is not None:
            error = _fenced(key, entry, state_epoch=request.state_epoch)
        error = error or self._error(key)
        if error is not None:
            self._reply(token, error)
            return
        now_ms = self._now.wall_ms
        snapshot = ShareSnapshotValue(
            snapshot_epoch=0 if entry is None else entry.value.snapshot_epoch + 1,
            state_epoch=request.state_epoch,
            start_offset=request.start_offset,
            # How much is left can be said from when it is known where it begins.
            delivery_complete_count=NOT_COUNTED if request.start_offset == UNCHANGED else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        self._log([ShareRecord(key, snapshot)])
        self._reply(token, _result(key))

    def _read(self, token: Token, request: ReadState) -> None:
        key, entry = request.key, self._entries.get(request.key)
        error = _negative(key, leader_epoch=request.leader_epoch)
        if error is None:
            error = _uninitialized(key, "Read") if entry is None else _fenced(key, entry, request.leader_epoch)
        error = error or self._error(key)
        if entry is None or error is not None:
            self._reply(token, error or {})
            return
        known = entry.value
        if request.leader_epoch != entry.leader_epoch_max:
            # From now on the leaders before it are fenced.
            change = WriteState(
                key, known.state_epoch, request.leader_epoch, known.start_offset, (), known.delivery_complete_count
            )
            self._log([self._record(entry, change, request.leader_epoch)])
        batches = [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "delivery_state": each.delivery_state,
                "delivery_count": each.delivery_count,
            }
            for each in entry.state_batches
        ]
        found = {"state_epoch": known.state_epoch, "start_offset": known.start_offset, "state_batches": batches}
        self._reply(token, {**_result(key), **found})

    def _change(self, token: Token, request: WriteState) -> None:
        key, entry = request.key, self._entries.get(request.key)
        epochs = request.leader_epoch, request.state_epoch
        error = _negative(key, *epochs)
        if error is None:
            error = _uninitialized(key, "Write") if entry is None else _fenced(key, entry, *epochs)
        error = error or self._error(key)
        if entry is None or error is not None:
            self._reply(token, error or {})
            return
        self._log([self._record(entry, request, entry.value.leader_epoch)])
        self._reply(token, _result(key))

    def _delete(self, token: Token, key: SharePartitionKey) -> None:
        error = self._error(key)
        if error is None and key in self._entries:
            self._remove(key)
        self._reply(token, error or _result(key))

    def _remove(self, key: SharePartitionKey) -> None:
        if key in self._entries:
            self._log([ShareRecord(key, None)])

    def _record(self, entry: _Entry, change: WriteState, leader_epoch: int) -> ShareRecord:
        """An update, or a snapshot where there were enough of them. A write that comes late moves nothing back: neither
        the start nor how much is complete (as in Kafka 4.4)."""
        known, complete = entry.value, change.delivery_complete_count
        start_offset = max(change.start_offset, known.start_offset)
        if change.start_offset < known.start_offset:
            complete = known.delivery_complete_count
        elif change.start_offset == known.start_offset:
            complete = max(complete, known.delivery_complete_count)
        if entry.updates < self.config.updates_per_snapshot:
            batches = combine((), change.state_batches, start_offset)
            update = ShareUpdateValue(known.snapshot_epoch, leader_epoch, start_offset, complete, batches)
            return ShareRecord(change.key, update)
        snapshot = ShareSnapshotValue(
            snapshot_epoch=known.snapshot_epoch + 1,
            state_epoch=known.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            create_timestamp=self._now.wall_ms,
            write_timestamp=self._now.wall_ms,
            state_batches=combine(entry.state_batches, change.state_batches, start_offset),
        )
        return ShareRecord(change.key, snapshot)

    def _error(self, key: SharePartitionKey) -> dict[str, Any] | None:
        error = _negative(key)
        if error is None and key.partition >= self._partition_count(key.topic_id):
            error = _result(key, ErrorCode.unknown_topic_or_partition)
        return error

    # What nobody asks for

    def _snapshot_cold(self) -> None:
        """Write again what was not written for long, if others are: the log could not be pruned behind it."""
        if all(entry.value.create_timestamp != entry.value.write_timestamp for entry in self._entries.values()):
            return
        before = self._now.wall_ms - self.config.cold_snapshot_interval_ms
        records = [
            ShareRecord(
                key,
                entry.whole().replaced(
                    snapshot_epoch=entry.value.snapshot_epoch + 1, write_timestamp=self._now.wall_ms
                ),
            )
            for key, entry in self._entries.items()
            if entry.value.write_timestamp <= before and key not in self._waiting
        ]
        for start in range(0, len(records), RECORDS_PER_WRITE):
            self._log(records[start : start + RECORDS_PER_WRITE])

    def _prune(self) -> None:
        offset = min(self._snapshots.values(), default=self._last_deletion)
        if offset and offset != self._pruned:
            self._pruned = offset
            self._effects.append(Prune(offset))

    # One record at a time

    def _log(self, records: list[ShareRecord]) -> None:
        keys = [record.key for record in records]
        for key in keys:
            assert key not in self._waiting
            self._waiting[key] = deque()

        def committed() -> None:
            for key in keys:
                self._go_on(key)

        def failed(error: ErrorCode) -> None:
            for key in keys:
                self._failed(key, error)

        self._effects.append(Write([*records], committed, failed))

    def _go_on(self, key: SharePartitionKey) -> None:
        waiting = self._waiting.pop(key)
        while waiting and key not in self._waiting:
            waiter = waiting.popleft()
            self._decide(waiter.token, waiter.request)
        if waiting:
            self._waiting[key] = waiting
        else:
            self._timers.cancel(key)

    def _give_up(self, key: SharePartitionKey) -> None:
        """Answer the requests that have waited for long enough, while the record before them is still not replicated.
        Nothing was decided on them: it is safe to ask again."""
        waiting = self._waiting.get(key)
        while waiting and waiting[0].until_ms <= self._now.timer_ms:
            self._reply(waiting.popleft().token, _result(key, ErrorCode.coordinator_not_available))
        if waiting:
            self._timers.schedule(key, waiting[0].until_ms)

    def _failed(self, key: SharePartitionKey, error: ErrorCode) -> None:
        """Fail the requests that waited for a write that failed."""
        self._timers.cancel(key)
        for waiter in self._waiting.pop(key, ()):
            self._reply(waiter.token, _result(key, error))

    def _reply(self, token: Token, response: dict[str, Any]) -> None:
        if token is not None:
            self._effects.append(Reply(token, response))


def _result(key: SharePartitionKey, error: ErrorCode = ErrorCode.none, message: str | None = None) -> dict[str, Any]:
    text = message if message is not None else _MESSAGES.get(error)
    return {"partition": key.partition, "error_code": error, "error_message": text}


def _negative(key: SharePartitionKey, leader_epoch: int = 0, state_epoch: int = 0) -> dict[str, Any] | None:
    """The error of a request with a partition or an epoch below zero; Kafka refuses the epochs from 4.4 on."""
    numbers = (("partition id", key.partition), ("leader epoch", leader_epoch), ("state epoch", state_epoch))
    for name, number in numbers:
        if number < 0:
            return _result(key, ErrorCode.invalid_request, f"The {name} cannot be a negative number.")
    return None


def _fenced(
    key: SharePartitionKey, entry: _Entry, leader_epoch: int | None = None, state_epoch: int | None = None
) -> dict[str, Any] | None:
    """The error of a request by epochs that newer ones have replaced."""
    if leader_epoch is not None and leader_epoch < entry.leader_epoch_max:
        return _result(key, ErrorCode.fenced_leader_epoch)
    if state_epoch is not None and state_epoch < entry.state_epoch_max:
        return _result(key, ErrorCode.fenced_state_epoch)
    return None


def _uninitialized(key: SharePartitionKey, what: str) -> dict[str, Any]:
    message = f"{what} operation on uninitialized share partition not allowed."
    return _result(key, ErrorCode.invalid_request, message)
