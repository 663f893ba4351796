"""The file system, behind an interface so that a simulation can lose, tear and refuse writes.

These are the only calls to `os` file functions in Ottla. Everything is synchronous; what may block for long (fsync,
cold reads, deletes) is handed to `FileSystem.run`, which keeps it off the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.model import Buffer

T = TypeVar("T")

IOV_MAX = 1024
"""Buffers that Linux takes in one pwritev."""

DISK_THREADS_MAX = 4
"""Enough to overlap an fsync with cold reads; the work is waiting, so more would only queue inside the kernel."""


WRITE_BYTES_MAX = 262_144
"""Larger buffers are written in pieces of this size. The page cache of Linux 6.16 and later has folios as large as the
write: in pieces of 64 KB a megabyte costs half as much again, in one piece no less."""

# The same as C globals.
_PIECE = WRITE_BYTES_MAX
_NOWAIT = os.RWF_NOWAIT


class File(Protocol):
    """An open file. Positions and sizes are in bytes; every call raises `OSError` as the system does."""

    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile. Raises `io.UnsupportedOperation` on a simulated disk."""
        ...

    def size(self) -> int: ...
    def pread(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        """Like `pread`, but None where the range is not wholly in the page cache (RWF_NOWAIT)."""
        ...

    def is_cached(self, length: int, position: int) -> bool:
        """Whether the range is wholly in the page cache, so that reading or sending it does not wait for the disk."""
        ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after the other at `position`; returns the bytes written, always all of them."""
        ...

    def truncate(self, size: int) -> None: ...
    def fsync(self) -> None: ...
    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Mutex(Protocol):
    """A lock between threads of `FileSystem.run`, and between them and the loop; `with` holds it."""

    def __enter__(self) -> bool: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...


class FileSystem(Protocol):
    replacing: Mutex
    """Held by whoever replaces a file that a thread may be replacing too: both would use one temporary file."""

    def mutex(self) -> Mutex:
        """A new lock for what two pieces of blocking work share; a simulation sees who is held up by which thread."""
        ...

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]: ...
    def size(self, path: str) -> int: ...
    def mtime_ms(self, path: str) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int) -> None: ...
    def makedirs(self, path: str, *, private: bool = False) -> None:
        """`private`: what is in it is for its owner; a directory that is there already is closed to strangers."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`. The caller fsyncs the directory."""
        ...

    def remove(self, path: str) -> None: ...
    def rmtree(self, path: str) -> None: ...
    def fsync_dir(self, path: str) -> None: ...
    def read_bytes(self, path: str) -> bytes: ...
    def write_atomic(self, path: str, data: bytes, *, fsync: bool = True, private: bool = False) -> None:
        """Write a temporary file beside `path`, fsync it, and rename it over `path`; never leaves half a file.
        `private`: for its owner alone."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""
        ...

    def lock(self, path: str) -> FileLock:
        """Take the exclusive lock file at `path`, creating it. Raises `BlockingIOError` if another process has it."""
        ...

    def start_writeback(self, file: File, length: int, position: int) -> None:
        """Have a range of dirty pages written to disk soon, without waiting for it.

        Left to itself the kernel collects gigabytes and then stops whoever writes next, which here is everybody.
        """
        ...

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do blocking work away from the event loop and await its result there."""
        ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    knows_nowait = True
    """Whether the kernel has preadv2."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        if not OsFile.knows_nowait:
            return self.pread(length, position)
        try:
            return _read_nowait(self._fd, length, position)
        except OSError as error:
            if error.errno == errno.ENOSYS:  # as in gVisor
                OsFile.knows_nowait = False
            elif error.errno != errno.EOPNOTSUPP:  # overlay and network file systems
                raise
            return self.pread(length, position)

    def is_cached(self, length: int, position: int) -> bool:
        if not OsFile.knows_nowait:
            return True
        from ottla.page_cache import is_cached

        return is_cached(self._fd, length, position)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        if len(buffers) == 1:
            return _write_pieces(self._fd, buffers[0], position)
        total = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, position) if len(buffers) <= IOV_MAX else 0
        if written < total:
            rest = memoryview(b"".join(buffers))[written:]
            written += _write_pieces(self._fd, rest, position + written)
        return written

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read_nowait(fd: int, length: int, position: int) -> bytes | bytearray | None:
    """The range, or None where it is not wholly in the page cache. Raises OSError."""
    if cython.compiled:
        # As os.preadv does it, into memory that is not zeroed first, which for 64 KB costs half as much as the read.
        data = PyBytes_FromStringAndSize(cython.NULL, length)  # type: ignore[name-defined] # noqa: F821
        vector.iov_base = PyBytes_AS_STRING(data)  # type: ignore[name-defined] # noqa: F821
        vector.iov_len = length  # type: ignore[name-defined] # noqa: F821
        # The high half of the position is for machines of 32 bits. It does not wait, so the GIL stays.
        got = syscall(SYS_preadv2, fd, cython.address(vector), 1, position, 0, _NOWAIT)  # type: ignore[name-defined] # noqa: F821
        if got < 0:
            number = c_errno  # type: ignore[name-defined] # noqa: F821
            if number == errno.EAGAIN:
                return None
            raise OSError(number, os.strerror(number))
        return data if got == length else None
    else:
        buffer = bytearray(length)
        try:
            return buffer if os.preadv(fd, (buffer,), position, os.RWF_NOWAIT) == length else None
        except BlockingIOError:
            return None


def _write_pieces(fd: int, data: Buffer, position: int) -> int:
    """Write one buffer; returns the bytes written, always all of them. Raises OSError."""
    written = 0
    if cython.compiled:
        # As os.pwrite does it, without an object for each piece: they were a sixth of what a megabyte costs.
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)  # type: ignore[name-defined] # noqa: F821
        try:
            base = cython.cast("const char *", view.buf)  # type: ignore[name-defined] # noqa: F821
            total = view.len  # type: ignore[name-defined] # noqa: F821
            while written < total:
                size = total - written
                if size > _PIECE:
                    size = _PIECE
                with cython.nogil:
                    step = pwrite(fd, base + written, size, position + written)  # type: ignore[name-defined] # noqa: F821
                    number = c_errno  # type: ignore[name-defined] # noqa: F821
                if step < 0:
                    if number != errno.EINTR:
                        raise OSError(number, os.strerror(number))
                    PyErr_CheckSignals()  # type: ignore[name-defined] # noqa: F821
                    continue
                if step == 0:
                    raise OSError(errno.EIO, "write made no progress")
                written += step
        finally:
            PyBuffer_Release(cython.address(view))  # type: ignore[name-defined] # noqa: F821
    else:
        rest = memoryview(data)
        while rest:
            step = os.pwrite(fd, rest[:_PIECE], position + written)
            if step == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += step
            rest = rest[step:]
    return written


class _OsFileLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class OsFileSystem:
    """The operating system's files, with a few threads for blocking work."""

    def __init__(self) -> None:
        self.replacing: Mutex = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._writing_back = False

    def mutex(self) -> Mutex:
        return threading.Lock()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def makedirs(self, path: str, *, private: bool = False) -> None:
        os.makedirs(path, 0o700 if private else 0o777, exist_ok=True)
        if private and (mode := os.stat(path).st_mode) & 0o007:
            with contextlib.suppress(PermissionError):  # it is of another user
                os.chmod(path, mode & 0o770)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # four times as fast as `open`, and a node starts by reading
        try:
            parts = []
            while data := os.read(fd, max(os.fstat(fd).st_size, 1)):
                parts.append(data)
            return b"".join(parts)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes, *, fsync: bool = True, private: bool = False) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600 if private else 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if fsync:
                os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)  # on a full disk the space is needed
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if fsync:
            self.fsync_dir(os.path.dirname(path) or ".")

    def free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail

    def lock(self, path: str) -> FileLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A record lock, as Java's FileChannel.lock takes, so that a JVM broker and this one see each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise BlockingIOError(error.errno, "locked by another process", path) from error
        return _OsFileLock(fd)

    def start_writeback(self, file: File, length: int, position: int) -> None:
        from ottla.page_cache import start_writeback

        if self._writing_back:  # the disk is behind: more hints would only keep threads from reads and fsyncs
            return
        self._writing_back = True
        # The file may be closed, and its descriptor another file's, before a thread gets to it.
        fd = os.dup(file.fileno())

        def work() -> None:
            try:
                start_writeback(fd, length, position)
            finally:
                os.close(fd)
                self._writing_back = False

        self._pool().submit(work)

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool(), work)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(DISK_THREADS_MAX, thread_name_prefix="ottla-disk")
        return self._threads

    def close(self) -> None:
        if self._threads is not None:
            with contextlib.suppress(RuntimeError):
                self._threads.shutdown(wait=True)
            self._threads = None
