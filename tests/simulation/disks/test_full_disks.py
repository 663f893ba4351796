"""Full disks of controllers: a voter goes on when there is room, a leader without room lets another one lead."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.errors import ErrorCode
from tests.simulation.test_three_nodes import Cluster

QUORUM_STATE = "__cluster_metadata-0/quorum-state"
METADATA_LOG = "__cluster_metadata-0/0"


async def created(cluster: Cluster, name: str) -> None:
    """A topic is created, whoever has to be asked."""

    async def is_created() -> None:
        while True:
            for each in cluster.machines:
                if each.is_serving and await cluster.create(name, each.name) in (
                    ErrorCode.none,
                    ErrorCode.topic_already_exists,
                ):
                    return
            await asyncio.sleep(0.2)

    async with asyncio.timeout(30):
        await is_created()


def said(cluster: Cluster, what: str) -> bool:
    return any("log: " in line and what in line for line in cluster.world.lines)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_a_voter_whose_disk_was_full_in_an_election_votes_again(error: int) -> None:
    """Without its vote the two that are left elect nobody."""

    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        victim = next(each for each in cluster.machines if each is not leader)
        starts = victim.starts
        what = "open" if error in (errno.EMFILE, errno.ENFILE) else "write"
        fault = victim.disk.fail(what, error, path=QUORUM_STATE)
        leader.crash(power_loss=False)
        await asyncio.sleep(8)
        assert fault.fired > 3
        leader.start()
        await asyncio.sleep(2)
        victim.disk.heal()
        await cluster.until(cluster.is_settled)
        assert said(cluster, "quorum-state can be written again")
        (second,) = cluster.active()
        if second is not victim:
            second.crash(power_loss=False)
            await created(cluster, "after")
            second.start()
        await cluster.until(cluster.is_settled)
        assert victim.starts == starts, "nobody has started it again"

    Cluster(21).run(work)


def test_a_voter_without_room_says_nothing_that_is_not_on_its_disk() -> None:
    """Neither a vote nor its candidacy leaves a node that would forget it: of three voters one is dead, one is without
    room, so that nobody is elected."""

    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        victim, other = (each for each in cluster.machines if each is not leader)
        victim.disk.fail("write", errno.ENOSPC, path=QUORUM_STATE)
        leader.crash(power_loss=False)
        await asyncio.sleep(20)
        assert not cluster.active()
        assert victim.node is not None and other.node is not None
        on_disk = victim.node.metadata.quorum.log.read_quorum_state()
        assert on_disk is not None and on_disk.leader_epoch < other.node.metadata.quorum.epoch
        victim.disk.heal()
        await cluster.until(lambda: len(cluster.active()) == 1, seconds_max=10)
        leader.start()
        await cluster.until(cluster.is_settled)

    Cluster(22).run(work)


@pytest.mark.parametrize("path", [METADATA_LOG, "__cluster_metadata-0/"])
def test_a_leader_without_room_lets_another_one_lead(path: str) -> None:
    """What it refuses is retried at the next one, long before there is room again."""

    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        starts = leader.starts
        fault = leader.disk.fail("write", errno.ENOSPC, path=path)
        await created(cluster, "meanwhile")
        assert fault.fired
        assert said(cluster, "this node resigns as leader")
        (second,) = cluster.active()
        assert second is not leader
        await asyncio.sleep(5)
        leader.disk.heal()
        await cluster.until(cluster.is_settled)
        assert leader.starts == starts

    Cluster(23).run(work)


def test_a_voter_stops_while_its_disk_is_full() -> None:
    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        victim = next(each for each in cluster.machines if each is not leader)
        victim.disk.fail("write", errno.ENOSPC, path="__cluster_metadata-0/")
        leader.crash(power_loss=False)
        await asyncio.sleep(6)
        victim.stop()
        await cluster.until(lambda: victim.loop is None, seconds_max=20)
        victim.disk.heal()
        for each in (leader, victim):
            each.start()
        await cluster.until(cluster.is_settled)

    Cluster(24).run(work)
