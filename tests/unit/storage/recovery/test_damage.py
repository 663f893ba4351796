"""What was fsynced and is damaged is never cut: the log refuses to load, and says where, what is whole, what goes on.

What was not fsynced is cut, and whole batches behind the cut are kept in side files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.filesystem import FileSystem
from ottla.storage.config import LogConfig
from ottla.storage.recovery.damage import DamagedLog
from ottla.storage.recovery.repair import apply, plan_repair
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import DIRECTORY, NOW, all_offsets, append, load, new_disk, read_offsets

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=2000, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
COUNT = 30
BATCH = 371
"""Bytes of each of the batches, five of which make a segment."""
BASES = [0, 5, 10, 15, 20, 25]

Files = dict[str, bytes]


def filled(*, close: bool, producer: int = -1) -> SimulatedFileSystem:
    """Thirty records in six segments, each in a batch of its own."""
    fs = new_disk()
    log = load(fs, SMALL)
    for number in range(COUNT):
        sequence = number if producer >= 0 else -1
        append(
            log,
            1,
            size=300,
            timestamp=NOW + number,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence,
        )
    if close:
        log.close()
    assert [segment.base_offset for segment in log.segments] == BASES
    assert {segment.size for segment in log.segments} == {5 * BATCH}
    return fs


def log_file(base: int) -> str:
    return f"{DIRECTORY}/{base:020d}.log"


def edit(fs: FileSystem, path: str, change: Callable[[bytes], bytes]) -> None:
    fs.write_atomic(path, change(fs.read_bytes(path)))


def flip(position: int, mask: int = 0x55, count: int = 1) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        flipped = bytes(byte ^ mask for byte in data[position : position + count])
        return data[:position] + flipped + data[position + count :]

    return change


def put(position: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + new + data[position + len(new) :]


def remove(fs: FileSystem, base: int) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        fs.remove(log_file(base).removesuffix(".log") + suffix)


def logs(fs: SimulatedFileSystem) -> Files:
    return {path: data for path, data in fs.files(DIRECTORY).items() if path.endswith(".log")}


CLEAN = {"clean_shutdown": True, "recovery_point": COUNT}
KILLED = {"clean_shutdown": False, "recovery_point": COUNT}
"""Everything was fsynced."""

FSYNCED_DAMAGES: dict[str, tuple[Callable[[SimulatedFileSystem], object], str]] = {
    "the header of a batch in the last segment": (
        lambda fs: edit(fs, log_file(25), flip(4 * BATCH + 16)), f"{log_file(25)} at byte {4 * BATCH}: ",
    ),
    "the magic byte of the first batch": (
        lambda fs: edit(fs, log_file(20), flip(16)), f"{log_file(20)} at byte 0: ",
    ),
    "a length in a middle segment's last batch": (
        lambda fs: edit(fs, log_file(10), flip(4 * BATCH + 8, 0x40)), f"{log_file(10)} at byte {4 * BATCH}: ",
    ),
    "a middle segment is gone": (lambda fs: remove(fs, 10), f"{log_file(5)} at byte {5 * BATCH}: "),
    "a middle segment's log is gone": (lambda fs: fs.remove(log_file(10)), ""),
    "a middle segment is empty": (lambda fs: edit(fs, log_file(10), lambda data: b""), f"{log_file(10)} at byte 0: "),
    "a middle segment is cut at a batch": (
        lambda fs: edit(fs, log_file(10), lambda data: data[: 3 * BATCH]), f"{log_file(10)} at byte {3 * BATCH}: ",
    ),
    "a middle segment is cut inside a batch": (
        lambda fs: edit(fs, log_file(10), lambda data: data[:-7]), f"{log_file(10)} at byte {4 * BATCH}: ",
    ),
    "the base offset of a first batch": (
        lambda fs: edit(fs, log_file(10), put(0, (11).to_bytes(8, "big"))), f"{log_file(10)} at byte 0: ",
    ),
    "the base offset of a last batch": (
        lambda fs: edit(fs, log_file(10), put(4 * BATCH, (10**12).to_bytes(8, "big"))), f"{log_file(10)} at byte ",
    ),
    "one segment has the content of another": (
        lambda fs: edit(fs, log_file(10), lambda data: fs.read_bytes(log_file(5))), f"{log_file(10)} at byte 0: ",
    ),
    "every log file is gone": (lambda fs: [remove(fs, base) for base in BASES], f"{DIRECTORY}: "),
    "the end is cut off at a batch": (
        lambda fs: edit(fs, log_file(25), lambda data: data[:BATCH]), f"{log_file(25)} at byte {BATCH}: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", [CLEAN, KILLED], ids=["clean", "killed"])
@pytest.mark.parametrize("name", FSYNCED_DAMAGES)
def test_what_was_fsynced_is_never_cut(name: str, state: dict[str, Any]) -> None:
    do, where = FSYNCED_DAMAGES[name]
    fs = filled(close=True)
    do(fs)
    before = logs(fs)
    with pytest.raises(DamagedLog) as caught:
        load(fs, SMALL, **state)
    assert caught.value.code is ErrorCode.kafka_storage_error
    message = str(caught.value.damage)
    assert message.startswith(where), message
    assert f"`ottla log repair {DIRECTORY}`" in message
    assert logs(fs) == before, "nothing was cut and nothing removed"


@pytest.mark.parametrize("name", [name for name in FSYNCED_DAMAGES if name != "a middle segment's log is gone"])
def test_a_clean_stop_without_a_checkpoint_says_that_everything_was_fsynced(name: str) -> None:
    do, where = FSYNCED_DAMAGES[name]
    if "end is cut" in name or "every" in name:
        return  # only the checkpoint knows
    fs = filled(close=True)
    do(fs)
    with pytest.raises(DamagedLog) as caught:
        load(fs, SMALL, clean_shutdown=True)
    assert str(caught.value.damage).startswith(where)


def test_the_message_counts_what_is_whole_behind() -> None:
    fs = filled(close=True)
    edit(fs, log_file(10), flip(4 * BATCH + 8, 0x40))
    with pytest.raises(DamagedLog) as caught:
        load(fs, SMALL, **CLEAN)
    assert "no whole batch lies behind it in this file, and 3 later segments with 5565 bytes" in str(caught.value)
    fs = filled(close=True)
    edit(fs, log_file(25), flip(BATCH + 16))
    with pytest.raises(DamagedLog) as caught:
        load(fs, SMALL, recovery_point=27)
    assert "3 whole batches lie behind it in this file, offsets 27 to 29" in str(caught.value)


def test_the_first_finding_of_the_attack() -> None:
    """After a clean stop one broken header within the last 2 MB, of an idempotent producer: recall meets it."""
    fs = filled(close=True, producer=5)
    edit(fs, log_file(10), flip(2 * BATCH + 8, 0x40))
    before = logs(fs)
    with pytest.raises(DamagedLog) as caught:
        load(fs, SMALL, **CLEAN)
    assert f"{log_file(10)} at byte {2 * BATCH}" in str(caught.value)
    assert logs(fs) == before


def test_gaps_are_no_damage_in_a_compacted_log() -> None:
    fs = filled(close=True)
    edit(fs, log_file(10), lambda data: data[BATCH : 3 * BATCH] + data[4 * BATCH :])
    for suffix in (".index", ".timeindex"):
        fs.remove(log_file(10).removesuffix(".log") + suffix)
    for options in (CLEAN, KILLED):
        log = load(fs, COMPACTED, **options)
        assert all_offsets(log) == [number for number in range(COUNT) if number not in (10, 13)]
    log = load(fs, SMALL, **CLEAN, cleaned_offset=20)
    assert log.log_end_offset == COUNT


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 100, b"\0" * 11, bytes(range(256)) * 3])
def test_what_lies_behind_the_fsynced_end_is_no_damage(tail: bytes) -> None:
    """As `preallocate=true` leaves it."""
    fs = filled(close=True)
    edit(fs, log_file(25), lambda data: data + tail)
    log = load(fs, SMALL, **CLEAN)
    assert all_offsets(log) == list(range(COUNT))
    assert log.recovery.truncated_bytes == len(tail)


def test_a_raised_base_offset_before_the_fsynced_end_of_a_compacted_log_is_damage() -> None:
    """No checksum covers it: the batch behind it tells."""
    fs = filled(close=False)
    edit(fs, log_file(25), put(2 * BATCH, (28).to_bytes(8, "big")))
    with pytest.raises(DamagedLog, match="claims offsets 28 to 28, where 29 is next"):
        load(fs, COMPACTED, clean_shutdown=False, recovery_point=29)


# What was not fsynced


@pytest.mark.parametrize("lost", [8, 10])
def test_a_batch_that_lost_its_first_bytes_with_the_power_is_no_damage(lost: int) -> None:
    """They were in another block of the disk than the rest, and no checksum covers them."""
    fs = filled(close=False)
    edit(fs, log_file(25), put(3 * BATCH, bytes(lost)))
    log = load(fs, SMALL, clean_shutdown=False, recovery_point=27)
    assert all_offsets(log) == list(range(28))


def test_whole_batches_behind_the_cut_are_kept_and_counted() -> None:
    fs = filled(close=False)
    written = logs(fs)
    edit(fs, log_file(10), flip(BATCH + 70))
    damaged = fs.read_bytes(log_file(10))
    log = load(fs, SMALL, recovery_point=8)
    assert all_offsets(log) == list(range(11))
    assert log.recovery.truncated_bytes == 4 * BATCH + 3 * 5 * BATCH
    kept = {path: data for path, data in fs.files(DIRECTORY).items() if path.endswith(".cut")}
    assert kept == {
        f"{log_file(10)}.{BATCH}.cut": damaged[BATCH:],
        **{f"{log_file(base)}.0.cut": written[log_file(base)] for base in (15, 20, 25)},
    }
    assert append(log, size=300).first_offset == 11


def test_a_missing_segment_after_a_kill_is_counted_and_what_lies_behind_it_kept() -> None:
    """`cut_off_bytes=0` was logged for thousands of records."""
    fs = filled(close=False)
    written = logs(fs)
    fs.remove(log_file(10))
    log = load(fs, SMALL, recovery_point=3)
    assert all_offsets(log) == list(range(10))
    assert log.recovery.truncated_bytes == 3 * 5 * BATCH
    kept = {path: data for path, data in fs.files(DIRECTORY).items() if path.endswith(".cut")}
    assert kept == {f"{log_file(base)}.0.cut": written[log_file(base)] for base in (15, 20, 25)}


def test_a_torn_tail_leaves_no_side_file() -> None:
    fs = filled(close=False)
    edit(fs, log_file(25), lambda data: data[:-7])
    log = load(fs, SMALL, recovery_point=20)
    assert log.log_end_offset == COUNT - 1
    assert not [path for path in fs.files(DIRECTORY) if path.endswith(".cut")]


def test_side_files_of_two_crashes_do_not_replace_each_other() -> None:
    fs = filled(close=False)
    edit(fs, log_file(25), flip(70))
    first = fs.read_bytes(log_file(25))
    log = load(fs, SMALL, recovery_point=20)
    for number in range(3):
        append(log, size=300, timestamp=NOW + 100 + number)
    log._segments.active.write_indexes()
    edit(fs, log_file(log.segments[-1].base_offset), flip(70))
    second = fs.read_bytes(log_file(log.segments[-1].base_offset))
    load(fs, SMALL, recovery_point=20)
    kept = sorted(data for path, data in fs.files(DIRECTORY).items() if path.endswith(".cut"))
    assert kept == sorted([first, second])


def test_without_room_for_the_side_file_nothing_is_cut() -> None:
    fs = filled(close=False)
    edit(fs, log_file(25), flip(70))
    before = logs(fs)
    fs.capacity_bytes = sum(map(len, fs.files("/").values())) + 100
    with pytest.raises(Exception, match="No space"):
        load(fs, SMALL, recovery_point=20)
    assert logs(fs) == before
    fs.heal()
    assert load(fs, SMALL, recovery_point=20).log_end_offset == 25


# Repair


def repair(fs: SimulatedFileSystem, *, contiguous: bool = True) -> tuple[list[str], list[str]]:
    plan = plan_repair(fs, DIRECTORY, known_end=COUNT, contiguous=contiguous)
    steps = [*plan.steps()]
    before = fs.files(DIRECTORY)
    kept = apply(fs, plan)
    assert all(before[path.partition(".log")[0] + ".log"] for path in kept)
    return steps, kept


@pytest.mark.parametrize("name", FSYNCED_DAMAGES)
def test_a_repaired_log_opens_serves_what_is_whole_and_gives_no_offset_twice(name: str) -> None:
    do, _ = FSYNCED_DAMAGES[name]
    fs = filled(close=True)
    original = logs(fs)
    do(fs)
    damaged = logs(fs)
    steps, _ = repair(fs)
    assert steps
    assert plan_repair(fs, DIRECTORY, known_end=COUNT, contiguous=True).is_empty, "a second repair finds nothing"
    log = load(fs, SMALL, **CLEAN)
    whole = {
        offset
        for base in BASES
        for number, offset in enumerate(range(base, base + 5))
        for batch in [original[log_file(base)][number * BATCH : (number + 1) * BATCH]]
        if any(batch[12:] in data for data in damaged.values())
    }
    kept = b"".join(data for path, data in fs.files(DIRECTORY).items() if path.endswith(".cut"))
    served = set(all_offsets(log))
    for offset in whole - served:
        base = max(base for base in BASES if base <= offset)
        batch = original[log_file(base)][(offset - base) * BATCH : (offset - base + 1) * BATCH]
        assert batch[12:] in kept, f"offset {offset} is neither served nor kept"
    for offset in served:
        found = log.read(offset, 1, up_to=COUNT)
        assert found is not None
        base = max(base for base in BASES if base <= offset)
        assert found.read() == original[log_file(base)][(offset - base) * BATCH : (offset - base + 1) * BATCH]
    assert append(log, size=300).first_offset == COUNT
    log.close()
    assert load(fs, SMALL, clean_shutdown=True, recovery_point=COUNT + 1).log_end_offset == COUNT + 1


def test_a_base_offset_that_its_neighbours_prove_is_written_back() -> None:
    for number in range(5):
        fs = filled(close=True)
        original = logs(fs)
        edit(fs, log_file(10), put(number * BATCH, (17 + number).to_bytes(8, "big")))
        steps, kept = repair(fs)
        assert len(steps) == 1 and f"becomes {10 + number}" in steps[0] and not kept
        assert logs(fs) == original


def test_a_leader_epoch_that_its_neighbours_prove_is_written_back() -> None:
    fs = filled(close=True)
    original = logs(fs)
    edit(fs, log_file(10), put(BATCH + 12, (77).to_bytes(4, "big")))
    steps, kept = repair(fs)
    assert len(steps) == 1 and "leader epoch 77 becomes 0" in steps[0] and not kept
    assert logs(fs) == original


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("known_end", [0, 3, 25, 27, COUNT])
def test_a_sound_log_needs_no_repair_however_little_is_known_of_its_end(known_end: int, contiguous: bool) -> None:
    """The checkpoints of a killed node are older than its logs."""
    fs = filled(close=False)
    assert plan_repair(fs, DIRECTORY, known_end=known_end, contiguous=contiguous).is_empty


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_what_is_whole_behind_the_known_end_stays(number: int, contiguous: bool) -> None:
    fs = filled(close=False)
    edit(fs, log_file(25), flip(number * BATCH + 70))
    kept = apply(fs, plan_repair(fs, DIRECTORY, known_end=27, contiguous=contiguous))
    assert kept == [f"{log_file(25)}.{number * BATCH}.cut"]
    log = load(fs, SMALL if contiguous else COMPACTED, recovery_point=27)
    assert all_offsets(log) == [each for each in range(COUNT) if each != 25 + number]


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("known_end", [27, 29])
def test_a_last_batch_that_claims_offsets_beyond_the_known_end_is_cut(known_end: int, contiguous: bool) -> None:
    """Nothing lies between it and the batch before, which ends where it should begin."""
    fs = filled(close=False)
    edit(fs, log_file(25), put(4 * BATCH, (1000).to_bytes(8, "big")))
    plan = plan_repair(fs, DIRECTORY, known_end=known_end, contiguous=contiguous)
    if not contiguous:  # a compacted log may have left offsets out behind what is known of it
        assert plan.is_empty
        return
    assert apply(fs, plan) == [f"{log_file(25)}.{4 * BATCH}.cut"]
    assert all_offsets(load(fs, SMALL, recovery_point=known_end)) == list(range(29))


def test_a_batch_that_leaves_out_offsets_that_were_given_is_cut_from_a_compacted_log_too() -> None:
    fs = filled(close=False)
    edit(fs, log_file(25), put(3 * BATCH, (999).to_bytes(8, "big")))
    edit(fs, log_file(25), put(4 * BATCH, (1000).to_bytes(8, "big")))
    kept = apply(fs, plan_repair(fs, DIRECTORY, known_end=COUNT, contiguous=False))
    assert kept == [f"{log_file(25)}.{number * BATCH}.cut" for number in (3, 4)]
    log = load(fs, COMPACTED, **CLEAN)
    assert all_offsets(log) == list(range(28)) and log.log_end_offset == COUNT


@pytest.mark.parametrize("steps", range(25))
def test_a_crash_in_the_middle_of_a_repair_is_finished_by_the_next(steps: int) -> None:
    from ottla.testing.disk_nodes import SimulatedCrash

    fs = filled(close=True)
    edit(fs, log_file(10), flip(BATCH + 70))
    edit(fs, log_file(20), flip(BATCH + 8, 0x40))
    damaged = logs(fs)
    fs.fsync_all()
    fs.crash_after(steps)
    try:
        apply(fs, plan_repair(fs, DIRECTORY, known_end=COUNT, contiguous=True))
    except SimulatedCrash:
        fs.restart(power_loss=steps % 2 == 0)
    else:
        assert steps > 10
    repair(fs)
    log = load(fs, SMALL, **CLEAN)
    assert all_offsets(log) == [number for number in range(COUNT) if number not in (11, 21)]
    kept = {data for path, data in fs.files(DIRECTORY).items() if path.endswith(".cut")}
    assert kept >= {damaged[log_file(base)][BATCH : 2 * BATCH] for base in (10, 20)}


def test_a_missing_directory_is_made_again_behind_its_offsets() -> None:
    fs = new_disk()
    apply(fs, plan_repair(fs, DIRECTORY, known_end=COUNT, contiguous=True))
    log = load(fs, SMALL, **CLEAN)
    assert (log.log_start_offset, log.log_end_offset) == (COUNT, COUNT)
    assert append(log).first_offset == COUNT
    assert read_offsets(log, COUNT) == [COUNT]
