"""What is on disk after a crash, a clean stop, or an Apache Kafka: damage by hand, then load."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.log_loader import loading_log
from ottla.storage.recovery import rebuild
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import DIRECTORY, KEY, NOW, all_offsets, append, batch, load, new_disk, read_offsets

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def path(offset: int, suffix: str) -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def filled(count: int = 30, *, close: bool = False) -> tuple[SimulatedFileSystem, Log]:
    """A log of `count` records in several segments."""
    fs = new_disk()
    log = load(fs, SMALL)
    for number in range(count):
        append(log, 1, size=300, timestamp=NOW + number, epoch=number // 10)
    if close:
        log.close()
    return fs, log


def edit(fs: SimulatedFileSystem, name: str, change: Callable[[bytes], bytes]) -> None:
    fs.write_atomic(name, change(fs.read_bytes(name)))


def names(fs: SimulatedFileSystem, suffix: str) -> list[str]:
    return [name for name in fs.listdir(DIRECTORY) if name.endswith(suffix)]


def check(log: Log, count: int) -> None:
    assert all_offsets(log) == list(range(log.log_start_offset, count))
    assert log.log_end_offset == count
    for offset in range(log.log_start_offset, count):
        assert read_offsets(log, offset, 1) == [offset]
        found = log.offset_for_timestamp(NOW + offset)
        assert found is not None and found[:2] == (NOW + offset, offset)
        assert log.epoch_for_offset(offset) == offset // 10


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_comes_back(clean: bool) -> None:
    fs, _ = filled(close=clean)
    log = load(fs, SMALL, clean_shutdown=clean)
    check(log, 30)
    assert append(log, epoch=3).first_offset == 30


def test_the_index_written_in_groups_comes_back_after_a_kill() -> None:
    fs, log = filled()
    active = log.segments[-1].base_offset
    assert fs.size(path(active, ".index")) == 0  # pending in the process that was killed
    again = load(fs, SMALL)
    assert len(again.segments[-1].offset_index) > 0
    check(again, 30)


@pytest.mark.parametrize("cut", [1, 60, 61, 62, 200, 370])
def test_a_torn_last_batch_is_cut_off(cut: int) -> None:
    fs, log = filled()
    name = path(log.segments[-1].base_offset, ".log")
    edit(fs, name, lambda data: data[:-cut])
    again = load(fs, SMALL)
    check(again, 29)
    assert append(again, epoch=2, size=300, timestamp=NOW + 29).first_offset == 29
    check(again, 30)


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 100, b"\0" * 11, bytes(range(256)) * 3])
def test_garbage_behind_the_last_batch_is_cut_off(tail: bytes) -> None:
    fs, log = filled()
    edit(fs, path(log.segments[-1].base_offset, ".log"), lambda data: data + tail)
    check(load(fs, SMALL), 30)


def test_a_flipped_bit_above_the_recovery_point_ends_the_log() -> None:
    fs, log = filled()
    second = log.segments[1].base_offset
    edit(fs, path(second, ".log"), lambda data: data[:500] + bytes([data[500] ^ 4]) + data[501:])
    again = load(fs, SMALL)
    assert second < again.log_end_offset < log.segments[2].base_offset
    check(again, again.log_end_offset)
    assert names(fs, ".log")[-1] == f"{second:020d}.log"


def test_recovery_reads_only_what_was_not_fsynced() -> None:
    fs, log = filled(60)
    log.flush()
    point = log.recovery_point
    for number in range(60, 63):
        append(log, 1, size=300, timestamp=NOW + number, epoch=number // 10)
    again = load(fs, SMALL, recovery_point=point)
    check(again, 63)
    assert 0 < again.recovery.recovered_bytes <= 2000
    assert load(fs, SMALL, recovery_point=0).recovery.recovered_bytes == again.size_bytes


def test_the_middle_of_a_large_segment_is_trusted_up_to_the_recovery_point() -> None:
    fs = new_disk()
    log = load(fs)
    for number in range(200):
        append(log, 1, size=1000, timestamp=NOW + number)
    log.flush()
    append(log, 1, size=1000, timestamp=NOW + 200)
    again = load(fs, recovery_point=200)
    assert again.log_end_offset == 201
    assert again.recovery.recovered_bytes < 10_000
    assert again.offset_of_max_timestamp() == (NOW + 200, 200, 0)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_lost_index_is_made_again(suffix: str, clean: bool) -> None:
    fs, _ = filled(close=clean)
    before = fs.files(DIRECTORY)
    for name in names(fs, suffix):
        fs.remove(posixpath.join(DIRECTORY, name))
    check(load(fs, SMALL, clean_shutdown=clean, recovery_point=30), 30)
    log = load(fs, SMALL)
    log.close()
    if clean:
        after = fs.files(DIRECTORY)
        for name, data in before.items():
            if name.endswith(suffix):
                assert after[name] == data


@pytest.mark.parametrize("damage", [bytes, lambda size: b"\xff" * size, lambda size: b"\0\0\0\x01" * (size // 4)])
@pytest.mark.parametrize("clean", [False, True])
def test_a_corrupt_offset_index_leads_nobody_astray(damage: Callable[[int], bytes], clean: bool) -> None:
    fs, _ = filled(close=True)
    for name in names(fs, ".index"):
        edit(fs, posixpath.join(DIRECTORY, name), lambda data: damage(len(data)))
    check(load(fs, SMALL, clean_shutdown=clean, recovery_point=30), 30)


def test_an_index_with_positions_inside_batches_is_replaced() -> None:
    fs, _ = filled(close=True)
    for name in names(fs, ".index"):
        edit(
            fs,
            posixpath.join(DIRECTORY, name),
            lambda data: bytes(b + 5 if i % 8 == 7 else b for i, b in enumerate(data)),
        )
    check(load(fs, SMALL, clean_shutdown=True, recovery_point=30), 30)


def test_the_zeros_of_an_open_kafka_index() -> None:
    fs, log = filled()
    log.flush()
    for suffix in (".index", ".timeindex"):
        edit(fs, path(log.segments[-1].base_offset, suffix), lambda data: data + bytes(1_000_000))
    check(load(fs, SMALL, recovery_point=30), 30)
    assert fs.size(path(log.segments[-1].base_offset, ".index")) < 1000


def test_a_roll_that_got_half_way() -> None:
    for made in ([".index"], [".index", ".timeindex"], [".log"], [".index", ".timeindex", ".log"]):
        fs, _ = filled()
        for suffix in made:
            fs.open(path(30, suffix), create=True).close()
        log = load(fs, SMALL)
        check(log, 30)
        append(log, 1, size=300, timestamp=NOW + 30, epoch=3)
        check(log, 31)


def test_a_deletion_that_got_half_way() -> None:
    fs, log = filled()
    first = log.segments[0].base_offset
    for suffix in (".log", ".index"):
        fs.rename(path(first, suffix), path(first, suffix) + ".deleted")
    again = load(fs, SMALL)
    assert again.log_start_offset == log.segments[1].base_offset
    check(again, 30)
    assert not names(fs, ".deleted") and f"{first:020d}.timeindex" not in names(fs, ".timeindex")


def test_snapshots_of_the_metadata_log_being_deleted_are_not_touched() -> None:
    fs, _ = filled()
    fs.write_atomic(f"{DIRECTORY}/00000000000000000005-0000000001.checkpoint.deleted", b"x")
    load(fs, SMALL)
    assert names(fs, ".checkpoint.deleted")


def test_a_compaction_that_got_half_way() -> None:
    fs, log = filled()
    first, second, third = (segment.base_offset for segment in log.segments[:3])
    for suffix in (".log", ".index", ".timeindex"):
        fs.write_atomic(path(first, suffix) + ".cleaned", b"half")
    check(load(fs, SMALL), 30)
    assert not names(fs, ".cleaned")
    # Both segments went into one, which is whole, but the originals were not all removed yet.
    both = fs.read_bytes(path(first, ".log")) + fs.read_bytes(path(second, ".log"))
    fs.write_atomic(path(first, ".log") + ".swap", both)
    again = load(fs, SMALL)
    check(again, 30)
    assert [segment.base_offset for segment in again.segments[:2]] == [first, third]
    assert not names(fs, ".swap")


def test_segments_that_vanished_below_the_log_start() -> None:
    """A power failure took the end of the log, and everything before it was deleted: nothing is served, all is kept."""
    fs, log = filled()
    written = [fs.read_bytes(path(segment.base_offset, ".log")) for segment in log.segments]
    log = load(fs, SMALL, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log).first_offset == 100
    assert [fs.read_bytes(f"{DIRECTORY}/{name}") for name in names(fs, ".cut")] == written


def test_the_log_start_comes_from_the_checkpoint_or_the_first_segment() -> None:
    fs, log = filled()
    assert load(fs, SMALL, log_start_offset=3).log_start_offset == 3
    log.delete_records(20)
    log.delete_old_segments(NOW)
    again = load(fs, SMALL, log_start_offset=3)
    assert again.log_start_offset == log.segments[0].base_offset > 3


def test_producers_come_back_from_snapshot_and_log() -> None:
    for clean in (False, True):
        for lose in (None, "newest", "all", "damage"):
            fs = new_disk()
            log = load(fs, SMALL)
            sent = [
                batch(1, size=300, producer_id=7, producer_epoch=2, base_sequence=number, timestamp=NOW)
                for number in range(20)
            ]
            for data in sent:
                log.append_as_leader(bytearray(data), 0, now_ms=NOW)
            if clean:
                log.close()
            snapshots = names(fs, ".snapshot")
            for name in snapshots if lose == "all" else snapshots[-1:] if lose else []:
                if lose == "damage":
                    edit(fs, posixpath.join(DIRECTORY, name), lambda data: data[:-1] + b"?")
                else:
                    fs.remove(posixpath.join(DIRECTORY, name))
            if clean and lose == "all":
                continue  # as in Kafka: a clean stop without snapshots had no producers
            again = load(fs, SMALL, clean_shutdown=clean, recovery_point=20 if clean else 0)
            for data in sent[-5:]:
                assert again.append_as_leader(bytearray(data), 0, now_ms=NOW).is_duplicate, (clean, lose)
            with pytest.raises(KafkaError):
                append(again, 1, producer_id=7, producer_epoch=2, base_sequence=25)


@pytest.mark.parametrize("how", ["a part", "all", "all, with its files", "all, by its age"])
def test_a_retry_after_deletion_and_a_kill_is_a_duplicate(how: str) -> None:
    """Where Kafka takes it for new: what was deleted is served no more, and is known until a producer expires."""
    fs = new_disk()
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100, retention_ms=1000)
    log = load(fs, config)
    other = batch(1, size=300, producer_id=8, producer_epoch=0, base_sequence=0)
    sent = [batch(1, size=300, producer_id=7, producer_epoch=2, base_sequence=number) for number in range(20)]
    for data in [other, *sent]:
        append_whole(log, data)
    log.flush()
    segments = len(names(fs, ".log"))
    if how != "all, by its age":
        log.delete_records(3 if how == "a part" else -1)
    if how.startswith("all,"):
        log.delete_old_segments(NOW + (2000 if "age" in how else 0))
        assert len(names(fs, ".log")) == 1 < segments
    start = log.log_start_offset
    assert (start, log.log_end_offset) == (3 if how == "a part" else 21, 21)
    fs.restart(power_loss=False)
    again = load(fs, config, log_start_offset=start, recovery_point=15)
    assert (again.log_start_offset, again.log_end_offset) == (start, 21)
    for data in [other, sent[-1]]:
        assert again.append_as_leader(bytearray(data), 0, now_ms=NOW).is_duplicate
    with pytest.raises(KafkaError):
        append_whole(again, sent[2])
    assert append(again, 1, producer_id=7, producer_epoch=2, base_sequence=20).first_offset == 21
    assert all_offsets(again) == [*range(start, 22)]


def append_whole(log: Log, data: bytearray) -> None:
    log.high_watermark = log.append_as_leader(bytearray(data), 0, now_ms=NOW).last_offset + 1


@pytest.mark.parametrize("damaged", [0, 2])
def test_damage_in_what_was_deleted_is_not_in_the_way(damaged: int) -> None:
    """Then the producers are those of the records that are served, as in Kafka."""
    fs = new_disk()
    log = load(fs, SMALL)
    sent = [batch(1, size=300, producer_id=7, producer_epoch=2, base_sequence=number) for number in range(21)]
    for data in sent:
        append_whole(log, data)
    log.flush()
    bases = [int(name[:20]) for name in names(fs, ".log")]
    log.delete_records(bases[-1])
    for name in names(fs, ".snapshot"):
        fs.remove(posixpath.join(DIRECTORY, name))
    edit(fs, path(bases[damaged], ".log"), lambda data: data[:400] + bytes(30) + data[430:])
    again = load(fs, SMALL, log_start_offset=bases[-1], recovery_point=21)
    assert (again.log_start_offset, again.log_end_offset) == (bases[-1], 21)
    assert again.append_as_leader(bytearray(sent[-1]), 0, now_ms=NOW).is_duplicate
    assert append(again, 1, producer_id=7, producer_epoch=2, base_sequence=21).first_offset == 21


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n1\n"])
def test_damaged_epochs_are_read_from_the_batches(content: bytes) -> None:
    fs, _ = filled()
    fs.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", content)
    check(load(fs, SMALL), 30)


def test_looking_for_epochs_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node answers probes while it loads, also where the file of epochs is gone."""
    monkeypatch.setattr(rebuild, "BATCHES_AT_ONCE", 10)
    fs = new_disk()
    written = load(fs)
    for number in range(95):
        append(written, epoch=number // 50)
    written.close()
    fs.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    steps = loading_log(fs, DIRECTORY, KEY, None, LogConfig(), clean_shutdown=True, now_ms=NOW, random=Random(1))
    found: list[int] = []
    while True:
        try:
            next(steps)
        except StopIteration as end:
            log: Log = end.value
            break
        found.append(1)
    assert len(found) >= 9
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(0, 0), (1, 50)]


def test_an_old_message_format_is_refused_not_cut() -> None:
    fs, log = filled(3)
    name = path(0, ".log")
    edit(fs, name, lambda data: data[:16] + b"\x01" + data[17:])
    size = fs.size(name)
    with pytest.raises(KafkaError) as error:
        load(fs, SMALL)
    assert error.value.code is ErrorCode.unsupported_for_message_format
    assert fs.size(name) == size and log.log_end_offset == 3


def test_a_disk_that_fails_while_loading() -> None:
    fs, _ = filled()
    fs.fail("read", 5, path=DIRECTORY)
    with pytest.raises(KafkaError) as error:
        load(fs, SMALL)
    assert error.value.code is ErrorCode.kafka_storage_error


def test_an_unflushed_tail_ends_where_its_leader_epoch_decreases() -> None:
    """Records that were cut off before, which a power failure brought back behind those of a newer leader."""
    fs = new_disk()
    log = load(fs, SMALL)
    for epoch in (1, 2, 2, 1, 1):
        append(log, 1, size=300, epoch=epoch)
    again = load(fs, SMALL)
    assert all_offsets(again) == [0, 1, 2]
    assert (again.recovery.kept_batches, again.epochs.entries) == (2, ((1, 0), (2, 1)))


def test_what_was_fsynced_stays_where_its_leader_epoch_decreases() -> None:
    fs = new_disk()
    log = load(fs, SMALL)
    for epoch in (1, 2, 2, 1, 1):
        append(log, 1, size=300, epoch=epoch)
    log.flush()
    again = load(fs, SMALL, recovery_point=5)
    assert all_offsets(again) == [0, 1, 2, 3, 4]
