"""The group coordinator of one partition of `__consumer_offsets`: groups whose id hashes to it, and their offsets.

    calls in     requests with a token, `advance` when a deadline is past, records to `replay`
    effects out  `take()` after every call: writes and replies, in the order in which they must happen (see effects.py)

Decide, then replay: offsets change in `replay` only, live (once a write is committed) and while loading alike. The
running rebalance of a group is not in the log, as in Kafka; its last assignment is, and loading restores it.
Requests that fail before anything happens raise KafkaError; JoinGroup and SyncGroup always reply.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import Effect, InTransaction, Marker, Now, Token
from ottla.coordinator.group import admin, modern, offsets
from ottla.coordinator.group import join as joining
from ottla.coordinator.group import membership as members
from ottla.coordinator.group.classic import ClassicGroup, State
from ottla.coordinator.group.rebalance import (
    join_timer_expired,
    prepare,
    refuse_waiters,
    session_expired,
    sync_timer_expired,
)
from ottla.coordinator.group.requests import (
    ConsumerBeat,
    ConsumerHeartbeat,
    JoinGroup,
    Leaving,
    OffsetCommit,
    StreamsHeartbeat,
    SyncGroup,
)
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model import NO_PRODUCER_ID, UNKNOWN_OFFSET, Millis, Offset, ProducerId, TopicPartition
from ottla.protocol.internal.group_records import (
    DECODED,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.internal.modern_group_records import ModernKey, types_of
from ottla.protocol.offset_block import OffsetBlock
from ottla.protocol.wire import FetchedTopic

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.streams.group import StreamsGroup

T = TypeVar("T")

_EXPIRY = ("expiry",)
_CONSUMER_TIMERS = ("consumer session", "consumer rebalance", "consumer join", "consumer sync")
_STREAMS_TIMERS = ("streams session", "streams rebalance", "streams initial")
_COUNT_AT_ONCE = (*_CONSUMER_TIMERS, *_STREAMS_TIMERS)
_UTF_16 = struct.Struct(">H")
_PARTITIONS_CACHED = 4_096
_NAME_CACHED_MAX = 256
"""Longer ids are nobody's, and 4,096 of them would fill the memory."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group: the absolute value of Java's String.hashCode of its id
    (Kafka's `Utils.abs`, which makes 0 of the one value that has no positive counterpart)."""
    if len(group_id) > _NAME_CACHED_MAX:
        return _partition_for(group_id, partition_count)
    return _cached_partition_for(group_id, partition_count)


def _partition_for(group_id: str, partition_count: int) -> int:
    code = 0
    for (unit,) in _UTF_16.iter_unpack(group_id.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFF_FFFF
    magnitude = code if code <= 0x7FFF_FFFF else (1 << 32) - code
    return magnitude % partition_count if magnitude <= 0x7FFF_FFFF else 0


_cached_partition_for = lru_cache(_PARTITIONS_CACHED)(_partition_for)


class GroupShard:
    def __init__(self, config: GroupConfig, rng: random.Random) -> None:
        self.state = GroupState(config, rng)

    # Effects and timers

    def take(self) -> list[Effect]:
        """Take the effects since the last call."""
        effects, self.state.effects = self.state.effects, []
        return effects

    def next_deadline(self) -> Millis | None:
        """When to call `advance`, on the timer clock; None while nothing is due."""
        return self.state.timers.next_deadline()

    def advance(self, now: Now) -> None:
        """Let every deadline that is past expire."""
        state = self.state
        state.now = now
        while (key := state.timers.pop_expired(now.timer_ms)) is not None:
            counts_at_once = key == _EXPIRY or key[0] in _COUNT_AT_ONCE  # type: ignore[index]
            if counts_at_once and state.effects:  # records that count at once are written before any others
                state.timers.schedule(key, now.timer_ms)
                return
            self._expired(key)
            if counts_at_once and state.effects:
                return

    def _expired(self, key: Any) -> None:
        """A timer is past. One that was set for a group of another kind than the one that has its name now is nobody's:
        the functions here pass over it, as over one of a member that is gone."""
        if key == _EXPIRY:
            if offsets.expire(self.state):
                self._schedule_expiry()
            else:
                self.state.timers.schedule(_EXPIRY, self.state.now.timer_ms + 1)
            return
        group = self.state.groups.get(key[1])
        if group is None:
            return
        if key[0] in _CONSUMER_TIMERS:
            from ottla.coordinator.group.consumer import fence

            fence.expired(self.state, *key)
        elif key[0] in _STREAMS_TIMERS:
            from ottla.coordinator.group.streams import fence as streams_fence

            streams_fence.expired(self.state, *key)
        elif key[0] == modern.SESSION:
            modern.session_expired(self.state, group)
        elif not isinstance(group, ClassicGroup) or isinstance(group, modern.ModernGroup):
            return
        elif key[0] == "session":
            session_expired(self.state, group, key[2])
        else:
            _CLASSIC_TIMERS[key[0]](self.state, group)

    def _schedule_expiry(self) -> None:
        interval = self.state.config.offsets_retention_check_interval_ms
        self.state.timers.schedule(_EXPIRY, self.state.now.timer_ms + interval)

    # The log

    def replay(
        self, record: GroupRecord, offset: Offset = UNKNOWN_OFFSET, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply a committed record: each of the log's while loading, then those of our own writes."""
        key, value = record
        state = self.state
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in state.groups and key.group not in state.deleting:
                state.groups[key.group] = ClassicGroup(key.group, value.commit_timestamp)
            state.offsets.replay(offset, producer_id, key, value)
        elif state.loaded:
            pass
        elif isinstance(key, ModernKey) and key.type in DECODED:
            from ottla.coordinator.group import applying

            applying.replay(state, key, value)
        elif isinstance(key, ModernKey):
            assert value is None or isinstance(value, bytes)
            modern.replay(state, key, value, types_of(key))
        else:
            assert value is None or isinstance(value, GroupMetadataValue)
            if value is None:
                group = state.groups.get(key.group)
                if isinstance(group, ClassicGroup) and not isinstance(group, modern.ModernGroup):
                    del state.groups[key.group]
            else:
                state.groups[key.group] = ClassicGroup.from_record(key.group, value)

    def replay_block(self, block: OffsetBlock, offset: Offset) -> None:
        """Apply the committed records of a commit, the first of which is at `offset`."""
        state, group_id = self.state, block.shape.group_id
        if group_id not in state.groups:
            state.groups[group_id] = ClassicGroup(group_id, block.timestamp_ms)
        state.offsets.replay_block(offset, block)

    def replay_transaction_end(self, producer_id: ProducerId, committed: bool) -> None:
        """Apply a committed transaction marker: of the log while loading, or that of our own write."""
        self.state.offsets.end_transaction(producer_id, committed)

    def on_loaded(self, now: Now) -> None:
        """The log is replayed: members have a session timeout from now on to send a heartbeat."""
        state = self.state
        state.now = now
        state.loaded = True
        self._schedule_expiry()
        for group in [*state.groups.values()]:
            if not isinstance(group, ClassicGroup):
                _on_loaded(state, group)
                continue
            if isinstance(group, modern.ModernGroup):
                modern.start_session(state, group)
            for member in group.members.values():
                state.start_session(group, member)
            if len(group.members) > state.config.max_size:
                prepare(state, group, "there are more members than group.max.size")

    def unload(self, now: Now, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Resign; waiters are answered with `error`, so that they look for the new coordinator."""
        self.release_waiters(now, error)
        for group in self.state.groups.values():
            if isinstance(group, ClassicGroup):
                self.state.become(group, State.DEAD)
        self.state.groups.clear()

    def release_waiters(self, now: Now, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Answer all that wait in a rebalance with `error`."""
        self.state.now = now
        for group in self.state.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    refuse_waiters(self.state, group, member, error, member.member_id)

    # The metadata

    def configure(self, config: GroupConfig) -> None:
        """Settings have changed; running rebalances keep the old ones."""
        self.state.config = config

    def on_metadata(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """Look at topics as they are now; None where the shard has seen none before. Members learn what it means for
        them from their next heartbeats."""
        state = self.state
        state.image = image
        if state.new_topics_version == -1 or (delta is not None and any(True for _ in delta.created_topics())):
            state.new_topics_version = image.offset
        if delta is None or not state.groups_by_topic:
            return
        changed = [each.name for each in delta.topics.values()]
        changed += [each.name for each in delta.deleted_topics.values()]
        for group_id in [each for name in changed for each in state.groups_by_topic.get(name, ())]:
            group = state.groups.get(group_id)
            if group is not None and not isinstance(group, ClassicGroup):
                group.request_refresh()

    # Requests

    def consumer_heartbeat(self, token: Token, request: ConsumerHeartbeat, now: Now) -> None:
        """Replies with a ConsumerGroupHeartbeat response. Raises KafkaError."""
        from ottla.coordinator.group.consumer.heartbeat import heartbeat

        self.state.now = now
        heartbeat(self.state, token, request)

    def consumer_beat(self, heard: ConsumerBeat, now: Now) -> Millis | None:
        """The interval to the next heartbeat of a member that has said nothing new; None: ask `consumer_heartbeat`."""
        from ottla.coordinator.group.consumer.beat import beat

        self.state.now = now
        return beat(self.state, heard)

    def streams_heartbeat(self, token: Token, request: StreamsHeartbeat, now: Now) -> None:
        """Replies with a StreamsGroupHeartbeat response and the topics to be created. Raises KafkaError."""
        from ottla.coordinator.group.streams.heartbeat import heartbeat

        self.state.now = now
        heartbeat(self.state, token, request)

    def describe_streams_group(self, group_id: str) -> dict[str, Any]:
        """The row of a StreamsGroupDescribe response."""
        from ottla.coordinator.group.streams.describe import describe

        return describe(self.state, group_id)

    def resolved(self, group_id: str, found: Mapping[str, frozenset[str]], version: Offset, now: Now) -> None:
        """The driver has done a `Resolve`."""
        from ottla.coordinator.group.consumer import patterns

        self.state.now = now
        patterns.resolved(self.state, group_id, found, version, now.wall_ms)

    def describe_consumer_group(self, group_id: str) -> dict[str, Any]:
        """The row of a ConsumerGroupDescribe response."""
        from ottla.coordinator.group.consumer.describe import describe

        return describe(self.state, group_id)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Whether a member of a consumer or streams group may fetch offsets. Raises KafkaError."""
        group = self.state.groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return
        if group.group_type == "consumer":
            from ottla.coordinator.group.consumer.offsets import check_fetch

            check_fetch(group, member_id, epoch)
        else:
            from ottla.coordinator.group.streams.offsets import check_fetch as check_streams_fetch

            check_streams_fetch(group, member_id, epoch)

    def decide(self, decide: Callable[[GroupState], T], now: Now) -> T:
        """Run a decision of another type of group than classic: see `group/share/`."""
        self.state.now = now
        return decide(self.state)

    def join(self, token: Token, request: JoinGroup, now: Now) -> None:
        self.state.now = now
        joining.join(self.state, token, request)

    def sync(self, token: Token, request: SyncGroup, now: Now) -> None:
        self.state.now = now
        members.sync(self.state, token, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> None:
        self.state.now = now
        members.heartbeat(self.state, group_id, member_id, instance_id, generation)

    def leave(self, token: Token, group_id: str, leaving: Sequence[Leaving], now: Now) -> None:
        self.state.now = now
        members.leave(self.state, token, group_id, leaving)

    def commit(self, token: Token, request: OffsetCommit, now: Now) -> None:
        self.state.now = now
        offsets.commit(self.state, token, request)

    def commit_in_transaction(self, token: Token, request: OffsetCommit, transaction: InTransaction, now: Now) -> None:
        self.state.now = now
        offsets.commit_in_transaction(self.state, token, request, transaction)

    def end_transaction(self, token: Token, marker: Marker, now: Now) -> None:
        """Write a marker; replaying it is `replay_transaction_end`."""
        self.state.now = now
        offsets.end_transaction(self.state, token, marker)

    def check_commit(self, request: OffsetCommit, now: Now) -> None:
        """Decide on a commit whose offsets, which the driver writes, are replayed as an OffsetBlock. Raises KafkaError
        for what `commit` would refuse."""
        self.state.now = now
        offsets.check_commit(self.state, request)

    def write_blocks(self, blocks: Iterable[OffsetBlock]) -> None:
        """Commits that were checked and are in the log, but must be fsynced before they count: as writes under way."""
        for block in blocks:
            self.state.write_commit(block.shape.group_id, list(block.records()))

    def fetch_offsets(
        self, group_id: str, wanted: offsets.Wanted | None, require_stable: bool = False
    ) -> list[FetchedTopic]:
        return offsets.fetch(self.state, group_id, wanted, require_stable)

    def delete_offsets(self, token: Token, group_id: str, topics: Mapping[str, Sequence[int]], now: Now) -> None:
        self.state.now = now
        offsets.delete(self.state, token, group_id, topics)

    def delete_offsets_of_partitions(self, partitions: Iterable[TopicPartition], now: Now) -> None:
        self.state.now = now
        offsets.delete_of_partitions(self.state, partitions)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[dict[str, Any]]:
        return admin.list_groups(self.state, states, types)

    def describe(self, group_id: str) -> dict[str, Any]:
        return admin.describe(self.state, group_id)

    def delete_groups(self, token: Token, group_ids: Sequence[str], now: Now) -> None:
        self.state.now = now
        admin.delete_groups(self.state, token, group_ids)


def _on_loaded(state: GroupState, group: ConsumerGroup | StreamsGroup) -> None:
    if group.group_type == "consumer":
        from ottla.coordinator.group.consumer import fence

        fence.on_loaded(state, group)
    else:
        from ottla.coordinator.group.streams import fence as streams_fence

        streams_fence.on_loaded(state, group)


_CLASSIC_TIMERS: dict[str, Callable[[GroupState, ClassicGroup], None]] = {
    "join": join_timer_expired,
    "sync": sync_timer_expired,
}
