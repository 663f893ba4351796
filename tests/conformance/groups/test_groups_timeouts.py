"""Late members, on Ottla and on Apache Kafka in step: who is dropped when a rebalance is not waited for longer.

Rebalance timeouts have no lower limit, so these are short; what comes of them is waited for, not slept for.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

import pytest

from ottla.protocol.messages import ApiKey
from tests.conformance.walks.group_walk import SETTLED_WITHIN_S, Actor, Walk
from tests.conformance.walks.group_walk_requests import subscription

REBALANCE_MS = 3_000
SHORT_MS = 6_000
"""The shortest session that Kafka allows unless told otherwise."""
_numbers = itertools.count(1)


class Members(Walk):
    """A walk whose steps are chosen by the test."""

    def join(
        self,
        actor: Actor,
        name: str = "",
        instance_id: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
        session_ms: int = 30_000,
    ) -> None:
        self.step(
            actor,
            ApiKey.JOIN_GROUP,
            5 if instance_id else 3,
            {
                "group_id": self.group,
                "session_timeout": session_ms,
                "rebalance_timeout": rebalance_ms,
                "member_id": name,
                "group_instance_id": instance_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": subscription(self.topic)}],
            },
        )

    def sync(self, actor: Actor, name: str) -> None:
        rows = [{"member_id": each, "assignment": each.encode()} for each in self.members] * (name == self.leader)
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": name, "assignments": rows}
        self.step(actor, ApiKey.SYNC_GROUP, 3, asked)

    def heartbeat(self, actor: Actor, name: str) -> None:
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": name}
        self.step(actor, ApiKey.HEARTBEAT, 3, asked)

    def until(self, state: str, *names: str) -> None:
        """Wait until both groups are in `state` with these members; the answers that came meanwhile are the same."""
        end = time.monotonic() + SETTLED_WITHIN_S
        while True:
            rows = [each["groups"][0] for each in self.describe()]
            found = [
                (row["group_state"], {self.ids[side].get(each["member_id"]) for each in row["members"]})
                for side, row in enumerate(rows)
            ]
            if found == [(state, set(names))] * 2:
                break
            assert time.monotonic() < end, self.story(str(found))
            time.sleep(0.005)
        self.settle(state)
        for actor in self.actors:
            if actor.answers != [None, None]:
                self.compare(actor)
                actor.answers = [None, None]
        self.compare_descriptions()


@pytest.fixture
def group(bootstrap: str, oracle: str) -> Iterator[Members]:
    members = Members((bootstrap, oracle), next(_numbers), f"t{os.getpid()}-{time.time_ns() % 10**9}")
    members.set_up()
    try:
        yield members
    finally:
        members.leave_all()
    members.compare_records()


def test_who_does_not_rejoin_is_dropped(group: Members) -> None:
    a, b, c = group.actors[:3]
    group.join(a)
    group.sync(a, "M1")
    group.join(b)
    group.until("CompletingRebalance", "M2")
    group.heartbeat(a, "M1")
    group.sync(b, "M2")
    group.join(c)
    group.heartbeat(b, "M2")
    group.join(b, "M2")
    group.sync(b, "M2")


def test_nobody_asks_for_an_assignment(group: Members) -> None:
    a = group.actors[0]
    group.join(a)
    group.until("Empty")
    group.heartbeat(a, "M1")
    group.join(a, "M1")
    group.join(a)
    group.sync(a, "M2")


def test_a_leader_does_not_bring_the_assignment(group: Members) -> None:
    a, b = group.actors[:2]
    group.join(a)
    group.sync(a, "M1")
    group.join(b)
    group.join(a, "M1")
    follower, waits = ("M2", b) if group.leader == "M1" else ("M1", a)
    group.sync(waits, follower)
    group.until("PreparingRebalance", follower)
    group.join(waits, follower)
    group.sync(waits, follower)


def test_a_follower_does_not_ask_for_its_assignment(group: Members) -> None:
    a, b = group.actors[:2]
    group.join(a)
    group.sync(a, "M1")
    group.join(b)
    group.join(a, "M1")
    leader, asks = ("M1", a) if group.leader == "M1" else ("M2", b)
    group.sync(asks, leader)
    group.until("PreparingRebalance", leader)
    group.heartbeat(asks, leader)
    group.join(asks, leader)


def test_a_static_member_keeps_its_place_while_it_is_late(group: Members) -> None:
    a, b = group.actors[:2]
    group.join(a, instance_id="i")
    group.sync(a, "M1")
    group.join(b, instance_id="j")
    group.until("CompletingRebalance", "M1", "M2")
    group.sync(b, "M2")
    group.heartbeat(a, "M1")


@pytest.mark.matrix
def test_sessions_end_in_a_stable_group_and_while_others_wait(group: Members) -> None:
    a, b = group.actors[:2]
    group.join(a, session_ms=SHORT_MS, rebalance_ms=60_000)
    group.sync(a, "M1")
    group.until("Empty")
    group.heartbeat(a, "M1")
    group.join(a, rebalance_ms=60_000, session_ms=SHORT_MS)
    group.sync(a, "M2")
    group.join(b, rebalance_ms=60_000)
    group.until("CompletingRebalance", "M3")
    group.sync(b, "M3")
    group.heartbeat(a, "M2")


@pytest.mark.matrix
def test_the_session_of_a_static_member_ends_and_frees_its_instance(group: Members) -> None:
    a, b = group.actors[:2]
    group.join(a, instance_id="i", session_ms=SHORT_MS, rebalance_ms=60_000)
    group.sync(a, "M1")
    group.join(b, instance_id="j", rebalance_ms=60_000)
    group.until("CompletingRebalance", "M2")
    group.sync(b, "M2")
    group.join(a, "M1", instance_id="i", rebalance_ms=60_000)
