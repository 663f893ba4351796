"""Bytecode of the tests as pytest rewrites them, written once before the workers of a run begin: in a fresh checkout
each of them would rewrite and compile every file for itself."""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("src", "peers", "tools", "bench", "demo", "tests")
PROCESSES = 2


def keep(config: pytest.Config) -> None:
    """For the process that starts the workers, before it does."""
    if sys.dont_write_bytecode or not hasattr(os, "fork"):
        return
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _is_stale(path)]
    if len(files) < PROCESSES:
        return
    pid = os.fork()
    try:
        if pid:
            _rewrite(files[::2], config)
        else:
            _rewrite(files[1::2], config)
            for each in COMPILED:
                compileall.compile_dir(ROOT / each, quiet=2)
    finally:
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)


def _rewrite(files: list[Path], config: pytest.Config) -> None:
    """As pytest does when it imports them; what goes wrong here it will say there."""
    try:
        from _pytest.assertion.rewrite import _rewrite_test, _write_pyc, assertstate_key

        for path in files:
            stat, code = _rewrite_test(path, config)
            _kept(path).parent.mkdir(exist_ok=True)
            _write_pyc(config.stash[assertstate_key], code, stat, _kept(path))
    except (ImportError, KeyError, OSError, SyntaxError):
        return


def _kept(path: Path) -> Path:
    from _pytest.assertion.rewrite import PYC_TAIL, get_cache_dir

    return get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"


def _is_stale(path: Path) -> bool:
    try:
        return _kept(path).stat().st_mtime < path.stat().st_mtime
    except (ImportError, OSError):
        return True
