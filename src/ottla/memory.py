"""Which of the memory that was freed malloc keeps, and when the rest goes back to the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

LARGE_BYTES: Final = 2 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""


def keep_freed() -> None:
    """Keep up to LARGE_BYTES of free memory at the end of the heap, and map apart what is larger. For a whole process.

    glibc's own thresholds follow the sizes of what is freed. Where several buffers of some hundred KB are freed
    together, as of a request, a record and an answer, it gives their pages back, and the next ones get new pages, which
    the system fills with zeros first. What is mapped apart grows without being copied, but soon that would be only what
    is larger than 32 MB.
    """
    for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        if cython.compiled:
            set_malloc_option(option, LARGE_BYTES)  # type: ignore[name-defined] # noqa: F821
        else:
            _of_libc("mallopt")(option, LARGE_BYTES)


def give_back() -> None:
    """Return free memory to the system: about 0.07 ms for each megabyte, and nothing where the C library cannot. Python
    objects of up to 512 bytes have an allocator of their own, see `allocators`."""
    if cython.compiled:
        trim_malloc()  # type: ignore[name-defined] # noqa: F821
    else:
        _of_libc("malloc_trim")(0)


def _of_libc(name: str) -> Callable[..., object]:
    """A function of the C library; one that does nothing where it has none of that name."""
    import ctypes

    found: Callable[..., object] = getattr(ctypes.CDLL(None), name, lambda *_: None)
    return found
