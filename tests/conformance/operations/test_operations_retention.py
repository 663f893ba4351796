"""Segments that roll, logs that shrink, topics that come and go: what clients and the directory see of it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from tests.conformance.operations.operations import Client, eventually, refused, segment_files
from tests.conformance.operations.test_operations_repair import repair
from tests.node import NodeProcess

QUICK = {"log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "0"}


@pytest.fixture
def node(tmp_path: Path):  # type: ignore[no-untyped-def]
    with NodeProcess(tmp_path / "data", QUICK) as started:
        yield started


def segments(node: NodeProcess, topic: str) -> list[int]:
    return [int(name[:20]) for name in segment_files(node.data / f"{topic}-0")]


def test_segments_roll_by_size_time_and_index(node: NodeProcess) -> None:
    client = Client(node)
    client.create("size", internal_segment_bytes=2500)
    client.produce_all("size", *[b"x" * 1000] * 7)
    assert segments(node, "size") == [0, 2, 4, 6]

    # By time: the first append after the time is over, and the jitter only makes it earlier.
    client.create("time", segment_ms=60_000)
    client.create("jitter", segment_ms=60_000, segment_jitter_ms=59_999)
    now = int(time.time() * 1000)
    for step in (0, 30_000, 59_000, 61_000, 90_000, 122_000):  # a log tells the time by its records
        for topic in ("time", "jitter"):
            assert client.produce(topic, b"x", timestamp=now - 200_000 + step)["error"] == "none"
    assert segments(node, "time") == [0, 3, 5]
    assert len(segments(node, "jitter")) >= 3

    client.create("index", segment_index_bytes=24, index_interval_bytes=1)
    client.produce_all("index", *[b"x"] * 9)
    assert len(segments(node, "index")) > 2
    assert client.read("index") == dict.fromkeys(range(9), b"x")


def test_a_setting_takes_effect_at_once(node: NodeProcess) -> None:
    client = Client(node)
    client.create("t")
    client.produce_all("t", b"x" * 1000)
    assert client.alter("t", max_message_bytes=500) == "none"
    assert client.produce("t", b"x" * 1000)["error"] == "message_too_large"
    assert client.alter("t", max_message_bytes=5000, internal_segment_bytes=1200) == "none"
    client.produce_all("t", b"x" * 1000, b"x" * 1000)
    assert segments(node, "t") == [0, 1, 2]
    assert client.alter("t", message_timestamp_type="LogAppendTime") == "none"
    answer = client.produce("t", b"now", timestamp=1_600_000_000_000)
    assert answer["error"] == "none" and answer["log_append_time"] is not None
    assert client.alter("t", retention_bytes=1) == "none"
    eventually(lambda: client.offset("t", -2) == 2)
    eventually(lambda: segments(node, "t") == [2])  # less than the active segment is never kept


@pytest.mark.parametrize("setting", ["retention_ms", "retention_bytes"])
def test_a_slow_consumer_loses_its_segment(node: NodeProcess, setting: str) -> None:
    """What it was being sent arrives whole; asking on from there, it is told that it is too late."""
    client = Client(node)
    client.create("t", internal_segment_bytes=1_000_000)
    old = int(time.time() * 1000) - 1_000_000
    for number in range(24):
        assert client.produce("t", b"%d" % number * 240_000, timestamp=old)["error"] == "none"
    slow = socket.create_connection(("127.0.0.1", node.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}]}]
    request = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": topics,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    frame = messages.encode_request(ApiKey.FETCH, 12, 1, "slow", request)
    slow.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", slow.recv(4, socket.MSG_WAITALL))

    assert client.alter("t", **{setting: 0}) == "none"
    eventually(lambda: client.offset("t", -2) == 24)
    eventually(lambda: segments(node, "t") == [24])
    assert client.fetch("t", 5)["error"] == "offset_out_of_range"
    assert client.alter("t", **{setting: -1}) == "none"
    assert client.produce("t", b"new")["base_offset"] == 24

    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received = slow.recv(size, socket.MSG_WAITALL)
    answer = messages.plain(messages.decode_response(ApiKey.FETCH, 12, received)[1])
    records = bytes(answer["responses"][0]["partitions"][0]["records"])
    assert len(records) > 700_000
    assert records.startswith(b"\0" * 8) and b"0" * 240_000 in records
    slow.close()
    node.stop()
    node.start()
    client = Client(node)
    assert client.offset("t", -2) == 24
    assert client.read("t") == {24: b"new"}


def test_files_stay_for_the_delay(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", {"log.retention.check.interval.ms": "100"}) as node:
        client = Client(node)
        client.create("later", internal_segment_bytes=1200, file_delete_delay_ms=3_600_000, retention_bytes=0)
        client.create("soon", internal_segment_bytes=1200, file_delete_delay_ms=1000, retention_bytes=0)
        for topic in ("later", "soon"):
            client.produce_all(topic, *[b"x" * 1000] * 3)
        for topic in ("later", "soon"):
            eventually(lambda topic=topic: client.offset(topic, -2) == 3)  # type: ignore[misc]
        assert segment_files(node.data / "later-0", ".log.deleted")
        eventually(lambda: not segment_files(node.data / "soon-0", ".deleted"))
        assert len(segment_files(node.data / "later-0", ".log.deleted")) == 3
        client.delete("later", "soon")
        gone = eventually(lambda: [path for path in node.data.iterdir() if path.name.endswith("-delete")])
        assert [path.name[:8] for path in gone if path.name.startswith("later")] == ["later-0."]
        eventually(lambda: not list(node.data.glob("soon-0*")))
        assert list(node.data.glob("later-0.*-delete"))
        node.stop()
        node.start()  # nobody can be reading them now
        eventually(lambda: not list(node.data.glob("later-0*")))


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    settings = {"log.flush.start.offset.checkpoint.interval.ms": "100"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        client.create("t", internal_segment_bytes=3500)
        client.produce_all("t", *[b"x" * 1000] * 10)
        assert client.delete_records("t", 5)["low_watermark"] == 5
        checkpoint = node.data / "log-start-offset-checkpoint"
        eventually(lambda: checkpoint.exists() and "t 0 5" in checkpoint.read_text())
        node.kill()
        node.start()
        client = Client(node)
        assert client.offset("t", -2) == 5
        assert list(client.read("t")) == [5, 6, 7, 8, 9]
        assert client.delete_records("t", -1)["low_watermark"] == 10
        node.stop()
        node.start()
        client = Client(node)
        assert (client.offset("t", -2), client.offset("t", -1)) == (10, 10)
        client.produce_all("t", b"y")
        assert client.read("t") == {10: b"y"}


def test_flushing_settings_move_the_recovery_point(tmp_path: Path) -> None:
    settings = {"log.flush.offset.checkpoint.interval.ms": "100", "log.flush.interval.messages": "10"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        client.create("never", flush_messages=9_000_000)
        client.create("soon", flush_messages=9_000_000, flush_ms=100)
        client.create("tenth")
        for topic in ("never", "soon", "tenth"):
            client.produce_all(topic, *[b"x"] * 25)
        point = node.data / "recovery-point-offset-checkpoint"
        eventually(lambda: point.exists() and "soon 0 25" in point.read_text())
        assert "never 0 0" in point.read_text()
        node.kill()
        node.start()
        for topic in ("never", "soon", "tenth"):
            assert len(Client(node).read(topic)) == 25


def more(answers: Counter[str], error: str) -> None:
    """Wait until the writers got some more answers of a kind."""
    before = answers[error]
    eventually(lambda: answers[error] > before + 3)


def test_a_topic_is_deleted_while_it_is_produced_to(node: NodeProcess) -> None:
    """And recreated under its name: every record acknowledged since then is there, none of before."""
    admin = Client(node)
    admin.create("t")
    answers: Counter[str] = Counter()
    acknowledged: list[tuple[bytes, int]] = []
    generation = [0]
    stop = threading.Event()

    def write() -> None:
        client = Client(node)
        number = 0
        while not stop.is_set():
            before = generation[0]
            value = b"%d-%d" % (before, number)
            answer = client.produce("t", value)
            if answer["error"] == "none" and before == generation[0]:
                acknowledged.append((value, answer["base_offset"]))
            answers[answer["error"]] += 1
            number += 1

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for number in range(1, 6):
        more(answers, "none")
        assert admin.delete("t") == ["none"]
        more(answers, "unknown_topic_or_partition")
        generation[0] = number
        assert admin.create("t") == "none"
    more(answers, "none")
    eventually(lambda: any(value.startswith(b"5-") for value, _ in acknowledged))
    stop.set()
    for writer in writers:
        writer.join(300)
    assert answers.keys() == {"none", "unknown_topic_or_partition"}
    stored = admin.read("t")
    assert {offset: value for value, offset in acknowledged if value.startswith(b"5-")}.items() <= stored.items()
    assert sorted(stored) == list(range(len(stored)))
    node.kill()
    node.start()
    assert Client(node).read("t") == stored


def test_metadata_snapshots_replace_the_log_below_them(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "20000",
        "metadata.log.segment.ms": "50",
        "metadata.max.retention.bytes": "30000",
    }
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        metadata = node.data / "__cluster_metadata-0"
        assert client.create("t", retention_ms=1) == "none"
        for number in range(600):
            assert client.alter("t", retention_ms=number) == "none"
        eventually(lambda: len(segment_files(metadata, "0.checkpoint") + segment_files(metadata, "1.checkpoint")) > 0)
        assert min(int(name[:20]) for name in segment_files(metadata)) > 0, "the oldest part of the log is gone"
        node.kill()
        node.start()
        client = Client(node)
        assert client.topics() == ["t"]
        assert retention(client) == "599"
        # With the snapshot alone: what the log has behind it is lost, and only that, once somebody has said so.
        node.stop()
        for suffix in (".log", ".index", ".timeindex"):
            for name in segment_files(metadata, suffix):
                (metadata / name).unlink()
        assert "its log files are missing" in refused(node.data)
        repair(metadata)
        node.start()
        client = Client(node)
        assert client.topics() == ["t"]
        assert int(retention(client)) > 300
        assert client.create("u") == "none"
        node.kill()
        node.start()
        assert Client(node).topics() == ["t", "u"]


def retention(client: Client) -> str:
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]}
    request = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
    value: str = answer["results"][0]["configs"][0]["value"]
    return value


def resident(node: NodeProcess) -> int:
    """Bytes of memory that the node has now."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def descriptors(node: NodeProcess) -> int:
    assert node.process is not None
    return len(list(Path(f"/proc/{node.process.pid}/fd").iterdir()))


def test_topics_created_and_deleted_leave_nothing(node: NodeProcess) -> None:
    client = Client(node)
    client.create("stays")
    client.produce_all("stays", b"a")

    def churn(first: int) -> None:
        for start in range(first, first + 500, 50):
            names = [f"topic-{number}" for number in range(start, start + 50)]
            assert set(client.create_all(names)) == {"none"}
            for name in names[::10]:
                client.produce_all(name, b"x" * 1000)
                assert len(client.read(name)) == 1
            assert set(client.delete(*names)) == {"none"}
        eventually(lambda: not list(node.data.glob("topic-*")))

    churn(0)
    memory, files = resident(node), descriptors(node)
    churn(500)
    assert resident(node) - memory < 4 << 20
    assert descriptors(node) <= files + 2
    assert client.topics() == ["stays"]
    assert client.read("stays") == {0: b"a"}
    node.stop()
    names = {path.name for path in node.data.iterdir() if path.is_dir()}
    assert names == {"stays-0", "__cluster_metadata-0"}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        assert "topic-" not in (node.data / name).read_text()
    node.start()
    assert Client(node).topics() == ["stays"]
