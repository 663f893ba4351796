"""The checks of the simulation themselves: what they call broken, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata.image import DIRECTORY_UNASSIGNED, PartitionRegistration
from ottla.model import OFFSETS_TOPIC, TopicPartition
from ottla.quorum.voters import ReplicaKey, VoterSet
from ottla.simulation.checks.history import ACKS_ALL, History
from ottla.simulation.checks.invariants import Invariants
from ottla.simulation.clients.groups import CommittedOffsets, log_of
from ottla.simulation.world import LOG_PARTITIONS, Violation, World


def test_a_disk_that_is_replaced_counted_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter had fsynced, its leader knows, its disk goes: what two of three had is committed. Its next disk is
    another voter, which has nothing."""
    world = World(1)
    machines = [world.machine(f"node{number}", {"node.id": str(number)}) for number in (1, 2, 3)]
    invariants = Invariants(world, History(world, fsynced=True), ("node1", "node2", "node3"), lambda topic: True)
    ends = {"node1": 10, "node2": 0, "node3": 10}

    def view(machine: Any, key: Any, *, durable: bool = False) -> Any:
        return SimpleNamespace(end=ends[machine.name])

    monkeypatch.setattr(invariants, "view", view)
    keys = [ReplicaKey(number, UUID(int=number)) for number in (1, 2, 3)]
    voters = VoterSet.of(keys)
    invariants._replicas["node3"] = keys[2]
    invariants.wiped(machines[2])
    ends["node3"] = 0
    invariants._reached_majority(machines[0], 10, voters, voters)
    again = VoterSet.of([*keys[:2], ReplicaKey(3, UUID(int=33))])
    with pytest.raises(Violation, match="reached a majority"):
        invariants._reached_majority(machines[0], 10, again, again)
    world.close()


def test_what_a_leader_of_before_acknowledged_late_proves_nothing() -> None:
    """With acks=1 it does so until it hears of the next one; what all replicas have stays, and is checked."""
    world = World(1)
    history, key = History(world, fsynced=True), ("t", 0)
    sent = history.mark(key)
    history.sending(key, [b"kept", b"lost", b"other"], "producer", 0, idempotent=False)
    world.elections[key] += 1
    history.acknowledge(key, 5, [b"kept"], history.mark(key), ACKS_ALL)
    history.acknowledge(key, 5, [b"lost"], sent, 1)
    assert history.partition(key).acknowledged[5].value == b"kept"
    with pytest.raises(Violation, match="acknowledged b'other', and b'kept' before"):
        history.acknowledge(key, 5, [b"other"], sent, ACKS_ALL)
    world.close()


def test_what_a_leader_commits_that_has_not_heard_of_an_unclean_election_may_go() -> None:
    """Seed 60 in ZooKeeper: the one that was elected does not have it. What it says once it has heard counts again."""
    world = World(1)
    machine = world.machine("node1", {"node.id": "1"})
    history, key = History(world, fsynced=True), ("t", 0)
    invariants = Invariants(world, history, ("node1",), lambda topic: True)
    leads = SimpleNamespace(partition=SimpleNamespace(topic_partition=TopicPartition(*key)), state=(4, 9, True, 10))
    invariants._seen["node1"] = SimpleNamespace(replicas=SimpleNamespace(rows=[leads]))  # type: ignore[assignment]
    invariants.may_be_unclean = True
    was = PartitionRegistration((1, 2), (1,), 1, 4, 9, (DIRECTORY_UNASSIGNED,) * 2)
    now = was._replace(isr=(2,), leader=2, leader_epoch=5, partition_epoch=10)
    invariants._registered(key, was, now, set())
    before = history.mark(key)
    assert not history.holds(key, before)
    invariants.ended(machine)
    assert not history.holds(key, before), "it was said when two led"
    assert history.holds(key, history.mark(key))
    world.close()


@pytest.mark.parametrize(
    ("replicas", "epoch", "topic_id", "end_of_3", "is_sound"),
    [
        ((1, 3), 8, 5, 10, True),
        ((1, 3), 8, 5, 9, False),
        ((1, 2), 8, 5, 10, False),
        ((1,), 7, 5, 10, False),
        ((1,), 8, 6, 10, False),
    ],
)
def test_only_who_was_released_without_the_leaders_knowledge_need_not_have_what_is_committed(
    monkeypatch: pytest.MonkeyPatch, replicas: tuple[int, ...], epoch: int, topic_id: int, end_of_3: int, is_sound: bool
) -> None:
    """In its place those have it whom the change that released it left in sync."""
    world = World(1)
    leader, other, _ = (world.machine(f"node{number}", {"node.id": str(number)}) for number in (1, 2, 3))
    invariants = Invariants(world, History(world, fsynced=True), ("node1", "node2"), lambda topic: True)
    ends = {"node1": 10, "node2": 0, "node3": end_of_3}
    monkeypatch.setattr(invariants, "view", lambda machine, key: SimpleNamespace(end=ends[machine.name]))
    row = SimpleNamespace(replicas=replicas, isr=replicas, partition_epoch=epoch)
    topic = SimpleNamespace(id=UUID(int=topic_id), partitions={0: row})
    node: Any = SimpleNamespace(image=SimpleNamespace(topic={"t": topic}.get))
    monkeypatch.setattr(other, "node", node)
    led: Any = SimpleNamespace(isr=(1, 2), node_id=1, partition_epoch=7, topic_id=UUID(int=5))
    if is_sound:
        invariants._in_sync_have(("t", 0), led, 10)
    else:
        with pytest.raises(Violation, match="in-sync replicas"):
            invariants._in_sync_have(("t", 0), led, 10)
    assert leader.node is None
    monkeypatch.undo()
    world.close()


def test_what_a_group_committed_is_held_to_its_own_partition() -> None:
    """Seed 17104 in ZooKeeper: it was held to partition 0, whichever partition of the offsets topic has the group."""
    world = World(1)
    history, group = History(world, fsynced=True), CommittedOffsets("members")
    group.tried[1] = 54
    known = (54, history.mark(log_of("members")))
    (other,) = {(OFFSETS_TOPIC, number) for number in range(LOG_PARTITIONS)} - {log_of("members")}
    world.unclean[other] += 1
    assert "committed 54, found 51" in (group.error_of(1, 51, known, history) or "")
    world.unclean[log_of("members")] += 1
    assert group.error_of(1, 51, known, history) is None
    world.close()
