"""Timers do not outlive what they were set for: a walk over groups of all four kinds that share two names, with writes
that fail. After each step every timer is that of a group or member that is there, and every member has a session."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.requests import (
    DeleteGroups,
    DeleteShareGroup,
    DeleteShareStates,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    ShareHeartbeat,
    SyncGroup,
)
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import ErrorCode, KafkaError
from tests.unit.coordinator import streams_groups
from tests.unit.coordinator.consumer_groups import Groups
from tests.unit.coordinator.test_consumer_group_migration import subscription

SEEDS = int(os.environ.get("OTTLA_TIMER_WALKS", "60"))
STEPS = 120
MEMBERS = ("a", "b", "c")
SHARES = {**GroupConfig().share, "group.share.assignment.interval.ms": 0, "group.share.max.size": 3}


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.consumers = Groups(consumer_max_size=3, max_size=3, share=SHARES)
        self.driver = self.consumers.driver
        self.streams = streams_groups.Groups()
        self.streams.driver = self.driver
        self.consumers.create(t=4)
        self.generations: dict[tuple[str, str], int] = {}
        self.steps: tuple[Callable[[str], None], ...] = (
            self.classic_joins,
            self.classic_joins,
            self.classic_asks,
            self.classic_leaves,
            self.commits,
            self.consumer_joins,
            self.consumer_beats,
            self.consumer_leaves,
            self.share_joins,
            self.share_joins,
            self.share_leaves,
            self.streams_join,
            self.streams_leave,
            self.deletes,
            self.deletes,
            self.time_passes,
            self.time_passes,
        )

    @property
    def state(self) -> Any:
        return self.driver.shard.state

    def step(self) -> None:
        do = self.random.choice(self.steps)
        group = self.random.choice("gh")
        if self.random.random() < 0.1:
            self.driver.next_failure = ErrorCode.not_enough_replicas
        try:
            do(group)
            self.driver.run()
            self.done[do.__name__] += 1
        except KafkaError as error:
            self.done[error.code.name] += 1
            self.driver.run()
        self.driver.next_failure = None
        self.check(do.__name__)

    # Steps

    def classic_joins(self, group: str) -> None:
        found = self.state.groups.get(group)
        known = [*found.members] if isinstance(found, ClassicGroup | ConsumerGroup) else []
        if isinstance(found, ClassicGroup):
            known += sorted(found.pending_members)
        instance = self.random.choice((None, None, "i", "j"))
        request = JoinGroup(
            group_id=group,
            member_id=self.random.choice(["", *known]),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols={"range": subscription("t")},
            instance_id=instance,
            require_known_member_id=self.random.random() < 0.5,
        )
        self.driver.shard.ask("join", request, self.driver.now)

    def classic_asks(self, group: str) -> None:
        found = self.state.groups.get(group)
        if isinstance(found, ClassicGroup) and found.members:
            member_id = self.random.choice([found.leader, *found.members])
            assignments = dict.fromkeys(found.members, b"")
            request = SyncGroup(
                group_id=group, member_id=member_id, generation=found.generation, assignments=assignments
            )
            self.driver.shard.ask("sync", request, self.driver.now)

    def classic_leaves(self, group: str) -> None:
        found = self.state.groups.get(group)
        if isinstance(found, ClassicGroup | ConsumerGroup):
            ids = [*found.members, *(found.pending_members if isinstance(found, ClassicGroup) else ())]
            if ids:
                leaving = [Leaving(self.random.choice(ids), None)]
                self.driver.shard.ask("leave", LeaveGroup(group, leaving), self.driver.now)

    def commits(self, group: str) -> None:
        offsets = [OffsetToCommit("t", 0, 1, -1, "", self.consumers.topics["t"])]
        request = OffsetCommit(group_id=group, member_id="", generation=-1, offsets=offsets, knows_unknown_group=True)
        self.driver.shard.ask("commit", request, self.driver.now)

    def consumer_joins(self, group: str) -> None:
        instance = self.random.choice((None, None, "i", "j"))
        self.consumers.join(self.random.choice(MEMBERS), "t", group=group, instance_id=instance)

    def consumer_beats(self, group: str) -> None:
        found = self.state.groups.get(group)
        if isinstance(found, ConsumerGroup) and found.members:
            member = self.random.choice([*found.members.values()])
            owned = {each: frozenset(numbers) for each, numbers in member.assigned.items()}
            self.consumers.send(
                member.member_id, member.epoch, group=group, instance_id=member.instance_id, owned=owned
            )

    def consumer_leaves(self, group: str) -> None:
        found = self.state.groups.get(group)
        if isinstance(found, ConsumerGroup) and found.members:
            member = self.random.choice([*found.members.values()])
            epoch = -1 if member.instance_id is None else self.random.choice((-1, -2, -2))
            self.consumers.send(member.member_id, epoch, group=group, instance_id=member.instance_id)

    def share_joins(self, group: str) -> None:
        self._share(group, self.random.choice(MEMBERS), 0, ["t"])

    def share_leaves(self, group: str) -> None:
        self._share(group, self.random.choice(MEMBERS), -1, None)

    def _share(self, group: str, member_id: str, epoch: int, topics: list[str] | None) -> None:
        request = ShareHeartbeat(group, member_id, epoch, None, "c", "/h", topics)
        self.driver.shard.ask("share", request, self.driver.now)

    def streams_join(self, group: str) -> None:
        delay = self.random.choice(("0", "3000"))
        self.streams.configure(initial_rebalance_delay_ms=delay)
        self.streams.join(self.random.choice(MEMBERS), group=group)

    def streams_leave(self, group: str) -> None:
        self.streams.send(self.random.choice(MEMBERS), -1, group=group)

    def deletes(self, group: str) -> None:
        if isinstance(self.state.groups.get(group), ShareGroup):
            self.driver.shard.ask("delete", DeleteShareStates(group), self.driver.now)
            self.driver.shard.ask("delete", DeleteShareGroup(group), self.driver.now)
        else:
            self.driver.shard.ask("delete", DeleteGroups([group]), self.driver.now)

    def time_passes(self, group: str) -> None:
        self.driver.wait(self.random.choice((1, 2_000, 15_000, 50_000)))

    # Invariants

    def check(self, what: str) -> None:
        state = self.state
        for key in state.timers.deadlines():
            assert key == ("expiry",) or is_owned(state, *key), f"after {what}: {key} of {state.groups.get(key[1])}"
        for group in state.groups.values():
            if isinstance(group, ShareGroup):
                assert {*group.deadlines} == {*group.members}, what
                assert not group.deadlines or ("share session", group.group_id) in state.timers, what
            elif not isinstance(group, ClassicGroup):
                for member_id in group.members:
                    assert (f"{group.group_type} session", group.group_id, member_id) in state.timers, (what, member_id)


def is_owned(state: Any, kind: str, group_id: str, member_id: str = "") -> bool:
    """Whether what a timer was set for is there."""
    group = state.groups.get(group_id)
    if kind == "share session":
        return isinstance(group, ShareGroup) and bool(group.deadlines)
    if kind.startswith("consumer"):
        return isinstance(group, ConsumerGroup) and member_id in group.members
    if kind.startswith("streams"):
        return isinstance(group, StreamsGroup) and (kind == "streams initial" or member_id in group.members)
    if not isinstance(group, ClassicGroup):
        return False
    if kind == "join":
        return group.state is State.PREPARING_REBALANCE
    if kind == "sync":
        return group.state in (State.COMPLETING_REBALANCE, State.STABLE)
    return member_id in group.members or member_id in group.pending_members


def test_no_timer_outlives_what_it_was_set_for() -> None:
    done: Counter[str] = Counter()
    for seed in range(SEEDS):
        walk = Walk(seed)
        for number in range(STEPS):
            try:
                walk.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {number}") from error
        done += walk.done
    assert min(done[each.__name__] for each in walk.steps) > SEEDS // 3, done
