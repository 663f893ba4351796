"""Disks that are full, read-only, missing or failing under a running node."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from tests.conformance.operations.operations import Client, eventually, name_of, refused, remount, small_disk
from tests.node import NodeProcess

SMALL_FILES = {"log.segment.bytes": "1048576", "log.index.size.max.bytes": "65536"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "6m") as mounted:
        yield mounted


def fill(disk: Path) -> Path:
    """Take all the space that is left, to the last byte."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    for size in (65536, 4096, 1):
        try:
            while True:
                os.write(descriptor, b"z" * size)
        except OSError:
            pass
    os.close(descriptor)
    return filler


def node_on(*directories: Path, output: Path, **settings: str) -> NodeProcess:
    node = NodeProcess(directories[0], {**SMALL_FILES, "log.dirs": ",".join(map(str, directories)), **settings})
    node.output = output
    return node


def test_a_full_disk_refuses_writes_until_there_is_room(disk: Path, tmp_path: Path) -> None:
    with node_on(disk / "data", output=tmp_path / "out") as node:
        client = Client(node)
        assert client.create("t") == "none"
        client.produce_all("t", b"before")
        filler = fill(disk)
        big = b"x" * 5000
        assert {client.produce("t", big)["error"] for _ in range(3)} == {"kafka_storage_error"}
        # Metadata has some room left in its last page; the first topics may be made, but there is no room for logs.
        created = [client.create(f"wide-{number}", 30) for number in range(3)]
        assert created[-1] == "kafka_storage_error"
        assert client.read("t") == {0: b"before"}
        filler.unlink()
        client.produce_all("t", b"after")
        assert client.create("new") == "none"
        client.produce_all("new", b"first")
        for topic in client.topics():
            if topic.startswith("wide"):  # was promised, and is kept as soon as it can be
                eventually(lambda topic=topic: client.produce(topic, b"x", partition=29)["error"] == "none")  # type: ignore[misc]
        topics = client.topics()
        fill(disk)
        assert node.stop() == 0
        output = (tmp_path / "out").read_text()
        assert "Traceback" not in output and "No space left" in output
        assert output.count("WARN ottla.logs: records refused: the disk cannot be written partition=t-0") == 1
        filler.unlink()
        node.start()
        client = Client(node)
        assert client.topics() == topics
        assert client.read("t") == {0: b"before", 1: b"after"}
        assert client.read("new") == {0: b"first"}


def test_a_start_on_a_full_disk_says_how_much_room_it_needs(disk: Path, tmp_path: Path) -> None:
    with node_on(disk / "data", output=tmp_path / "out") as node:
        Client(node).create("t")
        Client(node).produce_all("t", b"before")
        node.kill()
        filler = fill(disk)
        said = refused(disk / "data")
        assert "the disk is full" in said and "bytes free and needs about 1" in said, said
        filler.unlink()
        node.start()
        assert Client(node).read("t") == {0: b"before"}


def test_deleting_makes_room_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    with node_on(disk / "data", output=tmp_path / "out") as node:
        client = Client(node)
        assert client.create_all(["t", "u"], file_delete_delay_ms=0) == ["none", "none"]
        while client.produce("t", b"x" * 100_000)["error"] == "none":
            pass
        assert client.produce("u", b"x" * 100_000)["error"] == "kafka_storage_error"
        assert client.delete("t") == ["none"]
        eventually(lambda: client.produce("u", b"x" * 100_000)["error"] == "none")


def test_a_read_only_directory_is_refused_with_its_name(disk: Path, tmp_path: Path) -> None:
    with node_on(disk / "data", output=tmp_path / "out") as node:
        Client(node).create("t")
        Client(node).produce_all("t", b"a")
    remount(disk, "ro")
    assert f"{disk}/data: read-only file system; give a writable one" in refused(disk / "data")
    remount(disk, "rw")
    with node:
        assert Client(node).read("t") == {0: b"a"}


def partitions(client: Client, topic: str) -> dict[int, tuple[str, int]]:
    """(error, leader) by partition."""
    answer = client.ask(ApiKey.METADATA, 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    found = answer["topics"][0]["partitions"]
    return {each["partition_index"]: (name_of(each["error_code"]), each["leader_id"]) for each in found}


def filled(node: NodeProcess, bad: Path) -> set[int]:
    """Make a topic in two log directories; returns the partitions that `bad` has."""
    client = Client(node)
    assert client.create("t", 4) == "none"
    for number in range(4):
        client.produce_all("t", b"%d" % number, partition=number)
    there = {number for number in range(4) if (bad / f"t-{number}").exists()}
    assert len(there) == 2
    return there


def test_one_of_two_log_directories_fails(disk: Path, tmp_path: Path) -> None:
    """What was in it is unavailable, not recreated elsewhere, and comes back with it (KIP-858)."""
    good, bad = tmp_path / "good", disk / "bad"
    with node_on(good, bad, output=tmp_path / "out") as node:
        there = filled(node, bad)
        node.kill()
        remount(disk, "ro")
        node.start()
        client = Client(node)
        for number in range(4):
            expected = "kafka_storage_error" if number in there else "none"
            assert client.produce("t", b"more", partition=number)["error"] == expected
            assert client.fetch("t", partition=number)["error"] == expected
            listed = ("leader_not_available", -1) if number in there else ("none", 1)
            assert partitions(client, "t")[number] == listed
        assert client.create("new", 2) == "none"
        assert all((good / f"new-{number}").exists() for number in (0, 1))
        assert node.stop() == 0
        remount(disk, "rw")
        node.start()
        client = Client(node)
        for number in range(4):
            client.produce_all("t", b"last", partition=number)
            values = [b"%d" % number, b"last"] if number in there else [b"%d" % number, b"more", b"last"]
            assert list(client.read("t", partition=number).values()) == values


def epochs(client: Client, topic: str) -> dict[int, int]:
    answer = client.ask(ApiKey.METADATA, 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    return {each["partition_index"]: each["leader_epoch"] for each in answer["topics"][0]["partitions"]}


def test_a_lost_log_directory_is_recreated_only_on_request(tmp_path: Path) -> None:
    """As with Kafka 4.3, which refuses one that is not formatted, and then leads empty partitions in the next epoch."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    with node_on(good, bad, output=tmp_path / "out") as node:
        there = filled(node, bad)
        before = epochs(Client(node), "t")
        assert node.stop() == 0
        bad.rename(tmp_path / "aside")
        for is_there in (False, True):  # not mounted, or an empty disk
            if is_there:
                bad.mkdir()
            said = refused(None, "--set", f"log.dirs={good},{bad}")
            assert f"{bad} has no meta.properties, but the records of " in said
            assert all(f"t-{number}" in said for number in there)
            assert not (bad / "meta.properties").exists()
            shutil.rmtree(bad)
        (tmp_path / "aside").rename(bad)
        node.start()
        assert {number for number in range(4) if Client(node).read("t", partition=number)} == {0, 1, 2, 3}
        node.kill()

        shutil.rmtree(bad)
        said = refused(None, "--set", f"log.dirs={good},{bad}")
        subprocess.run(said.split("`")[1], shell=True, check=True)
        node.start()
        lost = ", ".join(f"t-{number}" for number in sorted(there))
        told = (tmp_path / "out").read_text()
        assert "RECORDS ARE LOST: a log directory is missing; its partitions are recreated empty" in told
        assert lost in told
        client = Client(node)
        # Of each of the two restarts: nobody leads, then this node again.
        assert epochs(client, "t") == {number: epoch + 4 for number, epoch in before.items()}
        for number in range(4):
            assert partitions(client, "t")[number] == ("none", 1)
            assert client.read("t", partition=number) == ({} if number in there else {0: b"%d" % number})
            client.produce_all("t", b"new", partition=number)
        assert {number for number in range(4) if (bad / f"t-{number}").exists()} == there
        assert node.stop() == 0
        node.start()
        for number in range(4):
            assert [*Client(node).read("t", partition=number).values()][-1] == b"new"
        assert (tmp_path / "out").read_text().count("RECORDS ARE LOST") == 1


def test_a_log_directory_more_needs_nothing(tmp_path: Path) -> None:
    good, more = tmp_path / "good", tmp_path / "more"
    with node_on(good, output=tmp_path / "out") as node:
        assert Client(node).create("t", 2) == "none"
        assert node.stop() == 0
        node.settings["log.dirs"] = f"{good},{more}"
        node.start()
        assert Client(node).create("u", 2) == "none"
        assert (more / "u-0").exists() and (more / "meta.properties").exists()


def test_without_the_directory_of_the_metadata_no_node_starts(disk: Path, tmp_path: Path) -> None:
    with node_on(disk / "first", tmp_path / "second", output=tmp_path / "out"):
        pass
    remount(disk, "ro")
    assert "holds the metadata log" in refused(None, "--set", f"log.dirs={disk}/first,{tmp_path}/second")


def test_a_disk_error_in_the_metadata_log_ends_the_process(tmp_path: Path) -> None:
    """Writes beyond a limit of the process fail as those to a broken disk do; the next start recovers."""
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        assert client.create("t", 200) == "none"
        client.produce_all("t", b"a")
        assert node.process is not None
        (log,) = (node.data / "__cluster_metadata-0").glob("*.log")
        limit = log.stat().st_size
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        client.wire.send(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 9000})
        assert node.process.wait(300) == 1
        node.process = None
        assert "FATAL ottla.node: the node halts" in node.output.read_text()
        assert not (node.data / ".kafka_cleanshutdown").exists()
        node.start()
        client = Client(node)
        assert client.read("t") == {0: b"a"}
        assert client.create("u") == "none"


def test_a_log_whose_disk_fails_goes_offline_alone(tmp_path: Path) -> None:
    """Writes beyond a limit of the process fail as those to a broken disk do."""
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        assert client.create_all(["large", "small"]) == ["none", "none"]
        client.produce_all("large", b"x" * 100_000)
        client.produce_all("small", b"a")
        assert node.process is not None
        limit = 200_000
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        assert [client.produce("large", b"y" * 60_000)["error"] for _ in range(3)] == [
            "none",
            "kafka_storage_error",
            "kafka_storage_error",
        ]
        assert client.fetch("large")["error"] == "kafka_storage_error"
        client.produce_all("small", b"b")
        assert client.create("other") == "none"
        assert node.stop() == 0
        assert not (node.data / ".kafka_cleanshutdown").exists(), "what failed has to be checked by the next start"
        node.start()
        client = Client(node)
        assert {number: len(value) for number, value in client.read("large").items()} == {0: 100_000, 1: 60_000}
        assert client.read("small") == {0: b"a", 1: b"b"}
        client.produce_all("large", b"z")
