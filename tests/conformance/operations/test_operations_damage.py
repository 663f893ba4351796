"""Files that are lost, torn or damaged between stop and start: what a client finds afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.conformance.operations.operations import Client, eventually, refused, segment_files
from tests.node import NodeProcess

RECORDS = 10
SEGMENT_BYTES = 16_000
VALUES = {number: b"%d" % number * 4000 for number in range(RECORDS)}
"""Three to a segment."""
TIME = int(time.time() * 1000) - RECORDS
"""Time of the first record. A day later, or if it were a day ago, a clean start would have forgotten the producer."""


def logs(partition: Path) -> list[Path]:
    return [partition / name for name in segment_files(partition)]


def garbage(count: int) -> bytes:
    return Random(7).randbytes(count)


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def cut(path: Path, count: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - count)


def remove(suffix: str) -> Callable[[Path], None]:
    def damage(partition: Path) -> None:
        for name in segment_files(partition, suffix):
            (partition / name).unlink()

    return damage


def scramble(suffix: str) -> Callable[[Path], None]:
    """Other content of the same length."""

    def damage(partition: Path) -> None:
        for name in segment_files(partition, suffix):
            path = partition / name
            path.write_bytes(garbage(path.stat().st_size))

    return damage


def truncate(suffix: str) -> Callable[[Path], None]:
    """Half an entry is lost."""

    def damage(partition: Path) -> None:
        for name in segment_files(partition, suffix):
            if (partition / name).stat().st_size > 5:
                cut(partition / name, 5)

    return damage


def new_segment_without_indexes(partition: Path) -> None:
    (partition / f"{RECORDS:020d}.log").touch()


def new_segment_without_log(partition: Path) -> None:
    (partition / f"{RECORDS:020d}.index").touch()
    (partition / f"{RECORDS:020d}.timeindex").touch()


def old_segment_half_deleted(partition: Path) -> None:
    first = logs(partition)[0]
    first.rename(first.with_name(first.name + ".deleted"))


def empty_id(partition: Path) -> None:
    (partition / "partition.metadata").write_bytes(b"")


def leftovers(partition: Path) -> None:
    for name in (f"{0:020d}.index.deleted", f"{3:020d}.log.cleaned", "leader-epoch-checkpoint.tmp"):
        (partition / name).write_bytes(garbage(100))


class Damage(NamedTuple):
    do: Callable[[Path], None]
    first: int = 0
    """The first and the last record that are there afterwards."""
    last: int = RECORDS - 1


HARMLESS = {
    "lost-index": Damage(remove(".index")),
    "scrambled-index": Damage(scramble(".index")),
    "torn-index": Damage(truncate(".index")),
    "lost-timeindex": Damage(remove(".timeindex")),
    "scrambled-timeindex": Damage(scramble(".timeindex")),
    "torn-timeindex": Damage(truncate(".timeindex")),
    "lost-snapshots": Damage(remove(".snapshot")),
    "scrambled-snapshots": Damage(scramble(".snapshot")),
    "torn-snapshots": Damage(truncate(".snapshot")),
    "lost-epochs": Damage(remove("leader-epoch-checkpoint")),
    "scrambled-epochs": Damage(scramble("leader-epoch-checkpoint")),
    "lost-id": Damage(remove("partition.metadata")),
    "empty-id": Damage(empty_id),
    "half-rolled": Damage(new_segment_without_indexes),
    "half-rolled-indexes": Damage(new_segment_without_log),
    "leftovers": Damage(leftovers),
}
SHORTENING = {
    "torn-batch": Damage(lambda partition: cut(logs(partition)[-1], 10), last=RECORDS - 2),
    "torn-header": Damage(lambda partition: cut(logs(partition)[-1], 4060), last=RECORDS - 2),
    "garbage-tail": Damage(lambda partition: append(logs(partition)[-1], garbage(999))),
    "zeros-tail": Damage(lambda partition: append(logs(partition)[-1], bytes(4096))),
    "half-deleted": Damage(old_segment_half_deleted, first=3),
}


def write(client: Client, topic: str) -> int:
    """Fill a log as an idempotent producer; returns its id."""
    producer_id = client.producer_id()
    for number, value in VALUES.items():
        answer = produce(client, topic, producer_id, number, value)
        assert (answer["error"], answer["base_offset"]) == ("none", number)
    return producer_id


def produce(client: Client, topic: str, producer_id: int, sequence: int, value: bytes) -> dict[str, object]:
    answer: dict[str, object] = client.produce(
        topic, value, timestamp=TIME + sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return answer


def check(client: Client, topic: str, damage: Damage, producer_id: int) -> None:
    """Records, look-up by time, producer state, and that the log goes on."""
    expected = {number: value for number, value in VALUES.items() if damage.first <= number <= damage.last}
    assert client.read(topic) == expected
    for number in expected:
        assert client.offset(topic, TIME + number) == number
    answer = produce(client, topic, producer_id, damage.last, VALUES[damage.last])
    assert (answer["error"], answer["base_offset"]) == ("none", damage.last), "a retry is a duplicate"
    assert produce(client, topic, producer_id, damage.last + 2, b"gap")["error"] == "out_of_order_sequence_number"
    answer = produce(client, topic, producer_id, damage.last + 1, b"next")
    assert (answer["error"], answer["base_offset"]) == ("none", damage.last + 1)
    assert client.offset(topic, -1) == damage.last + 2


def problems(directory: Path) -> list[dict[str, str]]:
    """Problems found by `ottla log dump`."""
    shown = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "log", "dump", "--json", str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found: list[dict[str, str]] = json.loads(shown.stdout.splitlines()[-1])["problems"]
    return found


@pytest.mark.parametrize("stopped", ["cleanly", "by a kill"])
def test_damaged_logs(tmp_path: Path, stopped: str) -> None:
    """Every log of the node has a damage of its own."""
    damages = HARMLESS | SHORTENING
    if stopped == "cleanly":
        del damages["lost-snapshots"]  # as for Kafka, a clean stop without any says that there were no producers
        del damages["torn-batch"], damages["torn-header"]  # were fsynced: test_operations_repair.py
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        assert set(client.create_all([*damages], internal_segment_bytes=SEGMENT_BYTES)) == {"none"}
        producers = {topic: write(client, topic) for topic in damages}
        assert all(len(segment_files(node.data / f"{topic}-0")) == 4 for topic in damages)
        node.stop() if stopped == "cleanly" else node.kill()
        for topic, damage in damages.items():
            damage.do(node.data / f"{topic}-0")
        node.start()
        client = Client(node)
        assert client.topics() == sorted(damages)
        for topic, damage in damages.items():
            check(client, topic, damage, producers[topic])
        assert not list(node.data.glob("*/*.deleted")) and not list(node.data.glob("*/*.cleaned"))
        assert node.stop() == 0
        found = problems(node.data)
        if stopped == "cleanly":  # indexes that lead astray are only noticed, not replaced, below the last segment
            found = [problem for problem in found if not problem["path"].endswith("index")]
        assert found == []


def test_damaged_files_of_the_whole_directory(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        client.create("t", internal_segment_bytes=SEGMENT_BYTES)
        producer_id = write(client, "t")
        for number, damage in enumerate((garbage(300), b"", b"0\n5\nt 0 3\n", b"0\n1\nt 0 99999\n")):
            node.stop() if number % 2 else node.kill()
            for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
                (node.data / name).write_bytes(damage)
            (node.data / "log-start-offset-checkpoint").write_bytes(damage.replace(b"99999", b"0"))
            append(node.data / "recovery-point-offset-checkpoint.tmp", b"half")
            if number == 3:
                (node.data / ".kafka_cleanshutdown").write_bytes(b"{")
            if number == 3:
                break  # beyond the end: what was fsynced is missing
            node.start()
            client = Client(node)
            assert client.read("t") == VALUES
        node.start()
        assert Client(node).produce("t", b"x")["error"] == "kafka_storage_error"
        assert f"records up to {99999} were fsynced" in node.output.read_text()
        node.stop()
        (node.data / "recovery-point-offset-checkpoint").unlink()
        (node.data / "replication-offset-checkpoint").unlink()
        node.start()
        client = Client(node)
        check(client, "t", Damage(lambda _: None), producer_id)


def test_deletions_that_got_half_way(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        client.create_all(["t", "gone"])
        client.produce_all("t", b"a")
        client.produce_all("gone", b"a")
        node.kill()
        shutil.copytree(node.data / "gone-0", node.data / f"gone-0.{'0' * 32}-delete")
        shutil.copytree(node.data / "gone-0", node.data / "unknown-0")
        node.start()
        client = Client(node)
        assert client.topics() == ["gone", "t"]
        assert client.read("gone") == {0: b"a"}
        assert client.delete("gone") == ["none"]
        node.kill()  # while the renamed directory waits for its end
        node.start()
        assert Client(node).topics() == ["t"]
        assert Client(node).read("t") == {0: b"a"}
        names = [path.name for path in node.data.iterdir() if path.is_dir()]
        assert [name for name in names if name.startswith("unknown-0.") and name.endswith("-stray")]


def test_the_end_of_the_metadata_log_is_torn(tmp_path: Path) -> None:
    """What was not wholly written was never answered; what follows it starts behind the last whole batch."""
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        assert client.create("t") == "none"
        client.produce_all("t", b"a")
        node.kill()
        metadata = node.data / "__cluster_metadata-0"
        whole = logs(metadata)[0].read_bytes()
        append(logs(metadata)[0], whole[61:400])
        for name in segment_files(metadata, ".index") + segment_files(metadata, ".timeindex"):
            (metadata / name).write_bytes(garbage(37))
        (metadata / f"{999:020d}-{1:010d}.checkpoint.part").write_bytes(garbage(10))
        node.start()
        client = Client(node)
        assert client.read("t") == {0: b"a"}
        assert client.create("u") == "none"
        node.kill()
        (metadata / "quorum-state").unlink()
        node.start()
        assert Client(node).topics() == ["t", "u"]
        assert "truncated_bytes=339" in node.output.read_text()
        assert not list(metadata.glob("*.part"))


def test_directories_that_are_not_this_nodes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data):
        pass
    meta = data / "meta.properties"
    good = meta.read_text()
    quorum = data / "__cluster_metadata-0" / "quorum-state"
    state = quorum.read_text()

    assert "belongs to node 1" in refused(data, "--set", "node.id=2")
    meta.write_text("version=1\nnode.id=one\ncluster.id=x\n")
    assert str(meta) in refused(data)
    meta.write_text("version=7\n")
    assert f"{meta} has version 7" in refused(data)
    meta.write_text("version=1\nnode.id=1\n")
    assert f"{meta} lacks cluster.id" in refused(data)
    meta.unlink()
    assert "no meta.properties" in refused(data)

    other = tmp_path / "other"
    with NodeProcess(other):
        pass
    meta.write_text(good)
    assert "belongs to cluster" in refused(None, "--set", f"log.dirs={data},{other}")

    for damaged in ("", "{", '{"leaderId": "x"}', "[]"):
        quorum.write_text(damaged)
        assert str(quorum) in refused(data)
    quorum.write_text(state.replace('"voterId":1', '"voterId":3'))
    assert "quorum with controllers 3" in refused(data)
    quorum.write_text(state)
    with NodeProcess(data) as node:
        assert Client(node).topics() == []


def test_a_directory_in_use_is_refused_while_it_is(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        assert f"{node.data} is in use by another process" in refused(node.data)
        Client(node).create("t")
        node.kill()
        node.start()  # the lock went with its process
        assert Client(node).topics() == ["t"]


def test_recovery_reads_what_was_not_fsynced(tmp_path: Path) -> None:
    """However long the log is: the counter is in the line that a start after a kill prints."""
    settings = {"log.flush.offset.checkpoint.interval.ms": "100"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        client.create("t", flush_ms=50)
        for _ in range(40):
            client.produce_all("t", b"x" * 500_000)
        point = node.data / "recovery-point-offset-checkpoint"
        wait_for = f"t 0 {client.offset('t', -1)}"
        eventually(lambda: wait_for in point.read_text() if point.exists() else False)
        client.alter("t", flush_ms=9_000_000)
        client.produce_all("t", *[b"y" * 1000] * 20)
        node.kill()
        node.start()
        assert Client(node).offset("t", -1) == 60
        (line,) = [line for line in node.output.read_text().splitlines() if "unclean shutdown" in line]
        checked = int(line.partition("checked_bytes=")[2].split()[0])
        assert 20_000 < checked < 700_000, line  # the index has an entry per batch here: one old batch is read again
        client = Client(node)
        client.produce_all("t", b"z")
        node.stop()
        node.start()
        assert node.output.read_text().count("unclean shutdown") == 1
