"""The real file system and the simulated one answer alike."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
from pathlib import Path

import pytest

from ottla.filesystem import WRITE_BYTES_MAX, FileSystem, OsFileSystem
from ottla.testing.disk import SimulatedFileSystem


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "real":
        return OsFileSystem(), str(tmp_path)
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs("/data")
    return fs, "/data"


def test_files(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    path = f"{root}/a"
    with pytest.raises(FileNotFoundError):
        fs.open(path)
    file = fs.open(path, create=True)
    assert file.pwrite([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]], 3) == 6
    assert file.pread(100, 0) == b"\0\0\0abcdef"
    assert file.pread(3, 4) == b"bcd"
    assert file.pread(3, 100) == b""
    assert file.pread_nowait(100, 0) is None
    file.truncate(5)
    file.fsync()
    assert (file.size(), fs.size(path), fs.read_bytes(path)) == (5, 5, b"\0\0\0ab")
    reader = fs.open(path, read_only=True)
    assert reader.pread(2, 3) == b"ab"
    with pytest.raises(OSError, match="Bad file"):
        reader.pwrite([b"x"], 0)
    file.close()
    file.close()
    fs.remove(path)
    assert reader.pread(2, 3) == b"ab"
    reader.close()


def test_many_buffers_in_one_write(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    file = fs.open(f"{root}/a", create=True)
    assert file.pwrite([b"x"] * 3000, 0) == 3000
    assert file.size() == 3000


@pytest.mark.parametrize("length", [WRITE_BYTES_MAX - 1, WRITE_BYTES_MAX, WRITE_BYTES_MAX + 1, 2_000_000])
def test_one_buffer_of_many_pieces(place: tuple[FileSystem, str], length: int) -> None:
    fs, root = place
    data = random.Random(length).randbytes(length)
    file = fs.open(f"{root}/a", create=True)
    assert file.pwrite([memoryview(data)], 5) == length
    assert fs.read_bytes(f"{root}/a") == bytes(5) + data


def test_directories(place: tuple[FileSystem, str]) -> None:
    fs, root = place
    fs.makedirs(f"{root}/d/e")
    fs.makedirs(f"{root}/d/e")
    fs.write_atomic(f"{root}/d/f", b"one")
    fs.write_atomic(f"{root}/d/f", b"two", fsync=False)
    fs.fsync_dir(f"{root}/d")
    assert fs.listdir(f"{root}/d") == ["e", "f"]
    assert fs.read_bytes(f"{root}/d/f") == b"two"
    assert (fs.is_dir(f"{root}/d"), fs.is_dir(f"{root}/d/f"), fs.exists(f"{root}/nothing")) == (True, False, False)
    fs.rename(f"{root}/d", f"{root}/g")
    assert fs.exists(f"{root}/g/f")
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/d", f"{root}/h")
    with pytest.raises(FileNotFoundError):
        fs.listdir(f"{root}/d")
    fs.rmtree(f"{root}/g")
    assert fs.listdir(root) == []
    total, usable = fs.free_bytes(root)
    assert 0 < usable <= total


def _try_lock(path: str) -> None:
    try:
        OsFileSystem().lock(path)
    except BlockingIOError:
        os._exit(3)
    os._exit(0)


def test_a_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = OsFileSystem().lock(path)

    def exit_code() -> int | None:
        child = multiprocessing.get_context("fork").Process(target=_try_lock, args=(path,))
        child.start()
        child.join()
        return child.exitcode

    assert exit_code() == 3
    lock.release()
    assert exit_code() == 0


def test_work_comes_back_to_the_loop(place: tuple[FileSystem, str]) -> None:
    fs, _ = place

    async def main() -> int:
        return await fs.run(lambda: 5)

    assert asyncio.run(main()) == 5
