"""The quorum node alone: what is committed, what a replica is sent, what is cut, what a restart finds."""

from __future__ import annotations

import asyncio
import errno
import random
from uuid import UUID

import pytest

from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.quorum.quorum_requests import fetch, read_snapshot, vote
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.schemas.records import NoOpRecord
from ottla.quorum.election import LogEnd
from ottla.quorum.snapshot import SnapshotId, data_batch, write_snapshot
from ottla.quorum.state import VoteRequest
from ottla.quorum.voters import ReplicaKey
from ottla.storage.config import LogConfig
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.drivers.parts import LOG, Clock, HeldFsyncs, new_disk, silent, turns

ME, OTHER = ReplicaKey(1, UUID(int=101)), ReplicaKey(2, UUID(int=102))
VALUE = encode_record(NoOpRecord(), 0)


def quorum_node(fs: SimulatedFileSystem, *voters: ReplicaKey, me: ReplicaKey = ME) -> QuorumNode:
    settings = QuorumSettings(me.node_id, "/data", LogConfig(retention_ms=-1, retention_bytes=-1))
    node = QuorumNode(fs, Clock(), random.Random(3), settings)
    node.open(me, voters or (ME,))
    return node


def lead_two(fs: SimulatedFileSystem) -> QuorumNode:
    """The leader of a quorum of two, elected by the other one."""
    node = quorum_node(fs, ME, OTHER)
    node.start()
    assert not node.is_leader
    core = node.core
    node.take(core.on_timeout(core.deadline_ms or 0))
    while not node.is_leader:
        for request in core.requests(0):
            assert isinstance(request, VoteRequest)
            node.take(core.on_vote_answer(request, node.now_ms(), granted=True))
    return node


async def fsynced(node: QuorumNode) -> None:
    await turns()
    assert node.log.log.durable_offset == node.end_offset


def test_the_only_voter_commits_what_is_fsynced() -> None:
    async def main() -> None:
        fs = HeldFsyncs()
        node = quorum_node(fs)
        node.start()
        assert node.is_leader
        assert node.high_watermark == node.end_offset == 1
        heard: list[int] = []
        node.on_commit.append(heard.append)
        fs.close_gate()
        assert node.append([VALUE, VALUE], 5) == 3
        await turns()
        assert (heard, node.high_watermark, fs.held) == ([], 1, 1)
        assert node.append([VALUE], 6) == 4
        fs.open_gate()
        await turns()
        assert heard == [3, 4], "the first fsync had begun before the second append"
        await node.stop()

    asyncio.run(main())


def test_of_two_voters_one_alone_commits_nothing() -> None:
    async def main() -> None:
        node = lead_two(new_disk())
        end = node.append([VALUE], 5)
        await fsynced(node)
        assert node.high_watermark == -1
        assert list(node.read_committed(0)) == []
        found = fetch(node, OTHER, node.epoch, 0, 0, 1 << 20)
        assert found.records is not None and found.high_watermark == -1, "a voter gets what is not committed, too"
        assert fetch(node, OTHER, node.epoch, end, node.epoch, 1 << 20).records is None
        assert node.high_watermark == end
        assert [batch.header.last_offset for batch in node.read_committed(0)] == [0, 1]

    asyncio.run(main())


def test_the_tail_that_a_majority_lacks_is_not_committed_by_a_restart() -> None:
    fs = new_disk()

    async def main() -> int:
        node = lead_two(fs)
        node.append([VALUE], 5)
        await fsynced(node)
        await node.stop()
        return node.end_offset

    end = asyncio.run(main())
    again = quorum_node(fs, ME, OTHER)
    assert again.end_offset == end
    assert list(again.read_committed(0)) == list(again.read_to_be_committed(0)) == []


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.fenced_leader_epoch), (9, ErrorCode.unknown_leader_epoch)])
def test_who_knows_of_another_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    async def main() -> None:
        node = quorum_node(new_disk())
        node.start()
        with pytest.raises(KafkaError) as caught:
            fetch(node, OTHER, epoch, 0, 0, 1000)
        assert caught.value.code == code

    asyncio.run(main())


def test_a_follower_fetches_from_nobody() -> None:
    async def main() -> None:
        node = quorum_node(new_disk(), ME, OTHER)
        node.start()
        node.heard(2, 4, {})
        for call in (lambda: fetch(node, OTHER, 4, 0, 0, 1000), lambda: node.append([VALUE], 1)):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code in (ErrorCode.not_leader_or_follower, ErrorCode.not_controller)

    asyncio.run(main())


def test_a_replica_whose_log_differs_is_sent_where_to_truncate_to() -> None:
    async def main() -> None:
        fs = new_disk()
        node = quorum_node(fs)
        node.start()
        node.append([VALUE] * 3, 5)
        await fsynced(node)
        first_epoch, end = node.epoch, node.end_offset
        await node.stop()
        node = quorum_node(fs)
        node.start()
        assert fetch(node, OTHER, -1, end + 5, first_epoch, 1000).diverging == (first_epoch, end)
        assert fetch(node, OTHER, -1, 2, first_epoch + 7, 1000).diverging == (node.epoch, node.end_offset)
        assert fetch(node, OTHER, -1, end, first_epoch, 1000).diverging is None
        await node.stop()

    asyncio.run(main())


async def copy(leader: QuorumNode, follower: QuorumNode) -> None:
    """One fetch of a follower, until it has nothing more to get."""
    key = ReplicaKey(2, UUID(int=102))
    while True:
        found = fetch(leader, key, leader.epoch, follower.end_offset, follower.last_epoch, 1 << 20)
        if found.snapshot is not None:
            part = await follower.begin_snapshot(found.snapshot)
            size = 1
            while part.size < size:
                data, size = await read_snapshot(leader, key, found.snapshot, part.size, 100)
                await follower.write_piece(part, data)
            await follower.install_snapshot(part)
            await follower.end_snapshot(part)
        elif found.diverging is not None:
            await follower.truncate_to_epoch(*found.diverging)
        elif found.records is not None:
            follower.append_fetched(found.records.read())
        else:
            follower.advance(found.high_watermark)
            return


def test_a_follower_has_the_same_bytes_and_commits_them_after_the_leader() -> None:
    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        leader.append([VALUE] * 3, 5)
        await fsynced(leader)
        fs = new_disk(2)
        follower = quorum_node(fs, ME, me=OTHER)  # an observer
        follower.start()
        follower.heard(1, leader.epoch, {})
        heard: list[int] = []
        follower.on_commit.append(heard.append)
        await copy(leader, follower)
        assert heard == [leader.high_watermark]
        mine, theirs = (list(each.read_committed(0)) for each in (follower, leader))
        assert mine == theirs and len(mine) == 2
        await fsynced(follower)
        await follower.stop()
        stored = follower.log.read_quorum_state()
        assert stored is not None and (stored.leader_id, stored.leader_epoch) == (1, leader.epoch)

    asyncio.run(main())


def test_what_a_follower_has_of_a_lost_epoch_is_cut() -> None:
    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        follower = quorum_node(new_disk(2), ME, OTHER, me=OTHER)
        follower.start()
        follower.heard(1, 7, {})
        follower.append_fetched(data_batch([VALUE] * 4, 0, 7, 1))
        await fsynced(follower)
        leader.core.stored = leader.core._state(8, leader_id=1)
        leader.append([VALUE], 5)
        await fsynced(leader)
        follower.heard(1, 8, {})
        await copy(leader, follower)
        assert list(follower.read_committed(0)) == list(leader.read_committed(0))

    asyncio.run(main())


def test_a_follower_asks_for_more_once_what_it_has_is_fsynced() -> None:
    """To the leader a fetch says what is on this disk: it may be what a majority is counted with."""

    async def main() -> None:
        fs = HeldFsyncs()
        follower = quorum_node(fs, ME, OTHER, me=OTHER)
        follower.start()
        follower.heard(1, 7, {})
        await follower.persisted()
        fs.close_gate()
        follower.append_fetched(data_batch([VALUE] * 2, 0, 7, 1))
        asked = asyncio.get_running_loop().create_task(follower.fsynced())
        await turns()
        assert not asked.done() and fs.held
        fs.open_gate()
        await asked
        assert follower.log.log.durable_offset == 2

    asyncio.run(main())


def test_a_replica_that_is_behind_the_log_gets_a_snapshot() -> None:
    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        end = leader.append([VALUE] * 9, 5)
        await fsynced(leader)
        snapshot = SnapshotId(end, leader.epoch)
        assert await leader.write_snapshot(snapshot, write_snapshot([VALUE], epoch=1, last_timestamp=3, now=4))
        leader.log.log.delete_records(end)
        follower = quorum_node(new_disk(2), ME, OTHER, me=OTHER)
        follower.start()
        follower.heard(1, leader.epoch, {})
        told: list[SnapshotId] = []
        follower.on_snapshot.append(told.append)
        await copy(leader, follower)
        assert told == [snapshot]
        assert (follower.end_offset, follower.high_watermark) == (end, end)
        with pytest.raises(KafkaError) as caught:
            await read_snapshot(leader, OTHER, SnapshotId(1, 1), 0, 100)
        assert caught.value.code == ErrorCode.snapshot_not_found
        with pytest.raises(KafkaError) as caught:
            await read_snapshot(leader, OTHER, snapshot, 1 << 20, 100)
        assert caught.value.code == ErrorCode.position_out_of_range

    asyncio.run(main())


@pytest.mark.parametrize("records", [2, 6], ids=["shorter", "longer"])
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_between_a_snapshot_and_the_cut_of_the_log_leaves_what_the_snapshot_has(
    monkeypatch: pytest.MonkeyPatch, records: int, power_loss: bool
) -> None:
    """The follower has records of an epoch whose leader lost them; the snapshot is shorter or longer than its log."""
    fs = new_disk(2)

    async def killed(*_: object) -> None:
        fs.crash()
        raise asyncio.CancelledError

    async def main() -> SnapshotId:
        leader = quorum_node(new_disk())
        leader.start()
        leader.core.stored = leader.core._state(8, leader_id=1)
        end = leader.append([VALUE] * 3, 5)
        await fsynced(leader)
        snapshot = SnapshotId(end, 8)
        assert await leader.write_snapshot(snapshot, write_snapshot([VALUE], epoch=8, last_timestamp=3, now=4))
        leader.log.log.delete_records(end)
        follower = quorum_node(fs, ME, OTHER, me=OTHER)
        follower.start()
        follower.heard(1, 7, {})
        for first in range(records):
            follower.append_fetched(data_batch([VALUE], first, 7, 1))
        await fsynced(follower)
        follower.heard(1, 8, {})
        monkeypatch.setattr(follower._cutter, "cut", killed)
        with pytest.raises(asyncio.CancelledError):
            await copy(leader, follower)
        return snapshot

    snapshot = asyncio.run(main())
    for _ in range(2):
        fs.restart(power_loss=power_loss)
        again = quorum_node(fs, ME, OTHER, me=OTHER)
        assert (again.end_offset, again.last_epoch) == snapshot
        assert again.log.log.log_start_offset == snapshot.end_offset
        fs.crash()


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize(("sizes", "cut"), [((1,) * 6, 2), ((1, 1, 3), 4)], ids=["between batches", "inside a batch"])
def test_a_follower_whose_log_was_cut_starts_after_a_crash(sizes: tuple[int, ...], cut: int, power_loss: bool) -> None:
    """It is noted beside the log how far that is fsynced: what was cut is no loss. A batch is cut as a whole."""
    fs = new_disk(2)

    async def main() -> None:
        follower = quorum_node(fs, ME, OTHER, me=OTHER)
        follower.start()
        follower.heard(1, 7, {})
        for size in sizes:
            follower.append_fetched(data_batch([VALUE] * size, follower.end_offset, 7, 1))
        await fsynced(follower)
        fs.fsync_all()
        await follower.truncate_to_epoch(7, cut)
        assert follower.end_offset == follower.log.log.log_end_offset == 2
        fs.crash()

    asyncio.run(main())
    fs.restart(power_loss=power_loss)
    assert quorum_node(fs, ME, OTHER, me=OTHER).end_offset == 2


def test_what_did_not_fit_on_the_disk_is_rolled_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is being fsynced meanwhile is committed all the same."""
    monkeypatch.setattr("ottla.drivers.quorum.quorum_node.RECORDS_PER_DECISION_MAX", 2)

    async def main() -> None:
        fs = HeldFsyncs()
        node = quorum_node(fs)
        node.start()
        fs.close_gate()
        end = node.append([VALUE] * 2, 5)
        await turns()
        full = fs.fail("write", errno.ENOSPC, path=LOG, skip=1)
        with pytest.raises(KafkaError):
            node.append([VALUE] * 4, 6)
        assert full.fired >= 1
        assert node.failure is None
        assert (node.end_offset, node.log.log.log_end_offset) == (end, end)
        fs._faults.clear()
        fs.open_gate()
        await turns()
        assert node.high_watermark == end
        assert node.append([VALUE], 7) == end + 1
        await turns()
        assert node.high_watermark == end + 1

    asyncio.run(main())


def test_a_failed_fsync_ends_it_all() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(silent)
        fs = new_disk()
        node = quorum_node(fs)
        node.start()
        heard: list[KafkaError] = []
        node.on_failure.append(heard.append)
        before = node.high_watermark
        fs.fail("fsync", errno.EIO, path=LOG)
        node.append([VALUE], 5)
        await turns()
        assert [each.code for each in heard] == [ErrorCode.kafka_storage_error]
        assert node.high_watermark == before
        with pytest.raises(KafkaError) as caught:
            node.append([VALUE], 6)
        assert caught.value is node.failure

    asyncio.run(main())


def test_the_only_voter_leads_again_in_an_epoch_that_another_node_made_old() -> None:
    """An answer that tells of a newer epoch is believed, and the next election is the only voter's to win."""

    async def main() -> None:
        node = quorum_node(new_disk())
        heard: list[tuple[int, int]] = []
        node.on_leader_change.append(lambda leader, epoch: heard.append((leader, epoch)))
        node.start()
        refused = await vote(node, OTHER, 7, LogEnd(5, 99), pre_vote=False, voter=ME)
        assert (refused.granted, refused.epoch, refused.leader_id) == (False, 1, 1), "no candidate interrupts it"
        node.heard(-1, 7, {})
        active = asyncio.Event()
        node.on_leader_change.append(lambda leader, epoch: active.set() if leader == 1 else None)
        async with asyncio.timeout(60):
            await active.wait()
        assert heard == [(-1, 1), (1, 1), (-1, 7), (-1, 8), (1, 8)]
        assert node.high_watermark == node.end_offset == 2
        await node.stop()

    asyncio.run(main())
