"""Two log directories hold the same partition when a node starts."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.checkpoints.offset_checkpoint import RECOVERY_POINT_CHECKPOINT
from ottla.storage.config import LogConfig
from ottla.storage.log_manager import LogManager
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import all_offsets, append, new_disk
from tests.unit.storage.test_log_manager import ID, T0, T1, Managed

DIRS = ("/data", "/spare")


def copied(fs: SimulatedFileSystem, source: str, target: str) -> None:
    """As `cp -r`."""
    fs.makedirs(target)
    for path, data in fs.files(source).items():
        file = fs.open(f"{target}/{path.rpartition('/')[2]}", create=True)
        file.pwrite((data,), 0)
        file.close()


def stopped(fs: SimulatedFileSystem, count: int, directory: str, size: int = 10) -> None:
    """A log with so many records in a directory, of a node that stopped cleanly."""
    node = Managed(fs, (directory,))
    append(node.logs.create(T0, ID), count, size=size)
    node.logs.shutdown()


def two(fs: SimulatedFileSystem, first: int, second: int) -> None:
    """The same log in both directories, of which one has more records."""
    stopped(fs, min(first, second), "/data")
    copied(fs, "/data/t-0", "/spare/t-0")
    more = abs(first - second)
    if more:
        stopped(fs, more, "/data" if first > second else "/spare")


@pytest.mark.parametrize(("first", "second"), [(3, 3), (5, 3), (3, 5)])
def test_a_log_that_the_other_one_has_is_renamed_and_kept(first: int, second: int) -> None:
    fs = new_disk()
    two(fs, first, second)
    node = Managed(fs, DIRS)
    kept, spare = ("/spare", "/data") if second > first else ("/data", "/spare")
    log = node.logs.get(T0)
    assert log is not None and log.directory == f"{kept}/t-0"
    assert len(all_offsets(log)) == max(first, second)
    (told,) = [found for event, found in node.warnings if event.startswith("two log directories")]
    assert (told["partition"], told["served"], told["was"]) == (T0, f"{kept}/t-0", f"{spare}/t-0")
    renamed = str(told["renamed"])
    assert renamed.startswith(f"{spare}/t-0.") and renamed.endswith("-stray")
    assert any(path.endswith(".log") for path in fs.files(renamed)), "its records are kept"
    assert not fs.is_dir(f"{spare}/t-0")
    assert append(log, 1).first_offset == max(first, second)
    node.logs.shutdown()
    again = Managed(fs, DIRS)
    assert again.warnings == [] and len(again.logs) == 1


def test_an_empty_log_is_within_every_other() -> None:
    fs = new_disk()
    stopped(fs, 4, "/spare")
    empty = Managed(fs)
    empty.logs.create(T0, ID)
    empty.logs.shutdown()
    log = Managed(fs, DIRS).logs.get(T0)
    assert log is not None and log.directory == "/spare/t-0" and len(all_offsets(log)) == 4


@pytest.mark.parametrize("counts", [(3, 3), (2, 5)])
def test_where_nobody_knows_which_is_right_none_is_served(counts: tuple[int, int]) -> None:
    fs = new_disk()
    stopped(fs, counts[0], "/data")
    stopped(fs, counts[1], "/spare", size=11)
    before = {path: data for path, data in fs.files("/").items() if path.endswith(".log")}
    node = Managed(fs, DIRS)
    append(node.logs.create(T1, ID), 1)  # the rest is served
    assert node.logs.get(T0) is None
    message = node.logs.offline_logs[T0].error.message
    assert (
        message is not None and "/data/t-0" in message and "/spare/t-0" in message and "rename the wrong one" in message
    )
    assert "0 to " in message
    with pytest.raises(KafkaError) as caught:
        node.logs.create(T0, ID)
    assert caught.value.code == ErrorCode.kafka_storage_error
    node.logs.shutdown()
    after = {path: data for path, data in fs.files("/").items() if path.endswith(".log") and "t-0/" in path}
    assert after == before, "both are as they were"
    for directory, count in zip(DIRS, counts, strict=True):
        assert f"t 0 {count}".encode() in fs.read_bytes(f"{directory}/{RECOVERY_POINT_CHECKPOINT}")
    fs.rename("/spare/t-0", "/spare/wrong")
    log = Managed(fs, DIRS).logs.get(T0)
    assert log is not None and len(all_offsets(log)) == counts[0]


@pytest.mark.parametrize("damaged", DIRS)
def test_a_damaged_log_is_not_replaced_by_another(damaged: str) -> None:
    fs = new_disk()
    two(fs, 3, 3)
    (path,) = (path for path in fs.files(f"{damaged}/t-0") if path.endswith(".log"))
    fs.open(path).pwrite((b"\xff",), 30)
    for directory in DIRS:
        fs.remove(f"{directory}/.kafka_cleanshutdown") if fs.exists(f"{directory}/.kafka_cleanshutdown") else None
        checkpoint = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
        if not fs.exists(checkpoint):
            fs.write_atomic(checkpoint, b"0\n1\nt 0 3\n")
    node = Managed(fs, DIRS)
    assert node.logs.get(T0) is None
    offline = node.logs.offline_logs[T0]
    assert sorted(each.log_dir for each in offline.copies) == sorted(DIRS)
    assert offline.damage is not None
    node.logs.detach_offline(T0, "stray")
    assert not any(fs.is_dir(f"{directory}/t-0") for directory in DIRS), "both are out of the way"
    log = node.logs.create(T0, ID)
    assert log.log_end_offset == 0


def test_a_partition_that_moved_is_no_duplicate() -> None:
    """The checkpoint of its old directory still names it."""
    fs = new_disk()
    stopped(fs, 3, "/data")
    fs.makedirs("/spare")
    fs.rename("/data/t-0", "/spare/t-0")
    node = LogManager(fs, DIRS, LogConfig(), Managed(fs, ("/elsewhere",)).clock, random.Random(1))
    node.lock()
    node.load()
    assert node.get(T0) is not None and not node.offline_logs
