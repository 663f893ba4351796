from __future__ import annotations

import asyncio
import logging
import posixpath
import random
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.model import TopicPartition
from ottla.storage.checkpoints.partition_metadata import read_partition_metadata
from ottla.storage.config import LogConfig
from ottla.storage.log_directories import parse_directory_name
from ottla.storage.log_manager import LogManager
from ottla.storage.recovery.load_report import RECOVERIES_LOGGED_MAX
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import NOW, all_offsets, append, new_disk

ID = UUID(int=77)
OTHER_ID = UUID(int=78)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FixedClock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now


class Managed:
    """A manager with its clock and what it warned of."""

    def __init__(self, fs: SimulatedFileSystem, dirs: tuple[str, ...] = ("/data",), **options: Any) -> None:
        self.clock = FixedClock()
        self.warnings: list[tuple[str, dict[str, object]]] = []
        defaults = options.pop("defaults", LogConfig())
        self.logs = LogManager(fs, dirs, defaults, self.clock, random.Random(1), warn=self._warn, **options)
        self.logs.lock()
        self.logs.load()

    def _warn(self, event: str, /, **found: object) -> None:
        self.warnings.append((event, found))

    def background(self, after_ms: int = 0) -> None:
        self.clock.now += after_ms
        self.logs.periodic(self.clock.now)
        asyncio.run(self.logs.background(self.clock.now))


def kill(fs: SimulatedFileSystem) -> None:
    fs.restart(power_loss=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", T0),
        ("a.b_c-d-12", TopicPartition("a.b_c-d", 12)),
        ("t-0.0123-delete", None),
        ("t-0.0123-stray", None),
        ("t-0.0123-future", None),
        ("t-", None),
        ("-1", None),
        ("lost+found", None),
        ("meta.properties", None),
    ],
)
def test_directory_names(name: str, expected: TopicPartition | None) -> None:
    assert parse_directory_name(name) == expected


@pytest.mark.parametrize("clean", [False, True])
def test_logs_come_back(clean: bool) -> None:
    fs = new_disk()
    first = Managed(fs)
    for key in (T0, T1):
        append(first.logs.create(key, ID), 3)
    if clean:
        first.logs.shutdown(broker_epoch=42)
        assert fs.read_bytes("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    else:
        kill(fs)
    again = Managed(fs)
    assert not fs.exists("/data/.kafka_cleanshutdown")
    assert again.logs.previous_broker_epoch == (42 if clean else -1)
    assert [log.topic_partition for log in again.logs] == [T0, T1]
    for log in again.logs:
        assert (log.topic_id, all_offsets(log)) == (ID, [0, 1, 2])
        assert log.recovery_point == (3 if clean else 0)
        assert log.high_watermark == (3 if clean else 0)
    told = ("unclean shutdown: logs recovered", {"logs": 2, "checked_bytes": 230, "truncated_bytes": 0})
    assert again.warnings == ([] if clean else [told])


def test_a_recovery_is_logged_in_all_and_for_a_hundred_logs(caplog: pytest.LogCaptureFixture) -> None:
    fs = new_disk()
    first = Managed(fs)
    for number in range(RECOVERIES_LOGGED_MAX + 5):
        append(first.logs.create(TopicPartition("t", number), ID), 3)
    kill(fs)
    (path,) = (path for path in fs.files("/data/t-0") if path.endswith(".log"))
    fs.open(path).truncate(fs.size(path) - 1)
    with caplog.at_level(logging.INFO, "ottla.logs"):
        again = Managed(fs)
    whole, torn = 115, 114
    logs = RECOVERIES_LOGGED_MAX + 5
    checked = (logs - 1) * whole
    assert again.warnings == [
        ("unclean shutdown: logs recovered", {"logs": logs, "checked_bytes": checked, "truncated_bytes": torn})
    ]
    told = [vars(each)["ottla_fields"] for each in caplog.records if each.message.startswith("log recovered")]
    assert len(told) == RECOVERIES_LOGGED_MAX == 100
    of_first = next(each for each in told if each["partition"] == T0)
    assert (of_first["checked_bytes"], of_first["truncated_bytes"], of_first["end_offset"]) == (0, torn, 0)
    assert {each["checked_bytes"] for each in told if each["partition"] != T0} == {whole}


def test_a_directory_in_use_is_refused() -> None:
    fs = new_disk()
    Managed(fs)
    with pytest.raises(OttlaError, match="in use"):
        Managed(fs)


def test_creation() -> None:
    fs = new_disk()
    managed = Managed(fs)
    log = managed.logs.create(T0, ID, LogConfig(segment_bytes=1234))
    assert log.config.segment_bytes == 1234
    assert managed.logs.create(T0, ID) is log is managed.logs.get(T0)
    assert read_partition_metadata(fs, "/data/t-0") == ID
    with pytest.raises(KafkaError) as error:
        managed.logs.create(T0, OTHER_ID)
    assert error.value.code is ErrorCode.inconsistent_topic_id


def test_new_logs_go_where_there_are_fewest() -> None:
    managed = Managed(new_disk(), ("/data", "/other"))
    for partition in range(6):
        managed.logs.create(TopicPartition("t", partition), ID)
    assert [len(managed.logs.logs_in(directory)) for directory in ("/data", "/other")] == [3, 3]


def test_cordoned_directories_get_new_logs_only_where_there_is_no_other() -> None:
    managed = Managed(new_disk(), ("/data", "/other"))
    managed.logs.cordoned = ("/other",)
    for partition in range(3):
        managed.logs.create(TopicPartition("t", partition), ID)
    assert managed.logs.logs_in("/other") == []
    managed.logs.cordoned = ("/data", "/other")
    managed.logs.create(TopicPartition("t", 3), ID)
    assert len(managed.logs.logs_in("/other")) == 1


def test_topic_settings_reach_every_log_of_the_topic() -> None:
    managed = Managed(new_disk(), topic_config=lambda topic: LogConfig(segment_bytes=len(topic) * 1000))
    logs = [managed.logs.create(TopicPartition("abc", partition), ID) for partition in range(3)]
    other = managed.logs.create(TopicPartition("z", 0), ID)
    assert (logs[0].config.segment_bytes, other.config.segment_bytes) == (3000, 1000)
    managed.logs.update_topic_config("abc", LogConfig(segment_bytes=99))
    assert [log.config.segment_bytes for log in [*logs, other]] == [99, 99, 99, 1000]


def test_deletion_renames_at_once_and_removes_later() -> None:
    fs = new_disk()
    managed = Managed(fs)
    append(managed.logs.create(T0, ID))
    managed.logs.delete(T0)
    managed.logs.delete(T0)
    assert managed.logs.get(T0) is None
    assert len([name for name in fs.listdir("/data") if name.endswith("-delete")]) == 1
    assert all_offsets(managed.logs.create(T0, OTHER_ID)) == []  # the name is free
    managed.background(59_000)
    assert any(name.endswith("-delete") for name in fs.listdir("/data"))
    managed.background(1_000)
    assert not any(name.endswith("-delete") for name in fs.listdir("/data"))


def test_a_deletion_cut_short_by_a_crash_is_finished() -> None:
    fs = new_disk()
    managed = Managed(fs)
    append(managed.logs.create(T0, ID))
    managed.logs.delete(T0)
    kill(fs)
    again = Managed(fs)
    assert again.logs.get(T0) is None
    again.background()
    assert not any(name.endswith("-delete") for name in fs.listdir("/data"))


def test_a_new_topic_does_not_inherit_the_offsets_of_a_deleted_one() -> None:
    fs = new_disk()
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    append(log, 10)
    log.delete_records(8)
    log.flush()
    managed.background(61_000)
    assert b"t 0 8" in fs.read_bytes("/data/log-start-offset-checkpoint")
    assert b"t 0 10" in fs.read_bytes("/data/recovery-point-offset-checkpoint")
    managed.logs.delete(T0)
    append(managed.logs.create(T0, OTHER_ID), 3)
    kill(fs)
    log = next(iter(Managed(fs).logs))
    assert (log.log_start_offset, all_offsets(log)) == (0, [0, 1, 2])


def test_strays_are_renamed() -> None:
    fs = new_disk()
    managed = Managed(fs)
    for key in (T0, T1):
        append(managed.logs.create(key, ID))
    assert managed.logs.rename_strays(lambda log: log.topic_partition == T1) == [T1]
    assert [log.topic_partition for log in managed.logs] == [T0]
    managed.background(10_000_000)
    assert any(name.endswith("-stray") for name in fs.listdir("/data"))
    assert len(managed.warnings) == 1


def test_retention_and_removal_of_files() -> None:
    fs = new_disk()
    managed = Managed(fs, defaults=LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=5000))
    log = managed.logs.create(T0, ID)
    for _ in range(6):
        append(log, 1, size=200)
    managed.background(299_000)
    assert log.log_start_offset == 0
    managed.background(1_000)
    assert log.log_start_offset == 6
    assert any(name.endswith(".deleted") for name in fs.listdir(log.directory))
    managed.background(5_000)
    assert not any(name.endswith(".deleted") for name in fs.listdir(log.directory))


def test_rolled_segments_are_fsynced_in_the_background() -> None:
    managed = Managed(new_disk(), defaults=LogConfig(segment_bytes=500))
    log = managed.logs.create(T0, ID)
    append(log, 1, size=200)
    managed.background()
    assert log.recovery_point == 0
    for _ in range(4):
        append(log, 1, size=200)
    managed.background()
    assert log.recovery_point == 5


def test_idle_logs_are_fsynced_a_few_at_a_time() -> None:
    managed = Managed(new_disk())
    logs = [managed.logs.create(TopicPartition("t", partition), ID) for partition in range(30)]
    for log in logs:
        append(log)
    managed.background(59_999)
    assert sum(log.recovery_point for log in logs) == 0
    managed.background(1)
    assert sum(log.recovery_point for log in logs) == 20
    managed.background()
    assert sum(log.recovery_point for log in logs) == 30


def test_flush_ms() -> None:
    managed = Managed(new_disk(), defaults=LogConfig(flush_ms=2000))
    log = managed.logs.create(T0, ID)
    append(log)
    managed.background(1999)
    assert log.recovery_point == 0
    managed.background(1)
    assert log.recovery_point == 1


def test_checkpoints_are_written_when_due_and_changed() -> None:
    fs = new_disk()
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    append(log, 5)
    log.flush()
    managed.background(59_999)
    assert not fs.exists("/data/recovery-point-offset-checkpoint")
    managed.background(1)
    assert fs.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 5\n"
    assert fs.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\nt 0 5\n"
    assert not fs.exists("/data/log-start-offset-checkpoint")


def test_truncation_takes_the_recovery_point_back_on_disk() -> None:
    fs = new_disk()
    managed = Managed(fs, defaults=LogConfig(index_interval_bytes=0))
    log = managed.logs.create(T0, ID)
    for _ in range(4):
        append(log, 5)
    log.flush()
    managed.background(60_000)
    # Before the files are cut: as far as the index knows where batches end. The first batch has no entry.
    for cut, known, found in ((12, 10, 10), (7, 0, 5)):
        assert asyncio.run(managed.logs.truncate({log: cut})) == {}
        assert fs.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 %d\n" % known
        assert log.recovery_point == log.log_end_offset == found
    managed.background(60_000)
    assert fs.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 5\n"


def test_damaged_small_files_do_not_stop_a_start() -> None:
    fs = new_disk()
    managed = Managed(fs)
    append(managed.logs.create(T0, ID), 4)
    managed.logs.shutdown()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "t-0/partition.metadata"):
        fs.write_atomic(posixpath.join("/data", name), b"\xff?")
    again = Managed(fs)
    log = again.logs.get(T0)
    assert log is not None and log.topic_id is None and all_offsets(log) == [0, 1, 2, 3]
    assert again.logs.create(T0, ID) is log
    assert read_partition_metadata(fs, "/data/t-0") == ID


def test_one_bad_directory_does_not_take_the_others_down() -> None:
    fs = new_disk()
    managed = Managed(fs, ("/data", "/other"))
    for partition in range(4):
        append(managed.logs.create(TopicPartition("t", partition), ID))
    managed.logs.shutdown()
    fs.fail("listdir", 5, path="/other")
    again = Managed(fs, ("/data", "/other"))
    assert again.logs.offline_dirs == ["/other"]
    assert len(again.logs) == 2
    assert again.logs.create(TopicPartition("new", 0), ID).directory == "/data/new-0"


def test_one_bad_log_does_not_take_the_others_down() -> None:
    fs = new_disk()
    managed = Managed(fs)
    for key in (T0, T1):
        append(managed.logs.create(key, ID))
    managed.logs.shutdown()
    fs.fail("read", 5, path="/data/t-0")
    again = Managed(fs)
    assert [log.topic_partition for log in again.logs] == [T1]
    assert [*again.logs.offline_logs] == [T0]
    fs.heal()
    log = again.logs.create(T0, ID)
    assert log.log_end_offset == log.high_watermark == 1, "opened as the checkpoints say, not as a new one"
    assert not again.logs.offline_logs


def test_no_clean_marker_after_a_disk_error() -> None:
    fs = new_disk()
    managed = Managed(fs)
    append(managed.logs.create(T0, ID))
    fs.fail("fsync", 5, path="/data/t-0")
    managed.logs.shutdown()
    assert not fs.exists("/data/.kafka_cleanshutdown")


def test_few_descriptors_serve_many_segments() -> None:
    fs = new_disk()
    managed = Managed(fs, defaults=LogConfig(segment_bytes=300), open_files_max=3)
    logs = [managed.logs.create(TopicPartition("t", partition), ID) for partition in range(10)]
    for _ in range(5):
        for log in logs:
            append(log, 1, size=100)
    for log in logs:
        assert all_offsets(log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(8))
def test_deleted_records_do_not_come_back_with_the_segments_that_had_them(seed: int) -> None:
    fs = SimulatedFileSystem(random.Random(seed))
    fs.makedirs("/data")
    config = LogConfig(segment_bytes=400)
    managed = Managed(fs, defaults=config)
    log = managed.logs.create(T0, ID)
    for _ in range(20):
        append(log, size=60)
    log.flush()
    managed.background(10**6)
    fs.fsync_all()
    start = log.segments[3].base_offset
    log.delete_records(start)
    managed.background(10**6)
    assert log.segments[0].base_offset == start
    fs.crash()
    fs.restart(power_loss=True)
    again = Managed(fs, defaults=config).logs.get(T0)
    assert again is not None
    assert again.log_start_offset == start
