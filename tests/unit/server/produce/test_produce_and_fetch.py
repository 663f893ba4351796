"""The hot path on a whole node: shortcuts, long polls, cold reads, fsynced answers, stopping."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from ottla.errors import ErrorCode, OttlaError
from ottla.filesystem import OsFile
from ottla.protocol.messages import ApiKey
from ottla.server import node as node_module
from ottla.server.produce import produce_shortcut
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, produce_values, running


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12])
def test_the_shortcut_answers_what_the_handler_answers(tmp_path: Any, version: int) -> None:
    """Alternately with another partition and with errors; the second request of a shape takes the shortcut."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            for n in range(4):
                for partition in (0, 1):
                    answer = await client.produce("t", batch(20_000 * n), version=version, partition=partition)
                    assert (answer["error_code"], answer["base_offset"]) == (0, n)
                    if version >= 5:
                        assert answer["log_start_offset"] == 0
            assert next(iter(node.listeners[0].connections)).shortcuts
            bad = bytearray(batch())
            bad[30] ^= 1
            for _ in range(2):
                answer = await client.produce("t", bytes(bad), version=version)
                assert answer["error_code"] == ErrorCode.corrupt_message
            answer = await client.produce("t", batch(), version=version)
            assert answer["base_offset"] == 4
            client.close()

    stub.run(test())


def test_the_shortcut_drops_a_deleted_topic(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), {"auto.create.topics.enable": "false"}) as node:
            client = await Client.connect(node)
            for _ in range(2):
                await client.create("t")
                for n in range(3):
                    assert (await client.produce("t", batch()))["base_offset"] == n
                await client.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 1000})
                assert (await client.produce("t", batch()))["error_code"] == ErrorCode.unknown_topic_or_partition
            client.close()

    stub.run(test())


def test_many_shapes_do_not_grow_the_shortcut(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(produce_shortcut, "ENVELOPES_MAX", 3)

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=10)
            for n in range(3):
                for partition in range(10):
                    assert (await client.produce("t", batch(), partition=partition))["base_offset"] == n
            client.close()

    stub.run(test())


def test_acks_0_has_no_answer_and_a_failure_closes(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(3):
                client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0))
            assert (await client.produce("t", batch()))["base_offset"] == 3
            client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0, partition=9))
            assert await client.reader.read() == b""
            client.close()

    stub.run(test())


def test_idempotent_retries_through_the_shortcut(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for sequence in (0, 1, 2, 2, 1):
                data = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
                answer = await client.produce("t", data)
                assert (answer["error_code"], answer["base_offset"]) == (0, sequence)
            data = batch(producer_id=7, producer_epoch=0, base_sequence=9)
            assert (await client.produce("t", data))["error_code"] == ErrorCode.out_of_order_sequence_number
            client.close()

    stub.run(test())


def test_a_long_poll_ends_with_enough_bytes_or_in_time(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            producer, consumer = await Client.connect(node), await Client.connect(node)
            await producer.create("t")
            size = len(batch())
            consumer.send(ApiKey.FETCH, 12, fetch_values("t", 0, max_wait=1_000_000, min_bytes=2 * size))
            await producer.produce("t", batch())
            await stub.until(lambda: next(iter(node.replicas)).waiters)
            await producer.produce("t", batch())
            answer = await consumer.receive(ApiKey.FETCH, 12)
            assert len(answer["responses"][0]["partitions"][0]["records"]) == 2 * size
            started = time.monotonic()
            answer = await consumer.fetch("t", 2, max_wait=60)
            assert time.monotonic() - started > 0.05
            assert answer["records"] == b""
            assert not next(iter(node.replicas)).waiters
            producer.close()
            consumer.close()

    stub.run(test())


def test_deleting_a_topic_ends_the_long_poll(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            producer, consumer = await Client.connect(node), await Client.connect(node)
            await producer.create("t")
            consumer.send(ApiKey.FETCH, 12, fetch_values("t", 0, max_wait=1_000_000))
            await stub.until(lambda: next(iter(node.replicas)).waiters)
            await producer.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 1000})
            answer = await consumer.receive(ApiKey.FETCH, 12)
            assert answer["responses"][0]["partitions"][0]["error_code"] == ErrorCode.unknown_topic_or_partition
            producer.close()
            consumer.close()

    stub.run(test())


@pytest.mark.parametrize("size", [100, 200_000])
def test_cold_data_is_read_away_from_the_loop(tmp_path: Any, monkeypatch: Any, size: int) -> None:
    """Whatever is said to be cold is read by a disk thread, and the answer is the same."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(3):
                await client.produce("t", batch(size))
            warm = await client.fetch("t", 0)
            ran: list[Any] = []
            real = node.fs.run

            def run(work: Any) -> Any:
                ran.append(work)
                return real(work)

            monkeypatch.setattr(node.fs, "run", run)
            monkeypatch.setattr(OsFile, "is_cached", lambda self, length, position: False)
            monkeypatch.setattr(OsFile, "pread_nowait", lambda self, length, position: None)
            assert await client.fetch("t", 0) == warm
            assert await client.fetch("t", 1) != warm
            assert ran
            client.close()

    stub.run(test())


def test_an_answer_that_a_disk_thread_reads_for_is_made_once(tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    """The time of a long poll is over in the same turn of the loop in which data comes: the second look at the session
    found other partitions than those that the first had read, and the request failed."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            loop, expire = asyncio.get_running_loop(), []
            partitions = [node.replicas.by_name["t"][number] for number in (0, 1)]

            def at_the_end(**more: Any) -> dict[str, Any]:
                rows = [
                    {"partition": number, "fetch_offset": each.log.log_end_offset, "partition_max_bytes": 1 << 20}
                    for number, each in enumerate(partitions)
                ]
                return fetch_values("t", 0, topics=[{"topic": "t", "partitions": rows}], **more)

            session_id = (await client.ask(ApiKey.FETCH, 12, at_the_end(session_epoch=0)))["session_id"]
            real = loop.call_later

            def call_later(delay: float, callback: Any, *more: Any, **named: Any) -> Any:
                if delay == 1_000:
                    expire.append(callback)
                return real(delay, callback, *more, **named)

            monkeypatch.setattr(loop, "call_later", call_later)
            monkeypatch.setattr(OsFile, "is_cached", lambda self, length, position: False)
            monkeypatch.setattr(OsFile, "pread_nowait", lambda self, length, position: None)
            for epoch in range(1, 4):
                asked = at_the_end(session_id=session_id, session_epoch=epoch, max_wait=1_000_000)
                client.send(ApiKey.FETCH, 12, asked)
                await stub.until(lambda epoch=epoch: len(expire) == epoch)
                partitions[epoch % 2].append_as_leader(memoryview(batch()), 1, now_ms=node.clock.now_ms())
                expire[-1]()
                partitions[1 - epoch % 2].append_as_leader(memoryview(batch()), 1, now_ms=node.clock.now_ms())
                answer = await client.receive(ApiKey.FETCH, 12)
                assert not answer["error_code"] and len(answer["responses"][0]["partitions"]) == 1
            assert not [each for each in caplog.records if each.levelname == "ERROR"]
            client.close()

    stub.run(test())


@pytest.mark.parametrize(("asked_by", "acks"), [("topic", -1), ("node", -1), ("topic", 1)])
def test_an_answer_waits_for_the_fsync_that_the_topic_asks_for(tmp_path: Any, asked_by: str, acks: int) -> None:
    of_topic = {"flush.messages": "1"} if asked_by == "topic" else {}
    of_node = {"log.flush.interval.messages": "1"} if asked_by == "node" else {}

    async def test() -> None:
        async with running(str(tmp_path), of_node) as node:
            producer, consumer = await Client.connect(node), await Client.connect(node)
            await producer.create("t", of_topic)
            for n in range(2):
                assert (await producer.produce("t", batch(), acks=acks))["base_offset"] == n
            log = next(iter(node.replicas)).log
            assert log.durable_offset == 2
            for n in range(8):  # of which the first fsync may serve one, and the next one all others
                producer.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks), n)
            for n in range(8):
                answer = await producer.receive(ApiKey.PRODUCE, 9)
                assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 2 + n
                assert log.durable_offset >= 3 + n
            assert (await consumer.fetch("t", 9))["high_watermark"] == 10
            producer.close()
            consumer.close()

    stub.run(test())


def test_a_stopping_node_answers_long_polls_and_starts_again_clean(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(node_module, "DRAIN_SECONDS_MAX", 1000)

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch())
            client.send(ApiKey.FETCH, 12, fetch_values("t", 1, max_wait=1_000_000))
            await stub.until(lambda: next(iter(node.replicas)).waiters)
            await node.stop()
            assert (await client.receive(ApiKey.FETCH, 12))["responses"][0]["partitions"][0]["error_code"] == 0
            assert await client.reader.read() == b""
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            assert (await client.fetch("t", 0))["high_watermark"] == 1
            assert next(iter(node.replicas)).log.recovery.recovered_bytes == 0
            client.close()

    stub.run(test())


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path: Any) -> None:
    """By another process: this one's own lock would be granted again."""
    lock = tmp_path / "d" / ".lock"
    lock.parent.mkdir()
    lock.touch()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"

    async def test() -> None:
        with pytest.raises(OttlaError, match="in use"):
            async with running(str(lock.parent)):
                pass

    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        stub.run(test())
        holder.kill()
    assert [each.name for each in lock.parent.iterdir()] == [".lock"]
