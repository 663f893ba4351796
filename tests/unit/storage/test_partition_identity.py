"""A partition's directory says which partition it is, and its epochs are held against its batches."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

import pytest

from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.checkpoints.partition_metadata import PartitionIdentity, read_identity
from ottla.storage.recovery.damage import Misplaced
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import ROOT, all_offsets, append, new_disk
from tests.unit.storage.test_log_manager import ID, OTHER_ID, Managed

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OF_KAFKA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAATQ"


def filled() -> SimulatedFileSystem:
    """Logs of three partitions with 1, 2 and 3 records, after a clean stop."""
    fs = new_disk()
    managed = Managed(fs)
    for count, (key, topic_id) in enumerate(((T0, ID), (T1, ID), (U0, OTHER_ID)), 1):
        append(managed.logs.create(key, topic_id), count)
    managed.logs.shutdown()
    return fs


def rename(fs: SimulatedFileSystem, source: str, target: str) -> None:
    fs.rename(posixpath.join(ROOT, source), posixpath.join(ROOT, target))


def swap(fs: SimulatedFileSystem, one: str, other: str) -> None:
    rename(fs, one, "aside")
    rename(fs, other, one)
    rename(fs, "aside", other)


def copy(fs: SimulatedFileSystem, source: str, target: str) -> None:
    fs.rmtree(posixpath.join(ROOT, target))
    fs.makedirs(posixpath.join(ROOT, target))
    for name in fs.listdir(posixpath.join(ROOT, source)):
        data = fs.read_bytes(posixpath.join(ROOT, source, name))
        fs.write_atomic(posixpath.join(ROOT, target, name), data)


MISPLACED: dict[str, tuple[Callable[[SimulatedFileSystem], None], set[TopicPartition]]] = {
    "two partitions changed places": (lambda fs: swap(fs, "t-0", "t-1"), {T0, T1}),
    "two topics' partitions changed places": (lambda fs: swap(fs, "t-0", "u-0"), {T0, U0}),
    "a copy under another partition's name": (lambda fs: copy(fs, "t-0", "t-1"), {T1}),
    "a copy under another topic's name": (lambda fs: copy(fs, "t-0", "u-0"), {U0}),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_directory_of_another_partition_is_not_served(name: str) -> None:
    change, misplaced = MISPLACED[name]
    fs = filled()
    change(fs)
    logs = Managed(fs).logs
    assert set(logs.offline_logs) == misplaced
    assert {log.topic_partition for log in logs} == {T0, T1, U0} - misplaced
    for key in misplaced:
        offline = logs.offline_logs[key]
        assert isinstance(offline.damage, Misplaced) and "is the directory of" in str(offline.damage)
        assert offline.topic_id is None, "it is the other topic's, by which this one would count as a stray"
        with pytest.raises(KafkaError):
            logs.create(key, ID)


def test_a_flipped_bit_is_no_other_partition() -> None:
    """The checksum tells a damaged file, which is written again, from that of another directory."""
    fs = filled()
    data = fs.read_bytes("/data/t-0/partition.metadata")
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        fs.write_atomic("/data/t-0/partition.metadata", bytes(changed))
        try:
            found = read_identity(fs, "/data/t-0")
        except CorruptFile:
            continue
        assert found is not None and found.directory in (None, "t-0"), (bit, found)
    fs = filled()
    fs.write_atomic("/data/t-0/partition.metadata", data.replace(b"t-0", b"t-4"))
    logs = Managed(fs).logs
    assert not logs.offline_logs and logs.create(T0, ID).topic_id == ID
    assert read_identity(fs, "/data/t-0") == PartitionIdentity(ID, "t-0")


def test_a_new_log_says_whose_it_is_and_a_file_of_kafkas_is_believed() -> None:
    fs = filled()
    assert read_identity(fs, "/data/t-0") == PartitionIdentity(ID, "t-0")
    assert fs.read_bytes("/data/t-0/partition.metadata").startswith(OF_KAFKA + b"\n"), "Kafka reads two lines"
    fs.write_atomic("/data/t-0/partition.metadata", OF_KAFKA)
    logs = Managed(fs).logs
    log = logs.get(T0)
    assert log is not None and logs.create(T0, ID) is log
    assert logs.unnamed == {"/data/t-0": T0}, "for the scrubber to complete it"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("0\n2\n0 0\n2147483647 3\n", id="an epoch that never was"),
        pytest.param("0\n1\n0 0\n", id="the later ones are missing"),
        pytest.param("0\n3\n0 0\n1 2\n7 4\n", id="another number"),
    ],
)
def test_epochs_that_the_batches_contradict_are_rebuilt(content: str, clean: bool) -> None:
    fs = new_disk()
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    for epoch in (0, 1, 4):
        log.assign_epoch(epoch)
        append(log, 2, epoch=epoch)
    if not clean:
        append(log, 1, epoch=4)
        log.roll()
    right = log.epochs.entries
    managed.logs.shutdown()
    if not clean:
        fs.remove("/data/.kafka_cleanshutdown")
    fs.write_atomic("/data/t-0/leader-epoch-checkpoint", content.encode())
    again = Managed(fs)
    log = again.logs.get(T0)  # type: ignore[assignment]
    assert log.epochs.entries == right and all_offsets(log) == list(range(6 if clean else 7))
    again.logs.shutdown()
    third = Managed(fs).logs.get(T0)
    assert third is not None and third.epochs.is_written and third.epochs.entries == right


def test_epochs_before_the_log_start_contradict_nothing() -> None:
    """The file of a log whose start has moved begins there, and a batch may lie on both sides."""
    fs = new_disk()
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    for epoch in (0, 3):
        log.assign_epoch(epoch)
        append(log, 4, epoch=epoch)
    log.delete_records(6)
    log.epochs.truncate_from_start(6)
    log.epochs.write()
    managed.logs.shutdown()
    found = Managed(fs).logs.get(T0)
    assert found is not None and found.epochs.entries == ((3, 6),)
