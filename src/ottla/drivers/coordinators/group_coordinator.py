"""The group coordinator of every partition of `__consumer_offsets` that this node leads (`coordinator_shards.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import WRITE_ERRORS, InitializeShares, Marker, Now, Reply, Resolve, Reversal, Write
from ottla.coordinator.group import offsets
from ottla.coordinator.group.classic.rebalance import REBALANCED
from ottla.coordinator.group.kind import ASSIGNED, REBALANCES
from ottla.coordinator.group.offset_store import Topics
from ottla.coordinator.group.requests import (
    ConsumerHeartbeat,
    EndTransaction,
    GroupRequest,
    JoinGroup,
    OffsetCommit,
    OffsetsNeeded,
    PlainHeartbeat,
    StreamsHeartbeat,
    SyncGroup,
)
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.partitioning import partition_for
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinators.coordinator_commits import CommitEntry, Commits
from ottla.drivers.coordinators.coordinator_load import LoadTimes
from ottla.drivers.coordinators.coordinator_shard import Pending, Shard, ShardKind
from ottla.drivers.coordinators.coordinator_shards import Shards
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.model import OFFSETS_TOPIC, Millis, NodeId, TopicPartition
from ottla.protocol.internal.group_records import GroupRecord, decode_record, encode_key, encode_value
from ottla.protocol.offset_block import CommitShape, OffsetBlock
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.storage.log.validation import COORDINATOR

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.drivers.ports import CoordinatorHost, PublishedMetadata, Waiter
    from ottla.protocol.schemas.sent import ListedGroup
    from ottla.replication.replica_log import Appended

_LOG = logging.getLogger("ottla.groups")

T = TypeVar("T")
W = TypeVar("W", bound="Waiter")
P = ParamSpec("P")

EPOCH_EVENTS: Final = (REBALANCES, ASSIGNED)
"""Events of groups of newer protocols, of which a group may have one with each member that joins."""
LOG_INTERVAL_S: Final = 1.0
LOG_TOGETHER_MAX: Final = 1_000
"""Groups whose lines wait for others; more than that log each."""
NUMBERS_MAX: Final = 4_096
NAME_KEPT_MAX: Final = 256
"""Longer ids are rare, and 4,096 of them would take too much memory."""
CODECS = range(5)
"""none, gzip, snappy, lz4, zstd"""


class _MarkerWaiter:
    """Tells what became of a marker."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done

    def complete(self, result: Any) -> None:
        self._done(result.code if isinstance(result, KafkaError) else ErrorCode.none)


def _reversals(pending: Sequence[Pending], group_id: str | None = None) -> Iterator[Reversal]:
    """Reversals of what is not committed yet, newest first; only those of one group where it is given."""
    for each in reversed(pending):
        for effect in (*reversed(each.rest), each.write):
            if isinstance(effect, Write):
                for reversal in reversed(effect.reversals):
                    if group_id is None or reversal[0] == group_id:
                        yield reversal


class EpochLog:
    """Logs new epochs and assignments of groups. Where a thousand members join, that is a thousand of each: the first
    is a line, and those of about a second after it are one more. A line costs as much as two heartbeats."""

    def __init__(self) -> None:
        self._later: dict[tuple[str, str], tuple[Group, str, int]] = {}
        """By group id and event: the group and the reason of the newest, and how many are not logged yet."""
        self._timer: asyncio.Handle | None = None

    def add(self, event: str, group: Group, reason: str) -> None:
        if not _LOG.isEnabledFor(logging.INFO):
            return
        key = group.group_id, event
        found = self._later.get(key)
        if found is not None:
            self._later[key] = group, reason, found[2] + 1
            return
        _log_event(event, group, reason)
        if len(self._later) < LOG_TOGETHER_MAX:
            self._later[key] = group, reason, 0
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(LOG_INTERVAL_S, self.flush)

    def flush(self) -> None:
        """Log what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        later, self._later = self._later, {}
        for (_, event), (group, reason, times) in later.items():
            if times:
                _log_event(event, group, reason, times)


def _log_event(event: str, group: Group, reason: str, times: int = 1) -> None:
    where = fields(
        group=group.group_id,
        generation=group.generation,
        members=len(group.members),
        protocol=group.protocol_name,
        reason=reason or None,
        times=times if times > 1 else None,
    )
    _LOG.info("group %s", event, extra=where)


class NotBatched(Exception):
    """The commit must be processed like the first of its kind."""


class GroupLed(Shard):
    """One partition of `__consumer_offsets` led by this node."""

    __slots__ = ("commits", "groups")

    core: GroupShard

    def __init__(self, partition: Partition, core: GroupShard) -> None:
        Shard.__init__(self, partition, core)
        self.groups = core
        """The same as `core`, with its C type."""
        self.commits = Commits()
        """Commits of this iteration of the loop that are not yet in the log."""

    def take(self) -> list[Any]:
        return self.groups.take()

    def next_deadline(self) -> Millis | None:
        return self.groups.next_deadline()


def _as_committed(shard: GroupLed, look: Callable[[], T], group_id: str | None = None) -> T:
    if not shard.pending:
        return look()
    from ottla.coordinator.group.committed import as_committed  # not for a node whose writes never wait

    return as_committed(shard.core.state, _reversals(shard.pending, group_id), look)


@cache
def _short_way() -> Callable[..., Any]:
    from ottla.coordinator.group.consumer.plain_heartbeat import plain_heartbeat  # not for a node without such groups

    return plain_heartbeat


def _encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    return encode_key(record.key), encode_value(record.value)


class GroupCoordinatorDriver:
    """All methods belong to the event loop's thread. Those that find the group's shard elsewhere, not yet loaded or
    gone raise NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.

    Whatever changes a group is a typed request to `ask`: the waiter gets the reply once what it says is committed.
    Beside that door, there are
    - `heartbeat`, `plain_heartbeat` and `commit_block` for what members send all the time: an answer at once, without a
      waiter and mostly without a record, and commits that share a batch;
    - `complete_transaction` for markers, which are for a partition and not for a group;
    - `read`, `read_settled` and `read_committed` for those who only look: at what is decided, at that if all is
      committed, and at what is committed; `list_groups` is the last of all shards.
    """

    __slots__ = (
        "_by_number", "_clock", "_codec", "_config", "_effects", "_epoch_log", "_follows", "_linger_ms", "_node",
        "_numbers", "_open", "_resolving", "_shards", "initialize_shares",
    )  # fmt: skip

    def __init__(self, node: CoordinatorHost) -> None:
        self._node = node
        self._config = GroupConfig.from_settings(node.config)
        self._codec: int = node.config.offsets_topic_compression_codec
        if self._codec not in CODECS:
            raise OttlaError(
                f"offsets.topic.compression.codec={self._codec}: Unknown compression type id: {self._codec}"
            )
        self._linger_ms: int = node.config.group_coordinator_append_linger_ms
        self._epoch_log = EpochLog()
        self.initialize_shares: Callable[[InitializeShares], None] | None = None
        """Asks the share coordinator; set by `ShareGroups`, which passes on the heartbeats that need it."""
        self._resolving: dict[asyncio.Task[None], None] = {}
        self._follows = False
        """Whether it is told of changes of the metadata, which may change the number of partitions."""
        self._numbers: dict[str, int] = {}
        """Partitions of groups, by id, of those that ask at the moment."""
        self._open: dict[GroupLed, None] = {}
        """Shards with commits or other writes that wait for the end of the turn."""
        kind = ShardKind(
            OFFSETS_TOPIC,
            "groups",
            self._new_shard,
            _encode,
            decode_record,
            self._codec,
            node.config.offsets_load_buffer_size,
            commit_timeout_ms=node.config.offsets_commit_timeout_ms,
            count=lambda shard: len(shard.core.state.groups),
            before_timer=self._append,
            collect=self._collect,
            perform=self._perform,
            on_unload=_refuse_commits,
        )
        self._shards: Shards[GroupLed] = Shards(node, kind)
        self._by_number = self._shards.by_number
        self._effects = self._shards.effects
        self._clock = self._effects.clock
        node.on_stop.append(self.release_waiters)

    def _new_shard(self, partition: Partition) -> GroupLed:
        core = GroupShard(self._config, self._node.random)
        core.state.observe = self._observe
        core.state.counts = self._node.metrics.offsets
        core.on_metadata(None, self._node.image)
        return GroupLed(partition, core)

    def start(self, metadata: PublishedMetadata) -> None:
        """Follow deleted topics, and load the partitions that this node leads now that it is registered."""
        self._config = GroupConfig.from_settings(self._node.config)  # it may have changed while the node registered
        metadata.subscribe(self._on_metadata)
        self._follows = True
        self._shards.begin()

    async def stop(self) -> None:
        self._shards.stop()
        self._epoch_log.flush()
        for task in [*self._resolving]:
            task.cancel()
        await asyncio.gather(*self._resolving, return_exceptions=True)

    def release_waiters(self) -> None:
        """The node stops: members that wait in a rebalance look for another coordinator. Commits still work."""
        self._shards.stopping = True
        for shard in self._by_number.values():
            shard.core.release_waiters(self._now())
            self._effects.work(shard)

    # Requests

    def ask(self, waiter: Waiter, request: GroupRequest) -> None:
        """Replies with the fields of the response, of its newest version. Raises KafkaError."""
        kind = type(request)
        shard = self._shard_of(
            request.group_id,
            kind is JoinGroup or kind is SyncGroup,
            True,
            kind is not ConsumerHeartbeat and kind is not StreamsHeartbeat,  # their records share a batch
        )
        shard.groups.ask(waiter, request, self._clock.now())
        self._effects.work(shard)

    def read(
        self, look: Callable[Concatenate[GroupState, str, P], T], group_id: str, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Look at the state that a group belongs to, without a change; it may show what is not committed yet. Raises
        KafkaError."""
        found = look(self._shard_of(group_id).core.state, group_id, *args, **kwargs)
        self._effects.answers.send()  # of the heartbeats that were appended first
        return found

    def read_settled(
        self, look: Callable[Concatenate[GroupState, str, P], T], group_id: str, *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The same; None while something of the shard that the group belongs to is being written: ask for
        OffsetsCommitted. Raises KafkaError: NOT_COORDINATOR too where no follower was heard of for half a broker's
        session. When that is over, another node may coordinate the group and have newer offsets: a transactional
        copier would copy twice from those here, with which Kafka answers."""
        shard = self._shard_of(group_id)
        partition = shard.partition
        if partition.others:
            silent_ms = self._node.config.broker_session_timeout_ms // 2
            if not partition.is_followed(self._now().timer_ms, silent_ms):
                raise KafkaError(ErrorCode.not_coordinator)
        found = None if shard.pending else look(shard.core.state, group_id, *args, **kwargs)
        self._effects.answers.send()
        return found

    def read_committed(
        self, look: Callable[Concatenate[GroupState, str, P], T], group_id: str, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Look, for somebody who is not a member, at a group as it is committed: a new coordinator may not know more,
        and epochs would be seen to go back. Raises KafkaError."""
        shard = self._shard_of(group_id)
        found = _as_committed(shard, partial(look, shard.core.state, group_id, *args, **kwargs), group_id)
        self._effects.answers.send()  # of the heartbeats that were appended first
        return found

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What the member is told, as `membership.heartbeat`. Raises KafkaError."""
        shard = self._shard_of(group_id, False, False, False)
        error = shard.groups.heartbeat(group_id, member_id, instance_id, generation, self._clock.now())
        self._effects.arm(shard)
        return error

    def plain_heartbeat(self, heard: PlainHeartbeat, waiter: Callable[[], W]) -> Millis | W | None:
        """The interval to the next heartbeat of a member that has said nothing new and to whom nothing new is to be
        said. Or a `waiter`, where the member gets a new epoch and nothing else, or is told what is not committed yet:
        that gets the reply to a ConsumerHeartbeat. None: it is for one. Raises KafkaError."""
        shard = self._shard_of(heard.group_id, False, False, False)
        state = shard.groups.state
        state.now = self._clock.now()
        is_settled = not (shard.pending or shard.collected)  # else what the answer rests on may not be committed
        make = None if shard.commits.entries else waiter
        found: Millis | W | None = _short_way()(state, heard, is_settled, make)
        if found is None and make is None:
            shard = self._shard_of(heard.group_id, False, True, False)  # what is committed goes before its records
            found = _short_way()(state, heard, False, waiter)
        if isinstance(found, int):
            self._effects.arm(shard)
        elif found is not None:
            self._effects.work(shard)
        return found

    def streams_heartbeat_interval_ms(self, group_id: str) -> Millis:
        return self._config.of_streams_group(self._node.image, group_id).heartbeat_interval_ms

    def complete_transaction(self, number: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """Write the marker of a transaction to a partition of `__consumer_offsets`; `done` is called when it counts, or
        with why it does not. Raises KafkaError where it cannot be written now."""
        shard = self._shards.serving(number)
        self._append(shard)  # what was committed before
        shard.groups.ask(_MarkerWaiter(done), EndTransaction(marker), self._now())
        self._effects.work(shard)

    def commit_block(self, request: OffsetCommit, shape: CommitShape, rows: Sequence[bytes], waiter: Waiter) -> None:
        """Like `commit`, for one that is like others before and has no partition that can fail alone: it is appended
        together with others of the same turn of the loop. Raises KafkaError, and NotBatched where it must go its own
        way."""
        shard = self._by_number.get(self.partition_of(request.group_id))
        if shard is not None and shard.collected:
            self._effects.flush(shard)
            self._effects.answers.send_soon()
        if shard is None or shard.error is not None or shard.must_wait or shard.pending:
            raise NotBatched
        now = self._now()
        try:
            shard.groups.decide(offsets.check_commit, now, request)
        except OffsetsNeeded:
            raise NotBatched from None
        commits = shard.commits
        if not commits.has_room(shape.count):
            self._append(shard)
        if not commits.entries:
            commits.now_ms = now.wall_ms
            self._open_batch(shard)
        commits.add(OffsetBlock(shape, rows, commits.now_ms), waiter)
        if self._linger_ms == 0:
            self._append(shard)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """The groups of all shards as they are committed. Raises COORDINATOR_LOAD_IN_PROGRESS while a shard is
        loading."""
        from ottla.coordinator.group.admin import list_groups, wanted  # not for a node that nobody asks

        found: list[ListedGroup] = []
        states, types = wanted(states), wanted(types)
        for shard in [*self._by_number.values()]:
            if shard.error is ErrorCode.coordinator_load_in_progress:
                raise KafkaError(shard.error)
            if shard.error is None:
                if shard.collected:
                    self._effects.flush(shard)
                    self._effects.answers.send_soon()
                found += _as_committed(shard, partial(list_groups, shard.core.state, states, types))
        return found

    def loading(self) -> int:
        """Partitions of `__consumer_offsets` whose groups are not known yet."""
        return self._shards.loading()

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions of `__consumer_offsets` whose groups are not served because of what is on disk; and why."""
        return self._shards.damaged()

    def load_times(self) -> LoadTimes:
        return self._shards.load_times

    def shards(self) -> Mapping[str, int]:
        """Partitions of `__consumer_offsets` led here, by Kafka's name of how they are."""
        return self._shards.states()

    def groups(self) -> list[tuple[Group, Topics]]:
        """Every group that is coordinated here, with its commits; for metrics, and not to be changed."""
        return [
            (group, shard.core.state.offsets.of_group(group.group_id))
            for shard in self._by_number.values()
            if shard.error is None
            for group in shard.core.state.groups.values()
        ]

    # Where groups live

    def partition_of(self, group_id: str) -> int:
        number = self._numbers.get(group_id)
        return self._look_up(group_id) if number is None else number

    def _look_up(self, group_id: str) -> int:
        topic, config = self._node.image.topic(OFFSETS_TOPIC), self._node.config
        count = config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        number = partition_for(group_id, count)
        if self._follows and len(group_id) <= NAME_KEPT_MAX:
            if len(self._numbers) >= NUMBERS_MAX:
                self._numbers.clear()
            self._numbers[group_id] = number
        return number

    def find(self, group_id: str, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that coordinates a group. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists."""
        return self._shards.find(self.partition_of(group_id), listener_name)

    def _shard_of(
        self, group_id: str, starts_waiting: bool = False, reads_offsets: bool = True, flushes: bool = True
    ) -> GroupLed:
        """The shard of a group, for a request that may have to wait for others, which a node that stops does not take;
        that sees what is committed; whose records follow those that are collected. Call it without keywords: with
        them, a compiled call goes through Python."""
        number = self.partition_of(group_id)
        shard = self._by_number.get(number)
        if shard is None or shard.error is not None:
            shard = self._shards.serving(number)  # which says why it does not serve
        if starts_waiting and self._shards.stopping:
            raise KafkaError(ErrorCode.not_coordinator)
        are_read = reads_offsets and shard.commits.entries
        if shard.collected and (flushes or are_read):
            self._effects.flush(shard)
            self._effects.answers.send_soon()  # this request is decided before any that they let go on
        if are_read:
            self._append(shard)  # as if each had been appended alone
        return shard

    def _now(self) -> Now:
        return self._clock.now()

    # Following the metadata

    def _perform(self, shard: GroupLed, effect: Any) -> None:
        if isinstance(effect, InitializeShares):
            assert self.initialize_shares is not None
            self.initialize_shares(effect)
            return
        assert isinstance(effect, Resolve)
        task = asyncio.get_running_loop().create_task(self._resolve(shard, effect))
        self._resolving[task] = None
        task.add_done_callback(self._resolving.pop)

    async def _resolve(self, shard: GroupLed, asked: Resolve) -> None:
        """Find what patterns of a consumer group match."""
        from ottla.coordinator.group.consumer.patterns import resolve, resolved

        found = await run_yielding(resolve(asked.patterns, asked.image, asked.visible))
        if shard.error is None:
            now, version = self._now(), asked.image.offset
            shard.groups.decide(resolved, now, asked.group_id, found, version, now.wall_ms)
            self._effects.work(shard)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Consumer groups look at topics that have changed. Offsets of deleted topics go, as Kafka's
        onPartitionsDeleted; one of the same name starts without any."""
        self._numbers.clear()
        config = GroupConfig.from_settings(self._node.config) if delta.configs else self._config
        changed, self._config = config != self._config, config
        for shard in self._by_number.values():
            shard.core.on_metadata(delta, image)
            if changed:
                shard.core.configure(config)
        gone = [
            TopicPartition(topic.name, number) for topic in delta.deleted_topics.values() for number in topic.partitions
        ]
        if gone:
            for shard in self._by_number.values():
                if shard.error is None:
                    self._append(shard)
                    shard.groups.decide(offsets.delete_of_partitions, self._now(), gone)
                    self._effects.work(shard)

    def _observe(self, event: str, group: Group, reason: str) -> None:
        """Log and count what happens to a group."""
        if event == REBALANCED:
            self._node.metrics.rebalances += 1
        elif event == REBALANCES:
            self._node.metrics.rebalances_of[group.group_type] += 1
        if event in EPOCH_EVENTS:
            self._epoch_log.add(event, group, reason)
        else:
            _log_event(event, group, reason)

    # Commits and heartbeats in batches

    def _collect(self, shard: GroupLed) -> bool:
        if self._linger_ms:
            self._open_batch(shard)
        return self._linger_ms != 0

    def _open_batch(self, shard: GroupLed) -> None:
        """The first commit or write of a batch: that is appended when the turn of the loop ends, or later if it may."""
        if self._linger_ms > 0:
            asyncio.get_running_loop().call_later(self._linger_ms / 1000, self._end_linger, shard)
        else:
            if not self._open:
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._open[shard] = None

    def _end_turn(self) -> None:
        shards, self._open = self._open, {}
        for shard in shards:
            self._end_linger(shard)

    def _end_linger(self, shard: GroupLed) -> None:
        self._append(shard)
        self._effects.answers.send()

    def _append(self, shard: GroupLed) -> None:
        """Append the collected writes and commits, each as one batch, and answer them, or what became of it. Raises
        nothing."""
        if shard.collected:
            self._effects.flush(shard)
        commits = shard.commits
        if not commits.entries:
            return
        now_ms, entries = commits.now_ms, commits.entries
        try:
            batch = commits.batch(self._codec)
            self._node.metrics.offsets.commits += commits.count
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
        shard.must_wait = shard.partition.log.high_watermark <= info.last_offset
        if shard.must_wait:
            self._await_commits(shard, entries, info)
            return
        for block, _ in entries:
            shard.core.replay_block(block, offset)
            offset += block.shape.count
        self._effects.arm(shard)
        for _, waiter in entries:  # releases an outbox, which runs no request before the next turn of the loop
            waiter.complete(None)

    def _await_commits(self, shard: GroupLed, entries: Sequence[CommitEntry], info: Appended) -> None:
        offsets.write_blocks(shard.core.state, (block for block, _ in entries))
        offset = info.first_offset
        for (block, waiter), write in zip(entries, shard.core.take(), strict=True):
            assert isinstance(write, Write)
            end = offset + block.shape.count
            self._effects.wait(shard, write, offset, [Reply(waiter, {})], end, info.leader_epoch)
            offset = end


def _refuse_commits(shard: GroupLed) -> None:
    for _, waiter in shard.commits.take():
        waiter.complete(KafkaError(ErrorCode.not_coordinator))
