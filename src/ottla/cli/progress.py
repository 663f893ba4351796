"""A line of progress on standard error, for long work that shows nothing else. Only where that is a terminal."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ottla.cli import interrupts

PATIENCE_S = 1.0
"""Work that is done sooner shows nothing."""
CHECK_EVERY = 256
"""Records between two looks at the clock, so that counting costs nothing beside the work."""
REFRESH_S = 0.1
PIPES_MAX = 8
"""Programs in a row that are followed to see where the output ends."""

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


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def output_leaves_the_terminal() -> bool:
    """Whether standard output ends in a file: itself, or through the programs that read our pipe.

    On a terminal the output itself shows progress; and a bar would write into what `less` or `grep` show.
    """
    try:
        return _on_terminal() and _ends_in_a_file(Path("/proc/self/fd/1"))
    except (OSError, ValueError):
        return False


def _ends_in_a_file(descriptor: Path, depth: int = 0) -> bool:
    """Follows pipes from process to process (Linux); what cannot be seen counts as a terminal."""
    mode = descriptor.stat().st_mode
    if not stat.S_ISFIFO(mode):
        return stat.S_ISREG(mode) or str(descriptor.readlink()) == os.devnull
    pipe = descriptor.readlink()
    readers = [each.parent for each in Path("/proc").glob("[0-9]*/fd/0") if _is(each, pipe)]
    return bool(readers) and depth < PIPES_MAX and all(_ends_in_a_file(each / "1", depth + 1) for each in readers)


def _is(descriptor: Path, target: Path) -> bool:
    try:
        return descriptor.readlink() == target
    except OSError:
        return False  # gone meanwhile, or another user's


def shown(items: Iterable[T], what: str, total: int | None, size: Callable[[T], int]) -> Generator[T, None, None]:
    """The same items, with a bar. `size` says how far one item gets towards `total`, and in a list how many it is."""
    if not _on_terminal():
        yield from items
        return
    bar: _Bar | None = None
    started = looked = time.monotonic()
    done, count, since = 0, 0, 0
    try:
        for item in items:
            yield item
            done += size(item)
            many = len(item) if isinstance(item, list) else 1
            count += many
            since += many
            if since < CHECK_EVERY:
                continue
            since, now = 0, time.monotonic()
            if bar is None and now - started > PATIENCE_S:
                bar = _Bar(what, total)
            if bar is not None and now - looked > REFRESH_S:
                looked = now
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
        self._progress = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,  # it would send to standard error what the work prints
            redirect_stderr=False,
        )
        self._started = time.monotonic()
        self._first: int | None = None
        self._task = self._progress.add_task(what, total=total, detail="")
        with interrupts.held():
            interrupts.restore_at_end(interrupts.SHOW_CURSOR, 2)
            self._progress.start()

    def show(self, done: int, count: int) -> None:
        if self._first is None:
            self._first = count
        elapsed = time.monotonic() - self._started
        rate = f", {(count - self._first) / elapsed:,.0f}/s" if elapsed > 0.5 else ""
        self._progress.update(self._task, completed=done, detail=f"{count:,} records{rate}")

    def close(self) -> None:
        with interrupts.held():
            self._progress.stop()
            interrupts.restore_at_end(b"")
