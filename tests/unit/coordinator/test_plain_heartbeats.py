"""Heartbeats in which nothing is new: what the short way answers is what the long way would, and it leaves the rest."""

from __future__ import annotations

from random import Random

import pytest

from ottla.coordinator.group.consumer.plain_heartbeat import plain_heartbeat as decide
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.model import Millis
from tests.unit.coordinator.consumer_groups import Groups


def beat(
    groups: Groups, member_id: str, epoch: int, instance_id: str | None = None, client: str = "c"
) -> Millis | None:
    heard = PlainHeartbeat("g", member_id, instance_id, epoch, client, "/h")
    return groups.driver.shard.decide(lambda state: decide(state, heard), groups.driver.now)


def settled() -> Groups:
    groups = Groups()
    groups.create(t=4)
    groups.join("a", "t")
    groups.join("b", "t", instance_id="i")
    groups.settle()
    return groups


def test_a_member_that_beats_stays() -> None:
    groups = settled()
    epoch = groups.group().epoch
    for _ in range(5):
        groups.driver.wait(40_000)
        assert beat(groups, "a", epoch) == 5_000
        assert beat(groups, "b", epoch, "i") == 5_000
        assert beat(groups, "b", epoch) == 5_000, "its instance id is left out where it has not changed"
    groups.driver.wait(45_000)
    assert groups.group().is_empty


@pytest.mark.parametrize("what", ["epoch", "member", "group", "instance", "another's instance", "client"])
def test_what_is_wrong_is_left_to_others(what: str) -> None:
    groups = settled()
    epoch = groups.group().epoch
    heard = {
        "epoch": PlainHeartbeat("g", "a", None, epoch - 1, "c", "/h"),
        "member": PlainHeartbeat("g", "x", None, epoch, "c", "/h"),
        "group": PlainHeartbeat("x", "a", None, epoch, "c", "/h"),
        "instance": PlainHeartbeat("g", "b", "j", epoch, "c", "/h"),
        "another's instance": PlainHeartbeat("g", "a", "i", epoch, "c", "/h"),
        "client": PlainHeartbeat("g", "a", None, epoch, "d", "/h"),
    }[what]
    groups.driver.wait(40_000)
    assert groups.driver.shard.decide(lambda state: decide(state, heard), groups.driver.now) is None
    groups.driver.wait(5_000)
    assert groups.group().is_empty, "nobody's session began again"


def test_a_topic_that_grew_is_not_missed() -> None:
    groups = settled()
    epoch = groups.group().epoch
    groups.create(t=6)
    assert beat(groups, "a", epoch) is None
    assert groups.poll("a")["member_epoch"] > epoch
    assert beat(groups, "b", epoch, "i") is None


def test_a_group_with_a_pattern_takes_the_long_way() -> None:
    groups = Groups()
    groups.create(t=4)
    groups.join("a", pattern="t.*")
    groups.settle()
    assert groups.assigned("a") == {"t": [0, 1, 2, 3]}
    assert beat(groups, "a", groups.group().epoch) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_short_way_answers_as_the_long_one(seed: int) -> None:
    rng, groups = Random(seed), Groups()
    groups.create(t=4, u=3)
    counts = {True: 0, False: 0}
    for turn in range(600):
        happens, name = rng.random(), rng.choice("abcde")
        members = groups.group().members if "g" in groups.driver.shard.state.groups else {}
        if happens < 0.06:
            named = {"instance_id": "i"} if name == "e" else {}
            groups.join(name, *rng.sample(["t", "u", "v"], rng.randint(1, 3)), **named)
        elif happens < 0.08:
            groups.send(name, -1)
        elif happens < 0.10:
            groups.create(**{rng.choice("tuv"): 3 + turn // 100})
        elif happens < 0.12:
            groups.driver.wait(rng.choice([100, 20_000]))
        elif happens < 0.13:
            groups.driver.restart()
        elif happens < 0.4 and name in members:
            groups.poll(name)
        elif name in members:
            counts[_compare(groups, name, rng)] += 1
    assert min(counts.values()) >= 20, counts


def _compare(groups: Groups, name: str, rng: Random) -> bool:
    """Whether the member's heartbeat took the short way."""
    member, timers = groups.group().members[name], groups.driver.shard.state.timers
    epoch = max(1, member.epoch - (rng.random() < 0.1))
    instance_id = member.instance_id if rng.random() < 0.7 else None
    interval_ms = beat(groups, name, epoch, instance_id)
    if interval_ms is None:
        groups.send(name, epoch, instance_id=instance_id)
        return False
    written, deadlines = len(groups.driver.log), dict(timers._deadlines)
    answer = groups.send(name, epoch, instance_id=instance_id)
    assert answer == {
        "error_code": 0, "member_id": name, "member_epoch": epoch, "heartbeat_interval": interval_ms,
        "assignment": None,
    }  # fmt: skip
    assert len(groups.driver.log) == written and dict(timers._deadlines) == deadlines
    return True
