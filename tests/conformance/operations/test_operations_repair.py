"""What was fsynced and is damaged: the rest is served, /health and `ottla log verify` name it, `ottla log repair` goes
on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.records.record_batch import HEADER_SIZE
from ottla.testing.process import reserve
from tests.conformance.operations.operations import Client, refused, segment_files
from tests.node import NodeProcess

RECORDS = 12
VALUES = {number: b"%d" % number * 4000 for number in range(RECORDS)}
SEGMENT_BYTES = 16_000
"""Three records to a segment."""


def ottla(*arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def repair(directory: Path) -> str:
    """Look first, then do it; returns what was shown."""
    before = {path: path.read_bytes() for path in directory.glob("*") if path.is_file()}
    code, shown = ottla("log", "repair", directory)
    assert code == 1, shown
    assert {path: path.read_bytes() for path in directory.glob("*") if path.is_file()} == before
    code, done = ottla("log", "repair", directory, "--apply")
    assert code == 0, done
    assert ottla("log", "repair", directory) == (0, "Nothing to repair.\n")
    return shown


def flip(path: Path, position: int, count: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + count] = bytes(byte ^ 0x55 for byte in data[position : position + count])
    path.write_bytes(data)


def records_in_the_middle(data: bytes) -> int:
    """Where the records of a batch begin: a base offset could be told from the batches around it."""
    batch = 0
    while batch < len(data) // 2:
        batch += 12 + int.from_bytes(data[batch + 8 : batch + 12], "big")
    return batch + HEADER_SIZE


def health(port: int) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert answer.status == 200, "a restart would not mend it"
    found: dict[str, Any] = json.loads(answer.read())
    connection.close()
    return found


def log_of(partition: Path, number: int) -> Path:
    return partition / segment_files(partition)[number]


def header_of_a_batch(partition: Path) -> None:
    """Within the last two megabytes, where recall meets it."""
    flip(log_of(partition, 1), 8)


def middle_segment(partition: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        log_of(partition, 1).with_suffix(suffix).unlink()


def empty_segment(partition: Path) -> None:
    log_of(partition, 1).write_bytes(b"")


def torn_batch(partition: Path) -> None:
    path = log_of(partition, -1)
    path.write_bytes(path.read_bytes()[:-10])


def base_offset(partition: Path) -> None:
    flip(log_of(partition, 1), 7, 1)


def directory(partition: Path) -> None:
    shutil.rmtree(partition)


DAMAGES: dict[str, tuple[Callable[[Path], None], set[int]]] = {
    "header": (header_of_a_batch, {3}),
    "segment": (middle_segment, {3, 4, 5}),
    "empty": (empty_segment, {3, 4, 5}),
    "torn": (torn_batch, {RECORDS - 1}),
    "base": (base_offset, set()),
    "directory": (directory, set(range(RECORDS))),
}
"""What is done, and which records are gone after the repair."""


def write(client: Client, topic: str) -> None:
    producer_id = client.producer_id()
    for number, value in VALUES.items():
        answer = client.produce(topic, value, producer_id=producer_id, producer_epoch=0, base_sequence=number)
        assert (answer["error"], answer["base_offset"]) == ("none", number)


def test_damaged_partitions_stay_offline_until_they_are_repaired(tmp_path: Path) -> None:
    with reserve(0) as held:
        port = held.getsockname()[1]
    settings = {"ottla.http.listener": f"127.0.0.1:{port}"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        topics = [*DAMAGES, "sound"]
        assert set(client.create_all(topics, internal_segment_bytes=SEGMENT_BYTES)) == {"none"}
        for topic in topics:
            write(client, topic)
        assert health(port)["status"] == "healthy"
        assert node.stop() == 0
        for topic, (do, _) in DAMAGES.items():
            do(node.data / f"{topic}-0")
        damaged = {path: path.read_bytes() for topic in DAMAGES for path in (node.data / f"{topic}-0").glob("*.log")}
        code, shown = ottla("log", "verify", node.data)
        assert code == 1
        for topic in DAMAGES:
            assert f"ottla log repair {node.data / topic}-0" in shown, shown

        for _ in range(2):  # a second start does not take what the first left alone for a new log
            node.start()
            client = Client(node)
            assert client.topics() == sorted(topics)
            assert client.read("sound") == VALUES
            for topic in DAMAGES:
                assert client.produce(topic, b"x")["error"] == "kafka_storage_error", topic
                assert client.fetch(topic)["error"] == "kafka_storage_error"
            found = health(port)
            assert (found["status"], found["damaged_partitions"]) == ("damaged", len(DAMAGES))
            problems = {each["partition"]: each["problem"] for each in found["damage"]}
            for topic in DAMAGES:
                assert f"`ottla log repair {node.data / topic}-0`" in problems[f"{topic}-0"]
            code, shown = ottla("log", "repair", node.data)
            assert code == 1 and "in use by a running node" in shown
            assert node.stop() == 0
            assert {
                path: path.read_bytes() for topic in DAMAGES for path in (node.data / f"{topic}-0").glob("*.log")
            } == damaged
        for topic in DAMAGES:
            repair(node.data / f"{topic}-0")
        node.start()
        client = Client(node)
        for topic, (_, lost) in DAMAGES.items():
            assert client.produce(topic, b"x")["base_offset"] == RECORDS, "no offset is given twice"
            expected = {number: value for number, value in VALUES.items() if number not in lost}
            assert client.read(topic) == expected | {RECORDS: b"x"}
        assert health(port)["status"] == "healthy"
        assert node.stop() == 0
        assert ottla("log", "verify", node.data)[0] == 0


def test_a_damaged_partition_can_be_deleted_and_made_again(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        for topic in ("t", "u"):
            client.create(topic, internal_segment_bytes=SEGMENT_BYTES)
            write(client, topic)
        node.stop()
        header_of_a_batch(node.data / "t-0")
        directory(node.data / "u-0")
        node.start()
        client = Client(node)
        for topic in ("t", "u"):
            assert client.produce(topic, b"x")["error"] == "kafka_storage_error"
            assert client.delete(topic) == ["none"]
            assert client.create(topic) == "none"
            assert client.produce(topic, b"x")["base_offset"] == 0
        node.kill()
        node.start()
        assert Client(node).read("t") == Client(node).read("u") == {0: b"x"}


@pytest.mark.parametrize("stopped", ["cleanly", "by a kill"])
def test_a_damaged_metadata_log_refuses_the_start(tmp_path: Path, stopped: str) -> None:
    """Four flipped bytes in the middle of it, and no topic is taken for a stray one."""
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        for number in range(5):
            assert client.create(f"t{number}") == "none"
            client.produce_all(f"t{number}", b"a")
        node.stop() if stopped == "cleanly" else node.kill()
        metadata = node.data / "__cluster_metadata-0"
        path = log_of(metadata, 0)
        sound = path.read_bytes()
        flip(path, records_in_the_middle(sound))
        said = refused(node.data)
        assert str(path) in said and "at byte " in said and f"`ottla log repair {metadata}`" in said
        names = sorted(entry.name for entry in node.data.iterdir())
        assert not [name for name in names if name.endswith("-stray")]
        shown = repair(metadata)
        assert "kept in" in shown
        assert path.read_bytes() != sound and list(metadata.glob("*.cut"))
        node.start()
        found = Client(node).topics()
        assert len(found) >= 3, "what lies before and behind the damage is there"
        assert all(Client(node).read(topic) == {0: b"a"} for topic in found)


def test_the_first_segment_of_the_metadata_is_gone(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        Client(node).create("t")
        node.kill()
        metadata = node.data / "__cluster_metadata-0"
        for name in segment_files(metadata):
            (metadata / name).unlink()
        said = refused(node.data)
        assert "its log files are missing" in said and str(metadata) in said
        assert (node.data / "t-0").is_dir()


def test_an_empty_meta_properties_is_said_to_be_empty(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        pass
    for content in ("", "\n", "#\n"):
        (node.data / "meta.properties").write_text(content)
        said = refused(node.data)
        assert "ZooKeeper" not in said and "meta.properties" in said


def test_damage_in_the_groups_topic_is_said(tmp_path: Path) -> None:
    from ottla.protocol.messages import ApiKey

    with reserve(0) as held:
        port = held.getsockname()[1]
    settings = {"ottla.http.listener": f"127.0.0.1:{port}", "offsets.topic.num.partitions": "1"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        client.create("t")

        def find() -> int:
            request = {"key_type": 0, "coordinator_keys": ["g"]}
            return int(client.ask(ApiKey.FIND_COORDINATOR, 4, request)["coordinators"][0]["error_code"])

        def commit() -> int:
            partition = {
                "partition_index": 0,
                "committed_offset": 5,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            request = {
                "group_id": "g",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": "t", "partitions": [partition]}],
            }
            answer = client.ask(ApiKey.OFFSET_COMMIT, 8, request)
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        from tests.conformance.operations.operations import eventually

        eventually(lambda: find() == 0)
        eventually(lambda: commit() == 0)
        for _ in range(5):
            assert commit() == 0
        node.stop()
        partition = node.data / "__consumer_offsets-0"
        flip(log_of(partition, 0), 70)
        node.start()
        client = Client(node)
        eventually(lambda: health(port)["status"] == "damaged")
        assert "`ottla log repair" in health(port)["damage"][0]["problem"]
        assert find() == commit() == 15, "COORDINATOR_NOT_AVAILABLE"
        node.stop()
        repair(partition)
        node.start()
        client = Client(node)
        eventually(lambda: find() == 0)
        assert commit() == 0
