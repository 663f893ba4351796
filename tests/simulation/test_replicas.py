"""Replicas of three nodes in virtual time: what a stopping follower does, what is left of one that is taken away, and
bugs of reliability.md where a log has several copies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.image import PartitionRegistration
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches
from ottla.server.node import Node
from ottla.simulation.world import DIRECTORY, EPOCH_MS, Machine
from tests.simulation.test_three_nodes import NODES, Cluster

ALL = (1, 2, 3)
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "1000"}
"""A follower that stops fetching leaves the in-sync set long before its session ends."""


class Replicated(Cluster):
    """A topic of one partition on all nodes."""

    def partition(self, among: Machine | None = None) -> PartitionRegistration:
        node = self.nodes()[0] if among is None else among.node
        assert node is not None
        topic = node.image.topic("t")
        assert topic is not None
        return topic.partitions[0]

    async def topic(self, replicas: tuple[int, ...] = ALL, **configs: str) -> None:
        rows = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        where = [{"partition_index": 0, "broker_ids": replicas}]
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": rows,
            "assignments": where,
        }
        values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        answer = await self.ask(NODES[0], ApiKey.CREATE_TOPICS, 7, values)
        assert not answer["topics"][0]["error_code"]
        await self.until(lambda: all(each.image.topic("t") is not None for each in self.nodes()))

    @property
    def leader(self) -> str:
        return NODES[self.partition().leader - 1]

    def log(self, node_id: int) -> Any:
        node = self.machines[node_id - 1].node
        assert node is not None
        return node.replicas.find("t", 0).log

    async def produce(self, records: bytes, acks: int = -1) -> tuple[int, int]:
        """Error code and base offset."""
        data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        values = {"transactional_id": None, "acks": acks, "timeout": 1500, "topic_data": data}
        answer = await self.ask(self.leader, ApiKey.PRODUCE, 9, values)
        row = answer["responses"][0]["partition_responses"][0]
        return row["error_code"], row["base_offset"]

    async def fetch(self, offset: int, size_max: int = 1 << 20, *, max_wait: int = 0) -> bytes:
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size_max, "current_leader_epoch": -1}
        values = {
            "max_wait": max_wait,
            "min_bytes": 1,
            "max_bytes": 1 << 24,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "t", "partitions": [asked]}],
        }
        answer = await self.ask(self.leader, ApiKey.FETCH, 11, values)
        row = answer["responses"][0]["partitions"][0]
        assert not row["error_code"], ErrorCode(row["error_code"])
        return bytes(row["records"] or b"")

    async def delete_records(self, offset: int) -> int:
        """The low watermark."""
        values = {
            "timeout": 2000,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}],
        }
        answer = await self.ask(self.leader, ApiKey.DELETE_RECORDS, 2, values)
        row = answer["topics"][0]["partitions"][0]
        assert not row["error_code"], ErrorCode(row["error_code"])
        return int(row["low_watermark"])

    async def offset_at(self, timestamp: int) -> int:
        wanted = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [wanted]}],
        }
        answer = await self.ask(self.leader, ApiKey.LIST_OFFSETS, 7, values)
        row = answer["topics"][0]["partitions"][0]
        assert not row["error_code"], ErrorCode(row["error_code"])
        return int(row["offset"])

    async def in_sync(self, *expected: int) -> None:
        await self.until(lambda: {tuple(sorted(self.partition(each).isr)) for each in self.serving()} == {expected})

    def serving(self) -> list[Machine]:
        return [each for each in self.machines if each.is_serving]

    async def kill_leader(self) -> Machine:
        """Returns when another leads."""
        before = self.partition().leader
        victim = self.machines[before - 1]
        victim.crash(power_loss=False)
        await self.until(
            lambda: (
                {self.partition(each).leader for each in self.serving()}.isdisjoint({before, -1})
                and len({self.partition(each).leader_epoch for each in self.serving()}) == 1
            )
        )
        return victim

    async def back(self, machine: Machine) -> None:
        machine.start()
        await self.in_sync(*ALL)
        await self.until(self.is_settled)


def run(seed: int, work: Callable[[Replicated], Awaitable[None]], more: Mapping[str, str] | None = None) -> None:
    async def test(cluster: Cluster) -> None:
        assert isinstance(cluster, Replicated)
        await work(cluster)

    Replicated(seed, more).run(test)


def records(*values: bytes, **options: Any) -> bytes:
    return bytes(build_batch([SimpleRecord(EPOCH_MS, None, value) for value in values], **options))


def test_a_follower_goes_on_until_its_controlled_shutdown_is_granted() -> None:
    """It stays in sync for as long as the controller makes it wait."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic(min_insync_replicas="3")
        await cluster.in_sync(*ALL)
        (follower,) = [each for each in ALL if each not in (cluster.partition().leader, cluster.nodes()[0].node_id)][:1]
        machine = cluster.machines[follower - 1]
        node = machine.node
        assert isinstance(node, Node)
        lifecycle, gate, asked = node.metadata.lifecycle, asyncio.Event(), 0
        may_shut_down = lifecycle._may_shut_down

        async def held() -> bool:
            nonlocal asked
            asked += 1
            while not gate.is_set():  # noqa: ASYNC110  of another loop
                await asyncio.sleep(0.05)
            return await may_shut_down()

        lifecycle._may_shut_down = held  # type: ignore[method-assign]
        machine.stop()
        await cluster.until(lambda: node.leaving)
        for _ in range(10):
            assert await cluster.produce(records(b"x")) == (ErrorCode.none, cluster.log(follower).log_end_offset - 1)
            await asyncio.sleep(0.5)
        assert (asked, node.stopping) == (1, False)
        assert cluster.log(follower).log_end_offset == 10
        assert sorted(cluster.partition().isr) == [*ALL], "no lag of more than a second"
        gate.set()
        await cluster.until(lambda: node.stopping)
        await cluster.until(lambda: cluster.world.counts["stopped"] == 1)
        assert asked == 1, "it leads nothing"
        machine.start()
        await cluster.in_sync(*ALL)
        await cluster.until(cluster.is_settled)

    run(1, work, PATIENT)


def test_nothing_is_left_of_a_replica_that_was_taken_away() -> None:
    """Its directory is renamed at once, and gone after `file.delete.delay.ms`."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic((1, 2), file_delete_delay_ms="5000")
        for number in range(20):
            assert (await cluster.produce(records(b"x" * 1000)))[0] == ErrorCode.none, number
        disk = cluster.machines[0].disk

        def left() -> list[str]:
            return [name for name in disk.listdir(DIRECTORY) if name.startswith("t-0") or name.endswith("-delete")]

        assert left() == ["t-0"]
        partition = {"partition_index": 0, "replicas": [2, 3]}
        values = {"timeout": 30_000, "topics": [{"name": "t", "partitions": [partition]}]}
        answer = await cluster.ask(NODES[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        assert not answer["error_code"] and not answer["responses"][0]["partitions"][0]["error_code"]
        await cluster.until(lambda: left() != ["t-0"])
        (renamed,) = left()
        assert renamed.startswith("t-0.") and renamed.endswith("-delete")
        await cluster.until(lambda: sorted(cluster.partition().replicas) == [2, 3])
        began_s = cluster.world.time.now_s
        await cluster.until(lambda: not left())
        assert 3 < cluster.world.time.now_s - began_s < 15
        assert (await cluster.produce(records(b"y"))) == (ErrorCode.none, 20)
        assert b"".join([await cluster.fetch(0)]).count(b"x" * 1000) == 20

    run(2, work)


def test_every_leader_knows_where_epochs_end() -> None:
    """OffsetForLeaderEpoch, as Kafka's `LeaderEpochFileCache.endOffsetFor` has it (KIP-101, 279, 320)."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        ends: dict[int, int] = {}
        end = 0

        async def asked(host: str, epoch: int, current: int = -1) -> tuple[int, int, int]:
            row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [row]}]}
            answer = await cluster.ask(host, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
            found = answer["topics"][0]["partitions"][0]
            return found["error_code"], found["leader_epoch"], found["end_offset"]

        for turn in range(4):
            epoch = cluster.partition().leader_epoch
            for _ in range(turn + 1):
                assert await cluster.produce(records(b"x", b"y")) == (ErrorCode.none, end)
                end += 2
            ends[epoch] = end
            for known in range(epoch):
                floor = max((each for each in ends if each <= known), default=known)
                assert await asked(cluster.leader, known) == (0, floor, ends.get(floor, 0)), known
            assert await asked(cluster.leader, epoch, epoch) == (0, epoch, end)
            assert await asked(cluster.leader, epoch + 1, epoch) == (0, -1, -1)
            assert await asked(cluster.leader, -1) == (0, -1, -1)
            assert (await asked(cluster.leader, epoch, epoch - 1))[0] == (
                ErrorCode.fenced_leader_epoch if epoch else ErrorCode.none
            )
            assert (await asked(cluster.leader, epoch, epoch + 1))[0] == ErrorCode.unknown_leader_epoch
            for host in set(NODES) - {cluster.leader}:
                assert (await asked(host, epoch))[0] == ErrorCode.not_leader_or_follower
            await cluster.back(await cluster.kill_leader())
        assert len(ends) == 4

    run(3, work)


def test_a_retry_after_retention_is_a_duplicate_for_the_next_leader_too() -> None:
    """Bug 8: what is known of a producer outlives its batches, on followers as well, and after their restart."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        await cluster.in_sync(*ALL)
        sent = [records(b"x", b"y", producer_id=77, producer_epoch=0, base_sequence=2 * number) for number in range(3)]
        assert [await cluster.produce(each) for each in sent] == [(0, 0), (0, 2), (0, 4)]
        assert await cluster.delete_records(-1) == 6
        for clean in (False, True, True):
            assert await cluster.produce(sent[-1]) == (0, 4), "as it was answered the first time"
            before = cluster.partition().leader
            if clean:
                machine = cluster.machines[before - 1]
                machine.stop()
                await cluster.until(lambda machine=machine: not machine.is_serving)  # type: ignore[misc]
                await cluster.until(lambda before=before: cluster.partition().leader not in (before, -1))  # type: ignore[misc]
            else:
                machine = await cluster.kill_leader()
            assert await cluster.produce(sent[-1]) == (0, 4)
            assert cluster.partition().leader != before
            await cluster.back(machine)
            assert {cluster.log(each).log_end_offset for each in ALL} == {6}
        following = records(b"z", producer_id=77, producer_epoch=0, base_sequence=6)
        assert await cluster.produce(following) == (0, 6)

    run(4, work)


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_retry_is_a_duplicate_after_everything_was_deleted_and_all_nodes_died(power_loss: bool) -> None:
    """Where Kafka would append it a second time: no snapshot was taken, and nothing is above the log start."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        await cluster.in_sync(*ALL)
        sent = [records(b"x", b"y", producer_id=77, producer_epoch=0, base_sequence=2 * number) for number in range(3)]
        assert [await cluster.produce(each) for each in sent] == [(0, 0), (0, 2), (0, 4)]
        assert await cluster.delete_records(-1) == 6
        await asyncio.sleep(130)  # two checkpoints of the log start
        for _ in range(2):
            for machine in cluster.machines:
                machine.crash(power_loss=power_loss)
            for machine in cluster.machines:
                machine.start()
            await cluster.in_sync(*ALL)
            await cluster.until(cluster.is_settled)
            for each in ALL:
                assert (cluster.log(each).log_start_offset, cluster.log(each).log_end_offset) == (6, 6)
            assert [await cluster.produce(each) for each in sent] == [(0, 0), (0, 2), (0, 4)]
        following = records(b"z", producer_id=77, producer_epoch=0, base_sequence=6)
        assert await cluster.produce(following) == (0, 6)

    run(8, work)


def test_a_wiped_replica_knows_the_producers_of_what_its_leader_had_left() -> None:
    """As in Kafka: a follower learns of producers from the batches that it fetches, and no request asks for more.

    So a retry of what DeleteRecords took everywhere is new to it; of what is left, it is a duplicate.
    """

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        await cluster.in_sync(*ALL)

        def batch(producer: int, sequence: int) -> bytes:
            return records(b"x", b"y", producer_id=producer, producer_epoch=0, base_sequence=sequence)

        assert [await cluster.produce(batch(77, 2 * number)) for number in range(2)] == [(0, 0), (0, 2)]
        assert await cluster.delete_records(-1) == 4
        assert await cluster.produce(batch(78, 0)) == (0, 4)
        before = cluster.partition().leader
        wiped = [each for each in ALL if each != before]
        for each in wiped:
            cluster.machines[each - 1].wipe()
            await cluster.back(cluster.machines[each - 1])
            assert (cluster.log(each).log_start_offset, cluster.log(each).log_end_offset) == (4, 6)
        await cluster.kill_leader()
        assert cluster.partition().leader in wiped
        assert await cluster.produce(batch(78, 0)) == (0, 4), "a duplicate"
        assert await cluster.produce(batch(77, 4)) == (0, 6), "what follows is neither refused nor lost"
        assert await cluster.produce(batch(77, 4)) == (0, 6)
        assert [header.base_offset for _, header in iterate_batches(await cluster.fetch(4))] == [4, 6]

    run(9, work)


def test_look_ups_by_time_while_records_are_deleted_and_leaders_die() -> None:
    """Bug 11: no offset below the log start, at no leader."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        count = 5
        for number in range(12):
            rows = [SimpleRecord(EPOCH_MS + number * count + each, None, b"x") for each in range(count)]
            assert (await cluster.produce(bytes(build_batch(rows))))[0] == 0
        end = 12 * count
        for start in (3, 7, 15, 16, 34, end - 1):
            await cluster.in_sync(*ALL)
            deletion = asyncio.get_running_loop().create_task(cluster.delete_records(start))
            raced = [await cluster.offset_at(EPOCH_MS + each) for each in range(0, end, 4)]
            assert await deletion == start
            for at, offset in zip(range(0, end, 4), raced, strict=True):
                assert at <= offset <= max(at, start), "its own record, or the first that is left"
            if start in (7, 34):
                victim = await cluster.kill_leader()
            for at in (0, start - 1, start, start + 1):
                assert await cluster.offset_at(EPOCH_MS + at) == (max(at, start) if at < end else -1)
            assert await cluster.offset_at(-2) == start
            assert min(header.last_offset for _, header in iterate_batches(await cluster.fetch(start))) >= start
            if start in (7, 34):
                await cluster.back(victim)

    run(5, work)


BATCH = len(records(bytes(1000)))
SEGMENT = 4 * BATCH + 100
"""No whole number of batches."""


@pytest.mark.parametrize("limit", [1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH, SEGMENT - 1, SEGMENT, SEGMENT + 1])
def test_no_fetch_skips_what_is_left_of_a_segment(limit: int) -> None:
    """Bug 16: at limits below, at and above the sizes of batches and segments, for followers and for consumers."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic((1, 2), internal_segment_bytes=str(SEGMENT))
        for number in range(30):
            assert await cluster.produce(records(number.to_bytes(2) * 500)) == (0, number)
        partition = {"partition_index": 0, "replicas": [1, 2, 3]}  # a replica that reads all segments
        values = {"timeout": 30_000, "topics": [{"name": "t", "partitions": [partition]}]}
        answer = await cluster.ask(NODES[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        assert not answer["error_code"]
        await cluster.in_sync(*ALL)
        assert {cluster.log(each).log_end_offset for each in ALL} == {30}
        copies = []
        for machine in cluster.machines:
            files = machine.disk.files(f"{DIRECTORY}/t-0")
            copies.append(b"".join(data for path, data in sorted(files.items()) if path.endswith(".log")))
        assert copies[0] == copies[1] == copies[2]
        assert [header.base_offset for _, header in iterate_batches(copies[2])] == [*range(30)]
        await cluster.kill_leader()
        at, fetches = 0, 0
        while at < 30:
            got = await cluster.fetch(at, limit)
            fetches += 1
            whole = [header for _, header in iterate_batches(got[: len(got) // BATCH * BATCH])]
            assert [header.base_offset for header in whole] == [*range(at, at + len(whole))] and whole
            at += len(whole)
        assert fetches >= 30 * BATCH // max(limit, BATCH) // 2

    run(6, work, {"replica.fetch.max.bytes": str(limit), "replica.fetch.response.max.bytes": str(limit)})


def test_a_long_poll_is_answered_with_bytes_or_at_its_end() -> None:
    """Bug 20: what the followers do not have yet wakes nobody, and what they have does at once."""

    async def work(cluster: Replicated) -> None:
        await cluster.topic()
        await cluster.in_sync(*ALL)
        leader = cluster.leader
        for number in range(5):
            for follower in set(NODES) - {leader}:
                cluster.network.network.clog(follower, leader, 0.8)
            polling = asyncio.get_running_loop().create_task(cluster.fetch(number, max_wait=2500))
            await asyncio.sleep(0.1)
            assert await cluster.produce(records(b"x"), acks=1) == (0, number)
            began_s = cluster.world.time.now_s
            await asyncio.sleep(0.3)
            assert not polling.done(), "it has been written, and is not committed"
            (found,) = [header for _, header in iterate_batches(await polling)]
            assert found.base_offset == number
            assert 0.3 < cluster.world.time.now_s - began_s < 2, "before the time was over"
            await cluster.until(lambda number=number: cluster.log(cluster.partition().leader).high_watermark > number)  # type: ignore[misc]
        began_s = cluster.world.time.now_s
        assert await cluster.fetch(5, max_wait=1500) == b""
        assert 1.4 < cluster.world.time.now_s - began_s < 2

    run(7, work, {"replica.lag.time.max.ms": "30000", "broker.session.timeout.ms": "9000"})
