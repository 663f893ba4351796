"""A file is known by its inode and its bytes; positions survive, or are not believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.tail.files import LogFile, Position, position_at_end
from ottla.tail.finder import Finder, is_rotated_name, places
from ottla.tail.relations import Relations
from ottla.tail.state import StateFile, TailError


def opened(path: Path, position: Position | None = None) -> LogFile:
    descriptor = os.open(path, os.O_RDONLY)
    found = os.fstat(descriptor)
    return LogFile.open(descriptor, position or Position(str(path), found.st_dev, found.st_ino), str(path), 1000, None)


def known(descriptor: int, path: Path, stored: dict[str, Position]) -> Position | None:
    return Relations(Finder([], print), {}, stored).known(descriptor, str(path))


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
    assert known(file.descriptor, path, stored) is None
    assert data(file) is None
    file.restart(0)
    assert data(file) == new.split(b"\n")[:-1]


def test_an_inode_that_is_used_again_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"new file, of more bytes than the old one had\n")
    found = path.stat()
    old = Position(str(path), found.st_dev, found.st_ino, 9, b"old file\n", b"old file\n")
    descriptor = os.open(path, os.O_RDONLY)
    assert known(descriptor, path, {old.key: old}) is None
    at_end = position_at_end(descriptor, str(path))
    assert known(descriptor, path, {at_end.key: at_end}) == at_end
    assert at_end.offset == found.st_size


def test_copies_are_known_while_they_are_made(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    path.write_bytes(b"first\nsecond\n")
    file = opened(path)
    file.read()
    for part in (b"", b"fi", b"first\n", b"first\nsecond\n"):
        copy.write_bytes(part)
        descriptor = os.open(copy, os.O_RDONLY)
        assert file.has_copy(descriptor)
        assert file.covers(descriptor) is bool(part)
    copy.write_bytes(b"first\nsecond\nthird\n")
    assert file.goes_on_in(descriptor)
    relations = Relations(Finder([], print), {}, {})
    os.truncate(path, 0)
    assert relations.moved(file.position) == str(copy)
    path.write_bytes(b"first\nsecond\n")
    copy.write_bytes(b"other\n")
    assert not file.has_copy(descriptor)
    assert not file.goes_on_in(descriptor)
    assert not file.covers(descriptor)
    path.unlink()
    assert relations.moved(file.position) is None


def test_a_copy_that_lacks_the_end_is_known_by_what_was_read(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    text = b"".join(b"line %06d of a log\n" % number for number in range(40_000))
    path.write_bytes(text)
    file = opened(path)
    while file.read():
        pass
    for size in (40, 128, 20_000, 300_000, 700_000, len(text) - 1):
        copy.write_bytes(text[:size])
        assert file.covers(os.open(copy, os.O_RDONLY)), size
        copy.write_bytes(text[:60] + text[90 : 30 + size])
        assert not file.covers(os.open(copy, os.O_RDONLY)) or size < 60, size


@pytest.mark.parametrize(
    ("name", "base", "rotated"),
    [
        ("app.log.1", "app.log", True),
        ("app.log-20261127", "app.log", True),
        ("app.log.2026-11-27_09-00", "app.log", True),
        ("0.log.20261127-101010", "0.log", True),
        ("app-20261127.log", "app.log", True),
        ("app.2026-11-27.log", "app.log", True),
        ("app_2026-11-27T10:00:00+01:00.log", "app.log", True),
        ("app.1.log", "app.log", True),
        ("app-1.log.2", "app.log", True),
        ("app.log.old", "app.log", True),
        ("syslog.1", "syslog", True),
        ("app.log", "app.log", False),
        ("app.log.1.gz", "app.log", False),
        ("app-20261127.log.gz", "app.log", False),
        ("app.log.swp", "app.log", False),
        ("app-worker.log", "app.log", False),
        ("app2.log", "app.log", False),
        ("app.1.txt", "app.log", False),
        ("application-1.log", "app.log", False),
    ],
)
def test_names_that_rotation_gives(name: str, base: str, rotated: bool) -> None:
    assert is_rotated_name(name, base) is rotated


def test_where_a_path_leads(tmp_path: Path) -> None:
    for name in ("containers", "between", "pods"):
        (tmp_path / name).mkdir()
    (tmp_path / "containers" / "x.log").symlink_to("../between/b.log")
    (tmp_path / "between" / "b.log").symlink_to(tmp_path / "pods" / "0.log")
    (tmp_path / "here").symlink_to("containers")
    chain = [tmp_path / "containers" / "x.log", tmp_path / "between" / "b.log", tmp_path / "pods" / "0.log"]
    assert [*map(os.path.realpath, map(os.path.dirname, places(str(tmp_path / "here" / "x.log"))))] == [
        *map(os.path.realpath, map(os.path.dirname, chain))
    ]
    assert [os.path.normpath(each) for each in places(str(tmp_path / "here" / "x.log"))] == [*map(str, chain)]
    (tmp_path / "loop").symlink_to("loop")
    assert places(str(tmp_path / "loop")) == (str(tmp_path / "loop"),)


def test_positions_of_earlier_versions_are_read() -> None:
    fields = Position("a.log", 1, 2, 3, b"one", b"one", 4, "/var/log/a.log").to_json()
    del fields["real"]
    assert Position.from_json(fields) == Position("a.log", 1, 2, 3, b"one", b"one", 4)


def test_unreadable_files_are_warned_of_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    finder = Finder([str(tmp_path / "*.log")], warnings.append)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert finder.open(str(loop)) is None
    assert finder.open(str(loop)) is None
    assert len(warnings) == len(finder.unreadable) == 1
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
