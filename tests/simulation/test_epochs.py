"""One wrong epoch, in any message or in a file, and a quorum of three that goes on electing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.drivers.quorum import quorum_repair
from ottla.drivers.quorum.metadata_log import QUORUM_STATE_FILE
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from ottla.protocol.internal.quorum_records import QuorumStateFile, encode_quorum_state
from ottla.protocol.messages import ApiKey
from ottla.quorum.epochs import EPOCH_LAST, EPOCHS_AHEAD_MAX
from ottla.server.http.pages import damage_of
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.world import CONTROL_PORT, DIRECTORY, Machine
from ottla.testing.disk_nodes import SimulatedCrash
from tests.simulation.test_three_nodes import Cluster

EPOCHS = 1 << 22, 1 << 30, EPOCH_LAST - 1, EPOCH_LAST


def about(partition: dict[str, Any]) -> dict[str, Any]:
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0, **partition}]}]
    return {"cluster_id": None, "topics": topics}


def a_vote(epoch: int, me: int, other: int, *, pre_vote: bool, last: int = 1) -> dict[str, Any]:
    return {
        "voter_id": me,
        **about(
            {
                "replica_epoch": epoch,
                "replica_id": other,
                "replica_directory_id": ZERO_UUID,
                "pre_vote": pre_vote,
                "voter_directory_id": ZERO_UUID,
                "last_offset_epoch": last,
                "last_offset": 100_000,
            }
        ),
    }


def a_fetch(epoch: int, me: int, other: int) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": 0,
        "last_fetched_epoch": epoch,
        "partition_max_bytes": 1,
        "replica_directory_id": ZERO_UUID,
        "high_watermark": -1,
    }
    return {
        "cluster_id": None,
        "replica_id": other,
        "replica_state": {"replica_id": other, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1,
        "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
    }


def a_snapshot_fetch(epoch: int, me: int, other: int) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "snapshot_id": {"end_offset": 1, "epoch": epoch},
        "position": 0,
        "replica_directory_id": ZERO_UUID,
    }
    topics = [{"name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": None, "replica_id": other, "max_bytes": 1, "topics": topics}


def a_leader(epoch: int, me: int, other: int) -> dict[str, Any]:
    return about({"leader_id": other, "leader_epoch": epoch, "voter_directory_id": ZERO_UUID})


def a_farewell(epoch: int, me: int, other: int) -> dict[str, Any]:
    successors = {"preferred_successors": [me], "preferred_candidates": []}
    return about({"leader_id": other, "leader_epoch": epoch, **successors})


def an_update(epoch: int, me: int, other: int) -> dict[str, Any]:
    return {
        "cluster_id": None,
        "current_leader_epoch": epoch,
        "voter_id": other,
        "voter_directory_id": ZERO_UUID,
        "listeners": [],
        "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
    }


MESSAGES: dict[str, tuple[ApiKey, int, Any]] = {
    "Vote 0": (ApiKey.VOTE, 0, lambda *to: a_vote(*to, pre_vote=False)),
    "Vote 1": (ApiKey.VOTE, 1, lambda *to: a_vote(*to, pre_vote=False)),
    "Vote 2": (ApiKey.VOTE, 2, lambda *to: a_vote(*to, pre_vote=False)),
    "pre-vote": (ApiKey.VOTE, 2, lambda *to: a_vote(*to, pre_vote=True)),
    "Vote for another directory": (
        ApiKey.VOTE, 2, lambda epoch, me, other: a_vote(epoch, other, other, pre_vote=False),
    ),
    "Vote, last epoch of the log": (
        ApiKey.VOTE, 2, lambda epoch, me, other: a_vote(2, me, other, pre_vote=True, last=epoch),
    ),
    "BeginQuorumEpoch": (ApiKey.BEGIN_QUORUM_EPOCH, 0, a_leader),
    "EndQuorumEpoch": (ApiKey.END_QUORUM_EPOCH, 0, a_farewell),
    "Fetch": (ApiKey.FETCH, 17, a_fetch),
    "FetchSnapshot": (ApiKey.FETCH_SNAPSHOT, 1, a_snapshot_fetch),
    "UpdateRaftVoter": (ApiKey.UPDATE_RAFT_VOTER, 0, an_update),
}  # fmt: skip
"""Every request that carries an epoch of the quorum."""


def epochs(cluster: Cluster) -> list[int]:
    return [node.metadata.quorum.epoch for node in cluster.nodes()]


async def elects_again(cluster: Cluster) -> None:
    """Two elections, each without the leader before."""
    for _ in range(2):
        (leader,) = cluster.active()
        leader.crash(power_loss=False)
        await cluster.until(lambda: len(cluster.active()) == 1)
        leader.start()
        await cluster.until(cluster.is_settled)


def test_no_message_moves_the_epoch_of_a_quorum_far_ahead() -> None:
    async def work(cluster: Cluster) -> None:
        before = epochs(cluster)
        for name, (key, version, values) in MESSAGES.items():
            for epoch in EPOCHS:
                for node_id, machine in enumerate(cluster.machines, start=1):
                    _, wire = await cluster.network.connect(Wire, machine.name, CONTROL_PORT)
                    try:
                        await wire.ask(key, version, values(epoch, node_id, node_id % 3 + 1))
                    except Disconnected:
                        pass
                    finally:
                        wire.close()
            assert epochs(cluster) == before, name
        await elects_again(cluster)
        assert max(epochs(cluster)) < 100

    Cluster(31).run(work)


def damage(machine: Machine, epoch: int) -> None:
    """Write `quorum-state` of a node that does not run, as one that believed a wrong message has it."""
    path = f"{DIRECTORY}/__cluster_metadata-0/{QUORUM_STATE_FILE}"
    state = QuorumStateFile(leader_epoch=epoch, voters=(1, 2, 3), data_version=0)
    machine.disk.write_atomic(path, encode_quorum_state(state))


@pytest.mark.parametrize("epoch", [EPOCH_LAST - 1, 1 << 30])
def test_a_damaged_quorum_state_stays_one_nodes_trouble(epoch: int) -> None:
    """The other two go on, and the voter says what is wrong."""

    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        victim, other = (each for each in cluster.machines if each is not leader)
        victim.crash(power_loss=False)
        damage(victim, epoch)
        victim.start()
        assert await cluster.create("meanwhile", leader.name) == 0
        assert other.node is not None and leader.node is not None
        assert max(other.node.metadata.quorum.epoch, leader.node.metadata.quorum.epoch) < EPOCHS_AHEAD_MAX
        assert any("quorum-state is further ahead of the log" in line for line in cluster.world.lines)
        assert victim.node is not None
        assert f"quorum-state has epoch {epoch}, " in damage_of(victim.node)["__cluster_metadata-0"]
        assert not damage_of(other.node) and not damage_of(leader.node)
        victim.crash(power_loss=False)
        damage(victim, 1)
        victim.start()
        await cluster.until(cluster.is_settled)
        await elects_again(cluster)

    Cluster(32).run(work)


def mend(machine: Machine, *, is_interrupted: bool = False) -> int:
    """`ottla quorum repair`, which may be cut short at every change, and is then run again. Returns its steps."""
    disk, directory, after, steps = machine.disk, f"{DIRECTORY}/__cluster_metadata-0", 0, 0
    on_crash, disk.on_crash = disk.on_crash, lambda: None
    disk.restart(power_loss=False)
    while True:
        if is_interrupted:
            disk.crash_after(after)
            after += 1
        try:
            planned = quorum_repair.plan(disk, directory)
            steps = max(steps, len(planned))
            for step in planned:
                step.do()
        except SimulatedCrash:
            disk.restart(power_loss=True)
            continue
        disk.restart(power_loss=False)
        disk.on_crash = on_crash
        assert not quorum_repair.plan(disk, directory)
        return steps


async def all_stop(cluster: Cluster) -> None:
    for each in cluster.machines:
        each.crash(power_loss=False)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_quorum_that_has_used_up_its_epochs_is_repaired(is_interrupted: bool) -> None:
    """An earlier version adopted one of the last epochs, and held the elections that were left: the log has them."""

    async def work(cluster: Cluster) -> None:
        await cluster.create_many("before", 2)
        await all_stop(cluster)
        for each in cluster.machines:
            damage(each, EPOCH_LAST - 4)
            each.start()
        await cluster.until(cluster.is_settled)
        await cluster.create_many("late", 2)
        await elects_again(cluster)
        for each in cluster.machines:
            assert each.loop is not None and each.node is not None
            each.loop.call_soon(each.node.metadata.snapshots.begin)
        logs = [node.metadata.quorum.log for node in cluster.nodes()]
        await cluster.until(lambda: all(each.newest_snapshot is not None for each in logs))
        for _ in range(4):
            for each in cluster.active():
                each.crash(power_loss=False)
                each.start()
            await asyncio.sleep(5)
        assert not cluster.active() and min(epochs(cluster)) == EPOCH_LAST, "no election is left"
        assert any("the metadata quorum is running out of epochs" in line for line in cluster.world.lines)
        assert all("0 elections are left" in damage_of(node)["__cluster_metadata-0"] for node in cluster.nodes())
        await all_stop(cluster)
        for each in cluster.machines:
            assert mend(each, is_interrupted=is_interrupted) >= 3
            each.start()
        await cluster.until(cluster.is_settled)
        assert max(epochs(cluster)) < 0x41000010, "there are a thousand million more"
        await elects_again(cluster)
        await cluster.create_many("after", 2)

    Cluster(33).run(work)


def test_voters_that_believed_a_wrong_epoch_are_repaired() -> None:
    """Without an election since then the log is as it was, and only `quorum-state` is repaired."""

    async def work(cluster: Cluster) -> None:
        await cluster.create_many("before", 2)
        await all_stop(cluster)
        for each in cluster.machines:
            damage(each, EPOCH_LAST)
            each.start()
        await asyncio.sleep(10)
        assert not cluster.active()
        await all_stop(cluster)
        for each in cluster.machines:
            assert mend(each) == 1
            each.start()
        await cluster.until(cluster.is_settled)
        assert max(epochs(cluster)) < 2 * EPOCHS_AHEAD_MAX
        await elects_again(cluster)

    Cluster(34).run(work)
