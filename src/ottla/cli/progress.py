"""A line of progress on standard error, for long work that shows nothing else. Only where that is a terminal."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

PATIENCE_S = 1.0
"""Work that is done sooner shows nothing."""
CHECK_EVERY = 256
"""Items between two looks at the clock, so that counting costs nothing beside the work."""

T = TypeVar("T")


def bytes_in(files: Sequence[Path] | None) -> int | None:
    """Bytes of all files, None where one is a pipe or is not there."""
    if not files:
        return None
    try:
        found = [path.stat() for path in files]
    except OSError:
        return None
    return sum(each.st_size for each in found) if all(stat.S_ISREG(each.st_mode) for each in found) else None


def writes_to_a_file() -> bool:
    """Whether standard output is a file: on a terminal the output itself shows progress, and a pipe may end there."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def watched(items: Iterable[T], what: str, total: int | None, size: Callable[[T], int]) -> Iterator[T]:
    """The same items, with a bar. `size` says how far one item gets towards `total`."""
    if not sys.stderr.isatty():
        yield from items
        return
    bar: _Bar | None = None
    started, done, count = time.monotonic(), 0, 0
    try:
        for item in items:
            yield item
            done += size(item)
            count += 1
            if count % CHECK_EVERY == 0:
                if bar is None and time.monotonic() - started > PATIENCE_S:
                    bar = _Bar(what, total)
                if bar is not None:
                    bar.show(done, count)
    finally:
        if bar is not None:
            bar.close()


class _Bar:
    """rich's, refreshed by its own thread; it takes its line away when it is done."""

    def __init__(self, what: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        known: list[Any] = [BarColumn(), TaskProgressColumn(), TimeRemainingColumn(compact=True)]
        columns = [TextColumn("{task.description}"), *(known if total else ()), TextColumn("{task.fields[detail]}")]
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._started = time.monotonic()
        self._first: int | None = None
        self._task = self._progress.add_task(what, total=total, detail="")
        self._progress.start()

    def show(self, done: int, count: int) -> None:
        if self._first is None:
            self._first = count
        elapsed = time.monotonic() - self._started
        rate = f", {(count - self._first) / elapsed:,.0f}/s" if elapsed > 0.5 else ""
        self._progress.update(self._task, completed=done, detail=f"{count:,} records{rate}")

    def close(self) -> None:
        self._progress.stop()
