"""A whole node, mistreated: clients that leave, disks that fail, topics that go while they are read or written."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import OsFile
from ottla.protocol.messages import ApiKey
from ottla.server import node as node_module
from ottla.server.api import Deferred
from ottla.server.connections import receiving
from ottla.server.fetch.fetching import Fetch
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import TIME, Client, batch, fetch_values, produce_values, running


def log_of(node: Node, topic: str) -> Any:
    return node.replicas.find(topic, 0).log


async def alter(client: Client, topic: str, **configs: str) -> None:
    entries = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in configs.items()
    ]
    resource = {"resource_type": 2, "resource_name": topic, "configs": entries}
    values = {"resources": [resource], "validate_only": False}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    assert not answer["responses"][0]["error_code"], answer


async def delete(client: Client, topic: str) -> None:
    await client.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [topic], "timeout": 1000})


def reset(client: Client) -> None:
    """Go away without goodbye."""
    sock = client.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


class HeldDisk:
    """Lets nothing that a disk thread should do begin before `release`."""

    def __init__(self, node: Node, monkeypatch: Any) -> None:
        self._gate = threading.Event()
        self.asked = 0
        real = node.fs.run

        def run(work: Any) -> Any:
            self.asked += 1

            def wait() -> Any:
                self._gate.wait(300)
                return work()

            return real(wait)

        monkeypatch.setattr(node.fs, "run", run)

    def release(self) -> None:
        self._gate.set()


# Group commit.


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("learned", [False, True])
def test_what_a_producer_sent_before_it_left_is_committed(
    tmp_path: Any, monkeypatch: Any, acks: int, learned: bool
) -> None:
    """The fsync has no waiter any more, and no later append would advance the high watermark."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            producer, other = await Client.connect(node), await Client.connect(node)
            await producer.create("t", {"flush.messages": "1"})
            if learned:
                await producer.produce("t", batch())
            disk = HeldDisk(node, monkeypatch)
            end = log_of(node, "t").log_end_offset
            producer.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks))
            await stub.until(lambda: log_of(node, "t").log_end_offset > end)
            reset(producer)
            await stub.until(lambda: len(node.listeners[0].connections) == 1)
            disk.release()
            answer = await other.fetch("t", end, max_wait=1_000_000)
            assert (answer["high_watermark"], len(answer["records"])) == (end + 1, len(batch()))
            other.close()

    stub.run(test())


def test_nobody_sees_a_record_before_it_is_fsynced(tmp_path: Any, monkeypatch: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            producer, other = await Client.connect(node), await Client.connect(node)
            await producer.create("t", {"flush.messages": "1"})
            disk = HeldDisk(node, monkeypatch)
            producer.send(ApiKey.PRODUCE, 9, produce_values("t", batch()))
            await stub.until(lambda: disk.asked)
            for isolation in (0, 1):
                answer = await other.fetch("t", 0, isolation_level=isolation)
                assert (answer["error_code"], answer["high_watermark"], answer["records"]) == (0, 0, b"")
                for timestamp in (-1, -3, TIME):
                    partitions = [{"partition_index": 0, "timestamp": timestamp}]
                    topics = [{"name": "t", "partitions": partitions}]
                    values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
                    found = await other.ask(ApiKey.LIST_OFFSETS, 7, values)
                    assert found["topics"][0]["partitions"][0]["offset"] == (0 if timestamp == -1 else -1)
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
            deleted = await other.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1000})
            assert deleted["topics"][0]["partitions"][0]["error_code"] == ErrorCode.offset_out_of_range
            disk.release()
            await producer.receive(ApiKey.PRODUCE, 9)
            assert (await other.fetch("t", 0))["high_watermark"] == 1
            producer.close()
            other.close()

    stub.run(test())


def test_a_failed_fsync_is_an_error_and_what_it_was_for_is_never_read(tmp_path: Any, monkeypatch: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await Client.connect(node)
            await client.create("t", {"flush.messages": "1"})
            await client.create("u", {"flush.messages": "1"})
            assert (await client.produce("t", batch()))["error_code"] == 0
            real = OsFile.fsync

            def fsync(self: OsFile) -> None:
                if "/t-0/" in self.path:
                    raise OSError(errno.EIO, "bad disk")
                real(self)

            monkeypatch.setattr(OsFile, "fsync", fsync)
            for number in range(4):
                client.send(ApiKey.PRODUCE, 9, produce_values("t", batch()), number)
            for _ in range(4):
                answer = (await client.receive(ApiKey.PRODUCE, 9))["responses"][0]["partition_responses"][0]
                assert answer["error_code"] == ErrorCode.kafka_storage_error
            answer = await other.fetch("t", 1)
            assert (answer["error_code"], answer["records"]) == (ErrorCode.kafka_storage_error, b"")
            monkeypatch.setattr(OsFile, "fsync", real)
            assert (await client.produce("t", batch()))["error_code"] == ErrorCode.kafka_storage_error
            assert (await client.produce("u", batch()))["error_code"] == 0
            client.close()
            other.close()

    stub.run(test())


# The produce shortcut.


@pytest.mark.parametrize("version", [3, 8, 9])
def test_the_shortcut_follows_what_becomes_of_its_topic(tmp_path: Any, version: int) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await Client.connect(node)

            async def produce(data: bytes, **more: Any) -> tuple[int, int]:
                answer = await client.produce("t", data, version=version, **more)
                return answer["error_code"], answer["base_offset"]

            await client.create("t")
            for offset in range(3):
                assert await produce(batch()) == (0, offset)
            await alter(other, "t", max_message_bytes="100")
            assert await produce(batch(500)) == (ErrorCode.message_too_large, -1)
            await alter(other, "t", max_message_bytes="100000", message_timestamp_type="LogAppendTime")
            assert await produce(batch(500), acks=1) == (0, 3)
            await alter(other, "t", compression_type="gzip", cleanup_policy="compact")
            assert await produce(batch(5000)) == (0, 4)
            assert len((await other.fetch("t", 4))["records"]) < 1000
            assert await produce(batch(500) + batch(500)) == (ErrorCode.invalid_record, -1)
            torn = bytearray(batch(500))
            torn[80] ^= 1
            assert await produce(bytes(torn)) == (ErrorCode.corrupt_message, -1)
            assert await produce(batch(500)[:-1]) == (ErrorCode.invalid_record, -1)
            await delete(other, "t")
            assert await produce(batch()) == (ErrorCode.unknown_topic_or_partition, -1)
            await other.create("t", {"flush.messages": "1"}, partitions=2)
            for offset in range(3):
                assert await produce(batch()) == (0, offset)
            await alter(other, "t", min_insync_replicas="2")
            assert await produce(batch()) == (0, 3), "as in Kafka, no more replicas are required than there are"
            assert await produce(batch(), acks=1) == (0, 4)
            client.close()
            other.close()

    stub.run(test())


@pytest.mark.parametrize("settings", [{}, {"message.timestamp.type": "LogAppendTime"}, {"compression.type": "lz4"}])
def test_a_refused_batch_leaves_no_trace_in_the_next(tmp_path: Any, settings: dict[str, str]) -> None:
    """What was written into its header before producer state refused it, or the write failed."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", settings)

            def data(sequence: int, epoch: int = 0) -> bytes:
                return batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)

            wanted = [(0, 0), (1, 1), (5, ErrorCode.out_of_order_sequence_number), (2, 2), (0, 0), (2, 2), (3, 3)]
            for sequence, expected in wanted:
                answer = await client.produce("t", data(sequence))
                if isinstance(expected, ErrorCode):
                    assert answer["error_code"] == expected
                else:
                    assert (answer["error_code"], answer["base_offset"]) == (0, expected)
            assert (await client.produce("t", data(0, 1)))["base_offset"] == 4
            assert (await client.produce("t", data(4)))["error_code"] == ErrorCode.invalid_producer_epoch
            assert (await client.produce("t", data(1, 1)))["base_offset"] == 5
            client.close()

    stub.run(test())


def test_a_full_disk_is_an_error_and_the_retry_succeeds(tmp_path: Any, monkeypatch: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", {"message.timestamp.type": "LogAppendTime"})
            await client.produce("t", batch())
            real, full = OsFile.pwrite, [0]

            def pwrite(self: OsFile, buffers: Any, position: int) -> int:
                if self.path.endswith(".log") and full[0]:
                    full[0] -= 1
                    real(self, [bytes(buffers[0])[:30]], position)
                    raise OSError(errno.ENOSPC, "full")
                return real(self, buffers, position)

            monkeypatch.setattr(OsFile, "pwrite", pwrite)
            full[0] = 2  # the shortcut and the handler
            assert (await client.produce("t", batch()))["error_code"] == ErrorCode.kafka_storage_error
            full[0] = 1
            assert (await client.produce("t", batch()))["base_offset"] == 1
            assert (await client.produce("t", batch()))["base_offset"] == 2
            assert len((await client.fetch("t", 0))["records"]) == 3 * len(batch())
            client.close()

    stub.run(test())


def test_refusals_are_logged_once_a_minute(tmp_path: Any, caplog: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            partition = node.replicas.find("t", 0)
            error = KafkaError(ErrorCode.kafka_storage_error, "no space")
            for seconds in (0, 1, 59, 60, 61, 119, 120):
                node.replicas.warn_of_refusal(partition, error, TIME + seconds * 1000)
                told.append((seconds, caplog.text.count("records refused: the disk cannot be written")))
            client.close()

    told: list[tuple[int, int]] = []
    stub.run(test())
    assert told == [(0, 1), (1, 1), (59, 1), (60, 2), (61, 2), (119, 2), (120, 3)]


# Leaks.


def test_clients_that_connect_fetch_and_go_leave_nothing(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(receiving, "HALF_CLOSED_SECONDS_MAX", 0.05)
    others = fetches_alive()

    async def come_and_go(node: Node, number: int) -> None:
        client = await Client.connect(node)
        client.send(ApiKey.FETCH, 12, fetch_values("t", number % 3, max_wait=number % 2 * 60_000, session_epoch=0))
        if number % 5:
            await asyncio.sleep(0)
        if number % 3:
            reset(client)
        else:
            client.close()

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(2):
                await client.produce("t", batch(50_000))
            listener = node.listeners[0]
            for _ in range(3):
                await asyncio.gather(*(come_and_go(node, number) for number in range(20)))
            await stub.until(lambda: listener.admitted == 61 and len(listener.connections) == 1)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                await asyncio.gather(*(come_and_go(node, number) for number in range(50)))
            await stub.until(lambda: listener.admitted == 1061 and len(listener.connections) == 1)
            assert not node.replicas.find("t", 0).waiters
            await stub.until(lambda: len(os.listdir("/proc/self/fd")) <= before)
            assert len(node.sessions) <= 1000
            # A disk thread may be about to read for some of them, and the loop to hear of it.
            await stub.until(lambda: not fetches_alive(others))
            client.close()

    stub.run(test())


def fetches_alive(others: Sequence[Any] = ()) -> list[Any]:
    """But for those that other tests of this process left."""
    gc.collect()
    known = set(map(id, others))
    return [thing for thing in gc.get_objects() if type(thing) in (Fetch, Deferred) and id(thing) not in known]


def test_nothing_is_read_for_clients_that_left_before_their_turn_at_the_disk(tmp_path: Any, monkeypatch: Any) -> None:
    """Else those who come and go keep the disk from those who stay."""
    read: list[str] = []
    others = fetches_alive()

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch(200_000))
            monkeypatch.setattr(OsFile, "is_cached", lambda self, length, position: False)
            disk = HeldDisk(node, monkeypatch)
            real = OsFile.pread

            def pread(self: OsFile, length: int, position: int) -> bytes:
                read.append(self.path)
                return real(self, length, position)

            monkeypatch.setattr(OsFile, "pread", pread)
            clients = [await Client.connect(node) for _ in range(20)]
            for each in clients:
                each.send(ApiKey.FETCH, 12, fetch_values("t", 0, session_epoch=0))
            await stub.until(lambda: disk.asked == 20)
            for each in clients:
                reset(each)
            await stub.until(lambda: len(node.listeners[0].connections) == 1)
            disk.release()
            await stub.until(lambda: not fetches_alive(others))
            assert not read
            assert not len(node.sessions), "an unknown session"
            assert (await client.fetch("t", 0))["records"]
            assert read
            client.close()

    stub.run(test())


@pytest.mark.parametrize("how", ["topic", "records", "retention"])
def test_a_slow_reader_gets_what_it_was_promised_although_it_is_deleted(tmp_path: Any, how: str) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client, slow = await Client.connect(node), await Client.connect(node)
            await client.create("t", {"segment.bytes": "4000000", "file.delete.delay.ms": "0"})
            for _ in range(12):
                await client.produce("t", batch(900_000))
            size = sum(segment.size for segment in node.replicas.find("t", 0).log.segments)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            offset = 0
            for number in range(3):
                asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
                values = fetch_values("t", 0, topics=[{"topic": "t", "partitions": [asked]}])
                slow.send(ApiKey.FETCH, 12, values, number)
                offset += 4
            await asyncio.sleep(0.05)
            if how == "topic":
                await delete(client, "t")
            elif how == "records":
                topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": -1}]}]
                await client.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1000})
                log_of(node, "t").delete_old_segments(node.clock.now_ms())
            else:
                await alter(client, "t", retention_bytes="0")
                log_of(node, "t").delete_old_segments(node.clock.now_ms())
            await node.logs.delete_scheduled(node.clock.now_ms() + 1000)
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            answer = await slow.receive(ApiKey.FETCH, 12)
            records = answer["responses"][0]["partitions"][0]["records"]
            assert len(records) >= size / 4 and records.count(0) > 3_000_000
            for _ in range(2):  # began after the deletion, or before it: whole, or an error
                answer = (await slow.receive(ApiKey.FETCH, 12))["responses"][0]["partitions"][0]
                assert answer["error_code"] or len(answer["records"]) in (0, len(records))
            del answer, records
            slow.close()
            client.close()
            await stub.until(lambda: not node.listeners[0].connections)
            gc.collect()
            assert not [name for name in open_files() if "(deleted)" in name and str(tmp_path) in name]

    stub.run(test())


def open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found


# Background work and the end.


def test_periodic_tasks_survive_an_error_and_log_it(tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(node_module, "PERIODIC_TASKS_SECONDS", 0.005)
    rounds = [0, 0]

    async def test() -> None:
        async with running(str(tmp_path)) as node:

            def periodic(now_ms: int) -> None:
                rounds[0] += 1
                raise ZeroDivisionError("periodic")

            async def background(now_ms: int) -> None:
                rounds[1] += 1
                if rounds[1] == 2:
                    raise RuntimeError("background")

            monkeypatch.setattr(node.logs, "periodic", periodic)
            monkeypatch.setattr(node.logs, "background", background)
            await stub.until(lambda: rounds[1] > 3)

    stub.run(test())
    assert "ZeroDivisionError: periodic" in caplog.text and "RuntimeError: background" in caplog.text


def test_stopping_waits_for_a_checkpoint_that_is_being_written(tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    """A thread cannot be cancelled: it would write the same temporary file as the stop does."""
    monkeypatch.setattr(node_module, "PERIODIC_TASKS_SECONDS", 0.005)

    async def test() -> None:
        settings = {"log.flush.offset.checkpoint.interval.ms": "1"}
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch())
            disk = HeldDisk(node, monkeypatch)
            asked = disk.asked
            await client.produce("t", batch())
            await stub.until(lambda: disk.asked > asked)
            stopping = asyncio.ensure_future(node.stop())
            await asyncio.sleep(0.02)
            disk.release()
            await stopping
            client.close()

    stub.run(test())
    assert os.path.exists(tmp_path / ".kafka_cleanshutdown")
    assert caplog.messages == []


def test_a_topic_comes_again_while_a_checkpoint_is_written(tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            for _ in range(3):
                await client.produce("t", batch())
            await node.logs.checkpoint("replication-offset-checkpoint")
            await client.produce("t", batch())
            real = node.fs.run
            disk = HeldDisk(node, monkeypatch)
            writing = asyncio.ensure_future(node.logs.checkpoint("replication-offset-checkpoint"))
            await stub.until(lambda: disk.asked)
            monkeypatch.setattr(node.fs, "run", real)
            await delete(client, "t")
            await client.create("t")
            disk.release()
            await writing
            assert "t 0 " not in (tmp_path / "replication-offset-checkpoint").read_text().replace("t 0 0", "")
            assert (await client.produce("t", batch()))["base_offset"] == 0
            client.close()

    stub.run(test())
    assert caplog.messages == []


def test_stopping_under_load_and_starting_again_on_the_same_port(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(node_module, "DRAIN_SECONDS_MAX", 1000)

    async def load(client: Client, acknowledged: list[int]) -> None:
        try:
            while True:
                acknowledged.append((await client.produce("t", batch(1000)))["base_offset"])
        except (ConnectionError, asyncio.IncompleteReadError):
            client.close()

    async def test() -> None:
        acknowledged: list[int] = []
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            clients = [await Client.connect(node) for _ in range(10)]
            poller = await Client.connect(node)
            poller.send(ApiKey.FETCH, 12, fetch_values("t", 1 << 20, max_wait=1_000_000))
            work = [asyncio.ensure_future(load(each, acknowledged)) for each in clients]
            await stub.until(lambda: len(acknowledged) > 200)
            port = node.ports["PLAINTEXT"]
            await node.stop()
            await asyncio.gather(*work)
        assert len(set(acknowledged)) == len(acknowledged)
        async with running(str(tmp_path), {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as node:
            client = await Client.connect(node)
            assert (await client.fetch("t", 0))["high_watermark"] > max(acknowledged)
            assert log_of(node, "t").recovery.recovered_bytes == 0
            client.close()

    stub.run(test())


def test_one_full_fsync_of_a_log_at_a_time(tmp_path: Any, monkeypatch: Any) -> None:
    """Two would replace the same files under each other, and the loser would take the log offline."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch())
            log = log_of(node, "t")
            disk = HeldDisk(node, monkeypatch)
            first = asyncio.ensure_future(log.flush_all_async())
            await stub.until(lambda: disk.asked)
            await client.produce("t", batch())
            others = [asyncio.ensure_future(log.flush_all_async()) for _ in range(5)]
            first.cancel()  # its thread goes on
            await asyncio.sleep(0.01)
            assert disk.asked == 1
            disk.release()
            await asyncio.gather(*others)
            assert (disk.asked, log.recovery_point, log.failure) == (2, 2, None)
            client.close()

    stub.run(test())
