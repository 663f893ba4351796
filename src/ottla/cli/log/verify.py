"""`ottla log verify`: reads everything in log directories and says what is damaged, what is whole behind it, and what
goes on."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.log.directories import (
    check_checkpoints,
    check_partition,
    is_log_directory,
    is_partition,
    partition_directories,
)
from ottla.cli.log.segments import Problem
from ottla.cli.options import AsJson
from ottla.cli.output import plural, print_json_line, visible
from ottla.cli.values import FilePath
from ottla.filesystem import FileSystem, OsFileSystem
from ottla.model import METADATA_TOPIC
from ottla.storage.checkpoints.directory_checkpoints import DirectoryCheckpoints, read_directory_checkpoints
from ottla.storage.log_directories import parse_directory_name
from ottla.storage.recovery.damage import repair_command
from ottla.storage.recovery.repair import missing_directories


def verify(
    *paths: Annotated[FilePath, Parameter(required=True)],
    json: AsJson = False,
) -> int:
    """Read a whole log directory or partition directory and report all damage in it; no broker is needed.

    Every batch is read and its checksum verified; offsets, indexes, snapshots and checkpoints are compared with each
    other, and missing segments and partitions are found. Each damage is reported with its file and position, the intact
    data behind it, and the command to run next. Exit code 1 if there is any. It may run beside a running node, but may
    then report records being written as damage.

    Parameters
    ----------
    paths
        Log directories of a node, or directories of single partitions.
    """
    fs = OsFileSystem()
    found = 0
    for path in map(str, paths):
        if not fs.exists(path):
            raise CommandFailed(f"there is no directory {visible(path)}")
        partitions = 0
        for directory, problems in verify_path(fs, path):
            partitions += directory != path or is_partition(fs, path)
            found += len(problems)
            for problem in problems:
                if json:
                    print_json_line({"kind": "problem", "path": problem.path, "problem": problem.text})
                else:
                    print(f"damaged  {problem.path}: {problem.text}")
            if problems and any(problem.path.endswith(".log") or problem.path == directory for problem in problems):
                if json:
                    print_json_line({"kind": "repair", "path": directory, "command": repair_command(directory)})
                else:
                    print(f"         see how to repair it with: {repair_command(directory)}")
        if json:
            print_json_line({"kind": "summary", "path": path, "partitions": partitions, "problems": found})
        else:
            counted = plural(found, "problem") if found else "no problems"
            print(f"{visible(path)}: {plural(partitions, 'partition')} read, {counted}")
    return FAILED if found else OK


def verify_path(fs: FileSystem, path: str) -> Iterator[tuple[str, list[Problem]]]:
    """Every directory below `path`, itself included, with what is wrong in it. Raises `OSError`, `CommandFailed`."""
    path = posixpath.abspath(path)
    if fs.is_dir(path) and is_partition(fs, path):
        yield path, verify_partition(fs, path, read_directory_checkpoints(fs, posixpath.dirname(path)))
        return
    if not fs.is_dir(path) or not is_log_directory(fs, path):
        shown = visible(path)
        raise CommandFailed(
            f"{shown} is neither a log directory nor a partition directory: no meta.properties, no segments"
        )
    offsets = read_directory_checkpoints(fs, path)
    yield path, check_checkpoints(fs, path)
    for directory in partition_directories(fs, path):
        yield directory, verify_partition(fs, directory, offsets)
    for directory, end in missing_directories(fs, path, offsets):
        text = f"the directory is missing, but had records up to offset {end}"
        yield directory, [Problem(directory, text)]


def verify_partition(fs: FileSystem, directory: str, offsets: DirectoryCheckpoints) -> list[Problem]:
    key = parse_directory_name(posixpath.basename(directory))
    if key is None:  # deleted, or stray: nothing is known of it
        return check_partition(fs, directory, deep=True)[1]
    end = 0 if key.topic == METADATA_TOPIC else offsets.known_end(key)
    start = offsets.log_starts.get(key, 0)
    contiguous = offsets.is_contiguous(key)
    return check_partition(fs, directory, deep=True, contiguous=contiguous, known_end=end, log_start=start)[1]
