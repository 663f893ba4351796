"""`ottla log repair` of a metadata log that ends before its newest snapshot does: a start drops such a log.

`test_metadata_damage_below_snapshot.py` has those that go on behind it.
"""

from __future__ import annotations

import pytest

from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import OttlaError
from ottla.quorum.snapshot import SnapshotId, data_batch, write_snapshot
from ottla.storage.checkpoints.fsynced_end import FSYNCED_END_FILE, encode_fsynced_end
from ottla.storage.recovery.repair import apply, plan_directory
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.drivers.parts import LOG, new_disk, run_virtual, turns
from tests.unit.drivers.quorum.test_quorum_node import VALUE, quorum_node

SNAPSHOT = SnapshotId(9, 7)
FIRST_FILE = f"{LOG}/{0:020d}.log"


def directory(records: int, *, fsynced_end: int = 0) -> SimulatedFileSystem:
    """A metadata log with so many records, each in a batch of its own, and a snapshot of nine."""
    fs = new_disk()
    fs.makedirs(LOG)
    if records:
        fs.write_atomic(FIRST_FILE, b"".join(data_batch([VALUE], offset, 7, 1) for offset in range(records)))
    snapshot = write_snapshot([VALUE], epoch=7, last_timestamp=3, now=4)
    fs.write_atomic(f"{LOG}/{SNAPSHOT.filename}", b"".join(snapshot))
    if fsynced_end:
        fs.write_atomic(f"{LOG}/{FSYNCED_END_FILE}", encode_fsynced_end(fsynced_end))
    fs.fsync_all()
    return fs


def damage(fs: SimulatedFileSystem, batch: int) -> bytes:
    """Change a byte of one batch; returns what the file has then."""
    data = bytearray(fs.read_bytes(FIRST_FILE))
    data[batch * len(data_batch([VALUE], 0, 7, 1)) + 64] ^= 1
    fs.write_atomic(FIRST_FILE, bytes(data))
    fs.fsync_all()
    return bytes(data)


def repair(fs: SimulatedFileSystem) -> tuple[list[str], list[str]]:
    """The steps of the plan, and the side files."""
    plan = plan_directory(fs, "/data", LOG)
    assert not plan.beyond_repair
    return [*plan.steps()], apply(fs, plan)


def starts(fs: SimulatedFileSystem, end: int) -> None:
    """Twice: with the snapshot, and with what the log gets behind it, which begins at `end`."""

    async def first() -> int:
        node = quorum_node(fs)
        assert (node.log.log.log_start_offset, node.end_offset) == (end, end)
        node.start()
        assert next(batch.snapshot for batch in node.committed_snapshot()) == SNAPSHOT
        last = node.append([VALUE], 5)
        assert last == end + 2, "behind the record that an epoch begins with"
        await turns()
        assert node.high_watermark == last
        await node.stop()
        return last

    async def again(last: int) -> None:
        node: QuorumNode = quorum_node(fs)
        assert (node.log.log.log_start_offset, node.end_offset) == (end, last)
        node.start()
        assert [batch.header.last_offset for batch in node.read_committed(end)] == [end, end + 1, end + 2]
        await node.stop()

    run_virtual(again(run_virtual(first())))


@pytest.mark.parametrize("records", [0, 5])
@pytest.mark.parametrize("fsynced_end", [0, 5, 7, 9])
def test_a_log_that_the_snapshot_has_all_of_needs_no_repair(records: int, fsynced_end: int) -> None:
    """A controller that was killed after it had fetched a snapshot, and before its log was dropped for it."""
    fs = directory(records, fsynced_end=fsynced_end)
    before = fs.files("/")
    assert plan_directory(fs, "/data", LOG).is_empty
    assert repair(fs) == ([], [])
    assert fs.files("/") == before
    starts(fs, 9)


@pytest.mark.parametrize("batch", range(5))
def test_of_a_damaged_log_nothing_is_missed_that_the_snapshot_has(batch: int) -> None:
    fs = directory(5, fsynced_end=5)
    data = damage(fs, batch)
    with pytest.raises(OttlaError, match="is damaged"):
        quorum_node(fs)
    steps, kept = repair(fs)
    assert steps == [f"{FIRST_FILE}: removed (the snapshot up to offset 9 has all of it), kept in {0:020d}.log.0.cut"]
    assert [fs.read_bytes(path) for path in kept] == [data]
    assert plan_directory(fs, "/data", LOG).is_empty, "a second repair finds nothing"
    starts(fs, 9)


@pytest.mark.parametrize("records", [0, 5])
def test_only_what_was_fsynced_behind_the_snapshot_is_missing(records: int) -> None:
    fs = directory(records, fsynced_end=12)
    with pytest.raises(OttlaError, match=r"were fsynced|was fsynced up to 12"):
        quorum_node(fs)
    steps, kept = repair(fs)
    assert steps[-2:] == [
        f"{LOG}: offsets 9 to 11 are missing, recorded in known-gaps",
        f"{LOG}: start an empty segment at offset 12, as lower ones were used",
    ]
    assert len(steps) == 2 + len(kept) == 2 + bool(records)
    assert plan_directory(fs, "/data", LOG).is_empty
    starts(fs, 12)


def test_a_log_that_goes_on_behind_its_snapshot_is_cut_nowhere() -> None:
    """As Kafka leaves it: without a note of how far it is fsynced."""
    fs = directory(14)
    assert plan_directory(fs, "/data", LOG).is_empty
    damage(fs, 11)
    steps, _ = repair(fs)
    assert len(steps) == 2 and "offsets 11 to 11 are missing" in steps[1]
    assert quorum_node(fs).end_offset == 14


@pytest.mark.parametrize("fsynced_end", [5, 12])
def test_a_crash_at_any_step_of_it_is_mended_by_the_next(fsynced_end: int) -> None:
    crashes = 0
    for step in range(100):
        fs = directory(5, fsynced_end=fsynced_end)
        data = damage(fs, 2)
        fs.crash_after(step)
        try:
            repair(fs)
        except SimulatedCrash:
            crashes += 1
            fs.restart(power_loss=step % 2 == 0)
            repair(fs)
        else:
            fs.restart(power_loss=False)
        kept = [each for path, each in fs.files(LOG).items() if path.endswith(".cut")]
        assert data in kept
        starts(fs, max(9, fsynced_end))
        if crashes <= step:
            break
    assert crashes > 5
