"""Answers that wait for a commit, over a socket: a follower is put into the in-sync set of a partition of one node."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.image import PartitionRegistration
from ottla.model import OFFSETS_TOPIC
from ottla.network import SocketSender
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.server import dispatch
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, produce_values, running

FOLLOWER = 7
SHORTCUT = [False, True]


def follow(node: Node, topic: str, number: int = 0, *, isr: tuple[int, ...] | None = None) -> Partition:
    """Let the partition believe that the controller put a follower into its in-sync set."""
    partition = node.replicas.find(topic, number)
    change(partition, partition.leader_epoch, isr or (node.node_id, FOLLOWER))
    return partition


def change(partition: Partition, epoch: int, isr: tuple[int, ...], leader: int | None = None) -> None:
    replicas = (partition.node_id, FOLLOWER)
    ids = (partition.topic_id, partition.topic_id)
    leader = partition.node_id if leader is None else leader
    partition.update(PartitionRegistration(replicas, isr, leader, epoch, partition.partition_epoch + 1, ids))


def catch_up(partition: Partition, end: int | None = None, *, ago_ms: int = 0) -> None:
    end = partition.log.log_end_offset if end is None else end
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    partition.on_follower_fetch(FOLLOWER, end, partition.leader_epoch, now_ms - ago_ms)


def waiting(partition: Partition) -> int:
    return len(partition._commits.waits) + len(partition._fsyncs.waits)


def play(tmp_path: Path, scene: Any, settings: dict[str, str] | None = None) -> None:
    async def run() -> None:
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            await scene(node, client)
            client.close()

    stub.run(run())


async def ready(client: Client, settings: dict[str, str], shortcut: bool) -> int:
    """A topic, and with `shortcut` requests that are like one before; returns the next offset."""
    await client.create("t", settings)
    if not shortcut:
        return 0
    for offset in range(2):
        assert (await client.produce("t", batch()))["base_offset"] == offset
    return 2


async def answer(client: Client) -> tuple[int, int]:
    found = (await client.receive(ApiKey.PRODUCE, 9))["responses"][0]["partition_responses"][0]
    return found["error_code"], found["base_offset"]


@pytest.mark.parametrize("settings", [{}, {"flush.messages": "1"}])
@pytest.mark.parametrize("shortcut", SHORTCUT)
def test_a_produce_request_is_answered_when_the_follower_has_it(
    tmp_path: Path, shortcut: bool, settings: dict[str, str]
) -> None:
    async def scene(node: Node, client: Client) -> None:
        first = await ready(client, settings, shortcut)
        partition = follow(node, "t")
        for turn in range(3):
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch()), turn)
        await stub.until(lambda: waiting(partition) == 3)
        await partition.log.flush_async()  # type: ignore[attr-defined]
        assert partition.log.high_watermark == first
        catch_up(partition, first + 1)
        assert await answer(client) == (0, first)
        assert waiting(partition) == 2
        catch_up(partition)
        assert [await answer(client) for _ in range(2)] == [(0, first + 1), (0, first + 2)]
        assert (await client.fetch("t", first))["high_watermark"] == first + 3

    play(tmp_path, scene)


@pytest.mark.parametrize("shortcut", SHORTCUT)
def test_acks_of_the_leader_and_none_wait_for_nobody(tmp_path: Path, shortcut: bool) -> None:
    async def scene(node: Node, client: Client) -> None:
        first = await ready(client, {}, shortcut)
        partition = follow(node, "t")
        client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0))
        for turn in range(2):
            assert (await client.produce("t", batch(), acks=1))["base_offset"] == first + 1 + turn
        assert (partition.log.high_watermark, waiting(partition)) == (first, 0)

    play(tmp_path, scene)


@pytest.mark.parametrize("shortcut", SHORTCUT)
def test_waiters_for_too_long_hear_that_the_time_is_over(tmp_path: Path, shortcut: bool) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, shortcut)
        partition = follow(node, "t")
        values = {**produce_values("t", batch()), "timeout": 1}
        client.send(ApiKey.PRODUCE, 9, values)
        assert await answer(client) == (ErrorCode.request_timed_out, -1)
        assert not waiting(partition)
        catch_up(partition)
        assert (await client.fetch("t", 0))["high_watermark"] == partition.log.log_end_offset

    play(tmp_path, scene)


@pytest.mark.parametrize("shortcut", SHORTCUT)
@pytest.mark.parametrize("event", ["resign", "delete", "fail", "stop"])
def test_waiters_hear_what_happened(tmp_path: Path, shortcut: bool, event: str) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, shortcut)
        partition = follow(node, "t")
        client.send(ApiKey.PRODUCE, 9, produce_values("t", batch()))
        await stub.until(lambda: waiting(partition))
        expected = ErrorCode.not_leader_or_follower
        if event == "resign":
            change(partition, partition.leader_epoch + 1, (FOLLOWER,), leader=FOLLOWER)
        elif event == "delete":
            another = await Client.connect(node)
            await another.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 60_000})
            another.close()
            expected = ErrorCode.unknown_topic_or_partition
        elif event == "fail":
            partition.log._health.fail(OSError("gone"))  # type: ignore[attr-defined]
            expected = ErrorCode.kafka_storage_error
        else:
            stopping = asyncio.ensure_future(node.stop())
        assert await answer(client) == (expected, -1)
        if event == "stop":
            await stopping

    play(tmp_path, scene)


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, False)
        partition = follow(node, "t")
        another = await Client.connect(node)
        another.send(ApiKey.PRODUCE, 9, produce_values("t", batch()))
        await stub.until(lambda: waiting(partition))
        another.writer.transport.abort()
        await stub.until(lambda: not waiting(partition))

    play(tmp_path, scene)


def test_a_long_poll_is_not_woken_before_the_high_watermark_moves(tmp_path: Path) -> None:
    """Bug 20 of reliability.md."""

    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, False)
        partition = follow(node, "t")
        traffic = partition.traffic
        consumer = await Client.connect(node)
        consumer.send(ApiKey.FETCH, 12, fetch_values("t", 0, max_wait=3_600_000))
        await stub.until(lambda: partition.waiters)
        for _ in range(5):
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch()))
        await stub.until(lambda: waiting(partition) == 5)
        assert (traffic.fetches, len(partition.waiters)) == (1, 1)
        catch_up(partition, 1)
        found = (await consumer.receive(ApiKey.FETCH, 12))["responses"][0]["partitions"][0]
        assert (found["high_watermark"], len(found["records"]), traffic.fetches) == (1, len(batch()), 2)
        catch_up(partition)
        for _ in range(5):
            assert (await answer(client))[0] == 0
        consumer.close()

    play(tmp_path, scene)


def test_a_produce_request_of_many_partitions_waits_for_the_slowest(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await client.create("t", partitions=3)
        partitions = [follow(node, "t", number) for number in (1, 2)]
        values = produce_values("t", batch())
        values["topic_data"][0]["partition_data"] = [{"index": number, "records": batch()} for number in range(3)]
        client.send(ApiKey.PRODUCE, 9, values)
        await stub.until(lambda: all(map(waiting, partitions)))
        catch_up(partitions[1])
        change(partitions[0], partitions[0].leader_epoch + 1, (FOLLOWER,), leader=FOLLOWER)
        found = (await client.receive(ApiKey.PRODUCE, 9))["responses"][0]["partition_responses"]
        assert [each["error_code"] for each in found] == [0, ErrorCode.not_leader_or_follower, 0]

    play(tmp_path, scene)


def test_a_long_request_that_waits_does_not_hold_back_the_next(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {"max.message.bytes": "4000000"}, False)
        partition = follow(node, "t")
        for size in (2_000_000, 10):
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(size)))
        await stub.until(lambda: waiting(partition) == 2)
        catch_up(partition)
        assert [await answer(client) for _ in range(2)] == [(0, 0), (0, 1)]

    play(tmp_path, scene)


def commit_values(offset: int) -> dict[str, Any]:
    each = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [each]}],
    }


GROUPS = {"offsets.topic.num.partitions": "1", "offsets.commit.timeout.ms": "60000"}


async def commits_ready(node: Node, client: Client) -> Partition:
    await client.create("t")
    await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    for offset in range(2):
        await commit(client, offset)
    return follow(node, OFFSETS_TOPIC)


async def commit(client: Client, offset: int) -> int:
    client.send(ApiKey.OFFSET_COMMIT, 8, commit_values(offset))
    return await committed(client)


async def committed(client: Client) -> int:
    found: int = (await client.receive(ApiKey.OFFSET_COMMIT, 8))["topics"][0]["partitions"][0]["error_code"]
    return found


async def offset_of(node: Node) -> int:
    client = await Client.connect(node)
    values = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}
    found = await client.ask(ApiKey.OFFSET_FETCH, 8, values)
    client.close()
    offset: int = found["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]
    return offset


def test_the_coordinator_answers_and_shows_a_commit_when_it_is_committed(tmp_path: Path) -> None:
    """Bug 17 of reliability.md: a coordinator answers before its record is committed."""

    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        another = await Client.connect(node)
        client.send(ApiKey.OFFSET_COMMIT, 8, commit_values(10))
        await stub.until(lambda: waiting(partition) == 1)
        another.send(ApiKey.OFFSET_COMMIT, 8, commit_values(11))
        await stub.until(lambda: waiting(partition) == 2)
        assert await offset_of(node) == 1
        catch_up(partition)
        assert [await committed(client), await committed(another)] == [0, 0]
        assert await offset_of(node) == 11
        another.close()

    play(tmp_path, scene, GROUPS)


def test_a_commit_is_refused_when_the_coordinator_resigns_before_it_is_committed(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        client.send(ApiKey.OFFSET_COMMIT, 8, commit_values(10))
        await stub.until(lambda: waiting(partition))
        change(partition, partition.leader_epoch + 1, (FOLLOWER,), leader=FOLLOWER)
        assert await committed(client) == ErrorCode.not_coordinator

    play(tmp_path, scene, GROUPS)


def test_a_commit_that_takes_too_long_is_refused_and_counts_once_it_is_committed(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        assert await commit(client, 10) == ErrorCode.coordinator_not_available
        assert await offset_of(node) == 1
        catch_up(partition)
        assert not waiting(partition)
        assert await offset_of(node) == 10

    play(tmp_path, scene, {**GROUPS, "offsets.commit.timeout.ms": "1"})


def stable_values(*, require_stable: bool = True) -> dict[str, Any]:
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    return {"groups": [asked], "require_stable": require_stable}


async def fetched(client: Client) -> tuple[int, int]:
    """The error of the group, and the offset."""
    (group,) = (await client.receive(ApiKey.OFFSET_FETCH, 8))["groups"]
    return group["error_code"], *(row["committed_offset"] for topic in group["topics"] for row in topic["partitions"])


@pytest.mark.parametrize("shortcut", SHORTCUT)
def test_who_requires_stable_offsets_waits_for_the_commits_under_way(tmp_path: Path, shortcut: bool) -> None:
    """A member that takes a partition over is not to begin before what the last one has committed."""

    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        catch_up(partition)
        another = await Client.connect(node)
        for _ in range(2 * shortcut):  # the second is answered by what was learned of the first
            assert (await another.ask(ApiKey.OFFSET_FETCH, 8, stable_values()))["groups"][0]["error_code"] == 0
        client.send(ApiKey.OFFSET_COMMIT, 8, commit_values(10))
        await stub.until(lambda: waiting(partition) == 1)
        another.send(ApiKey.OFFSET_FETCH, 8, stable_values())
        await stub.until(lambda: waiting(partition) == 2)
        assert await offset_of(node) == 1, "who does not require it does not wait"
        catch_up(partition)
        assert (await committed(client), await fetched(another)) == (0, (0, 10))
        another.send(ApiKey.OFFSET_FETCH, 8, stable_values())
        assert await fetched(another) == (0, 10), "nothing is under way"
        another.close()

    play(tmp_path, scene, GROUPS)


@pytest.mark.parametrize("event", ["timeout", "resign"])
def test_who_requires_stable_offsets_looks_for_the_coordinator_if_they_do_not_come(tmp_path: Path, event: str) -> None:
    """As Kafka: clients before 3.9 do not come again for other errors of an OffsetFetch."""

    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        catch_up(partition)
        another = await Client.connect(node)
        client.send(ApiKey.OFFSET_COMMIT, 8, commit_values(10))
        await stub.until(lambda: waiting(partition) == 1)
        another.send(ApiKey.OFFSET_FETCH, 8, stable_values())
        if event == "resign":
            await stub.until(lambda: waiting(partition) == 2)
            change(partition, partition.leader_epoch + 1, (FOLLOWER,), leader=FOLLOWER)
        assert await fetched(another) == (ErrorCode.not_coordinator,)
        another.close()

    play(tmp_path, scene, {**GROUPS, "offsets.commit.timeout.ms": "100"} if event == "timeout" else GROUPS)


def test_a_coordinator_that_no_follower_asks_does_not_say_that_offsets_are_stable(tmp_path: Path) -> None:
    """It may be cut off and replaced: a copier that began at its offsets would copy records twice in transactions
    (`ottla sim --kind transactions --seed 6017`)."""

    async def scene(node: Node, client: Client) -> None:
        partition = await commits_ready(node, client)
        silent_ms = node.config.broker_session_timeout_ms // 2
        for ago_ms, expected in ((silent_ms - 1000, (0, 1)), (silent_ms, (ErrorCode.not_coordinator,)), (0, (0, 1))):
            catch_up(partition, ago_ms=ago_ms)
            for _ in range(2):  # the second is answered by what was learned of the first
                client.send(ApiKey.OFFSET_FETCH, 8, stable_values())
                assert await fetched(client) == expected
        catch_up(partition, ago_ms=silent_ms)
        assert await offset_of(node) == 1, "others are answered"

    play(tmp_path, scene, GROUPS)


def delete_values(offset: int, timeout_ms: int = 60_000) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": "t", "partitions": partitions}], "timeout": timeout_ms}


async def deleted(client: Client) -> tuple[int, int]:
    found = (await client.receive(ApiKey.DELETE_RECORDS, 2))["topics"][0]["partitions"][0]
    return found["low_watermark"], found["error_code"]


def test_records_are_deleted_up_to_the_high_watermark_and_on_every_living_replica(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, True)
        partition = follow(node, "t")
        assert (await client.produce("t", batch(), acks=1))["base_offset"] == 2
        for offset, expected in ((3, (-1, ErrorCode.offset_out_of_range)), (-1, (2, 0))):
            client.send(ApiKey.DELETE_RECORDS, 2, delete_values(offset))
            assert await deleted(client) == expected, "the follower's broker is not alive"
        node.replicas._brokers = {FOLLOWER: replace(node.image.brokers[node.node_id], id=FOLLOWER)}
        epoch = node.replicas._brokers[FOLLOWER].epoch
        partition.on_follower_fetch(FOLLOWER, 3, partition.leader_epoch, 0, broker_epoch=epoch, log_start_offset=2)
        client.send(ApiKey.DELETE_RECORDS, 2, delete_values(3))
        await stub.until(lambda: len(partition.deletions.waits))
        partition.on_follower_fetch(FOLLOWER, 3, partition.leader_epoch, 0, broker_epoch=epoch, log_start_offset=3)
        assert await deleted(client) == (3, 0)

    play(tmp_path, scene)


@pytest.mark.parametrize("event", ["timeout", "resign"])
def test_a_deletion_that_a_replica_does_not_make_is_an_error(tmp_path: Path, event: str) -> None:
    async def scene(node: Node, client: Client) -> None:
        await ready(client, {}, True)
        partition = follow(node, "t")
        node.replicas._brokers = {FOLLOWER: replace(node.image.brokers[node.node_id], id=FOLLOWER)}
        client.send(ApiKey.DELETE_RECORDS, 2, delete_values(1, 1 if event == "timeout" else 3_600_000))
        expected = ErrorCode.request_timed_out
        if event == "resign":
            await stub.until(lambda: len(partition.deletions.waits))
            change(partition, partition.leader_epoch + 1, (FOLLOWER,), leader=FOLLOWER)
            expected = ErrorCode.not_leader_or_follower
        assert await deleted(client) == (-1, expected)
        assert not partition.deletions.waits

    play(tmp_path, scene)


def test_requests_behind_one_that_waits_are_not_decoded_again_and_answered_at_once(
    tmp_path: Path, monkeypatch: Any
) -> None:
    sent: list[int] = []

    def noted(method: Any) -> Any:
        def send(sender: Any, *arguments: Any) -> int:
            sent.append(1)
            return int(method(sender, *arguments))

        return send

    async def scene(node: Node, client: Client) -> None:
        await client.create("t")
        for acks in (-1, 1):
            await client.produce("t", batch(), acks=acks)
        client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0))
        assert await client.fetch("t", 0, max_wait=60_000)
        partition = follow(node, "t")
        monkeypatch.setattr(dispatch, "begin", None)
        for acks in (-1, -1, 1, -1, 0, -1):  # that of acks=1 is known at once, and keeps its place
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks))
        await stub.until(lambda: waiting(partition) == 4)
        for name in ("send", "sendmsg"):
            monkeypatch.setattr(SocketSender, name, noted(getattr(SocketSender, name)))
        catch_up(partition)
        assert [await answer(client) for _ in range(5)] == [(0, each) for each in (3, 4, 5, 6, 8)]
        assert sent == [1]
        monkeypatch.undo()

    play(tmp_path, scene)


def test_of_requests_with_different_timeouts_each_has_its_own(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await client.create("t")
        timeouts = (600_000, 1)
        for timeout in timeouts:
            await client.ask(ApiKey.PRODUCE, 9, produce_values("t", batch()) | {"timeout": timeout})
        partition = follow(node, "t")
        for timeout in timeouts:
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch()) | {"timeout": timeout})
        (shortcut,) = next(iter(node.listeners[0].connections)).shortcuts.values()
        await stub.until(lambda: partition.log.log_end_offset == 4 and len(shortcut._waiting._by_time) == 1)
        catch_up(partition)
        assert await answer(client) == (0, 2)
        assert await answer(client) == (ErrorCode.request_timed_out, -1)

    play(tmp_path, scene)
