"""The group coordinator of one partition of `__consumer_offsets`: groups whose id hashes to it, and their offsets.

    calls in     requests with a token, `advance` when a deadline is past, records to `replay`
    effects out  `take()` after every call: writes and replies, in the order in which they must happen (see effects.py)

Decide, then replay: offsets change in `replay` only, live (once a write is committed) and while loading alike. The
running rebalance of a group is not in the log, as in Kafka; its last assignment is, and loading restores it.
Requests that fail before anything happens raise KafkaError; JoinGroup and SyncGroup always reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, get_args

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import Effect, Now, Token
from ottla.coordinator.group import offsets
from ottla.coordinator.group.classic import join as joining
from ottla.coordinator.group.classic import membership as members
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.membership import heartbeat
from ottla.coordinator.group.kinds import kind_of, kind_of_record
from ottla.coordinator.group.requests import (
    ConsumerHeartbeat,
    DeleteGroups,
    EndTransaction,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetsCommitted,
    ShareHeartbeat,
    ShareRequest,
    StreamsDescription,
    StreamsHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from ottla.coordinator.group.state import Apply, GroupState
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model import NO_PRODUCER_ID, UNKNOWN_OFFSET, Millis, Offset, ProducerId
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.offset_block import OffsetBlock
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue

T = TypeVar("T")
P = ParamSpec("P")

_EXPIRY = ("expiry",)
_COUNT_AT_ONCE: Final = frozenset({
    "expiry", "consumer session", "consumer rebalance", "consumer join", "consumer sync",
    "streams session", "streams rebalance", "streams initial",
})  # fmt: skip
"""Timers whose records count before they are committed. Their first word is the kind of group, if not classic."""


@cache
def _applying() -> Apply:
    from ottla.coordinator.group.applying import apply  # only groups of newer protocols decide so

    return apply


class GroupShard:
    __slots__ = ("state",)

    def __init__(self, config: GroupConfig, rng: random.Random) -> None:
        self.state = GroupState(config, rng, _applying)

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
            counts_at_once = key[0] in _COUNT_AT_ONCE  # type: ignore[index]
            if counts_at_once and state.effects:  # records that count at once are written before any others
                state.timers.schedule(key, now.timer_ms)
                return
            self._expired(key)
            if counts_at_once and state.effects:
                return

    def _expired(self, key: Any) -> None:
        """A timer is past. One that was set for a group of another kind than the one that has its name now is nobody's:
        the functions of the kinds pass over it, as over one of a member that is gone."""
        if key == _EXPIRY:
            if offsets.expire(self.state):
                self._schedule_expiry()
            else:
                self.state.timers.schedule(_EXPIRY, self.state.now.timer_ms + 1)
            return
        if key[1] in self.state.groups:
            kind, separator, _ = key[0].partition(" ")
            kind_of(kind if separator else "classic").expired(self.state, *key)

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
        elif not state.loaded:
            kind_of_record(key).replay(state, key, value)

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
            kind_of(group.group_type).on_loaded(state, group)

    def unload(self, now: Now, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Resign; waiters are answered with `error`, so that they look for the new coordinator."""
        self.release_waiters(now, error)
        for group in self.state.groups.values():
            unload = kind_of(group.group_type).unload
            if unload is not None:
                unload(self.state, group)
        self.state.groups.clear()

    def release_waiters(self, now: Now, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Answer all that wait in a rebalance with `error`."""
        self.state.now = now
        for group in self.state.groups.values():
            release = kind_of(group.group_type).release_waiters
            if release is not None:
                release(self.state, group, error)

    # The metadata

    def configure(self, config: GroupConfig) -> None:
        """Settings have changed; running rebalances keep the old ones."""
        self.state.config = config

    def on_metadata(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """Look at topics as they are now; None where the shard has seen none before. Members learn what it means for
        them from their next heartbeats."""
        state = self.state
        state.image = image
        state.images += 1
        if state.new_topics_version == -1 or (delta is not None and any(True for _ in delta.created_topics())):
            state.new_topics_version = image.offset
        if delta is None or not state.groups_by_topic:
            return
        changed = [each.name for each in delta.topics.values()]
        changed += [each.name for each in delta.deleted_topics.values()]
        for group_id in [each for name in changed for each in state.groups_by_topic.get(name, ())]:
            group = state.groups.get(group_id)
            if group is not None:
                group.request_refresh()

    # Requests

    def ask(self, token: Token, request: GroupRequest | EndTransaction, now: Now) -> None:
        """Decide on a request; `token` gets the reply. Raises KafkaError."""
        self.state.now = now
        DECISIONS[type(request)](self.state, token, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        """As `membership.heartbeat`; all that a member of a classic group sends while nothing happens."""
        self.state.now = now
        return heartbeat(self.state, group_id, member_id, instance_id, generation)

    def decide(self, decide: Callable[Concatenate[GroupState, P], T], now: Now, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a decision that no client asks for in a request of its own, or that needs no reply."""
        self.state.now = now
        return decide(self.state, *args, **kwargs)


def _heartbeat_of(group_type: str) -> Callable[[GroupState, Token, Any], None]:
    def decide(state: GroupState, token: Token, request: ConsumerHeartbeat | StreamsHeartbeat) -> None:
        heartbeat = kind_of(group_type).heartbeat
        assert heartbeat is not None
        heartbeat(state, token, request)

    return decide


def _describe_topology(state: GroupState, token: Token, request: StreamsDescription) -> None:
    from ottla.coordinator.group.streams.descriptions import update  # for who has such groups

    update(state, token, request)


def _delete_groups(state: GroupState, token: Token, request: DeleteGroups) -> None:
    from ottla.coordinator.group.admin import delete_groups  # not for a node whose groups nobody deletes

    delete_groups(state, token, request)


def _about_shares(state: GroupState, token: Token, request: Any) -> None:
    from ottla.coordinator.group.share import offsets as shares  # for who has such groups

    shares.DECISIONS[type(request)](state, token, request)


DECISIONS: Final[Mapping[type, Callable[[GroupState, Token, Any], None]]] = {
    JoinGroup: joining.join,
    SyncGroup: members.sync,
    LeaveGroup: members.leave,
    OffsetCommit: offsets.commit,
    TxnOffsetCommit: offsets.commit_in_transaction,
    OffsetsCommitted: offsets.wait_until_committed,
    OffsetDelete: offsets.delete,
    DeleteGroups: _delete_groups,
    ConsumerHeartbeat: _heartbeat_of("consumer"),
    StreamsHeartbeat: _heartbeat_of("streams"),
    StreamsDescription: _describe_topology,
    ShareHeartbeat: _heartbeat_of("share"),
    **dict.fromkeys(get_args(ShareRequest), _about_shares),
    EndTransaction: offsets.end_transaction,
}
"""What decides on a request, by its type."""
