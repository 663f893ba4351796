"""Runs the shards of a coordinator: one for every partition of its topic that this node leads.

A shard is loaded from its log when the node becomes leader and given up when it stops being it. Its effects are worked
off in order: an append goes to the partition's log, and what follows it waits until the append is committed.
Answers are sent when all effects of a call are worked off (`coordinator_answers.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.clock import Clock, elapsed_s
from ottla.coordinator.effects import OUTSIDE, WRITE_ERRORS, Now, Reply, Write
from ottla.drivers.coordinators.coordinator_answers import ANSWERS_PER_TURN, Answers, Failure
from ottla.drivers.coordinators.coordinator_load import Decode, LoadTimes, load
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import Endpoint
from ottla.model import NO_PRODUCER_ID, LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.records.record_batch import build_batch, marker_batch
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.log.validation import COORDINATOR

if TYPE_CHECKING:
    from ottla.drivers.ports import CoordinatorHost, Core

BUSY_LOOK_S = 0.05
"""Between two looks whether a log that is being truncated can be read. That takes as long as the disk does."""

BATCH_RECORDS_MAX, BATCH_BYTES_MAX = 500, 65_536
"""Limits of the writes that are collected for one batch, far below max.message.bytes; one write alone may have more."""
RECORD_BYTES = 32
"""Bytes of a record beside its key and its value, at most."""


C = TypeVar("C", bound="Core")


class Pending:
    """A write that is in the log and not committed yet, and what is to be done then."""

    __slots__ = ("error", "first_offset", "rest", "timer", "write")

    def __init__(self, write: Write, first_offset: Offset, rest: Sequence[Any]) -> None:
        self.write = write
        self.first_offset = first_offset
        self.rest = rest
        self.error: ErrorCode | None = None
        """The error that ended it, once known."""
        self.timer: asyncio.Handle | None = None


Encoded = list[tuple[bytes, bytes | None]]
"""Keys and values of records."""


class _Batch:
    """Writes whose records count already and are not in the log yet (Kafka's coordinator lingers, too)."""

    __slots__ = ("encoded", "rest", "size", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.encoded: Encoded = []
        self.rest: list[Any] = []
        """The effects behind all of them."""
        self.size = 0
        """Bytes of the records at most."""

    def has_room(self, encoded: Encoded, size: int, bytes_max: int) -> bool:
        """Whether these records may go into it; into an empty one they may."""
        fits = len(self.encoded) + len(encoded) <= BATCH_RECORDS_MAX
        return (fits and self.size + size <= BATCH_BYTES_MAX and self.size + size <= bytes_max) or not self.writes

    def add(self, write: Write, encoded: Encoded, size: int, rest: Sequence[Any]) -> None:
        self.writes.append(write)
        self.encoded += encoded
        self.size += size
        self.rest += rest


class Shard(Generic[C]):
    """One partition of a coordinator's topic led by this node."""

    def __init__(self, partition: Partition, core: C) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.core = core
        self.error: ErrorCode | None = ErrorCode.coordinator_load_in_progress
        """Why it does not serve; None once it is loaded."""
        self.damage: str | None = None
        """Why its log cannot be loaded."""
        self.task: asyncio.Task[None] | None = None
        """Set while it is loading."""
        self.collected: _Batch | None = None
        """What will be appended together at the end of the turn."""
        self.pending: deque[Pending] = deque()
        """Pending writes in the order of their offsets."""
        self.is_scheduled = False
        """Whether the outcome of pending writes will be looked at in the next turn of the loop."""
        self.timer: asyncio.Handle | None = None
        self.timer_deadline_ms = 0
        self.must_wait = False
        """The last append was not committed at once."""


S = TypeVar("S", bound=Shard[Any])


class ShardKind(NamedTuple, Generic[S]):
    """Parameters of the shards of one coordinator."""

    topic: str
    what: str
    """Name of the things they coordinate, for people."""
    new_shard: Callable[[Partition], S]
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Key and value of a record of a `Write`."""
    decode: Decode
    codec: int
    buffer_bytes: int
    """Read at once while loading."""
    commit_timeout_ms: Millis
    """How long clients wait for a write."""
    count: Callable[[S], int]
    """How many of `what` a shard has."""
    collect: Callable[[S], bool] | None = None
    """Called with the first write of a shard that is collected: returns True and has `flush` called soon, or False
    where it is to be appended by itself. None: all are."""
    perform: Callable[[S, Any], None] | None = None
    """Performs an effect that is neither Write nor Reply."""
    before_timer: Callable[[S], None] = lambda shard: None
    """Called before the timers of a shard expire."""
    on_unload: Callable[[S], None] = lambda shard: None
    """Called first when a shard is given up."""
    loads_all_records: bool = False
    """Whether records add up, and not only the newest of each key counts."""


class CoordinatorClock:
    """The instant of a decision: the time of the event loop, and the node's wall clock."""

    __slots__ = ("_clock", "_loop_s")

    def __init__(self, clock: Clock) -> None:
        self._loop_s: Callable[[], float] | None = None  # of the loop, once that runs
        self._clock = clock

    def now(self) -> Now:
        if self._loop_s is None:
            self._loop_s = asyncio.get_running_loop().time
        seconds = self._loop_s()
        return tuple.__new__(Now, (int(seconds * 1000), self._clock.now_ms()))  # Now() is a function of Python's


class Shards(Generic[S]):
    """All methods belong to the event loop's thread."""

    def __init__(self, node: CoordinatorHost, kind: ShardKind[S]) -> None:
        self._node = node
        self._kind = kind
        self.by_number: dict[int, S] = {}
        self._logger = logging.getLogger(f"ottla.{kind.what}")
        self.answers = Answers()
        self.stopping = False
        self._begun = False
        self.clock = CoordinatorClock(node.clock)
        self.load_times = LoadTimes()
        node.replicas.on_leadership.append(self.on_leadership)

    def begin(self) -> None:
        """Load the partitions that this node leads now that it is registered. Before, the metadata may still name it as
        the leader from before its death: a record appended in that old epoch could take the offset of a committed one
        that its disk has lost.
        """
        self._begun = True
        for partition in self._node.replicas:
            if partition.topic_partition.topic == self._kind.topic and partition.is_leader:
                self.on_leadership(partition)

    def stop(self) -> None:
        self.stopping = True
        for number in [*self.by_number]:
            self._unload(number)

    # Where they are

    def find(self, number: int, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that leads a partition. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists, and while
        the leader's process seems to be gone."""
        image = self._node.image
        registration = image.partition(self._kind.topic, number)
        broker = None if registration is None else image.brokers.get(registration.leader)
        gone = broker is None or broker.fenced or self._node.lost.get(broker.id) == broker.epoch
        endpoint = None if broker is None or gone else broker.endpoints.get(listener_name)
        if broker is None or endpoint is None or (broker.id == self._node.node_id and self._is_offline(number)):
            raise KafkaError(ErrorCode.coordinator_not_available)
        return broker.id, endpoint

    def serving(self, number: int) -> S:
        """Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE."""
        shard = self.by_number.get(number)
        if shard is None:
            offline = self._is_offline(number)
            raise KafkaError(ErrorCode.coordinator_not_available if offline else ErrorCode.not_coordinator)
        if shard.error is not None:
            raise KafkaError(shard.error)
        return shard

    def _is_offline(self, number: int) -> bool:
        """Whether the partition should be here, and its log or what is in it cannot be read."""
        shard = self.by_number.get(number)
        if shard is not None:
            return shard.damage is not None
        return TopicPartition(self._kind.topic, number) in self._node.replicas.missing

    def loading(self) -> int:
        """Shards whose state is not known yet."""
        return sum(shard.error is ErrorCode.coordinator_load_in_progress for shard in self.by_number.values())

    def states(self) -> dict[str, int]:
        """How many shards are loading, active (they serve) and failed (damaged)."""
        loading, failed = self.loading(), len(self.damaged())
        return {"loading": loading, "active": len(self.by_number) - loading - failed, "failed": failed}

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions that are not served because of what is on disk; and why."""
        return {
            shard.partition.topic_partition: shard.damage
            for shard in self.by_number.values()
            if shard.damage is not None
        }

    # Loading

    def on_leadership(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        if topic != self._kind.topic or self.stopping or not self._begun:
            return
        shard = self.by_number.get(number)
        if not partition.is_leader:
            self._unload(number)
            return
        if shard is not None and shard.partition is partition and shard.leader_epoch == partition.leader_epoch:
            return
        if shard is not None and (shard.task is not None or shard.pending or shard.partition is not partition):
            # In the new epoch nobody hears any more what became of the writes of the old one; the log will say it.
            self._unload(number)
            shard = None
        if shard is None:
            shard = self.by_number[number] = self._kind.new_shard(partition)
            if partition.log.log_end_offset == partition.log.log_start_offset:
                self.load_times.add(0.0)
                self._loaded(shard)
            else:
                shard.task = asyncio.get_running_loop().create_task(self._load(shard))
        shard.leader_epoch = partition.leader_epoch

    async def _load(self, shard: S) -> None:
        what = self._kind.what
        began_s = elapsed_s()
        try:
            partition = shard.partition
            while not partition.log.is_open and partition.log.failure is None and partition.is_leader:  # noqa: ASYNC110
                # It was a follower until now, and cuts off what its leader did not have. A log that is closed is of a
                # node that stops, which cancels this.
                await asyncio.sleep(BUSY_LOOK_S)
            epoch, end, fs = partition.leader_epoch, partition.log.log_end_offset, self._node.fs
            all_records, buffer_bytes = self._kind.loads_all_records, self._kind.buffer_bytes
            await load(shard.core, partition.log, fs, buffer_bytes, self._kind.decode, all_records=all_records)
            await _committed(partition, end, epoch)
            self.load_times.add((elapsed_s() - began_s) * 1000)
            self._loaded(shard)
        except Exception as error:  # a bug too, or those that wait for the end of the load would do so for ever
            # Nobody else coordinates them: clients look for the coordinator until the log is repaired.
            shard.error = ErrorCode.coordinator_not_available
            shard.damage = f"its {what} cannot be loaded: {error}"
            shard.partition.log.health.suspect(error, None)
            unexpected = not isinstance(error, KafkaError | MalformedRecord | OSError)
            found = fields(partition=shard.partition.topic_partition, error=str(error))
            self._logger.error("%s cannot be loaded", what, exc_info=unexpected, extra=found)

    def _loaded(self, shard: S) -> None:
        count = self._kind.count(shard)
        if count:
            where = {"partition": shard.partition.topic_partition, self._kind.what: count}
            self._logger.info("%s loaded", self._kind.what, extra=fields(**where))
        shard.error = None
        shard.task = None
        shard.core.on_loaded(self.now())
        self.work(shard)

    def _unload(self, number: int) -> None:
        shard = self.by_number.pop(number, None)
        if shard is None:
            return
        shard.error = ErrorCode.not_coordinator
        self._kind.on_unload(shard)
        if shard.task is not None:
            shard.task.cancel()
        if shard.timer is not None:
            shard.timer.cancel()
        if shard.collected is not None:
            self._fail(shard.collected.rest, ErrorCode.not_coordinator)
            shard.collected = None
        while shard.pending:
            pending = self._take_first(shard)
            self._fail([pending.write, *pending.rest], ErrorCode.not_coordinator)
        shard.core.unload(self.now())
        for effect in shard.core.take():
            if isinstance(effect, Reply):
                self.answers.due.append(effect)
        self.answers.send()

    # Effects and timers

    def now(self) -> Now:
        return self.clock.now()

    def work(self, shard: S) -> None:
        """Perform the effects of the core, set the timer, then send the answers: the caller's last step."""
        try:
            while effects := shard.core.take():
                self._do(shard, effects)
            self.arm(shard)
        except Exception:  # a bug; nobody is to wait for ever
            self.answers.send_soon()
            raise
        if self.answers.due:
            self.answers.send()

    def _do(self, shard: S, effects: Sequence[Any]) -> None:
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

    def _collect(self, shard: S, write: Write, rest: Sequence[Any]) -> None:
        """Put off a write whose records count already: those of one turn of the loop become one batch."""
        assert self._kind.collect is not None
        encode, encoded, size = self._kind.encode, [], 0
        try:
            for record in write.records:
                key, value = pair = encode(record)
                encoded.append(pair)
                size += len(key) + len(value or b"") + RECORD_BYTES
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
            batch = shard.collected = _Batch()
            waits = self._kind.collect(shard)
        batch.add(write, encoded, size, rest)
        if not waits:
            self.flush(shard)

    def flush(self, shard: S, newer: Write | None = None) -> bool:
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
                self._do(shard, batch.rest)
        except Exception:  # a bug behind the append; nobody is to wait for ever
            self._logger.exception("a write failed", extra=fields(partition=shard.partition.topic_partition))
            self._fail(batch.rest, ErrorCode.unknown_server_error)
        self.arm(shard)
        return appended

    def _write(self, shard: S, write: Write, rest: Sequence[Any], encoded: Encoded | None = None) -> bool:
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
                    records, base_sequence=0, codec=self._kind.codec, producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch, transactional=write.transaction is not None,
                )  # fmt: skip
            else:
                batch = marker_batch(
                    marker.producer_id, marker.producer_epoch, committed=marker.committed,
                    coordinator_epoch=marker.coordinator_epoch, timestamp=now_ms,
                )  # fmt: skip
            info = shard.partition.append_as_leader(
                memoryview(batch), ACKS_ALL, now_ms=now_ms, origin=COORDINATOR, guard=transaction.guard,
                transaction_version=0 if marker is None else marker.transaction_version,
            )  # fmt: skip
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

    def _refuse(self, shard: S, write: Write, rest: Sequence[Any], error: Exception) -> None:
        """The records of a write are not in the log. An error that is not Kafka's is a bug: it is logged, and undoes as
        much."""
        if not isinstance(error, KafkaError):
            where = fields(partition=shard.partition.topic_partition)
            self._logger.error("a write failed", exc_info=error, extra=where)
        if write.undo is not None:
            write.undo()
        self._fail([write, *rest], error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error)

    def _after_others(self, shard: S, write: Write, rest: Sequence[Any]) -> bool:
        """Like `_write`, for one without records: what follows may tell of what is not committed yet."""
        if shard.pending:
            end_offset = shard.partition.log.log_end_offset
            self.wait(shard, write, end_offset, rest, end_offset, shard.leader_epoch)
            return False
        return True

    def wait(
        self,
        shard: S,
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

    def _take_first(self, shard: S) -> Pending:
        pending = shard.pending.popleft()
        if pending.timer is not None:
            pending.timer.cancel()
        return pending

    def _go_on(self, shard: S) -> None:
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
                    self._do(shard, pending.rest)
                self.work(shard)
            except Exception:  # a bug; those behind it are not to wait for ever
                self._logger.exception("a write failed", extra=fields(partition=shard.partition.topic_partition))
                self.answers.send_soon()

    def _committed(self, shard: S, pending: Pending) -> None:
        write = pending.write
        if write.undo is None:  # else its records count already
            producer_id = NO_PRODUCER_ID if write.transaction is None else write.transaction.producer_id
            for index, record in enumerate(write.records):
                shard.core.replay(record, pending.first_offset + index, producer_id)
        if write.marker is not None:
            shard.core.replay_transaction_end(write.marker.producer_id, write.marker.committed)
        if pending.write.committed is not None:
            pending.write.committed()
            self._do(shard, shard.core.take())

    def _fail(self, effects: Sequence[Any], error: ErrorCode) -> None:
        error = WRITE_ERRORS.get(error, error)
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers.due.append(Failure(effect.token, KafkaError(error)))
            elif isinstance(effect, Write) and effect.failed is not None:
                effect.failed(error)

    def arm(self, shard: S) -> None:
        """Wake up at the core's next deadline; a timer that is too early finds that out and sets itself again."""
        deadline = shard.core.next_deadline()
        if deadline is None or (shard.timer is not None and shard.timer_deadline_ms <= deadline):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        shard.timer_deadline_ms = deadline
        shard.timer = asyncio.get_running_loop().call_at(deadline / 1000, self._on_timer, shard)

    def _on_timer(self, shard: S) -> None:
        shard.timer = None
        if shard.error is None:
            self._kind.before_timer(shard)
            try:
                # 1.011 s are 1010.99... ms: the deadline that the timer was set to is reached, whatever rounding says.
                timer_ms, wall_ms = self.now()
                shard.core.advance(Now(max(timer_ms, shard.timer_deadline_ms), wall_ms))
            except Exception:
                where = fields(partition=shard.partition.topic_partition)
                self._logger.exception("a timer of %s failed", self._kind.what, extra=where)
            self.work(shard)


async def _committed(partition: Partition, end_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Wait until what a new leader found in its log is committed: what is told to a client before could be lost with
    this node. Raises KafkaError."""
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    wait = partition.wait(end_offset, leader_epoch, ACKS_ALL, partial(_settle, future))
    try:
        error = await future
    finally:
        if wait is not None:
            partition.stop_waiting(wait)
    if error not in (ErrorCode.none, ErrorCode.not_enough_replicas_after_append):
        raise KafkaError(error)


def _settle(future: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
    if not future.done():
        future.set_result(error)
