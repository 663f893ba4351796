"""Runs the group coordinator of every partition of `__consumer_offsets` that this node leads.

A shard is loaded from its log when the node becomes leader and given up when it stops being it. Its effects are worked
off in order: an append goes to the partition's log, and what follows it waits until the append is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import WRITE_ERRORS, Effect, Now, Reply, Write
from ottla.coordinator.group.admin import wanted
from ottla.coordinator.group.classic import ClassicGroup
from ottla.coordinator.group.offset_store import Topics
from ottla.coordinator.group.offsets import Wanted
from ottla.coordinator.group.rebalance import REBALANCED
from ottla.coordinator.group.requests import JoinGroup, Leaving, OffsetCommit, SyncGroup
from ottla.coordinator.shard import GroupShard, partition_for
from ottla.drivers.coordinator_commits import CommitEntry, Commits, CommitWaiter
from ottla.drivers.coordinator_load import load
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.model import OFFSETS_TOPIC, ZERO_UUID, NodeId, Offset, TopicPartition
from ottla.protocol.group_responses import FetchedTopic
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_records import encode_key, encode_value
from ottla.protocol.offset_block import CommitShape, OffsetBlock
from ottla.protocol.record_batch import build_batch
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.validation import COORDINATOR

_LOG = logging.getLogger("ottla.groups")

ANSWERS_PER_TURN = 32
"""A millisecond or two of encoding and sending; those of a large group's rebalance are spread over many turns."""

CODECS = range(5)
"""none, gzip, snappy, lz4, zstd"""


class Waiter(Protocol):
    """Gets one response, or the KafkaError that it failed with (the server's `Deferred`)."""

    def complete(self, result: Any) -> None: ...


class NotBatched(Exception):
    """This commit must be made like the first of its kind."""


class _Pending(NamedTuple):
    """A write that is in the log and not committed yet, and what is to be done then."""

    write: Write
    first_offset: Offset
    end_offset: Offset
    rest: Sequence[Effect]


class _Shard:
    """One partition of `__consumer_offsets` led by this node."""

    def __init__(self, partition: Partition, core: GroupShard) -> None:
        self.partition = partition
        self.core = core
        self.error: ErrorCode | None = ErrorCode.coordinator_load_in_progress
        """Why it does not serve; None once it is loaded."""
        self.damage: str | None = None
        """Why its groups cannot be loaded."""
        self.task: asyncio.Task[None] | None = None
        """Loading, or waiting for commits."""
        self.pending: deque[_Pending] = deque()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_deadline_ms = 0
        self.commits = Commits()
        """Those of this turn of the loop, not yet in the log."""
        self.must_fsync = False
        """The last append had to be fsynced before it counted."""


class GroupCoordinatorDriver:
    """All methods belong to the event loop's thread. Those that find the group's shard elsewhere, not yet loaded or
    gone raise NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""

    def __init__(self, node: Any) -> None:
        """`node` is the server's Node: its config, clock, random, controller, image, replicas and on_stop are used."""
        self._node = node
        self._config = GroupConfig.from_settings(node.config)
        self._shards: dict[int, _Shard] = {}
        self._codec: int = node.config["offsets.topic.compression.codec"]
        if self._codec not in CODECS:
            raise OttlaError(
                f"offsets.topic.compression.codec={self._codec}: Unknown compression type id: {self._codec}"
            )
        self._linger_ms: int = node.config["group.coordinator.append.linger.ms"]
        self._open: dict[_Shard, None] = {}
        """Shards with commits that wait for the end of the turn."""
        self._answers: deque[Reply] = deque()
        """What is decided and, if it had to be, in the log, and goes out in the next turns."""
        self._stopping = False
        node.replicas.on_leadership.append(self._on_leadership)
        node.on_stop.append(self.release_waiters)

    async def start(self) -> None:
        """Follow deleted topics. Loading began when the partitions got their leader, and goes on in the background."""
        self._node.controller.subscribe(self._on_metadata)

    async def stop(self) -> None:
        self._stopping = True
        for number in [*self._shards]:
            self._unload(number)

    def release_waiters(self) -> None:
        """The node stops: members that wait in a rebalance look for another coordinator. Commits still work."""
        self._stopping = True
        for shard in self._shards.values():
            shard.core.release_waiters(self._now())
            self._work(shard)

    # Requests

    def join(self, waiter: Waiter, request: JoinGroup) -> None:
        shard = self._shard_of(request.group_id, starts_waiting=True)
        shard.core.join(waiter, request, self._now())
        self._work(shard)

    def sync(self, waiter: Waiter, request: SyncGroup) -> None:
        shard = self._shard_of(request.group_id, starts_waiting=True)
        shard.core.sync(waiter, request, self._now())
        self._work(shard)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        shard = self._shard_of(group_id, reads_offsets=False)
        shard.core.heartbeat(group_id, member_id, instance_id, generation, self._now())
        self._arm(shard)

    def leave(self, waiter: Waiter, group_id: str, leaving: Sequence[Leaving]) -> None:
        shard = self._shard_of(group_id)
        shard.core.leave(waiter, group_id, leaving, self._now())
        self._work(shard)

    def commit(self, waiter: Waiter, request: OffsetCommit) -> None:
        """Replies {"partitions": {TopicPartition: ErrorCode}}."""
        shard = self._shard_of(request.group_id)
        shard.core.commit(waiter, request, self._now())
        self._work(shard)

    def commit_block(
        self, request: OffsetCommit, shape: CommitShape, rows: Sequence[bytes], waiter: CommitWaiter
    ) -> None:
        """As `commit`, for one that is like others before and has no partition that can fail alone: it is appended
        together with others of the same turn of the loop. Raises KafkaError, and NotBatched where it must go its own
        way."""
        shard = self._shards.get(self.partition_of(request.group_id))
        if shard is None or shard.error is not None or shard.must_fsync or shard.pending:
            raise NotBatched
        now = self._now()
        shard.core.check_commit(request, now)
        commits = shard.commits
        if not commits.has_room(shape.count):
            self._append(shard)
        if not commits.entries:
            self._open_commits(shard, now)
        commits.add(OffsetBlock(shape, rows, commits.now_ms), waiter)
        if self._linger_ms == 0:
            self._append(shard)

    def committed(self, group_id: str) -> Wanted:
        """Every partition for which a group has an offset, to ask `fetch_offsets` for."""
        state = self._shard_of(group_id).core.state
        known = state.offsets.of_group(group_id) if group_id in state.groups else {}
        return [(topic, ZERO_UUID, list(partitions)) for topic, partitions in known.items()]

    def fetch_offsets(self, group_id: str, wanted: Wanted | None, require_stable: bool) -> list[FetchedTopic]:
        return self._shard_of(group_id).core.fetch_offsets(group_id, wanted, require_stable)

    def delete_offsets(self, waiter: Waiter, group_id: str, topics: Mapping[str, Sequence[int]]) -> None:
        """Replies {"partitions": {TopicPartition: ErrorCode}}."""
        shard = self._shard_of(group_id)
        shard.core.delete_offsets(waiter, group_id, topics, self._now())
        self._work(shard)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[dict[str, Any]]:
        """Groups of all shards. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them is loading."""
        found = []
        states, types = wanted(states), wanted(types)
        for shard in self._shards.values():
            if shard.error is ErrorCode.coordinator_load_in_progress:
                raise KafkaError(shard.error)
            if shard.error is None:
                found += shard.core.list_groups(states, types)
        return found

    def loading(self) -> int:
        """Partitions of `__consumer_offsets` whose groups are not known yet."""
        return sum(shard.error is ErrorCode.coordinator_load_in_progress for shard in self._shards.values())

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions of `__consumer_offsets` whose groups are not served because of what is on disk; and why."""
        return {
            shard.partition.topic_partition: shard.damage for shard in self._shards.values() if shard.damage is not None
        }

    def groups(self) -> list[tuple[ClassicGroup, Topics]]:
        """Every group that is coordinated here, with its commits; for metrics, and not to be changed."""
        return [
            (group, shard.core.state.offsets.of_group(group.group_id))
            for shard in self._shards.values()
            if shard.error is None
            for group in shard.core.state.groups.values()
        ]

    def describe(self, group_id: str) -> dict[str, Any]:
        return self._shard_of(group_id).core.describe(group_id)

    def delete_group(self, waiter: Waiter, group_id: str) -> None:
        """Replies {"groups": {group id: ErrorCode}}."""
        shard = self._shard_of(group_id)
        shard.core.delete_groups(waiter, [group_id], self._now())
        self._work(shard)

    # Where groups live

    def partition_of(self, group_id: str) -> int:
        topic = self._node.image.topic(OFFSETS_TOPIC)
        count = self._node.config["offsets.topic.num.partitions"] if topic is None else len(topic.partitions)
        return partition_for(group_id, count)

    def find(self, group_id: str, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that coordinates a group. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists."""
        image: MetadataImage = self._node.image
        number = self.partition_of(group_id)
        registration = image.partition(OFFSETS_TOPIC, number)
        broker = None if registration is None else image.brokers.get(registration.leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoints.get(listener_name)
        if broker is None or endpoint is None or (broker.id == self._node.node_id and self._is_offline(number)):
            raise KafkaError(ErrorCode.coordinator_not_available)
        return broker.id, endpoint

    def _is_offline(self, number: int) -> bool:
        """Whether the partition should be here, and its log or its groups cannot be read."""
        shard = self._shards.get(number)
        if shard is not None:
            return shard.damage is not None
        return TopicPartition(OFFSETS_TOPIC, number) in self._node.replicas.missing

    def _shard_of(self, group_id: str, *, starts_waiting: bool = False, reads_offsets: bool = True) -> _Shard:
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None and self._is_offline(self.partition_of(group_id)):
            raise KafkaError(ErrorCode.coordinator_not_available)
        if shard is None or (starts_waiting and self._stopping):
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.error is not None:
            raise KafkaError(shard.error)
        if reads_offsets and shard.commits.entries:
            self._append(shard)  # as if each had been appended alone
        return shard

    # Following the metadata

    def _on_leadership(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        if topic != OFFSETS_TOPIC or self._stopping:
            return
        if not partition.is_leader:
            self._unload(number)
        elif number not in self._shards:
            core = GroupShard(self._config, self._node.random)
            core.state.observe = self._observe
            shard = self._shards[number] = _Shard(partition, core)
            if partition.log.log_end_offset == partition.log.log_start_offset:
                self._loaded(shard)
            else:
                shard.task = asyncio.get_running_loop().create_task(self._load(shard))

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Offsets of deleted topics go, as Kafka's onPartitionsDeleted; one of the same name starts without any."""
        gone = [
            TopicPartition(topic.name, number) for topic in delta.deleted_topics.values() for number in topic.partitions
        ]
        if gone:
            for shard in self._shards.values():
                if shard.error is None:
                    self._append(shard)
                    shard.core.delete_offsets_of_partitions(gone, self._now())
                    self._work(shard)

    def _observe(self, event: str, group: ClassicGroup, reason: str) -> None:
        """Log and count what happens to a group."""
        if event == REBALANCED:
            self._node.metrics.rebalances += 1
        where = fields(
            group=group.group_id, generation=group.generation, members=len(group.members),
            protocol=group.protocol_name, reason=reason or None,
        )  # fmt: skip
        _LOG.info("group %s", event, extra=where)

    # Loading

    async def _load(self, shard: _Shard) -> None:
        try:
            buffer_bytes = self._node.config["offsets.load.buffer.size"]
            await load(shard.core, shard.partition.log, self._node.fs, buffer_bytes)
            self._loaded(shard)
        except Exception as error:  # a bug too, or those that wait for the end of the load would do so for ever
            # Nobody else coordinates them: clients look for the coordinator until the log is repaired.
            shard.error = ErrorCode.coordinator_not_available
            shard.damage = f"its groups cannot be loaded: {error}"
            unexpected = not isinstance(error, KafkaError | MalformedRecord | OSError)
            found = fields(partition=shard.partition.topic_partition, error=str(error))
            _LOG.error("groups cannot be loaded", exc_info=unexpected, extra=found)

    def _loaded(self, shard: _Shard) -> None:
        if shard.core.state.groups:
            count, partition = len(shard.core.state.groups), shard.partition.topic_partition
            _LOG.info("groups loaded", extra=fields(partition=partition, groups=count))
        shard.error = None
        shard.task = None
        shard.core.on_loaded(self._now())
        self._work(shard)

    def _unload(self, number: int) -> None:
        shard = self._shards.pop(number, None)
        if shard is None:
            return
        shard.error = ErrorCode.not_coordinator
        for _, waiter in shard.commits.take():
            waiter.complete(KafkaError(ErrorCode.not_coordinator))
        if shard.task is not None:
            shard.task.cancel()
        if shard.timer is not None:
            shard.timer.cancel()
        for pending in shard.pending:
            self._fail([pending.write, *pending.rest], ErrorCode.not_coordinator)
        shard.pending.clear()
        shard.core.unload(self._now())
        for effect in shard.core.take():
            if not isinstance(effect, Write):
                effect.token.complete(effect.response)

    # Effects and timers

    def _now(self) -> Now:
        return Now(int(asyncio.get_running_loop().time() * 1000), self._node.clock.now_ms())

    def _work(self, shard: _Shard) -> None:
        """Do what the core asks for, then set the timer."""
        while effects := shard.core.take():
            self._do(shard, effects)
        self._arm(shard)

    def _do(self, shard: _Shard, effects: Sequence[Effect]) -> None:
        answered = 0
        for index, effect in enumerate(effects):
            if not isinstance(effect, Write):
                answered += 1
                if answered <= ANSWERS_PER_TURN:
                    effect.token.complete(effect.response)
                else:
                    self._answer_later(effect)
            elif not self._write(shard, effect, effects[index + 1 :]):
                return

    def _answer_later(self, reply: Reply) -> None:
        """The state is changed already, so nothing depends on when an answer leaves: each client waits for its own."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._answer_some)
        self._answers.append(reply)

    def _answer_some(self) -> None:
        some = [self._answers.popleft() for _ in range(min(ANSWERS_PER_TURN, len(self._answers)))]
        if self._answers:
            asyncio.get_running_loop().call_soon(self._answer_some)
        for reply in some:
            reply.token.complete(reply.response)

    def _open_commits(self, shard: _Shard, now: Now) -> None:
        """The first commit of a batch: the batch is appended when the turn of the loop ends, or later if it may."""
        shard.commits.now_ms = now.wall_ms
        if self._linger_ms > 0:
            asyncio.get_running_loop().call_later(self._linger_ms / 1000, self._append, shard)
        else:
            if not self._open:
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._open[shard] = None

    def _end_turn(self) -> None:
        shards, self._open = self._open, {}
        for shard in shards:
            self._append(shard)

    def _append(self, shard: _Shard) -> None:
        """Append the collected commits as one batch and answer them, or what became of it. Raises nothing."""
        commits = shard.commits
        if not commits.entries:
            return
        now_ms, entries = commits.now_ms, commits.entries
        try:
            batch = commits.batch(self._codec)
            commits.take()
            info = shard.partition.append_as_leader(batch, ACKS_ALL, now_ms=now_ms, origin=COORDINATOR)
        except Exception as error:
            if not isinstance(error, KafkaError):  # a bug; nobody is to wait for ever
                _LOG.exception("commits failed", extra=fields(partition=shard.partition.topic_partition))
            code = error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
            commits.take()
            for _, waiter in entries:
                waiter.complete(KafkaError(WRITE_ERRORS.get(code, code)))
            return
        offset = info.first_offset
        shard.must_fsync = shard.partition.log.high_watermark <= info.last_offset
        if shard.must_fsync:
            self._await_fsync(shard, entries, offset)
            return
        for block, waiter in entries:
            shard.core.replay_block(block, offset)
            offset += block.shape.count
            waiter.complete(None)
        self._arm(shard)

    def _await_fsync(self, shard: _Shard, entries: Sequence[CommitEntry], offset: Offset) -> None:
        shard.core.write_blocks(block for block, _ in entries)
        for (block, waiter), write in zip(entries, shard.core.take(), strict=True):
            assert isinstance(write, Write)
            end = offset + block.shape.count
            self._wait(shard, _Pending(write, offset, end, [Reply(waiter, {})]))
            offset = end

    def _write(self, shard: _Shard, write: Write, rest: Sequence[Effect]) -> bool:
        """Append; returns whether `rest` may go on at once. Otherwise it goes on after the commit, or failed."""
        now_ms = self._node.clock.now_ms()
        records = [(now_ms, encode_key(key), encode_value(value), ()) for key, value in write.records]
        try:
            # A base sequence of 0 without a producer id, as Kafka's coordinators write it.
            batch = build_batch(records, base_sequence=0, codec=self._codec)
            info = shard.partition.append_as_leader(batch, ACKS_ALL, now_ms=now_ms, origin=COORDINATOR)
        except KafkaError as error:
            self._fail([write, *rest], error.code)
            return False
        shard.must_fsync = shard.partition.log.high_watermark <= info.last_offset
        pending = _Pending(write, info.first_offset, info.last_offset + 1, rest)
        if not shard.pending and not shard.must_fsync:
            self._committed(shard, pending)
            return True
        self._wait(shard, pending)
        return False

    def _wait(self, shard: _Shard, pending: _Pending) -> None:
        shard.pending.append(pending)
        if shard.task is None:
            shard.task = asyncio.get_running_loop().create_task(self._await_commits(shard))

    async def _await_commits(self, shard: _Shard) -> None:
        """Sync what must be on disk before it is answered, and go on in the order of the writes."""
        partition = shard.partition
        try:
            while shard.pending:
                pending = shard.pending[0]
                try:
                    if partition.log.high_watermark < pending.end_offset:
                        await partition.log.flush_async(pending.end_offset)
                        partition.advance_high_watermark(pending.end_offset)
                except KafkaError as error:
                    shard.pending.popleft()
                    self._fail([pending.write, *pending.rest], error.code)
                except OSError:
                    shard.pending.popleft()
                    self._fail([pending.write, *pending.rest], ErrorCode.kafka_storage_error)
                else:
                    shard.pending.popleft()
                    self._committed(shard, pending)
                    self._do(shard, pending.rest)
                self._work(shard)
        finally:  # also after a bug: the next write starts a task again instead of waiting for ever
            shard.task = None

    def _committed(self, shard: _Shard, pending: _Pending) -> None:
        for index, record in enumerate(pending.write.records):
            shard.core.replay(record, pending.first_offset + index)
        if pending.write.committed is not None:
            pending.write.committed()
            self._do(shard, shard.core.take())

    def _fail(self, effects: Sequence[Effect], error: ErrorCode) -> None:
        error = WRITE_ERRORS.get(error, error)
        for effect in effects:
            if not isinstance(effect, Write):
                effect.token.complete(KafkaError(error))
            elif effect.failed is not None:
                effect.failed(error)

    def _arm(self, shard: _Shard) -> None:
        """Wake up at the core's next deadline; a timer that is too early finds that out and sets itself again."""
        deadline = shard.core.next_deadline()
        if deadline is None or (shard.timer is not None and shard.timer_deadline_ms <= deadline):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        shard.timer_deadline_ms = deadline
        shard.timer = asyncio.get_running_loop().call_at(deadline / 1000, self._on_timer, shard)

    def _on_timer(self, shard: _Shard) -> None:
        shard.timer = None
        if shard.error is None:
            self._append(shard)
            try:
                shard.core.advance(self._now())
            except Exception:
                _LOG.exception("a group timer failed", extra=fields(partition=shard.partition.topic_partition))
            self._work(shard)
