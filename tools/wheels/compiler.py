"""The compiled modules for a target, by zig's C compiler from PyPI.

With what `setup.py` and Python itself give a compiler: the same optimisation, and numbers that wrap.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.wheels.targets import ROOT, WORK, Target

AS_PYTHON_IS = ("-fPIC", "-fwrapv", "-DNDEBUG")
"""Options that every Python hands to `setup.py` by itself. Cython's code needs the second."""
AS_A_LIBRARY = ("-shared", "-fno-sanitize=undefined", "-Wl,-s")

_SIZES = """
#include "pyconfig.h"
#include <stddef.h>
#include <sys/types.h>
#include <wchar.h>
#define SAME(macro, type) _Static_assert(macro == sizeof(type), #type)
SAME(SIZEOF_INT, int); SAME(SIZEOF_LONG, long); SAME(SIZEOF_LONG_LONG, long long); SAME(SIZEOF_VOID_P, void *);
SAME(SIZEOF_SIZE_T, size_t); SAME(SIZEOF_OFF_T, off_t); SAME(SIZEOF_WCHAR_T, wchar_t); SAME(SIZEOF_DOUBLE, double);
SAME(SIZEOF_FLOAT, float); SAME(SIZEOF_SHORT, short); SAME(SIZEOF__BOOL, _Bool); SAME(SIZEOF_PID_T, pid_t);
"""


class NotCompiled(Exception):
    """What the compiler said."""


def compiler_options() -> tuple[str, ...]:
    """Options of the compiler that `setup.py` adds to Python's own."""
    return tuple(_names_of_setup()["COMPILER_OPTIONS"])


def module_names() -> list[str]:
    return list(_sources())


@cache
def _sources() -> dict[str, Path]:
    """C files by module, written by Cython now."""
    with contextlib.chdir(ROOT):
        return {each.name: ROOT / each.sources[0] for each in _names_of_setup()["extensions"]()}


@cache
def _names_of_setup() -> dict[str, Any]:
    with contextlib.chdir(ROOT):
        return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


def compiled(target: Target, include: Sequence[Path]) -> dict[str, Path]:
    """Files by the place that they have in a wheel: `{"ottla/clock.cpython-312-x86_64-linux-gnu.so": Path(...)}`.

    Raises NotCompiled. What was compiled before of the same C in the same way is used again.
    """
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        target.compiled_for,
        *AS_PYTHON_IS,
        *compiler_options(),
        *(f"-I{directory}" for directory in include),
    ]
    way = hashlib.sha256(repr((command, version("ziglang"))).encode()).hexdigest()[:12]
    base = WORK / "modules" / f"{target.python_tag}-{target.architecture}-{way}"
    base.mkdir(parents=True, exist_ok=True)
    _check_sizes(command, base)
    places = {f"{name.replace('.', '/')}{target.suffix}": source for name, source in _sources().items()}

    def build(place: str) -> None:
        source, result = places[place], base / place
        if result.exists() and result.stat().st_mtime_ns > source.stat().st_mtime_ns:
            return
        result.parent.mkdir(parents=True, exist_ok=True)
        part = result.with_suffix(".part")
        _run([*command, *AS_A_LIBRARY, str(source), "-o", str(part)])
        part.replace(result)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(build, places))
    return {place: base / place for place in places}


def _check_sizes(command: Sequence[str], base: Path) -> None:
    """The headers may be of a Python for another architecture: their numbers have to be those of this one."""
    source = base / "sizes.c"
    source.write_text(_SIZES)
    _run([*command, "-c", str(source), "-o", str(base / "sizes.o")])


def _run(command: Sequence[str]) -> None:
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(WORK / "zig"), "ZIG_LOCAL_CACHE_DIR": str(WORK / "zig")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled(f"{command[-3]}: {done.stderr.strip()[-2000:]}")
