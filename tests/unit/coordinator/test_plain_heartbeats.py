"""Heartbeats in which nothing is new: what the short way answers is what the long way would, and it leaves the rest."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from ottla.coordinator.effects import Write
from ottla.coordinator.group.consumer.heartbeat import Step
from ottla.coordinator.group.consumer.plain_heartbeat import plain_heartbeat
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.errors import ErrorCode
from ottla.model import Millis
from ottla.protocol.internal.group_records import encode_key, encode_value
from tests.unit.coordinator.consumer_groups import Groups


def beat(
    groups: Groups, member_id: str, epoch: int, instance_id: str | None = None, client: str = "c"
) -> Millis | None:
    heard = PlainHeartbeat("g", member_id, instance_id, epoch, client, "/h")
    decide = partial(plain_heartbeat, heard=heard, is_settled=True, waiter=None)
    found: Millis | None = groups.driver.shard.decide(decide, groups.driver.now)
    return found


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
    decide = partial(plain_heartbeat, heard=heard, is_settled=True, waiter=None)
    assert groups.driver.shard.decide(decide, groups.driver.now) is None
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
    written, deadlines = len(groups.driver.log), timers.deadlines()
    answer = groups.send(name, epoch, instance_id=instance_id)
    assert answer == {
        "error_code": 0,
        "member_id": name,
        "member_epoch": epoch,
        "heartbeat_interval": interval_ms,
        "assignment": None,
    }
    assert len(groups.driver.log) == written and timers.deadlines() == deadlines
    return True


def advance(groups: Groups, member_id: str, epoch: int, instance_id: str | None) -> Any:
    """The answer of the short way to a member that moves; None where it leaves the heartbeat to the long one."""
    heard, driver = PlainHeartbeat("g", member_id, instance_id, epoch, "c", "/h"), groups.driver
    before, decisions = len(driver.replies), driver.shard.state.decisions
    decide = partial(plain_heartbeat, heard=heard, is_settled=False, waiter=lambda: member_id)
    if driver.shard.decide(decide, driver.now) is None:
        return None
    writes = any(isinstance(each, Write) and each.records for each in driver.shard.state.effects)
    assert (driver.shard.state.decisions > decisions) == writes, "commits are checked again against the new epoch"
    driver.run()
    return driver.replies[before][1] if len(driver.replies) > before else "held"


def seen(groups: Groups) -> dict[str, Any]:
    """All that can be seen of a group, and what its next decisions rest on."""
    driver = groups.driver
    state, group = driver.shard.state, groups.group() if "g" in driver.shard.state.groups else None
    return {
        "log": [[(encode_key(each.key), encode_value(each.value)) for each in batch] for batch in driver.log],
        "replies": driver.replies,
        "timers": state.timers.deadlines(),
        "members": group and group.members,
        "owners": group and group.partition_epochs,
        "state": group and group.shown_state,
        "hash": group and (group.epoch, group.metadata_hash),
        "counts": group and (group.subscriptions, group.patterns, group.assignors, group.static_members),
        "by topic": {topic: found for topic, found in state.groups_by_topic.items() if found},
        "soft": group and (group.refresh_deadline_ms, group.refresh_epoch, group.fence_epochs),
    }


@pytest.mark.parametrize("seed", range(6))
def test_members_that_advance_by_the_short_way_do_so_as_by_the_long_one(seed: int) -> None:
    """The same happens to two groups; in one of them plain heartbeats try the short way first."""
    rng, interval_ms = Random(seed), (0, 1000)[seed % 2]
    short, long = (Groups(consumer_assignment_interval_ms=interval_ms) for _ in range(2))
    for groups in (short, long):
        groups.create(t=6, u=3)
    advanced, moved = 0, 0
    for turn in range(500):
        happens, name = rng.random(), rng.choice("abcdef")
        topics = rng.sample(["t", "u", "v"], rng.randint(1, 3))
        wait, grown = rng.choice([100, 1000, 1000, 20_000]), {rng.choice("tuv"): 6 + turn // 100}
        fails, brings_instance = rng.random() < 0.1, rng.random() < 0.7
        ways = []
        for groups in (short, long):
            driver = groups.driver
            members = groups.group().members if "g" in driver.shard.state.groups else {}
            if happens < 0.05:
                groups.join(name, *topics, **({"instance_id": "i"} if name == "e" else {}))
            elif happens < 0.06:
                groups.send(name, -1)
            elif happens < 0.07:
                groups.create(**grown)
            elif happens < 0.12:
                driver.wait(wait)
            elif happens < 0.125:
                driver.restart()
            elif happens < 0.13:
                if "v" in groups.topics:
                    groups.delete("v")
            elif happens < 0.15 and name in members:
                groups.poll(name, topics=topics)
            elif happens < 0.3 and name in members:
                groups.poll(name)
            elif name in members:
                member = members[name]
                instance_id = member.instance_id if brings_instance else None
                driver.next_failure = ErrorCode.not_enough_replicas if fails else None
                answer = advance(groups, name, member.epoch, instance_id) if groups is short else None
                moved += isinstance(answer, dict) and answer["assignment"] is not None
                ways.append(answer is not None and driver.log[-1][0].key.type == 8)
                if answer is None:
                    groups.send(name, member.epoch, instance_id=instance_id)
                driver.next_failure = None
        advanced += ways[:1] == [True]
        assert seen(short) == seen(long), f"turn {turn}"
    assert advanced >= 20 and moved >= 10, (advanced, moved)


@pytest.mark.parametrize("seed", range(4))
def test_records_of_one_member_count_as_if_each_was_replayed(seed: int, monkeypatch: Any) -> None:
    """The same happens to two groups; in one of them all records of heartbeats are replayed one by one."""
    rng, counted = Random(seed), 0
    quick, replayed = (Groups(consumer_assignment_interval_ms=(1000, 5000)[seed % 2]) for _ in range(2))
    has_made = Step.has_made

    def asked(step: Step, records: Any) -> bool:
        nonlocal counted
        found = has_made(step, records) and step._state is quick.driver.shard.state
        counted += found and len(records) > 1
        return found

    monkeypatch.setattr(Step, "has_made", asked)
    for groups in (quick, replayed):
        groups.create(t=6, u=3)
    for turn in range(400):
        happens, name = rng.random(), rng.choice("abcdefgh")
        topics = rng.sample(["t", "u", "v"], rng.randint(1, 3))
        named: dict[str, Any] = {"instance_id": "i"} if name in "gh" else {}
        if rng.random() < 0.3:
            named["assignor"] = rng.choice(["uniform", "range"])
        elif rng.random() < 0.1:
            named["pattern"] = rng.choice(["t.*", "u|v", ""])
        wait, grown, fails = rng.choice([100, 1000, 20_000]), {rng.choice("tuv"): 6 + turn // 100}, rng.random() < 0.2
        for groups in (quick, replayed):
            driver = groups.driver
            members = groups.group().members if "g" in driver.shard.state.groups else {}
            driver.next_failure = ErrorCode.not_enough_replicas if fails and happens < 0.5 else None
            if happens < 0.3:
                groups.join(name, *topics, **named)
            elif happens < 0.35:
                groups.send(name, -1, instance_id=named.get("instance_id"))
            elif happens < 0.4 and "instance_id" in named:
                groups.send(name, -2, instance_id="i")
            elif happens < 0.5 and name in members:
                groups.poll(name, topics=topics)
            elif happens < 0.52:
                groups.create(**grown)
            elif happens < 0.54 and "v" in groups.topics:
                groups.delete("v")
            elif happens < 0.6:
                driver.wait(wait)
            elif happens < 0.605:
                driver.restart()
            elif name in members:
                groups.poll(name)
            driver.next_failure = None
        assert seen(quick) == seen(replayed), f"turn {turn}"
        assert quick.driver.shard.state.decisions == replayed.driver.shard.state.decisions
    assert counted >= 50, counted


def test_a_topic_that_a_second_member_brings_is_watched() -> None:
    groups = Groups(consumer_assignment_interval_ms=1000)
    groups.create(t=4)
    groups.join("a", "t")
    groups.join("b", "u")
    epoch = groups.group().epoch
    groups.create(u=2)
    assert beat(groups, "a", groups.group().members["a"].epoch) is None
    groups.poll("a")
    assert groups.group().epoch == epoch + 1


def test_what_a_short_way_answers_waits_for_what_was_written_before() -> None:
    groups = settled()
    epoch = groups.group().epoch
    groups.driver.holding = True
    assert advance(groups, "a", epoch, None) == "held"
    groups.driver.release()
    assert groups.driver.replies[-1] == (
        "a",
        {
            "error_code": 0,
            "member_id": "a",
            "member_epoch": epoch,
            "heartbeat_interval": 5_000,
            "assignment": None,
        },
    )


def test_a_topic_that_is_gone_is_not_kept_with_an_older_target() -> None:
    groups = Groups(consumer_assignment_interval_ms=1000)
    groups.create(t=4, w=1, v=4)
    for name in "ab":
        groups.driver.wait(1000)
        groups.join(name, "t", "v")
        groups.settle()
    groups.driver.wait(1000)
    groups.settle()
    before = groups.group().members["b"]
    assert [*groups.assigned("b")] == ["v"] and before.epoch == groups.group().epoch
    groups.driver.wait(1000)
    groups.join("c", "w")
    groups.delete("v")
    groups.poll("a")
    assert groups.group().epoch > groups.group().assignment_epoch > before.epoch
    assert groups.group().target("b").keys() == before.assigned.keys()
    answer = advance(groups, "b", before.epoch, None)
    assert answer["member_epoch"] == before.epoch and answer["assignment"] == {}, "it has to give up what is gone"
    groups.send("b", before.epoch, owned=groups.owned())
    assert groups.group().members["b"].assigned == {}


def test_a_member_does_not_keep_a_topic_that_is_gone() -> None:
    """What it was found to keep in one rebalance is looked at again in the next, where topics have changed."""
    groups = Groups(consumer_assignment_interval_ms=1000)
    groups.create(t=2, u=2)
    gone = groups.topics["u"]
    groups.join("a", "t", "u")
    for newcomer in ("b", "c"):  # who read nothing that is there
        groups.driver.wait(1000)
        groups.join(newcomer, "v")
        assert gone in groups.group().members["a"].assigned
        if newcomer == "b":
            assert advance(groups, "a", groups.group().members["a"].epoch, None)["assignment"] is None
    groups.delete("u")
    groups.poll("c")
    group = groups.group()
    assert group.members["a"].epoch < group.assignment_epoch < group.epoch, "a target with the topic, which is outdated"
    told = advance(groups, "a", group.members["a"].epoch, None)
    assert [*told["assignment"]] == [groups.topics["t"]] and gone in group.members["a"].revoking
