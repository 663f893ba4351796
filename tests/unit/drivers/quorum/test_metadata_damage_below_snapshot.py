"""A metadata log that is damaged where its newest snapshot has all of it, and goes on behind: nothing is lost."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.drivers.quorum.metadata_log import MetadataLog
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import OttlaError
from ottla.protocol.records.record_batch import MAGIC_POSITION
from ottla.quorum.snapshot import SnapshotId, data_batch, write_snapshot
from ottla.storage.checkpoints.fsynced_end import FSYNCED_END_FILE, encode_fsynced_end
from ottla.storage.config import LogConfig
from ottla.storage.recovery.damage import KNOWN_GAPS_FILE, read_known_gaps, write_known_gaps
from ottla.storage.recovery.repair import apply, plan_directory
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.drivers.parts import LOG, new_disk, run_virtual
from tests.unit.drivers.quorum.test_quorum_node import VALUE, quorum_node

SNAPSHOT = SnapshotId(9, 7)
END = 14
BATCH = len(data_batch([VALUE], 0, 7, 1))
SPLITS = ((5,), (5, 9), (3, 11), (4, 8, 12))
"""Where segments begin behind the first one."""


def segment_path(base: int) -> str:
    return f"{LOG}/{base:020d}.log"


def batches(first: int, end: int) -> bytes:
    return b"".join(data_batch([VALUE], offset, 7, 1) for offset in range(first, end))


def directory(split: tuple[int, ...]) -> SimulatedFileSystem:
    """Records 0 to 13, each in a batch of its own, and a snapshot of the first nine."""
    fs = new_disk()
    fs.makedirs(LOG)
    for base, end in pairwise((0, *split, END)):
        fs.write_atomic(segment_path(base), batches(base, end))
    snapshot = write_snapshot([VALUE], epoch=7, last_timestamp=3, now=4)
    fs.write_atomic(f"{LOG}/{SNAPSHOT.filename}", b"".join(snapshot))
    fs.write_atomic(f"{LOG}/{FSYNCED_END_FILE}", encode_fsynced_end(END))
    fs.fsync_all()
    return fs


def damage(fs: SimulatedFileSystem, split: tuple[int, ...], offset: int) -> bytes:
    """Change the magic byte of one record's batch, which a start sees; returns what its file has then."""
    base = max(each for each in (0, *split) if each <= offset)
    data = bytearray(fs.read_bytes(segment_path(base)))
    data[(offset - base) * BATCH + MAGIC_POSITION] ^= 1
    fs.write_atomic(segment_path(base), bytes(data))
    fs.fsync_all()
    return bytes(data)


def starts(fs: SimulatedFileSystem, begin: int) -> None:
    """With the log from `begin` on, the snapshot and all that was behind it; the second time as the first."""

    async def start() -> None:
        node: QuorumNode = quorum_node(fs)
        end = node.end_offset
        assert node.log.log.log_start_offset == begin and end >= END
        node.start()
        assert next(batch.snapshot for batch in node.committed_snapshot()) == SNAPSHOT
        found = [batch.header.last_offset for batch in node.read_committed(max(begin, SNAPSHOT.end_offset))]
        assert found == list(range(SNAPSHOT.end_offset, end + 1)), "and the record that an epoch begins with"
        await node.stop()

    run_virtual(start())
    run_virtual(start())
    assert not fs.exists(f"{LOG}/{KNOWN_GAPS_FILE}"), "nothing is missed"
    assert plan_directory(fs, "/data", LOG).is_empty


DAMAGES = [(split, offset) for split in SPLITS for offset in range(SNAPSHOT.end_offset)]


@pytest.mark.parametrize(("split", "offset"), DAMAGES)
def test_a_start_goes_on_behind_it_and_keeps_what_was_before(split: tuple[int, ...], offset: int) -> None:
    fs = directory(split)
    data = damage(fs, split, offset)
    starts(fs, offset + 1)
    kept = [each for path, each in fs.files(LOG).items() if path.endswith(".cut")]
    assert any(each and data.startswith(each) and len(each) % BATCH == 0 for each in kept)
    assert sum(map(len, kept)) == (offset + 1) * BATCH


@pytest.mark.parametrize(("split", "offset"), DAMAGES)
def test_a_repair_notes_no_gap_and_leaves_none(split: tuple[int, ...], offset: int) -> None:
    fs = directory(split)
    damage(fs, split, offset)
    plan = plan_directory(fs, "/data", LOG)
    assert not plan.gaps and not plan.beyond_repair
    steps = [*plan.steps()]
    assert all("snapshot up to offset 9 has all of it" in each or "renamed to" in each for each in steps), steps
    apply(fs, plan)
    starts(fs, offset + 1)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("length", [0, BATCH, BATCH + 10])
def test_a_segment_that_lost_its_end_goes_with_what_is_before_it(split: tuple[int, ...], length: int) -> None:
    covered = [(base, end) for base, end in pairwise((0, *split, END)) if end <= SNAPSHOT.end_offset]
    assert covered
    for base, end in covered:
        fs = directory(split)
        fs.write_atomic(segment_path(base), fs.read_bytes(segment_path(base))[:length])
        fs.fsync_all()
        starts(fs, end)


@pytest.mark.parametrize("split", [(5, 9), (4, 8, 12)])
def test_a_missing_segment_in_the_middle_needs_no_repair(split: tuple[int, ...]) -> None:
    fs = directory(split)
    fs.remove(segment_path(split[0]))
    fs.fsync_all()
    starts(fs, split[1])


@pytest.mark.parametrize("offset", [0, 2, 6])
def test_a_crash_at_any_step_of_it_is_mended_by_the_next_start(offset: int) -> None:
    crashes = 0
    for step in range(200):
        fs = directory((5,))
        damage(fs, (5,), offset)
        fs.crash_after(step)
        try:
            quorum_node(fs)
        except SimulatedCrash:
            crashes += 1
            fs.restart(power_loss=step % 2 == 0)
        else:
            break
        starts(fs, offset + 1)
    assert crashes > 8


def test_what_is_missing_on_both_sides_of_the_end_of_the_snapshot_is_refused() -> None:
    """Record 8 is in the snapshot, and 9 was nowhere else."""
    fs = directory((5,))
    damage(fs, (5,), 8)
    damage(fs, (5,), 9)
    before = fs.files(LOG)
    with pytest.raises(OttlaError, match="is damaged"):
        quorum_node(fs)
    assert fs.files(LOG) == before
    plan = plan_directory(fs, "/data", LOG)
    assert plan.gaps == [(9, 10)]
    apply(fs, plan)
    node = quorum_node(fs)
    assert (node.log.log.log_start_offset, node.end_offset) == (10, END)
    assert plan_directory(fs, "/data", LOG).is_empty


def test_damage_behind_the_snapshot_is_refused_as_ever_and_what_is_below_it_is_dropped() -> None:
    fs = directory((5,))
    damage(fs, (5,), 2)
    damage(fs, (5,), 11)
    with pytest.raises(OttlaError, match="is damaged"):
        quorum_node(fs)
    plan = plan_directory(fs, "/data", LOG)
    assert plan.gaps == [(11, 12)]
    apply(fs, plan)
    assert quorum_node(fs).end_offset == END


def test_the_log_stays_where_the_newest_snapshot_is_damaged_too() -> None:
    fs = directory((5,))
    damage(fs, (5,), 2)
    path = f"{LOG}/{SNAPSHOT.filename}"
    data = bytearray(fs.read_bytes(path))
    data[-20] ^= 1
    fs.write_atomic(path, bytes(data))
    fs.fsync_all()
    with pytest.raises(OttlaError, match="is damaged"):
        quorum_node(fs)
    assert fs.size(segment_path(0)) == 5 * BATCH and fs.size(segment_path(5)) == (END - 5) * BATCH


def test_a_torn_end_that_was_not_fsynced_is_cut_as_ever() -> None:
    fs = directory((5,))
    damage(fs, (5,), 2)
    fs.write_atomic(f"{LOG}/{FSYNCED_END_FILE}", encode_fsynced_end(12))
    fs.write_atomic(segment_path(5), batches(5, END)[:-10])
    fs.fsync_all()
    node = quorum_node(fs)
    assert (node.log.log.log_start_offset, node.end_offset) == (3, 13)


def test_a_hole_that_an_earlier_repair_left_is_not_served_once_a_snapshot_has_what_was_there() -> None:
    """A follower would have a log without these records, and trust it."""
    fs = directory((5,))
    fs.write_atomic(segment_path(5), batches(7, END))
    write_known_gaps(fs, LOG, [(5, 7)])
    fs.fsync_all()
    node = quorum_node(fs)
    assert (node.log.log.log_start_offset, node.end_offset) == (SNAPSHOT.end_offset, END)
    assert node.log.has_gaps and read_known_gaps(fs, LOG) == [(5, 7)]


def test_a_copy_is_taken_again_whatever_reads_the_damage() -> None:
    """Also if only the recovery reads the segment."""
    fs = directory((5,))
    damage(fs, (5,), 2)
    log = MetadataLog(fs, "/data", LogConfig(), random.Random(3), is_copy=True)
    log.open(1)
    assert log.log.log_end_offset == 0 and not log.snapshots
