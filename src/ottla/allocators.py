"""Objects of long work come from `malloc`, so that its memory can be given back when it is over.

Python's own allocator gives back a megabyte at a time, and only when nothing at all in it is in use: of 190,000 rows
that were freed, one object of somebody else's in each of their megabytes keeps all of them. What comes from malloc
leaves whole pages, which `memory.give_back` returns.

Loaded when there is such work: ctypes costs memory that an idle node does not need.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Final

_RAW_DOMAIN, _OBJECTS_DOMAIN = 0, 2
_PYMALLOC: Final = (None, "", "pymalloc")
"""Values of PYTHONMALLOC that leave objects to Python's own allocator, where no other is the default."""


class _Allocator(ctypes.Structure):
    """PyMemAllocatorEx."""

    _fields_ = (
        ("ctx", ctypes.c_void_p), ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p), ("free", ctypes.c_void_p),
    )  # fmt: skip


def _switches() -> tuple[Callable[[], None], Callable[[], None]]:
    """(objects come from malloc from now on, and from where they came before); both do nothing where that cannot be.

    Python's allocator leaves to malloc what is larger than 512 bytes, and sees by the address of what is freed or
    resized whose it is. So who allocates can change at any moment, as long as the same one frees. Not so where hooks
    (debugging, tracemalloc) keep something beside each block: those have a context, the plain ones have none. Only
    `sys.getallocatedblocks` is misled: it counts what is freed.
    """
    if os.environ.get("PYTHONMALLOC") not in _PYMALLOC or "t" in sys.abiflags:  # free-threaded
        return _nothing, _nothing
    get, replace = ctypes.pythonapi.PyMem_GetAllocator, ctypes.pythonapi.PyMem_SetAllocator
    get.restype = replace.restype = None
    raw, usual = _Allocator(), _Allocator()
    get(_RAW_DOMAIN, ctypes.byref(raw))
    get(_OBJECTS_DOMAIN, ctypes.byref(usual))
    if raw.ctx or usual.ctx or raw.malloc == usual.malloc:
        return _nothing, _nothing
    mixed = _Allocator(None, raw.malloc, raw.calloc, usual.realloc, usual.free)
    to_mixed, to_usual, current = ctypes.byref(mixed), ctypes.byref(usual), _Allocator()
    to_current = ctypes.byref(current)

    def begin() -> None:
        get(_OBJECTS_DOMAIN, to_current)
        if not current.ctx:  # else tracemalloc was started meanwhile
            replace(_OBJECTS_DOMAIN, to_mixed)

    def end() -> None:
        get(_OBJECTS_DOMAIN, to_current)
        if not current.ctx:
            replace(_OBJECTS_DOMAIN, to_usual)

    return begin, end


def _nothing() -> None:
    pass


begin_apart, end_apart = _switches()
"""Between these two the objects that this process makes come from malloc, whole pages of which can be given back.
Nothing may be awaited between them: other work shall leave its objects where they are found fastest."""
