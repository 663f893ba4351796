"""Performs the effects of a coordinator's shards, in their order: an append goes to the partition's log, and what
follows it waits until the append is committed. Answers are sent when all effects of a call are worked off
(`coordinator_answers.py`). Wakes shards up at their deadlines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.clock import Clock, SystemClock, wall_ms
from ottla.coordinator.effects import OUTSIDE, WRITE_ERRORS, Encoded, Now, Reply, Write
from ottla.drivers.coordinators.coordinator_answers import ANSWERS_PER_TURN, Answers, Failure
from ottla.drivers.coordinators.coordinator_shard import Batch, Pending, Shard, ShardKind, bytes_of
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import NO_PRODUCER_ID, LeaderEpoch, Offset
from ottla.protocol.records.record_batch import build_batch, marker_batch
from ottla.replication.partition import ACKS_ALL
from ottla.storage.log.validation import COORDINATOR

if TYPE_CHECKING:
    from ottla.drivers.ports import CoordinatorHost


class CoordinatorClock:
    """The instant of a decision: the time of the event loop, and the node's wall clock."""

    __slots__ = ("_clock", "_loop_s")

    def __init__(self, clock: Clock) -> None:
        self._loop_s: Callable[[], float] | None = None  # of the loop, once that runs
        self._clock = None if type(clock) is SystemClock else clock
        """None: the system's."""

    def now(self) -> Now:
        if self._loop_s is None:
            self._loop_s = asyncio.get_running_loop().time
        seconds = self._loop_s()
        now = Now.__new__(Now)  # a call of `__init__` would go through Python
        now.timer_ms = int(seconds * 1000)
        now.wall_ms = wall_ms() if self._clock is None else self._clock.now_ms()
        return now


class Effects:
    """Kafka's `CoordinatorRuntime`, of one kind of coordinator. All methods belong to the event loop's thread.

    `work` performs what a shard has decided, in order, up to the first write (`_run`). That is appended (`_write`),
    or collected for one batch with others (`_collect`, `flush`). The effects behind it wait, in `shard.pending`, until
    it is committed (`_committed`), and are performed then, or refused if it cannot be (`_fail`).
    """

    __slots__ = ("_kind", "_logger", "_node", "answers", "clock")

    def __init__(self, node: CoordinatorHost, kind: ShardKind[Any]) -> None:
        self._node = node
        self._kind = kind
        self._logger = logging.getLogger(f"ottla.{kind.what}")
        self.answers = Answers()
        self.clock = CoordinatorClock(node.clock)

    def now(self) -> Now:
        return self.clock.now()

    def work(self, shard: Shard) -> None:
        """Perform the effects of the core, set the timer, then send the answers: the caller's last step."""
        try:
            while effects := shard.take():
                self._run(shard, effects)
            self.arm(shard)
        except Exception:  # a bug; nobody is to wait for ever
            self.answers.send_soon()
            raise
        if self.answers.due:
            self.answers.send()

    def _run(self, shard: Shard, effects: Sequence[Any]) -> None:
        answered = 0
        for index, effect in enumerate(effects):
            if isinstance(effect, Reply):
                answered += 1
                if answered <= ANSWERS_PER_TURN:
                    self.answers.due.append(effect)
                else:
                    self.answers.send_later(effect)
            elif not isinstance(effect, Write):
                assert self._kind.perform is not None
                self._kind.perform(shard, effect)
            elif effect.undo is not None and self._kind.collect is not None:
                self._collect(shard, effect, effects[index + 1 :])
                return
            else:
                if shard.collected and not self.flush(shard):
                    self._fail(effects[index:], ErrorCode.not_coordinator)  # decided on what is undone
                    return
                if not self._write(shard, effect, effects[index + 1 :]):
                    return

    def _collect(self, shard: Shard, write: Write, rest: Sequence[Any]) -> None:
        """Put off a write whose records count already: those of one turn of the loop become one batch."""
        assert self._kind.collect is not None
        try:
            encoded = write.encoded
            if encoded is None:
                encoded = [*map(self._kind.encode, write.records)]
            size = bytes_of(encoded)
        except Exception as error:
            self._refuse(shard, write, rest, error)
            return
        batch = shard.collected
        if batch is not None and not batch.has_room(encoded, size, shard.partition.log.config.max_message_bytes // 2):
            if not self.flush(shard, write):
                self._fail(rest, ErrorCode.not_coordinator)
                return
            batch = None
        waits = True
        if batch is None:
            batch = shard.collected = Batch()
            waits = self._kind.collect(shard)
        batch.add(write, encoded, size, rest)
        if not waits:
            self.flush(shard)

    def flush(self, shard: Shard, newer: Write | None = None) -> bool:
        """Append the collected writes as one batch, and go on with what is behind them. If they cannot be appended, all
        are undone, the last one first: each was decided on what those before it have changed. So is `newer`, which was
        decided since. Returns False where they are undone. Raises nothing. Answers leave with `answers.send`."""
        batch, shard.collected = shard.collected, None
        if batch is None:
            return True
        writes = batch.writes if newer is None else [*batch.writes, newer]
        appended = True

        def undo() -> None:
            nonlocal appended
            appended = False
            for each in reversed(writes):
                if each.undo is not None:
                    each.undo()

        records = [record for each in batch.writes for record in each.records]
        write = Write(records, undo=undo, reversals=[one for each in batch.writes for one in each.reversals])
        try:
            if self._write(shard, write, batch.rest, batch.encoded):
                self._run(shard, batch.rest)
        except Exception:  # a bug behind the append; nobody is to wait for ever
            self._logger.exception("a write failed", extra=fields(partition=shard.partition.topic_partition))
            self._fail(batch.rest, ErrorCode.unknown_server_error)
        self.arm(shard)
        return appended

    def _write(self, shard: Shard, write: Write, rest: Sequence[Any], encoded: Encoded | None = None) -> bool:
        """Append; returns whether `rest` may go on at once. Otherwise it goes on after the commit, or failed."""
        if not write.records and write.marker is None:
            return self._after_others(shard, write, rest)
        now_ms, end_offset = self._node.clock.now_ms(), shard.partition.log.log_end_offset
        transaction, marker = write.transaction or OUTSIDE, write.marker
        try:
            if marker is None:
                pairs = encoded or [self._kind.encode(record) for record in write.records]
                records = [(now_ms, key, value, ()) for key, value in pairs]
                # A base sequence of 0, with and without a producer id, as Kafka's coordinators write it.
                batch = build_batch(
                    records,
                    base_sequence=0,
                    codec=self._kind.codec,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transactional=write.transaction is not None,
                )
            else:
                batch = marker_batch(
                    marker.producer_id,
                    marker.producer_epoch,
                    committed=marker.committed,
                    coordinator_epoch=marker.coordinator_epoch,
                    timestamp=now_ms,
                )
            info = shard.partition.append_as_leader(
                memoryview(batch),
                ACKS_ALL,
                now_ms=now_ms,
                origin=COORDINATOR,
                guard=transaction.guard,
                transaction_version=0 if marker is None else marker.transaction_version,
            )
        except Exception as error:
            if not isinstance(error, KafkaError) and shard.partition.log.log_end_offset != end_offset:
                raise  # a bug behind the append
            self._refuse(shard, write, rest, error)
            return False
        shard.must_wait = shard.partition.log.high_watermark <= info.last_offset
        if not shard.pending and not shard.must_wait:
            self._committed(shard, Pending(write, info.first_offset, rest))
            return True
        self.wait(shard, write, info.first_offset, rest, info.last_offset + 1, info.leader_epoch)
        return False

    def _refuse(self, shard: Shard, write: Write, rest: Sequence[Any], error: Exception) -> None:
        """The records of a write are not in the log. An error that is not Kafka's is a bug: it is logged, and undoes as
        much."""
        if not isinstance(error, KafkaError):
            where = fields(partition=shard.partition.topic_partition)
            self._logger.error("a write failed", exc_info=error, extra=where)
        if write.undo is not None:
            write.undo()
        self._fail([write, *rest], error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error)

    def _after_others(self, shard: Shard, write: Write, rest: Sequence[Any]) -> bool:
        """Like `_write`, for one without records: what follows may tell of what is not committed yet."""
        if shard.pending:
            end_offset = shard.partition.log.log_end_offset
            self.wait(shard, write, end_offset, rest, end_offset, shard.leader_epoch)
            return False
        return True

    def wait(
        self,
        shard: Shard,
        write: Write,
        first_offset: Offset,
        rest: Sequence[Any],
        end_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> None:
        """Go on with a write that is in the log when the partition says what became of it."""
        loop = asyncio.get_running_loop()
        pending = Pending(write, first_offset, rest)
        shard.pending.append(pending)
        pending.timer = loop.call_later(self._kind.commit_timeout_ms / 1000, self._on_timeout, pending)

        def done(error: ErrorCode) -> None:
            pending.error = error
            if not shard.is_scheduled:
                shard.is_scheduled = True
                loop.call_soon(self._go_on, shard)

        shard.partition.wait(end_offset, leader_epoch, ACKS_ALL, done)

    def _on_timeout(self, pending: Pending) -> None:
        pending.timer = None
        self._answer_late(pending)
        self.answers.send()

    def _answer_late(self, pending: Pending) -> None:
        """The clients of a write have waited for long enough; what is in the log is replayed all the same once it is
        committed."""
        self._fail([effect for effect in pending.rest if isinstance(effect, Reply)], ErrorCode.request_timed_out)
        pending.rest = [effect for effect in pending.rest if not isinstance(effect, Reply)]

    def give_up(self, shard: Shard) -> None:
        """The shard is not served here any more: its waiters are told so."""
        if shard.timer is not None:
            shard.timer.cancel()
        if shard.collected is not None:
            self._fail(shard.collected.rest, ErrorCode.not_coordinator)
            shard.collected = None
        while shard.pending:
            pending = self._take_first(shard)
            self._fail([pending.write, *pending.rest], ErrorCode.not_coordinator)
        shard.core.unload(self.now())
        for effect in shard.take():
            if isinstance(effect, Reply):
                self.answers.due.append(effect)
        self.answers.send()

    def _take_first(self, shard: Shard) -> Pending:
        pending = shard.pending.popleft()
        if pending.timer is not None:
            pending.timer.cancel()
        return pending

    def _go_on(self, shard: Shard) -> None:
        """Work off, in their order, the pending writes of which is known what became of them."""
        shard.is_scheduled = False
        while shard.pending and (error := shard.pending[0].error) is not None:
            pending = self._take_first(shard)
            try:
                if error and error is not ErrorCode.not_enough_replicas_after_append:
                    self._fail([pending.write, *pending.rest], error)
                else:
                    if error:  # committed, but on fewer replicas than asked
                        self._answer_late(pending)
                    self._committed(shard, pending)
                    self._run(shard, pending.rest)
                self.work(shard)
            except Exception:  # a bug; those behind it are not to wait for ever
                self._logger.exception("a write failed", extra=fields(partition=shard.partition.topic_partition))
                self.answers.send_soon()

    def _committed(self, shard: Shard, pending: Pending) -> None:
        write = pending.write
        if write.undo is None:  # else its records count already
            producer_id = NO_PRODUCER_ID if write.transaction is None else write.transaction.producer_id
            for index, record in enumerate(write.records):
                shard.core.replay(record, pending.first_offset + index, producer_id)
        if write.marker is not None:
            shard.core.replay_transaction_end(write.marker.producer_id, write.marker.committed)
        if pending.write.committed is not None:
            pending.write.committed()
            self._run(shard, shard.take())

    def _fail(self, effects: Sequence[Any], error: ErrorCode) -> None:
        error = WRITE_ERRORS.get(error, error)
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers.due.append(Failure(effect.token, KafkaError(error)))
            elif isinstance(effect, Write) and effect.failed is not None:
                effect.failed(error)

    def arm(self, shard: Shard) -> None:
        """Wake up at the core's next deadline; a timer that is too early finds that out and sets itself again."""
        deadline = shard.next_deadline()
        if deadline is None or (shard.timer is not None and shard.timer_deadline_ms <= deadline):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        shard.timer_deadline_ms = deadline
        shard.timer = asyncio.get_running_loop().call_at(deadline / 1000, self._on_timer, shard)

    def _on_timer(self, shard: Shard) -> None:
        shard.timer = None
        if shard.error is None:
            self._kind.before_timer(shard)
            try:
                # 1.011 s are 1010.99... ms: the deadline that the timer was set to is reached, whatever rounding says.
                now = self.now()
                shard.core.advance(Now(max(now.timer_ms, shard.timer_deadline_ms), now.wall_ms))
            except Exception:
                where = fields(partition=shard.partition.topic_partition)
                self._logger.exception("a timer of %s failed", self._kind.what, extra=where)
            self.work(shard)
