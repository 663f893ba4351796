"""`ottla log repair`: shows what a repair of a damaged log would do, and does it when told to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.dump.directories import is_log_directory, is_partition, partition_directories
from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import print_json_line, visible
from ottla.cli.values import FilePath
from ottla.filesystem import FileLock, FileSystem, OsFileSystem
from ottla.storage import repair as repairs
from ottla.storage.log_directories import LOCK_FILE, parse_directory_name


def repair(
    *paths: Annotated[FilePath, Parameter(required=True)],
    apply: Annotated[Flag, Parameter(name="--apply")] = False,
    json: AsJson = False,
) -> int:
    """Show what a repair of damaged logs would do; with --apply, do it. The node must be stopped.

    Only what is no whole batch is cut, and kept in a side file next to the log (`.cut`, which `ottla log dump` reads);
    every whole batch before and behind it stays. Offsets that are missing since are noted in `known-gaps`, and no
    offset is given twice. Exit code 0 if there is nothing to do or it was done, 1 if there is something to do.

    Parameters
    ----------
    paths
        A node's log directory, for all its partitions, or single partitions'; a partition's directory that is missing
        is made again, empty, behind the offsets that it had.
    apply
        Do it.
    """
    fs = OsFileSystem()
    todo = 0
    for path in (posixpath.abspath(str(path)) for path in paths):
        parent, directories = _targets(fs, path)
        lock = _lock(fs, parent)
        try:
            for plan in _plans(fs, parent, directories):
                kept = repairs.apply(fs, plan) if apply else []
                todo += not apply or bool(plan.beyond_repair)
                _show(plan, kept, apply=apply, json=json)
        finally:
            lock.release()
    if json:
        print_json_line({"kind": "summary", "to_do": todo, "applied": apply})
    else:
        done = "Done: start the node again." if apply and not todo else "Nothing was changed: --apply does it."
        print(done if todo or apply else "Nothing is to be done.")
    return FAILED if todo else OK


def _targets(fs: FileSystem, path: str) -> tuple[str, list[str]]:
    """(log directory, partitions' directories in it)."""
    if not fs.is_dir(path):
        if parse_directory_name(posixpath.basename(path)) is None or not fs.is_dir(posixpath.dirname(path)):
            raise CommandFailed(f"there is no directory {visible(path)}")
        return posixpath.dirname(path), [path]
    if is_partition(fs, path) or parse_directory_name(posixpath.basename(path)) is not None:
        return posixpath.dirname(path), [path]
    if not is_log_directory(fs, path):
        shown = visible(path)
        raise CommandFailed(f"{shown} is neither a log directory nor a partition's: no meta.properties, no segments")
    found = partition_directories(fs, path)
    return path, [each for each in found if parse_directory_name(posixpath.basename(each)) is not None]


def _lock(fs: FileSystem, directory: str) -> FileLock:
    try:
        return fs.lock(posixpath.join(directory, LOCK_FILE))
    except BlockingIOError as error:
        raise CommandFailed(f"{directory} is in use by a running node: stop it first") from error


def _plans(fs: FileSystem, parent: str, directories: list[str]) -> Iterator[repairs.Plan]:
    for directory in directories:
        plan = repairs.plan_directory(fs, parent, directory)
        if not plan.is_empty:
            yield plan


def _show(plan: repairs.Plan, kept: list[str], *, apply: bool, json: bool) -> None:
    if json:
        print_json_line(
            {"kind": "plan", "path": plan.directory, "steps": [*plan.steps()], "applied": apply, "kept": kept}
        )
        return
    for step in plan.steps():
        print(step)
    for path in kept:
        print(f"kept: {path}")
