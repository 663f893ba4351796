from __future__ import annotations

import asyncio
import errno
import io
import random

import pytest

from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem


def make_fs(seed: int = 1, **arguments: int) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(seed), **arguments)  # type: ignore[arg-type]
    fs.makedirs("/d/e")
    fs.fsync_all()
    return fs


def test_it_is_a_file_system() -> None:
    fs = make_fs()
    file = fs.open("/d/f", create=True)
    assert file.pwrite([b"abc", memoryview(b"def")], 2) == 6
    assert file.pread(100, 0) == b"\0\0abcdef"
    assert file.pread_nowait(8, 0) == b"\0\0abcdef"
    file.truncate(4)
    assert (file.size(), fs.size("/d/f"), fs.listdir("/d")) == (4, 4, ["e", "f"])
    fs.rename("/d/f", "/d/g")
    fs.remove("/d/g")
    assert file.pread(4, 0) == b"\0\0ab"
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()
    with pytest.raises(FileNotFoundError):
        fs.open("/d/g")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("/nowhere/at/all")
    fs.write_atomic("/d/e/h", b"x")
    fs.rmtree("/d/e")
    assert not fs.exists("/d/e/h")
    assert not fs.is_dir("/d/e")


def test_a_killed_process_leaves_what_it_wrote() -> None:
    fs = make_fs()
    fs.open("/d/f", create=True).pwrite([b"abc"], 0)
    fs.crash()
    with pytest.raises(SimulatedCrash):
        fs.exists("/d/f")
    fs.restart(power_loss=False)
    assert fs.read_bytes("/d/f") == b"abc"


def test_a_write_cut_short_by_a_kill_is_there_in_part() -> None:
    seen = set()
    for seed in range(50):
        fs = make_fs(seed)
        file = fs.open("/d/f", create=True)
        fs.crash_after(0)
        with pytest.raises(SimulatedCrash):
            file.pwrite([b"abcd"], 0)
        fs.restart(power_loss=False)
        seen.add(fs.read_bytes("/d/f"))
        with pytest.raises(OSError, match="Bad file"):
            file.pread(1, 0)
    assert seen == {b"", b"a", b"ab", b"abc", b"abcd"}


def test_power_loss_keeps_what_was_fsynced_and_a_random_rest() -> None:
    outcomes = set()
    for seed in range(200):
        fs = make_fs(seed)
        file = fs.open("/d/f", create=True)
        file.pwrite([b"A" * 1000], 0)
        file.fsync()
        fs.fsync_dir("/d")
        file.pwrite([b"B" * 2000], 1000)
        fs.restart(power_loss=True)
        content = fs.read_bytes("/d/f")
        assert content[:1000] == b"A" * 1000
        assert set(content[1000:]) <= {0, ord("B")}
        outcomes.add((len(content), content.count(b"\0")))
    assert {size for size, _ in outcomes} >= {1000, 3000}
    assert any(zeros for _, zeros in outcomes)
    assert len(outcomes) > 10


def test_names_need_an_fsync_of_their_directory() -> None:
    survived = set()
    for seed in range(40):
        fs = make_fs(seed)
        file = fs.open("/d/f", create=True)
        file.fsync()
        fs.rename("/d/f", "/d/g")
        fs.restart(power_loss=True)
        survived.add(tuple(fs.listdir("/d")))
    assert survived == {("e",), ("e", "f"), ("e", "g")}


def test_a_failed_fsync_loses_the_data_that_a_second_one_pretends_to_save() -> None:
    lost = 0
    for seed in range(40):
        fs = make_fs(seed)
        file = fs.open("/d/f", create=True)
        fs.fsync_dir("/d")
        file.pwrite([b"abc"], 0)
        fs.fail("fsync", times=1)
        with pytest.raises(OSError, match="Input/output"):
            file.fsync()
        file.fsync()
        assert file.pread(3, 0) == b"abc"
        fs.restart(power_loss=True)
        lost += fs.read_bytes("/d/f") != b"abc"
    assert lost


def test_a_full_disk_takes_a_part() -> None:
    fs = make_fs(capacity_bytes=10)
    file = fs.open("/d/f", create=True)
    file.pwrite([b"12345678"], 0)
    with pytest.raises(OSError, match="No space") as caught:
        file.pwrite([b"abc"], 8)
    assert caught.value.errno == errno.ENOSPC
    assert file.pwrite([b"x"], 3) == 1
    with pytest.raises(OSError, match="No space"):
        fs.write_atomic("/d/g", b"y" * 20)
    assert fs.listdir("/d") == ["e", "f"]
    fs.heal()
    assert file.pwrite([b"abc"], 8) == 3


def test_faults_can_be_aimed_and_counted() -> None:
    fs = make_fs()
    fs.write_atomic("/d/a.log", b"x")
    fs.write_atomic("/d/b.index", b"x")
    fs.fail("read", errno.EIO, path=".log", skip=1, times=1)
    assert fs.read_bytes("/d/b.index") == fs.read_bytes("/d/a.log")
    with pytest.raises(OSError, match="Input/output"):
        fs.read_bytes("/d/a.log")
    assert fs.read_bytes("/d/a.log") == b"x"
    fs.read_only = True
    with pytest.raises(OSError, match="Read-only"):
        fs.remove("/d/a.log")
    with pytest.raises(OSError, match="Read-only"):
        fs.open("/d/a.log")
    assert fs.open("/d/a.log", read_only=True).pread(1, 0) == b"x"


def test_a_flipped_bit_stays_flipped() -> None:
    fs = make_fs()
    fs.write_atomic("/d/f", b"\0\0")
    assert fs.flip_bit("/d/f", 9) == 9
    fs.restart(power_loss=True)
    assert fs.read_bytes("/d/f") == b"\0\2"


def test_locks_end_with_the_process() -> None:
    fs = make_fs()
    lock = fs.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock("/d/.lock")
    lock.release()
    fs.lock("/d/.lock")
    fs.restart(power_loss=False)
    fs.lock("/d/.lock")


def test_work_runs_at_a_later_turn_of_the_loop() -> None:
    fs = make_fs(cold := 3)
    fs.cold_probability = 1.0

    async def main() -> int:
        done = fs.run(lambda: cold)
        return await done

    assert asyncio.run(main()) == 3
    fs.write_atomic("/d/f", b"x")
    assert fs.open("/d/f").pread_nowait(1, 0) is None
