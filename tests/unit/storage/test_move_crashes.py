"""A crash at each change to the disk that the end of a move between log directories makes (KIP-113)."""

from __future__ import annotations

import asyncio
import posixpath

import pytest

from ottla.steps import at_once
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.recovery.duplicate_logs import COPY_FILE
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.storage.logs import NOW, all_offsets, append, new_disk
from tests.unit.storage.recovery.test_duplicate_logs import DIRS, copied
from tests.unit.storage.test_log_manager import ID, T0, Managed

RECORDS = 5


async def ends(node: Managed, log: Log, future: Log) -> Log:
    """What `LogMover` does with a copy, but for asking the controller between the name and the swap."""
    logs = node.logs
    if future.log_end_offset < log.log_end_offset:
        found = log.read(future.log_end_offset, 1 << 20, up_to=log.log_end_offset)
        assert found is not None
        future.append_as_follower(bytearray(found.read()), now_ms=NOW)
    await future.flush_all_async()
    await logs.futures.name(log)
    new = logs.replace_by_future(log)
    await logs.end_move(log, new)
    return new


def moved(fs: SimulatedFileSystem, source: str, target: str, changes: int) -> None:
    """Crashes behind so many changes to the disk from when the copy is there, and empty."""
    node = Managed(fs, DIRS)
    log = node.logs.create(T0, ID, log_dir=source)
    append(log, RECORDS)
    log.flush()
    future = node.logs.futures.create(T0, ID, LogConfig(), target)
    fs.fsync_all()
    fs.crash_after(changes)
    asyncio.run(ends(node, log, future))


def goes_on(fs: SimulatedFileSystem, target: str) -> tuple[bool, bool]:
    """A start has every record, and the move ends; returns whether both had the plain name before, and whether a copy
    was taken up."""
    were_both = all(fs.is_dir(f"{directory}/t-0") for directory in DIRS)
    node = Managed(fs, DIRS)
    logs = node.logs
    log = logs.get(T0)
    assert log is not None and len(all_offsets(log)) == RECORDS and not logs.offline_logs
    assert not any("-stray" in name for directory in DIRS for name in fs.listdir(directory))
    path = logs.futures.unfinished.pop(T0, None)
    if path is not None:
        assert posixpath.dirname(path) == target != posixpath.dirname(log.directory)
        future = at_once(logs.futures.taking_up(T0, path, ID, log.config))
        assert future is not None
        log = asyncio.run(ends(node, log, future))
    assert append(log, 1).first_offset == RECORDS
    node.logs.shutdown()
    again = Managed(fs, DIRS)
    log = again.logs.get(T0)
    assert log is not None and len(all_offsets(log)) == RECORDS + 1 and not again.warnings
    assert not any(fs.exists(f"{directory}/t-0/{COPY_FILE}") for directory in DIRS)
    if path is not None:
        assert log.directory == f"{target}/t-0"
    return were_both, path is not None


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize(("source", "target"), [DIRS, DIRS[::-1]])
def test_a_move_goes_on_or_has_ended_whenever_it_crashes(source: str, target: str, power_loss: bool) -> None:
    found = []
    for changes in range(200):
        fs = new_disk()
        try:
            moved(fs, source, target, changes)
        except SimulatedCrash:
            fs.restart(power_loss=power_loss)
            found.append(goes_on(fs, target))
        else:
            break
    assert found.count((True, True)) >= (1 if power_loss else 2), "both had the plain name, and the move went on"
    assert (False, True) in found and (False, False) in found


@pytest.mark.parametrize(("copy", "original"), [DIRS, DIRS[::-1]])
def test_a_copy_that_has_more_was_in_its_place_already(copy: str, original: str) -> None:
    """The move ended, and the crash came before the original was deleted."""
    fs = new_disk()
    node = Managed(fs, (original,))
    append(node.logs.create(T0, ID), RECORDS)
    node.logs.shutdown()
    copied(fs, f"{original}/t-0", f"{copy}/t-0")
    served = Managed(fs, (copy,))
    log = served.logs.get(T0)
    assert log is not None
    append(log, 2)
    served.logs.shutdown()
    fs.write_atomic(f"{copy}/t-0/{COPY_FILE}", b"")
    node = Managed(fs, DIRS)
    log = node.logs.get(T0)
    assert log is not None and log.directory == f"{copy}/t-0" and len(all_offsets(log)) == RECORDS + 2
    assert not fs.exists(f"{copy}/t-0/{COPY_FILE}") and not node.logs.futures.unfinished
    node.background()
    assert fs.listdir(original) and not any(name.startswith("t-0") for name in fs.listdir(original)), "it is deleted"


def test_two_copies_are_none() -> None:
    """Nothing says so of both, but a copy of a copied directory: the first one is served, the other kept."""
    fs = new_disk()
    node = Managed(fs)
    append(node.logs.create(T0, ID), RECORDS)
    node.logs.shutdown()
    fs.write_atomic(f"/data/t-0/{COPY_FILE}", b"")
    copied(fs, "/data/t-0", "/spare/t-0")
    node = Managed(fs, DIRS)
    log = node.logs.get(T0)
    assert log is not None and log.directory == "/data/t-0"
    assert any(name.endswith("-stray") for name in fs.listdir("/spare"))
