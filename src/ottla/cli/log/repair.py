"""`ottla log repair`: shows what a repair of a damaged log would do, and does it when told to."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.log.directories import is_log_directory, is_of_a_node, is_partition, partition_directories
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import print_json_line, visible
from ottla.cli.values import FilePath
from ottla.filesystem import FileLock, FileSystem, OsFileSystem
from ottla.storage.checkpoints.directory_checkpoints import read_directory_checkpoints
from ottla.storage.log_directories import LOCK_FILE, parse_directory_name
from ottla.storage.recovery import repair as repairs
from ottla.storage.recovery.repair_plan import Plan


def repair(
    *paths: Annotated[FilePath, Parameter(required=True)],
    apply: Annotated[Flag, Parameter(name="--apply")] = False,
    json: AsJson = False,
) -> int:
    """Show how damaged logs would be repaired; with --apply, repair them. The node must be stopped.

    Only bytes that are not a whole batch are cut, and kept in a side file next to the log (`.cut`, which `ottla log
    dump` reads). Every whole batch before and behind them is kept. Exception: a metadata log whose newest snapshot
    covers the batches before the damage then begins behind it. Offsets missing afterwards are recorded in `known-gaps`,
    and no offset is assigned twice. Exit code 0 if there is nothing to repair or it was repaired, 1 if there is
    something to repair.

    Parameters
    ----------
    paths
        A node's log directory, for all its partitions, or directories of single partitions. A missing partition
        directory is recreated empty, starting behind the offsets that it had.
    apply
        Repair it.
    """
    fs = OsFileSystem()
    todo = 0
    for path in (posixpath.abspath(str(path)) for path in paths):
        parent, directories = targets(fs, path)
        held = lock(fs, parent, apply=apply)
        try:
            for plan in _plans(fs, parent, directories):
                kept = _applied(fs, plan) if apply else []
                todo += not apply or bool(plan.beyond_repair)
                _show(plan, kept, apply=apply, json=json)
        finally:
            if held is not None:
                held.release()
    if json:
        print_json_line({"kind": "summary", "to_do": todo, "applied": apply})
    else:
        done = "Done: start the node again." if apply and not todo else "Nothing was changed: repair with --apply."
        print(done if todo or apply else "Nothing to repair.")
    return FAILED if todo else OK


def targets(fs: FileSystem, path: str) -> tuple[str, list[str]]:
    """(log directory, partitions' directories in it)."""
    parent, key = posixpath.dirname(path), parse_directory_name(posixpath.basename(path))
    if not fs.is_dir(path):
        if key is None or not read_directory_checkpoints(fs, parent).known_end(key):
            raise CommandFailed(f"there is no directory {visible(path)}, and no checkpoint lists records in it")
        return parent, [path]
    if is_partition(fs, path) or (key is not None and is_of_a_node(fs, parent)):
        return parent, [path]
    if not is_log_directory(fs, path):
        shown = visible(path)
        raise CommandFailed(
            f"{shown} is neither a log directory nor a partition directory: no meta.properties, no segments"
        )
    ours = is_of_a_node(fs, path)
    found = [each for each in partition_directories(fs, path) if ours or is_partition(fs, each)]
    return path, [each for each in found if parse_directory_name(posixpath.basename(each)) is not None]


def _applied(fs: FileSystem, plan: Plan) -> list[str]:
    try:
        return repairs.apply(fs, plan)
    except OSError as error:
        raise CommandFailed(
            f"{visible(plan.directory)}: {error.strerror or error}; the repair is incomplete\n  nothing is lost: fix "
            f"the cause (a full disk needs room for the largest damaged file) and run it again"
        ) from error


def lock(fs: FileSystem, directory: str, *, apply: bool) -> FileLock | None:
    """The lock of a log directory; None where only a look is wanted, and nobody can write here: a disk mounted
    read-only, say."""
    try:
        return fs.lock(posixpath.join(directory, LOCK_FILE))
    except BlockingIOError as error:
        raise CommandFailed(f"{visible(directory)} is in use by a running node: stop it first") from error
    except OSError as error:
        if apply or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise CommandFailed(f"{visible(directory)} cannot be changed: {error.strerror or error}") from error
        return None


def _plans(fs: FileSystem, parent: str, directories: list[str]) -> Iterator[Plan]:
    for directory in directories:
        plan = repairs.plan_directory(fs, parent, directory)
        if not plan.is_empty:
            yield plan


def _show(plan: Plan, kept: list[str], *, apply: bool, json: bool) -> None:
    if json:
        print_json_line(
            {"kind": "plan", "path": plan.directory, "steps": [*plan.steps()], "applied": apply, "kept": kept}
        )
        return
    for step in plan.steps():
        print(step)
    for path in kept:
        print(f"kept: {path}")
