"""One segment with its indexes, checked together."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from ottla.cli.log import indexes
from ottla.filesystem import FileSystem
from ottla.storage.recovery.scan import OnBatch, Scan, walk

_SEGMENT_NAME = re.compile(r"(\d{20})(?:-\d{10})?(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.checkpoint)")
_SUFFIXES = (".deleted", ".cleaned", ".swap")


def split_name(name: str) -> tuple[int, str] | None:
    """(base offset, kind such as `.log`) of a segment's file name, with or without `.deleted` and the like."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    match = _SEGMENT_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Problem:
    path: str
    text: str


@dataclass
class Segment:
    """Findings of a check of one segment."""

    base_offset: int
    path: str
    scan: Scan
    index_entries: dict[str, int] = field(default_factory=dict)
    """Number of entries by kind of index; a kind without a file is left out."""
    problems: list[Problem] = field(default_factory=list)


def base_offsets(fs: FileSystem, directory: str) -> Iterator[int]:
    """The segments of a partition that are in use, in order."""
    for name in fs.listdir(directory):
        named = split_name(name)
        if named is not None and named[1] == ".log" and name.endswith(".log"):
            yield named[0]


def check_segment(
    fs: FileSystem, path: str, base_offset: int, *, deep: bool, on_batch: OnBatch | None = None
) -> Segment:
    """Walk the log at `path` and hold its indexes against it. Raises OSError where a file cannot be read."""
    with closing(fs.open(path, read_only=True)) as file:
        scan = Scan(file.size())
        segment = Segment(base_offset, path, scan)
        checks = _index_checks(fs, segment)
        for batch in walk(file, scan, base_offset, deep=deep):
            for check in checks.values():
                check.feed(batch)
            if on_batch is not None:
                on_batch(batch)
    segment.problems += [Problem(path, text + _behind(scan, text)) for text in scan.problems]
    for index_path, check in checks.items():
        segment.problems += [Problem(index_path, text) for text in check.finish()]
    return segment


def _behind(scan: Scan, text: str) -> str:
    """Intact data behind the damage that a problem describes."""
    for damaged in scan.damaged:
        if text.startswith((f"byte {damaged.start} of ", f"batch at byte {damaged.start}: ")):
            return f"; {damaged.behind}"
    return ""


def index_path(log_path: str, kind: str) -> str:
    """The index beside a log file; `.deleted` and the like stay at the end."""
    directory, name = posixpath.split(log_path)
    return posixpath.join(directory, name.replace(".log", kind, 1))


def _index_checks(fs: FileSystem, segment: Segment) -> dict[str, indexes.OffsetIndexCheck | indexes.TimeIndexCheck]:
    checks: dict[str, indexes.OffsetIndexCheck | indexes.TimeIndexCheck] = {}
    for kind in (".index", ".timeindex", ".txnindex"):
        path = index_path(segment.path, kind)
        if not fs.exists(path) or path == segment.path:
            continue
        data, size = indexes.read_index(fs, path)
        odd = indexes.odd_size(size, kind)
        if odd is not None:
            segment.problems.append(Problem(path, odd))
        if kind == ".index":
            offsets = indexes.offset_entries(data, segment.base_offset)
            segment.index_entries[kind] = len(offsets)
            checks[path] = indexes.OffsetIndexCheck(offsets)
        elif kind == ".timeindex":
            times = indexes.time_entries(data, segment.base_offset)
            segment.index_entries[kind] = len(times)
            checks[path] = indexes.TimeIndexCheck(times)
        else:
            transactions = indexes.transaction_entries(data)
            segment.index_entries[kind] = len(transactions)
            segment.problems += [Problem(path, text) for text in indexes.transaction_problems(transactions)]
    return checks
