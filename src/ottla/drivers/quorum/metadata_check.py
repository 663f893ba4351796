"""Looks through the metadata log before it is opened: what was fsynced in it and is damaged must not be cut.

The offset up to which it was fsynced is in `fsynced-end` beside it, which Kafka ignores. After a clean stop that is
everything.
"""

from __future__ import annotations

import posixpath
from contextlib import closing
from itertools import zip_longest

from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.model import METADATA_TOPIC, Offset
from ottla.storage.checkpoints.fsynced_end import read_fsynced_end
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile, clean_shutdown_path
from ottla.storage.log_directories import parse_directory_name
from ottla.storage.recovery.damage import Damage, is_known, read_known_gaps
from ottla.storage.recovery.scan import Scan, walk
from ottla.storage.segments.segment_files import base_offsets


def check_metadata_log(fs: FileSystem, directory: str, snapshot_end: Offset) -> Offset:
    """The offset up to which the log is known to be fsynced. Raises `OttlaError` for damage below that and behind
    `snapshot_end`, up to which the newest snapshot has everything. A log that ends before that is whole: the leader's
    snapshot was there already, and the process was killed before the log was dropped for it; or what it has lost since
    is in the snapshot."""
    clean = fs.exists(clean_shutdown_path(posixpath.dirname(directory)))
    fsynced_end = max(snapshot_end, read_fsynced_end(fs, directory))
    check = _Check(fs, directory, snapshot_end, None if clean else fsynced_end)
    damage = check.segments() or check.missing(fsynced_end)
    if damage is not None:
        raise refusal(damage)
    return fsynced_end if check.end is None else min(fsynced_end, check.end)


def refusal(damage: Damage) -> OttlaError:
    return OttlaError(f"the metadata log is damaged, and without it topics would be lost: {damage}")


class _Check:
    def __init__(self, fs: FileSystem, directory: str, snapshot_end: Offset, fsynced_end: Offset | None) -> None:
        self._fs = fs
        self._directory = directory
        self._snapshot_end = snapshot_end
        self._fsynced_end = fsynced_end
        """None: everything was fsynced."""
        self._bases = base_offsets(fs, directory)
        self.end: Offset | None = None
        """End of the log, once its segments were scanned; None if it has none."""
        try:
            self._gaps = read_known_gaps(fs, directory)
        except CorruptFile:
            self._gaps = []

    def segments(self) -> Damage | None:
        for base, following in zip_longest(self._bases, self._bases[1:]):
            if following is not None and following <= self._snapshot_end:
                self.end = following
                continue
            path = posixpath.join(self._directory, f"{base:020d}.log")
            if self.end is not None and self._is_loss(self.end, base):
                what = f"offsets {self.end} to {base - 1} are missing before it"
                return self._damage(path, 0, what, base)
            scan = _scan(self._fs, path, base)
            damage = self._damage_in(path, scan, base)
            if damage is not None:
                return damage
            self.end = max(scan.next_offset, base)
        return None

    def _is_fsynced(self, offset: Offset) -> bool:
        return self._fsynced_end is None or offset < self._fsynced_end

    def _is_loss(self, first: Offset, end: Offset) -> bool:
        return first < end and self._is_fsynced(first) and not is_known(self._gaps, first, end)

    def _damage(self, path: str, position: int | None, what: str, base: Offset, behind: str = "") -> Damage:
        later = sum(each > base for each in self._bases)
        return Damage(self._directory, path, position, what, f"{behind}{later} later segments lie behind it")

    def _damage_in(self, path: str, scan: Scan, base: Offset) -> Damage | None:
        for found in scan.damaged:
            if self._is_fsynced(found.next_offset):
                return self._damage(path, found.start, found.why, base, f"{found.behind}, and ")
        for gap in scan.gaps:
            if self._is_loss(gap.first, gap.end):
                what = f"offsets {gap.first} to {gap.end - 1} are missing before it"
                return self._damage(path, gap.position, what, base)
        if scan.problems and not scan.damaged and self._is_fsynced(base):
            return self._damage(path, None, scan.problems[0], base)
        return None

    def missing(self, fsynced_end: Offset) -> Damage | None:
        """A log that lost its beginning, its end or everything."""
        directory, bases = self._directory, self._bases
        if not bases and self._snapshot_end < fsynced_end:
            what = f"its log files are missing, and records from {self._snapshot_end} to {fsynced_end} were fsynced"
            return Damage(directory, directory, None, what, "nothing lies behind them")
        if bases and bases[0] > self._snapshot_end and not is_known(self._gaps, self._snapshot_end, bases[0]):
            what = f"the records below offset {bases[0]} are missing, and no snapshot has them"
            return Damage(directory, directory, None, what, f"{len(bases)} segments lie behind them")
        end = self.end or 0
        if bases and self._snapshot_end < fsynced_end and end < fsynced_end:
            path = posixpath.join(directory, f"{bases[-1]:020d}.log")
            what = f"the log ends at offset {end}, but was fsynced up to {fsynced_end}"
            return Damage(directory, path, self._fs.size(path), what, "nothing lies behind it")
        if end or self._snapshot_end:
            return None
        names = self._fs.listdir(posixpath.dirname(directory))
        topics = [key for name in names if (key := parse_directory_name(name)) is not None]
        if self._fsynced_end is None or fsynced_end or any(key.topic != METADATA_TOPIC for key in topics):
            what = "it has no record, but this node had some"
            return Damage(directory, directory, None, what, "nothing lies behind it")
        return None


def _scan(fs: FileSystem, path: str, base: Offset) -> Scan:
    with closing(fs.open(path, read_only=True)) as file:
        scan = Scan(file.size())
        for _ in walk(file, scan, base, deep=False):
            pass
        return scan
