"""`ottla log convert`: logs of Kafka before 0.11 into the format that Ottla and Kafka 4 write."""

from __future__ import annotations

import posixpath
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.log.repair import lock, targets
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import human_bytes, plural, print_json_line, visible
from ottla.cli.values import FilePath
from ottla.filesystem import FileSystem, OsFileSystem
from ottla.storage.recovery import conversion
from ottla.storage.recovery.conversion import NotConverted, SegmentFormat, is_old


def convert(
    *paths: Annotated[FilePath, Parameter(required=True)],
    dry_run: Annotated[Flag, Parameter(name="--dry-run")] = False,
    keep_old: Annotated[Flag, Parameter(name="--keep-old")] = False,
    json: AsJson = False,
) -> int:
    """Convert logs of message format 0 and 1, which Kafka before 0.11 wrote, to format 2. The node must be stopped.

    Offsets, keys, values, timestamps and compression stay. Each segment is rewritten next to the old one, read back
    and compared record by record before it takes its place; the old segments are removed when their partition is done.
    An interrupted run is taken up by the same command. Partitions without old messages are not touched. Exit code 1 if
    a segment cannot be converted: it and those behind it in its partition stay as they were.

    Parameters
    ----------
    paths
        A node's log directory, for all its partitions, or directories of single partitions.
    dry_run
        Say what there is to convert; change nothing.
    keep_old
        Keep the old segments as `.log.old`, which no broker reads.
    """
    fs = OsFileSystem()
    failed = partitions = 0
    for path in (posixpath.abspath(str(path)) for path in paths):
        parent, directories = targets(fs, path)
        held = lock(fs, parent, apply=not dry_run)
        try:
            for directory in directories:
                try:
                    partitions += _convert(fs, directory, dry_run=dry_run, keep_old=keep_old, json=json)
                except NotConverted as error:
                    failed += 1
                    _say({"kind": "failure", "path": directory, "problem": str(error)}, visible(str(error)), json=json)
                except OSError as error:
                    raise CommandFailed(
                        f"{visible(directory)}: {error.strerror or error}\n  nothing is lost: run the same command "
                        "again when the cause is gone"
                    ) from error
        finally:
            if held is not None:
                held.release()
    summary = {"kind": "summary", "partitions": partitions, "failed": failed, "converted": not dry_run}
    if partitions:
        said = f"{plural(partitions, 'partition')} {'to convert' if dry_run else 'converted'}"
    else:
        said = "Nothing to convert." if not failed else "Nothing was converted."
    _say(summary, said, json=json)
    return FAILED if failed else OK


def _convert(fs: FileSystem, directory: str, *, dry_run: bool, keep_old: bool, json: bool) -> bool:
    """Whether the partition had anything to convert."""
    if not dry_run:
        conversion.finish(fs, directory)
    found = conversion.formats_of(fs, directory)
    todo = [each for each in found if is_old(each)]
    left = conversion.old_files(fs, directory)
    if dry_run:
        if todo:
            size = sum(each.size for each in todo)
            row = {"kind": "partition", "path": directory, "segments": len(todo), "bytes": size}
            _say(row, f"{visible(directory)}: {plural(len(todo), 'segment')}, {human_bytes(size)}", json=json)
        return bool(todo)
    if todo:
        _check_room(fs, directory, todo, keep_old=keep_old)
    last = found[-1].base_offset if found else 0
    records = before = after = cut = 0
    for each in todo:
        made = conversion.convert_segment(fs, directory, each.base_offset, last=each.base_offset == last)
        records += made.records
        before += made.bytes_before
        after += made.bytes_after
        cut += made.cut
    if left or todo:
        if not keep_old:
            conversion.remove_old_files(fs, directory)
        tail = f"; {cut} bytes of a message that was not written to its end were left out" if cut else ""
        _say(
            {
                "kind": "partition",
                "path": directory,
                "segments": len(todo),
                "records": records,
                "bytes_before": before,
                "bytes_after": after,
                "bytes_left_out": cut,
            },
            f"{visible(directory)}: {plural(records, 'record')} in {plural(len(todo), 'segment')}, "
            f"{human_bytes(before)} -> {human_bytes(after)}{tail}",
            json=json,
        )
    return bool(left or todo)


def _check_room(fs: FileSystem, directory: str, todo: list[SegmentFormat], *, keep_old: bool) -> None:
    """The old segments stay until their partition is done, and a message grows by a few bytes at the most."""
    needed = sum(each.size for each in todo)
    _, free = fs.free_bytes(directory)
    if free < needed:
        kept = "" if keep_old else " until the old segments are removed"
        raise NotConverted(
            f"{directory}: {human_bytes(needed)} of room are needed{kept}, and {human_bytes(free)} are free"
        )


def _say(row: dict[str, object], text: str, *, json: bool) -> None:
    if json:
        print_json_line(row)
    else:
        print(text)
