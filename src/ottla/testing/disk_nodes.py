"""The inodes and directories of `SimulatedFileSystem`: what is written, what is fsynced, what a power loss keeps."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

BLOCK_BYTES = 512
"""What a disk writes as a whole. Smaller than a page, so that tears fall inside batches and index entries."""


class SimulatedCrash(BaseException):
    """The process ends here. Not an `Exception`, so that no handler of errors swallows it."""


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


def _apply(content: bytearray, change: _Write | _Truncate) -> None:
    if isinstance(change, _Truncate):
        end = change.size
        if end <= len(content):
            del content[end:]
    else:
        end = change.position + len(change.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if isinstance(change, _Write):
        content[change.position : end] = change.data


def _blocks(change: _Write) -> list[_Write]:
    """The change cut at block boundaries of the file."""
    blocks, position, data = [], change.position, change.data
    while data:
        length = BLOCK_BYTES - position % BLOCK_BYTES
        blocks.append(_Write(position, data[:length]))
        position, data = position + length, data[length:]
    return blocks


class Inode:
    """A file's content as the process sees it, and as the disk has it."""

    __slots__ = ("_durable", "_pending", "content", "mtime_ms")

    def __init__(self, mtime_ms: int) -> None:
        self.mtime_ms = mtime_ms
        self.content = bytearray()
        self._durable = bytearray()
        self._pending: list[_Write | _Truncate] = []
        """Changes since the last fsync, in order: `_durable` with all of them is `content`, unless an fsync failed."""

    def write(self, position: int, data: bytes, now_ms: int) -> None:
        self._change(_Write(position, data), now_ms)

    def truncate(self, size: int, now_ms: int) -> None:
        self._change(_Truncate(size), now_ms)

    def _change(self, change: _Write | _Truncate, now_ms: int) -> None:
        _apply(self.content, change)
        self._pending.append(change)
        self.mtime_ms = now_ms

    @property
    def durable(self) -> bytearray:
        """What is certainly on the disk."""
        return self._durable

    def fsync(self) -> None:
        for change in self._pending:
            _apply(self._durable, change)
        self._pending.clear()

    def drop_pending(self, random: Random) -> None:
        """An fsync failed: some of the changes reached the disk, and nobody will write the others again."""
        self._persist_some(random)
        self._pending.clear()

    def flip(self, bit: int) -> None:
        at, mask = bit // 8, 1 << bit % 8
        self.content[at] ^= mask
        if at < len(self._durable):
            self._durable[at] ^= mask

    def lose_power(self, random: Random) -> None:
        self._persist_some(random)
        self._pending.clear()
        self.content = bytearray(self._durable)

    def _persist_some(self, random: Random) -> None:
        """Apply to the disk nothing, a prefix whose last write is torn, or any blocks in any order of arrival."""
        how = random.choice(("nothing", "prefix", "blocks", "everything"))
        if how == "everything":
            self.fsync()
        elif how == "prefix" and self._pending:
            at = random.randrange(len(self._pending))
            last = self._pending[at]
            if isinstance(last, _Write):
                last = _Write(last.position, last.data[: random.randint(0, len(last.data))])
            for change in (*self._pending[:at], last):
                _apply(self._durable, change)
        elif how == "blocks":
            chance = random.random()
            for change in self._pending:
                for part in _blocks(change) if isinstance(change, _Write) else [change]:
                    if random.random() < chance:
                        _apply(self._durable, part)


class _Link(NamedTuple):
    name: str
    node: Directory | Inode


class _Unlink(NamedTuple):
    name: str


class _Rename(NamedTuple):
    name: str
    new_name: str


def _is_of_segment(change: _Link | _Unlink | _Rename) -> bool:
    return change.name.endswith(".log") or (isinstance(change, _Rename) and change.new_name.endswith(".log"))


class Directory:
    """Names as the process sees them, and as the disk has them."""

    __slots__ = ("_durable", "_pending", "changes", "entries")

    def __init__(self) -> None:
        self.changes = 0
        """So far, of names of segments in `entries` and `durable`: who looked at this state need not look again."""
        self.entries: dict[str, Directory | Inode] = {}
        self._durable: dict[str, Directory | Inode] = {}
        self._pending: list[_Link | _Unlink | _Rename] = []

    def link(self, name: str, node: Directory | Inode) -> None:
        self._change(_Link(name, node))

    def unlink(self, name: str) -> None:
        self._change(_Unlink(name))

    def rename(self, name: str, target: Directory, new_name: str) -> None:
        """Within one directory this is one change; between two the disk may have either name, both, or none."""
        if target is self:
            self._change(_Rename(name, new_name))
        else:
            target.link(new_name, self.entries[name])
            self.unlink(name)

    def _change(self, change: _Link | _Unlink | _Rename) -> None:
        if _is_of_segment(change):
            self.changes += 1
        self._apply(self.entries, change)
        self._pending.append(change)

    @staticmethod
    def _apply(entries: dict[str, Directory | Inode], change: _Link | _Unlink | _Rename) -> None:
        if isinstance(change, _Link):
            entries[change.name] = change.node
        elif isinstance(change, _Unlink):
            entries.pop(change.name, None)
        else:
            entries[change.new_name] = entries.pop(change.name)

    @property
    def durable(self) -> dict[str, Directory | Inode]:
        """The names that are certainly on the disk."""
        return self._durable

    def fsync(self) -> None:
        if any(map(_is_of_segment, self._pending)):
            self.changes += 1
        self._durable = dict(self.entries)
        self._pending.clear()

    def fsync_all(self) -> None:
        self.fsync()
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.fsync_all()
            else:
                node.fsync()

    def lose_power(self, random: Random) -> None:
        self.changes += 1
        for change in self._pending[: random.randint(0, len(self._pending))]:
            self._apply(self._durable, change)
        self._pending.clear()
        self.entries = dict(self._durable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(random)

    def used_bytes(self) -> int:
        return sum(
            node.used_bytes() if isinstance(node, Directory) else len(node.content) for node in self.entries.values()
        )
