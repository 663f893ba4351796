"""What of a file is in memory, and when it is written back, so that neither reads nor writes wait for the disk.

Loaded with the first large read or write only: ctypes costs memory that an idle node does not need. `ottla.filesystem`
calls it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

SAMPLE_BYTES = 131_072
"""The kernel reads ahead at least so much, so that one byte in so many stands for the rest."""

_CACHESTAT = 451
"""Number of the system call on every architecture."""

Probe = Callable[[int, int, int], bool]
"""(descriptor, length, position) -> cached."""


def by_sampling(fd: int, length: int, position: int) -> bool:
    """Look at some bytes of the range with RWF_NOWAIT: for kernels before 6.5."""
    byte = bytearray(1)
    end = position + length
    try:
        for at in (*range(position, end, SAMPLE_BYTES), end - 1):
            os.preadv(fd, [byte], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    return True


def _by_cachestat() -> Probe | None:
    """A probe by cachestat (Linux 6.5), which counts a range's cached pages in about a microsecond; None without it."""
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    wanted = (ctypes.c_uint64 * 2)()
    counts = (ctypes.c_uint64 * 5)()
    number, flags = ctypes.c_long(_CACHESTAT), ctypes.c_uint(0)
    at, into = ctypes.byref(wanted), ctypes.byref(counts)
    page = os.sysconf("SC_PAGESIZE")

    def probe(fd: int, length: int, position: int) -> bool:
        wanted[0], wanted[1] = position, length
        if syscall(number, fd, at, into, flags):
            return by_sampling(fd, length, position)
        pages = (position + length - 1) // page - position // page + 1
        return counts[0] >= pages

    fd = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscall(number, fd, at, into, flags)
        return None if ctypes.get_errno() == errno.ENOSYS else probe
    finally:
        os.close(fd)


is_cached: Probe = _by_cachestat() or by_sampling

_SYNC_FILE_RANGE_WRITE = 2


def _by_sync_file_range() -> Callable[[int, int, int], None]:
    import ctypes

    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def start(fd: int, length: int, position: int) -> None:
        call(fd, position, length, _SYNC_FILE_RANGE_WRITE)

    return start


start_writeback: Callable[[int, int, int], None] = _by_sync_file_range()
"""(descriptor, length, position): begin to write dirty pages to disk. A hint: nothing is promised or reported."""
