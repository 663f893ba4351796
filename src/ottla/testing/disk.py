"""A file system in memory that fails on request, for tests of what survives.

It tracks what was fsynced: file content by `fsync`, directory entries by `fsync_dir`. A *process kill* keeps everything
that was written, the write in progress perhaps in part. A *power loss* keeps what was fsynced, and of the rest a random
part: blocks survive one by one and out of order, directory changes as a prefix of what was done in that directory. It
is stricter than ext4, where a file's fsync also saves its name; code that is right here is right on any POSIX system.

    fs = SimulatedFileSystem(random.Random(seed))
    fs.crash_after(17)                      # the 17th change from here on is cut short: SimulatedCrash
    fs.restart(power_loss=True)             # what the disk looks like afterwards
    fs.fail("fsync", errno.EIO, path=".log")

Every call that changes something is a step. `steps` counts them, so that a test can crash a scenario at each one.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import posixpath
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from ottla.filesystem import File, Mutex
from ottla.model import Buffer
from ottla.testing.disk_nodes import Directory, Inode, SimulatedCrash

T = TypeVar("T")

CAPACITY_BYTES = 2**40
"""The size of the disk unless the test gives one."""

OPERATIONS = frozenset(
    {
        "read",
        "write",
        "truncate",
        "fsync",
        "fsync_dir",
        "open",
        "create",
        "rename",
        "remove",
        "listdir",
        "mkdir",
        "size",
    }
)
"""What can be made to fail."""


@dataclass(slots=True)
class Fault:
    """The operation on a path that contains `path` fails with `error`, after `skip` such calls, `times` times."""

    operation: str
    error: int
    path: str
    skip: int
    times: int
    fired: int = 0
    """How often it did: a fault that never met its operation shows nothing."""

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path not in path or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        self.fired += 1
        return True


@dataclass(slots=True)
class PlannedCrash:
    """A crash that was asked for, and whether it came."""

    at_step: int
    fired: bool = False


class SimulatedFile:
    """An open file of a `SimulatedFileSystem`. It does not survive `restart`; it does survive rename and removal."""

    __slots__ = ("_fs", "_generation", "_inode", "_read_only", "closed", "path")

    def __init__(self, fs: SimulatedFileSystem, path: str, inode: Inode, read_only: bool) -> None:
        self._fs = fs
        self._inode = inode
        self._generation = fs.generation
        self._read_only = read_only
        self.path = path
        self.closed = False

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def size(self) -> int:
        self._check("size")
        return len(self._inode.content)

    def pread(self, length: int, position: int) -> bytes:
        self._check("read")
        return bytes(memoryview(self._inode.content)[position : position + length])

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        if self._fs.random.random() < self._fs.cold_probability:
            return None
        data = self.pread(length, position)
        return data if len(data) == length else None

    def is_cached(self, length: int, position: int) -> bool:
        return self._fs.random.random() >= self._fs.cold_probability

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        try:
            self._check("write", change=True)
            self._fs.check_space(len(self._inode.content), position + len(data))
        except OSError:
            # What fits before the disk is full, or before the device fails, is there: the caller has to undo it.
            self._inode.write(position, data[: self._fs.random.randint(0, len(data))], self._fs.now_ms())
            raise
        if self._fs.step_is_cut(f"write of {len(data)} at {position} {zlib.crc32(data):08x} to {self.path}"):
            self._inode.write(position, data[: self._fs.random.randint(0, len(data))], self._fs.now_ms())
            raise SimulatedCrash(f"write to {self.path}")
        self._inode.write(position, data, self._fs.now_ms())
        return len(data)

    def truncate(self, size: int) -> None:
        self._check("truncate", change=True)
        self._fs.step(lambda: self._inode.truncate(size, self._fs.now_ms()), f"truncate of {self.path}")

    def fsync(self) -> None:
        try:
            self._check("fsync")
        except OSError:
            # As Linux does: the dirty pages are marked clean, the next fsync succeeds, and the data is not on the disk.
            self._inode.drop_pending(self._fs.random)
            raise
        self._fs.step(self._inode.fsync, f"fsync of {self.path}")

    def close(self) -> None:
        self.closed = True

    def _check(self, operation: str, *, change: bool = False) -> None:
        self._fs.check_running()
        if self.closed or self._generation != self._fs.generation or (change and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._fs.check_fault(operation, self.path, change=change)


class SimulatedLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedFileSystem:
    """Implements `ottla.filesystem.FileSystem`. Paths are absolute; `now_ms` gives modification times."""

    def __init__(
        self, random: Random, *, now_ms: Callable[[], int] = lambda: 0, capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        self.random = random
        self.now_ms = now_ms
        self.capacity_bytes = capacity_bytes
        self.read_only = False
        self.cold_probability = 0.0
        """How often `pread_nowait` says that a range is not in the page cache."""
        self.steps = 0
        """Changes so far."""
        self.generation = 0
        """Restarts so far; files of an earlier one are gone."""
        self.observer: Callable[[str], None] | None = None
        """Told of every change before it is made."""
        self.replacing: Mutex = threading.Lock()
        self.before_call: Callable[[], None] | None = None
        """Called before every call: a simulation lets other things happen then."""
        self.on_crash: Callable[[], None] = lambda: None
        """Called when a planned crash comes."""
        self._crash: PlannedCrash | None = None
        self._crashed = False
        self._root = Directory()
        self._locks: set[str] = set()
        self._faults: list[Fault] = []

    # What a test does to it

    def fail(
        self, operation: str, error: int = errno.EIO, *, path: str = "", skip: int = 0, times: int = 1_000_000_000
    ) -> Fault:
        """Make an operation fail; what is returned counts how often it did.

        One of `OPERATIONS`, else ValueError is raised.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"{operation} is not one of {', '.join(sorted(OPERATIONS))}")
        fault = Fault(operation, error, path, skip, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """No more faults, space and write permission again."""
        self._faults.clear()
        self.read_only = False
        self.capacity_bytes = CAPACITY_BYTES

    def crash_after(self, steps: int) -> PlannedCrash:
        """Cut short the change that comes after `steps` more: `SimulatedCrash` there and from all calls after it."""
        return self.plan(PlannedCrash(self.steps + steps))

    def plan(self, crash: PlannedCrash) -> PlannedCrash:
        """Let a crash come that was planned before a `restart`, which drops it."""
        self._crash = crash
        return crash

    @property
    def planned_crash(self) -> PlannedCrash | None:
        """The one that is still to come."""
        return None if self._crash is None or self._crash.fired else self._crash

    def crash(self) -> None:
        """Stop now: every call raises `SimulatedCrash` until `restart`."""
        self._crashed = True

    @property
    def crashed(self) -> bool:
        return self._crashed

    def restart(self, *, power_loss: bool) -> None:
        """Come back with what survived. Open files, locks and faults are gone."""
        self.generation += 1
        self._crashed = False
        self._crash = None
        self._locks = set()
        self._faults.clear()
        if power_loss:
            self._root.lose_power(self.random)

    def fsync_all(self) -> None:
        """As if the machine had been idle for long: everything is on the disk."""
        self._root.fsync_all()

    def flip_bit(self, path: str, bit: int | None = None) -> int:
        """Flip one bit of a file, on the disk as well; a random one unless given. Returns its number."""
        inode = self._inode(path)
        chosen = self.random.randrange(len(inode.content) * 8) if bit is None else bit
        inode.flip(chosen)
        return chosen

    def look(self, path: str) -> Directory | Inode | None:
        """What is there, for a checker: no fault strikes, and a crash does not matter."""
        return self._find(path)

    def wipe(self) -> None:
        """A new, empty disk."""
        self._root = Directory()

    def files(self, path: str = "/") -> dict[str, bytes]:
        """Every file below a directory with its content."""
        found: dict[str, bytes] = {}
        directory = self._find(path)
        assert isinstance(directory, Directory)
        for name, node in sorted(directory.entries.items()):
            child = posixpath.join(path, name)
            if isinstance(node, Directory):
                found |= self.files(child)
            else:
                found[child] = bytes(node.content)
        return found

    # FileSystem

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        self.check_running()
        self.check_fault("open", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None and create:
            self.check_fault("create", path, change=True)
            inode = Inode(self.now_ms())
            self.step(lambda: parent.link(name, inode), f"creation of {path}")
            return SimulatedFile(self, path, inode, read_only)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.read_only and not read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return SimulatedFile(self, path, node, read_only)

    def exists(self, path: str) -> bool:
        self.check_running()
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check_running()
        return isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        self.check_running()
        self.check_fault("listdir", path)
        return sorted(self._directory(path).entries)

    def size(self, path: str) -> int:
        self.check_running()
        return len(self._inode(path).content)

    def mtime_ms(self, path: str) -> int:
        self.check_running()
        node = self._find(path)
        return node.mtime_ms if isinstance(node, Inode) else 0

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self.check_running()
        self._inode(path).mtime_ms = mtime_ms

    def makedirs(self, path: str, *, private: bool = False) -> None:
        self.check_running()
        node: Directory | Inode | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            child = node.entries.get(name)
            if child is None:
                self.check_fault("mkdir", path, change=True)
                child = Directory()
                self.step(lambda parent=node, name=name, new=child: parent.link(name, new), f"mkdir {path}")  # type: ignore[misc]
            node = child

    def rename(self, source: str, target: str) -> None:
        self.check_running()
        self.check_fault("rename", source, change=True)
        from_parent, from_name = self._parent(source)
        to_parent, to_name = self._parent(target)
        if from_name not in from_parent.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        existing = to_parent.entries.get(to_name)
        if isinstance(existing, Directory) and existing.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self.step(lambda: from_parent.rename(from_name, to_parent, to_name), f"rename of {source}")

    def remove(self, path: str) -> None:
        self.check_running()
        self.check_fault("remove", path, change=True)
        self._inode(path)
        parent, name = self._parent(path)
        self.step(lambda: parent.unlink(name), f"removal of {path}")

    def rmtree(self, path: str) -> None:
        for name in self.listdir(path):
            child = posixpath.join(path, name)
            if self.is_dir(child):
                self.rmtree(child)
            else:
                self.remove(child)
        parent, name = self._parent(path)
        self.step(lambda: parent.unlink(name), f"removal of {path}")

    def fsync_dir(self, path: str) -> None:
        self.check_running()
        self.check_fault("fsync_dir", path)
        self.step(self._directory(path).fsync, f"fsync of {path}")

    def read_bytes(self, path: str) -> bytes:
        self.check_running()
        inode = self._inode(path)
        self.check_fault("read", path)
        return bytes(inode.content)

    def write_atomic(self, path: str, data: bytes, *, fsync: bool = True, private: bool = False) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite([data], 0)
            if fsync:
                file.fsync()
        except OSError:
            if not self.read_only:
                self.remove(temporary)
            raise
        finally:
            file.close()
        self.rename(temporary, path)
        if fsync:
            self.fsync_dir(posixpath.dirname(path))

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self._root.used_bytes())

    def lock(self, path: str) -> SimulatedLock:
        self.open(path, create=True)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    def start_writeback(self, file: File, length: int, position: int) -> None:
        """Nothing: what was not fsynced may be lost, whoever hinted what."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do the work after a random number of turns of the event loop, as a thread would at some later moment."""

        async def later() -> T:
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
            return work()

        return asyncio.get_running_loop().create_task(later())

    def close(self) -> None:
        """Nothing to release."""

    # For SimulatedFile

    def mutex(self) -> Mutex:
        return threading.Lock()

    def check_running(self) -> None:
        if self.before_call is not None:
            self.before_call()
        if self._crashed:
            raise SimulatedCrash("the process is gone")

    def check_fault(self, operation: str, path: str, *, change: bool = False) -> None:
        if change and self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise OSError(fault.error, os.strerror(fault.error), path)

    def check_space(self, size: int, end: int) -> None:
        if self.capacity_bytes >= CAPACITY_BYTES:
            return  # counting costs more than all else
        if end > size and self._root.used_bytes() + end - size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def step_is_cut(self, what: str) -> bool:
        """Count a step; whether the crash falls on it."""
        self.steps += 1
        if self.observer is not None:
            self.observer(what)
        if self._crash is not None and self.steps > self._crash.at_step:
            self._crash.fired = self._crashed = True
            self.on_crash()
        return self._crashed

    def step(self, change: Callable[[], object], what: str) -> None:
        """Do a change that is atomic in itself; when the crash falls on it, it happened or it did not."""
        cut = self.step_is_cut(what)
        if not cut or self.random.random() < 0.5:
            change()
        if cut:
            raise SimulatedCrash(what)

    # Paths

    def _find(self, path: str) -> Directory | Inode | None:
        node: Directory | Inode | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path.rstrip("/"))
        return self._directory(head), name


def _parts(path: str) -> Iterator[str]:
    return (part for part in path.split("/") if part and part != ".")
