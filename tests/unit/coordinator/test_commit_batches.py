"""Commits of one turn of the loop: one batch, answered when it is in the log, and an error for all when it is not."""

from __future__ import annotations

import asyncio
import struct

import pytest

from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.offset_store import BLOCK_OFFSETS_MAX, OffsetStore
from ottla.coordinator.group.offsets import fetch
from ottla.coordinator.group.requests import DeleteGroups, OffsetCommit, SyncGroup
from ottla.drivers.coordinators.group_coordinator import NotBatched
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.model import ZERO_UUID
from ottla.protocol.offset_block import CommitShape, CommittedPartition, OffsetBlock
from ottla.protocol.records.record_batch import read_batch_header
from tests.unit.coordinator.test_driver import OK, Waiter, World, code_of, play, until

FRAME = bytes(8) + b"head" + bytes(12) + b"tail"


def shape(group_id: str = "simple", partition: int = 0) -> CommitShape:
    return CommitShape(group_id, [CommittedPartition("t", partition, "", ZERO_UUID)], FRAME, [12])


def commit(world: World, of: CommitShape, offset: int, asked: OffsetCommit | None = None) -> Waiter:
    waiter = Waiter()
    rows = [struct.pack(">qi", offset, -1)]
    world.driver.commit_block(asked or OffsetCommit(group_id=of.group_id), of, rows, waiter)
    return waiter


def test_commits_of_one_turn_are_one_batch_and_answered_when_it_is_in_the_log() -> None:
    async def scene(world: World) -> None:
        ours, other = shape(), shape("another", 3)
        waiters = [commit(world, ours, 1), commit(world, other, 5), commit(world, ours, 2)]
        assert world.log.batches == [] and [waiter.results for waiter in waiters] == [[], [], []]
        await asyncio.sleep(0)
        assert [waiter.results for waiter in waiters] == [[None], [None], [None]]
        (batch,) = world.log.batches
        assert read_batch_header(batch).count == 3
        assert (world.committed(), world.committed("another")) == (2, 5)
        later = commit(world, ours, 3)
        await asyncio.sleep(0)
        assert later.results == [None] and len(world.log.batches) == 2
        world.restart()
        await until(lambda: _loaded(world))
        assert (world.committed(), world.committed("another")) == (3, 5)

    play(scene)


def _loaded(world: World) -> bool:
    try:
        world.committed()
    except KafkaError:
        return False
    return True


def test_whoever_asks_in_the_same_turn_finds_the_commit() -> None:
    async def scene(world: World) -> None:
        waiter = commit(world, shape(), 7)
        assert world.committed() == 7 and waiter.results == [None]
        waiter = commit(world, shape(), 8)
        plain = world.commit(9)
        assert waiter.results == [None] and plain.results == [OK] and world.committed() == 9
        commit(world, shape(), 10)
        deleted = Waiter()
        world.driver.ask(deleted, DeleteGroups(["simple"]))
        assert deleted.results == [{"groups": {"simple": ErrorCode.none}}]
        await asyncio.sleep(0)
        world.restart()
        await until(lambda: _is_loaded(world))
        assert world.driver.read(fetch, "simple", None, False) == []

    play(scene)


def _is_loaded(world: World) -> bool:
    try:
        world.driver.read(fetch, "simple", None, False)
    except KafkaError:
        return False
    return True


def test_a_failed_append_fails_every_commit_in_it_and_changes_nothing() -> None:
    async def scene(world: World) -> None:
        world.commit(1)
        world.log.failure = KafkaError(ErrorCode.kafka_storage_error)
        waiters = [commit(world, shape(), 2), commit(world, shape("new"), 3)]
        await asyncio.sleep(0)
        assert [waiter.results for waiter in waiters] == [[ErrorCode.not_coordinator]] * 2
        assert world.committed() == 1
        assert code_of_describe(world, "new") is ErrorCode.group_id_not_found
        good = commit(world, shape(), 4)
        await asyncio.sleep(0)
        assert good.results == [None] and world.committed() == 4

    play(scene)


def code_of_describe(world: World, group_id: str) -> ErrorCode:
    found: ErrorCode = world.driver.read(describe, group_id)["error_code"]
    return found


def test_commits_that_must_be_fsynced_are_answered_and_seen_after_the_fsync() -> None:
    async def scene(world: World) -> None:
        log = world.log
        log.must_fsync = True
        log.may_flush.clear()
        first, second = commit(world, shape(), 1), commit(world, shape(partition=1), 2)
        await asyncio.sleep(0)
        assert len(log.batches) == 1 and (first.results, second.results) == ([], [])
        assert world.driver.read(fetch, "simple", None, False) == []
        with pytest.raises(NotBatched):  # from now on each goes its own way
            commit(world, shape(), 3)
        log.may_flush.set()
        await until(lambda: second.results)
        assert len(first.results) == 1 and world.committed() == 1

    play(scene)


def test_a_lost_partition_fails_what_was_collected() -> None:
    async def scene(world: World) -> None:
        waiter = commit(world, shape(), 1)
        world.lead(False)
        assert waiter.results == [ErrorCode.not_coordinator]
        await asyncio.sleep(0)
        assert world.log.batches == []
        with pytest.raises(NotBatched):
            commit(world, shape(), 2)

    play(scene)


def test_a_member_of_another_generation_is_refused_and_one_of_this_lives_on() -> None:
    async def scene(world: World) -> None:
        joined = world.join()
        await until(lambda: joined.results)
        member_id = joined.results[0]["member_id"]
        asked = OffsetCommit(group_id="g", member_id=member_id, generation=1)
        of = shape("g")
        assert code_of(lambda: commit(world, of, 1, asked)) is ErrorCode.rebalance_in_progress
        world.driver.ask(Waiter(), SyncGroup(group_id="g", generation=1, member_id=member_id))
        good = commit(world, of, 1, asked)
        stale = OffsetCommit(group_id="g", member_id=member_id, generation=0)
        assert code_of(lambda: commit(world, of, 1, stale)) is ErrorCode.illegal_generation
        await asyncio.sleep(0)
        assert good.results == [None] and world.committed("g") == 1

    play(scene)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_the_linger_says_when_a_batch_is_appended(linger_ms: int) -> None:
    async def scene(world: World) -> None:
        world.node.config.group_coordinator_append_linger_ms = linger_ms
        world.restart()
        waiters = [commit(world, shape(), number) for number in range(2)]
        assert len(world.log.batches) == (0 if linger_ms else 2)
        await asyncio.sleep(0)
        waiters.append(commit(world, shape(), 2))
        await until(lambda: all(waiter.results for waiter in waiters))
        assert len(world.log.batches) == (1 if linger_ms else 3)

    play(scene)


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_compressed_as_the_setting_says(codec: int) -> None:
    async def scene(world: World) -> None:
        world.node.config.offsets_topic_compression_codec = codec
        world.restart()
        world.commit(1)
        commit(world, shape(partition=1), 2)
        await asyncio.sleep(0)
        assert [read_batch_header(batch).codec for batch in world.log.batches] == [codec, codec]
        world.restart()
        await until(lambda: _loaded(world))
        topics = world.driver.read(fetch, "simple", [("t", ZERO_UUID, [0, 1])], False)
        assert [each.committed_offset for each in topics[0].partitions] == [1, 2]

    play(scene)


def test_a_batch_does_not_outgrow_the_log() -> None:
    async def scene(world: World) -> None:
        partitions = [CommittedPartition("t", number, "", ZERO_UUID) for number in range(3_000)]
        frame = bytes(8) + b"h" + (bytes(12) + b"t") * 3_000
        large = CommitShape("simple", partitions, frame, range(9, len(frame), 13))
        waiters = []
        for _ in range(3):
            waiters.append(Waiter())
            world.driver.commit_block(OffsetCommit(group_id="simple"), large, [bytes(12)] * 3_000, waiters[-1])
        await asyncio.sleep(0)
        assert [waiter.results for waiter in waiters] == [[None]] * 3
        assert [read_batch_header(batch).count for batch in world.log.batches] == [3_000] * 3

    play(scene)


def test_an_unknown_codec_is_refused_at_start() -> None:
    async def scene(world: World) -> None:
        world.node.config.offsets_topic_compression_codec = 5
        with pytest.raises(OttlaError, match="Unknown compression type id: 5"):
            world.restart()

    play(scene)


def test_no_more_commits_stay_together_than_are_quickly_taken_apart() -> None:
    per_commit = 1 + BLOCK_OFFSETS_MAX // 4
    store = OffsetStore()
    frame = bytes(12) + bytes(12 * per_commit)
    for number in range(9):
        partitions = [CommittedPartition("t", number * per_commit + n, "", ZERO_UUID) for n in range(per_commit)]
        of = CommitShape("g", partitions, frame, [12 + 12 * n for n in range(per_commit)])
        rows = [struct.pack(">qi", number, -1)] * per_commit
        store.replay_block(number * per_commit, OffsetBlock(of, rows, 0))
        assert sum(kept.count for kept in store._blocks.get("g", {})) <= BLOCK_OFFSETS_MAX
    assert store.of_group("g")["t"].keys() == set(range(9 * per_commit))
    last = store.get("g", "t", 8 * per_commit)
    assert last is not None and (last.offset, last.record_offset) == (8, 8 * per_commit)
