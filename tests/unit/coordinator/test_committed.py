"""What is told of groups while writes are pending: what a new coordinator would find in the log, as in Kafka."""

from __future__ import annotations

import os
from collections import Counter
from types import MappingProxyType
from typing import Any

from ottla.coordinator.effects import Write
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.committed import _copied, as_committed
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.plain_heartbeat import plain_heartbeat
from ottla.coordinator.group.kinds import kind_of
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.group.share.offsets import partitions
from ottla.errors import KafkaError
from tests.unit.coordinator.test_timers_of_groups import Walk

SEEDS = int(os.environ.get("OTTLA_COMMITTED_WALKS", "40"))
STEPS = 100
KINDS = ("consumer", "share", "streams")


class HeldWalk(Walk):
    """Writes stay pending for some steps."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.driver.holding = True
        self.compared: Counter[str] = Counter()
        self.steps = (*self.steps, *[self.consumer_joins, self.plain_beats] * 6)

    def plain_beats(self, group: str) -> None:
        found = self.state.groups.get(group)
        if isinstance(found, ConsumerGroup) and found.members:
            member = self.random.choice([*found.members.values()])
            heard = PlainHeartbeat(group, member.member_id, member.instance_id, member.epoch, "c", "/h")
            self.driver.shard.decide(plain_heartbeat, self.driver.now, heard, not self.driver.held, object)

    def check(self, what: str) -> None:
        held = self.driver.held
        newest_first = [
            reversal
            for effects in reversed(held)
            for effect in reversed(effects)
            if isinstance(effect, Write)
            for reversal in reversed(effect.reversals)
        ]
        before = _everything(self.state)
        shown = as_committed(self.state, newest_first, lambda: _rows(self.state))
        assert _everything(self.state) == before, what
        log = GroupShard(self.driver.config, self.driver.random)
        log.on_metadata(None, self.driver.image)
        for offset, batch in enumerate(self.driver.log):
            for record in batch:
                log.replay(record, offset, -1)
        committed = _rows(log.state)
        assert shown == committed, what
        self.compared["pending"] += bool(newest_first)
        self.compared["unlike"] += _rows(self.state) != committed
        self.driver.holding = False
        for _ in range(self.random.choice((0, 0, 0, 1, 2, len(held)))):
            if held:
                self.driver._work(held.pop(0))
        self.driver.holding = True


def _everything(state: Any) -> dict[str, tuple[int, Any]]:
    """Each group, and copies of what it has."""
    return {
        group_id: (id(group), None if isinstance(group, ClassicGroup) else _copied(vars(group)))
        for group_id, group in state.groups.items()
    }


def _rows(state: Any) -> dict[str, Any]:
    """What is told of each group, without what is not in the log: how far a classic group's rebalance is, and what
    streams members report of their tasks."""
    found: dict[str, Any] = dict.fromkeys(state.offsets.group_ids(), "classic")  # of a share group's id, too
    for listed in list_groups(state, (), ()):
        group_id, kind = listed["group_id"], listed["group_type"]
        found[group_id] = kind if kind not in KINDS else (listed, _row(state, kind, group_id))
    return found


def _row(state: Any, kind: str, group_id: str) -> Any:
    try:
        row = kind_of(kind).describe(state, group_id)
    except KafkaError as error:
        return error.code
    if kind == "streams":
        row["topology"] = row["topology"] and row["topology"]["epoch"]
        for member in row["members"]:
            member["task_offsets"] = member["task_end_offsets"] = None
    row["members"] = sorted(row["members"], key=lambda each: str(each["member_id"]))
    return row, partitions(state, group_id)


def test_pending_writes_are_shown_to_nobody() -> None:
    compared: Counter[str] = Counter()
    for seed in range(SEEDS):
        walk = HeldWalk(seed)
        for _ in range(STEPS):
            walk.step()
        compared += walk.compared
    assert compared["pending"] > SEEDS * STEPS / 3 and compared["unlike"] > SEEDS * STEPS / 5, compared


def test_copies_are_of_containers_only() -> None:
    member = MappingProxyType({1: 2})
    inner: dict[str, Any] = {"a": {1}, "b": member}
    copy = _copied(inner)
    assert copy == inner and copy["a"] is not inner["a"] and copy["b"] is member
    assert isinstance(_copied(Counter("aab")), Counter)
