"""A replica whose leader ZooKeeper elects: what it begins with, what it commits, whom it follows, what a restart
keeps."""

from __future__ import annotations

import asyncio
import errno
import random
from uuid import UUID

import pytest

from ottla.drivers.quorum.quorum_requests import fetch
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.drivers.zookeeper.elected_node import ElectedNode
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.network import Address
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.schemas.records import FeatureLevelRecord, NoOpRecord, TopicRecord
from ottla.quorum.elected import first_snapshot
from ottla.quorum.voters import ReplicaKey
from ottla.storage.config import LogConfig
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.drivers.parts import Clock, HeldFsyncs, new_disk, turns

ME, OTHER = ReplicaKey(1, UUID(int=101)), ReplicaKey(2, UUID(int=102))
VALUE = encode_record(NoOpRecord(), 0)
LEVEL = features.BOOTSTRAP[features.METADATA_VERSION]
TREE = [FeatureLevelRecord(features.METADATA_VERSION, LEVEL), TopicRecord("orders", UUID(int=7))]


def opened(fs: SimulatedFileSystem) -> ElectedNode:
    settings = QuorumSettings(1, "/data", LogConfig(retention_ms=-1, retention_bytes=-1), can_vote=False)
    node = ElectedNode(fs, Clock(), random.Random(3), settings)
    node.open(ME, ())
    node.start()
    return node


async def leading(fs: SimulatedFileSystem, epoch: int = 5) -> ElectedNode:
    node = opened(fs)
    await node.lead(epoch, TREE, LEVEL)
    return node


def test_nobody_leads_before_zookeeper_says_so() -> None:
    async def main() -> None:
        node = opened(new_disk())
        assert (node.is_leader, node.leader_id, node.alone, node.voters) == (False, -1, False, [])
        with pytest.raises(KafkaError) as caught:
            node.append([VALUE], 5)
        assert caught.value.code == ErrorCode.not_controller
        await node.stop()

    asyncio.run(main())


def test_an_epoch_begins_with_what_stands_in_zookeeper() -> None:
    async def main() -> None:
        told: list[tuple[int, int]] = []
        node = opened(new_disk())
        node.on_leader_change.append(lambda leader, epoch: told.append((leader, epoch)))
        await node.lead(5, TREE, LEVEL)
        start = first_snapshot(5).end_offset
        assert node.is_active and node.serves and told[-1] == (1, 5)
        assert (node.high_watermark, node.end_offset) == (start + 1, start + 1), "the record of the election"
        items = [item for batch in node.committed_snapshot() if not batch.header.is_control for item in batch.items]
        assert len(items) == len(TREE)
        assert fetch(node, OTHER, 5, 17, 3, 1 << 20).snapshot == first_snapshot(5), "whatever another one has"
        await node.stop()

    asyncio.run(main())


def test_what_zookeeper_does_not_have_is_not_committed() -> None:
    async def main() -> None:
        node = await leading(new_disk())
        heard: list[int] = []
        node.on_commit.append(heard.append)
        first, second = node.append([VALUE], 5), node.append([VALUE], 5)
        await turns()
        assert heard == [] and node.log.log.durable_offset == second, "fsynced is not enough"
        assert fetch(node, OTHER, 5, first - 1, 5, 1 << 20).high_watermark < first
        node.written(first)
        node.written(first)
        assert heard == [first]
        node.written(second)
        assert heard == [first, second]
        await node.stop()

    asyncio.run(main())


def test_zookeeper_alone_commits() -> None:
    """The log is a copy: a slow disk of the leader holds up nobody."""

    async def main() -> None:
        fs = HeldFsyncs()
        node = await leading(fs)
        fs.close_gate()
        end = node.append([VALUE], 5)
        node.written(end)
        assert node.high_watermark == end
        fs.open_gate()
        await node.stop()

    asyncio.run(main())


def test_a_deposed_leader_follows_and_what_it_had_not_written_goes() -> None:
    async def main() -> None:
        node = await leading(new_disk())
        node.append([VALUE], 5)
        node.led(2, 6, Address("other", 9))
        assert (node.is_leader, node.leader_id, node.epoch) == (False, 2, 6)
        assert node.controllers.leader == Address("other", 9)
        with pytest.raises(KafkaError):
            node.append([VALUE], 5)
        for late in (1, 3):
            node.led(late, 5, Address("late", 9))
            assert (node.leader_id, node.epoch) == (2, 6), "an earlier epoch"
        await node.lead(7, TREE, LEVEL)
        assert node.end_offset == first_snapshot(7).end_offset + 1
        await node.stop()

    asyncio.run(main())


def test_an_epoch_is_led_once() -> None:
    async def main() -> None:
        node = await leading(new_disk())
        node.resign()
        assert not node.is_leader and node.leader_id == -1
        with pytest.raises(KafkaError) as caught:
            await node.lead(5, TREE, LEVEL)
        assert caught.value.code == ErrorCode.not_controller
        await node.stop()

    asyncio.run(main())


def test_another_one_is_elected_while_the_snapshot_is_written() -> None:
    async def main() -> None:
        node = opened(new_disk())
        leading = asyncio.get_running_loop().create_task(node.lead(5, TREE, LEVEL))
        await asyncio.sleep(0)
        node.led(2, 6, Address("other", 9))
        with pytest.raises(KafkaError) as caught:
            await leading
        assert caught.value.code == ErrorCode.not_controller
        assert node.leader_id == 2
        await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("fits", [0, 2, 3])
def test_whoever_has_no_room_does_not_lead(fits: int) -> None:
    """The snapshot, `quorum-state` or the record of the election does not fit. `/controller` is given up only if this
    is said. (What is cut between them waits for room.)"""

    async def main() -> None:
        fs = new_disk()
        node = opened(fs)
        full = fs.fail("write", errno.ENOSPC, path="/data", skip=fits)
        with pytest.raises((KafkaError, OSError), match=r"[Nn]o (space|room)|no room for what a leader writes"):
            await node.lead(5, TREE, LEVEL)
        assert full.fired and not node.is_leader and node.failure is None
        fs.heal()
        await node.lead(6, TREE, LEVEL)
        assert node.is_leader
        await node.stop()

    asyncio.run(main())


def test_a_restart_keeps_the_copy_and_leads_nothing() -> None:
    fs = new_disk()

    async def before() -> None:
        node = await leading(fs)
        node.written(node.append([VALUE], 5))
        await turns()
        await node.stop()

    async def after() -> None:
        node = opened(fs)
        assert (node.is_leader, node.leader_id, node.epoch) == (False, -1, 5)
        assert node.end_offset == first_snapshot(5).end_offset + 2
        with pytest.raises(KafkaError):
            await node.lead(5, TREE, LEVEL)
        await node.lead(6, TREE, LEVEL)
        assert node.is_active
        await node.stop()

    asyncio.run(before())
    asyncio.run(after())
