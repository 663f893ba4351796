"""A file is known by its inode and its bytes; positions survive, or are not believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.tail.files import LogFile, Position, position_at_end
from ottla.tail.finder import Finder, known_position, may_be_copy
from ottla.tail.state import StateFile, TailError


def opened(path: Path, position: Position | None = None) -> LogFile:
    descriptor = os.open(path, os.O_RDONLY)
    found = os.fstat(descriptor)
    return LogFile.open(
        descriptor, position or Position(str(path), found.st_dev, found.st_ino), str(path), 1000, None
    )  # fmt: skip


def data(file: LogFile) -> list[bytes] | None:
    lines = file.read()
    return None if lines is None else [each.data for each in lines]


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"first\nsecond\nthi")
    file = opened(path)
    assert data(file) == [b"first", b"second"]
    assert file.position.offset == 13
    assert file.position.head == file.position.tail == b"first\nsecond\n"
    again = opened(path, Position.from_json(file.position.to_json()))
    path.write_bytes(b"first\nsecond\nthird\n")
    assert data(again) == [b"third"]
    assert data(file) == [b"third"]


@pytest.mark.parametrize("new", [b"", b"other\n", b"other\nand longer than before\n", b"first\nsecund\nthird\n"])
def test_what_was_written_again_is_noticed(tmp_path: Path, new: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"first\nsecond\n")
    file = opened(path)
    file.read()
    stored = {file.position.key: file.position}
    path.write_bytes(new)  # the same inode
    os.utime(path, ns=(1, 1))
    assert known_position(file.descriptor, str(path), stored) is None
    assert data(file) is None
    file.restart()
    assert data(file) == new.split(b"\n")[:-1]


def test_an_inode_that_is_used_again_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"new file, of more bytes than the old one had\n")
    found = path.stat()
    old = Position(str(path), found.st_dev, found.st_ino, 9, b"old file\n", b"old file\n")
    descriptor = os.open(path, os.O_RDONLY)
    assert known_position(descriptor, str(path), {old.key: old}) is None
    at_end = position_at_end(descriptor, str(path))
    assert known_position(descriptor, str(path), {at_end.key: at_end}) == at_end
    assert at_end.offset == found.st_size


def test_copies_are_known_while_they_are_made(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    path.write_bytes(b"first\nsecond\n")
    file = opened(path)
    file.read()
    for part in (b"fi", b"first\n", b"first\nsecond\n", b"first\nsecond\nthird\n"):
        copy.write_bytes(part)
        descriptor = os.open(copy, os.O_RDONLY)
        assert may_be_copy(descriptor, [file.position])
    assert Finder([], lambda _: None).moved(file.position) == str(copy)
    copy.write_bytes(b"other\n")
    assert not may_be_copy(os.open(copy, os.O_RDONLY), [file.position])
    assert Finder([], lambda _: None).moved(file.position) is None


def test_unreadable_files_are_warned_of_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    finder = Finder([str(tmp_path / "*.log")], warnings.append)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert finder.open(str(loop)) is None
    assert finder.open(str(loop)) is None
    assert len(warnings) == finder.unreadable == 1
    os.mkfifo(tmp_path / "pipe.log")
    assert finder.open(str(tmp_path / "pipe.log")) is None
    assert finder.matches() == {}


def test_state_is_kept_and_locked(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "deep" / "state.json")
    assert state.load() == {}
    position = Position("a\udcff.log", 1, 2, 3, b"\xffhe", b"\xffhe", 4)
    state.save([position])
    assert state.load() == {position.key: position}
    with pytest.raises(TailError, match="another agent runs"):
        StateFile(state.path)
    state.close()
    state.path.write_bytes(b"{}")
    again = StateFile(state.path)
    with pytest.raises(TailError, match="holds no positions"):
        again.load()
