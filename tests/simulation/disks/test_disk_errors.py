"""Every write of a node, with the errors that pass (no room, no file descriptor) and with one that does not.

`LOGS` has the writes of the logs of topics, `QUORUM` those of the metadata log; `docs/inside/durability.md` says
the same in words. An error that passes never takes anything offline: what needed the write is refused or waits, and
goes on as soon as the disk does. `test_every_write_of_a_node_is_walked` looks for writes that neither table has.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from tests.simulation.disks.test_full_disks import created
from tests.simulation.test_three_nodes import Cluster
from tests.simulation.world import PARTITION, TOPIC_ID, World

PASSING = errno.ENOSPC, errno.EMFILE
REFUSED = "refused"
"""KAFKA_STORAGE_ERROR for who asked; the next attempt succeeds as soon as there is room."""
LATER = "later"
"""Not waited for: it is retried, at its next turn or after a pause. A warning is logged."""
WAITS = "waits"
"""The log refuses everything until there is room."""
OFFLINE = "offline"
"""The log, in a cluster its directory: others lead, and a node without another directory halts."""


class Write(NamedTuple):
    path: str
    """A part of its path."""
    act: Callable[[World], object]
    passing: str
    """Effect of a temporary error."""
    failing: str
    """Effect of EIO."""
    before: Callable[[World], object] = lambda world: None
    how: str = "write"
    """What of the disk's operations fails, where a file could be opened."""


def fill(world: World, batches: int = 20) -> None:
    for number in range(batches):
        world.append(1, count=2, size=100 + number)


def two_epochs(world: World) -> None:
    fill(world, 6)
    world.new_epoch()
    fill(world, 14)


def flushed(world: World) -> None:
    fill(world)
    world.flush()


def trimmed(world: World) -> None:
    fill(world)
    world.delete_records(3)


def cleaned(world: World) -> None:
    fill(world)
    world.log.cleaned_offset = 2


def truncated(world: World) -> None:
    """Cut the log in half: with errors that pass it waits, so the disk heals meanwhile."""

    async def main() -> None:
        end = world.history[4].base_offset
        cut = asyncio.ensure_future(world.manager.truncate({world.log: end}))
        await asyncio.sleep(0.12)
        is_waiting = not cut.done()
        assert not world.log.is_open, "it refuses everything, or is offline"
        world.fs.heal()
        failed = await cut
        if failed:
            raise next(iter(failed.values()))
        assert is_waiting and world.log.log_end_offset == end
        del world.history[4:]

    asyncio.run(main())


def aborted(world: World) -> None:
    world.append_in_transaction(10)
    world.end_transaction(10, abort=True)


def written_over(world: World) -> None:
    world.new_epoch()
    world.append(1)


def new_partition(world: World) -> None:
    log = world.manager.create(PARTITION._replace(partition=7), TOPIC_ID, world.config)
    assert log.is_open


def checkpoint(name: str) -> Callable[[World], object]:
    return lambda world: asyncio.run(world.manager.checkpoint(name))


LOGS: dict[str, Write] = {
    "records": Write("t-0/00000000000000000000.log", lambda world: world.append(1), REFUSED, OFFLINE),
    "a new segment": Write(".log", lambda world: world.log.roll(), REFUSED, OFFLINE, fill, "create"),
    "its indexes": Write(".index", lambda world: world.log.flush(), REFUSED, OFFLINE, lambda world: fill(world, 6)),
    "its time index": Write(".timeindex", lambda world: world.log.roll(), REFUSED, OFFLINE, lambda w: fill(w, 6)),
    "state of producers": Write(".snapshot", lambda world: world.log.roll(), REFUSED, OFFLINE, fill),
    "an aborted transaction": Write(".txnindex", aborted, LATER, OFFLINE),
    "leader epochs": Write("leader-epoch-checkpoint", lambda world: world.log.flush(), REFUSED, OFFLINE, written_over),
    "leader epochs of a cut": Write("leader-epoch-checkpoint", truncated, WAITS, OFFLINE, two_epochs),
    "recovery points of a cut": Write(RECOVERY_POINT_CHECKPOINT, truncated, WAITS, OFFLINE, fill),
    "whose log it is": Write("partition.metadata", new_partition, REFUSED, REFUSED),
    "files of a new log": Write("t-7/", new_partition, REFUSED, OFFLINE),
    **{
        name: Write(name, checkpoint(name), LATER, LATER, before)
        for name, before in (
            (RECOVERY_POINT_CHECKPOINT, flushed), (LOG_START_OFFSET_CHECKPOINT, trimmed),
            (REPLICATION_OFFSET_CHECKPOINT, fill), (CLEANER_OFFSET_CHECKPOINT, cleaned),
        )
    },
}  # fmt: skip


def operation(error: int, how: str = "write") -> str:
    return "open" if error == errno.EMFILE else how


@pytest.mark.parametrize("error", [*PASSING, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", LOGS)
def test_a_write_of_a_log_finds_no_room(name: str, error: int) -> None:
    write = LOGS[name]
    world = World(5)
    write.before(world)
    fault = world.fs.fail(operation(error, write.how), error, path=write.path)
    outcome = LATER
    try:
        write.act(world)
    except KafkaError as refused:
        assert refused.code is ErrorCode.kafka_storage_error
        outcome = REFUSED
    except (OSError, AssertionError) as raised:
        pytest.fail(f"{name} raises {raised!r}")
    if write.passing == WAITS and error in PASSING:
        assert fault.fired and outcome == LATER
    assert world.log.failure is None or (error == errno.EIO and write.failing == OFFLINE)
    if error in PASSING:
        assert outcome == (REFUSED if write.passing == REFUSED else LATER)
        world.fs.heal()
        if outcome == REFUSED:
            world.uncertain = None
            write.act(world)
        world.log.flush()
        world.append(1)
        world.check()


QUORUM: dict[str, tuple[str, str]] = {
    "quorum-state": ("__cluster_metadata-0/quorum-state", "no part in elections"),
    "the log of a follower": ("__cluster_metadata-0/0", "does not follow"),
    "the log of the leader": ("__cluster_metadata-0/0", "gives up leadership"),
    "how far the log is fsynced": ("fsynced-end", "logged once"),
    "a snapshot": (".checkpoint.tmp", "the log has everything"),
}
"""The first and the third: `test_full_disks.py`. EIO in the first three ends the node:
`test_a_node_halts_when_its_metadata_log_fails`."""


@pytest.mark.parametrize("error", [*PASSING, errno.EIO], ids=errno.errorcode.get)
def test_a_write_of_the_metadata_log_finds_no_room(error: int) -> None:
    """One after the other, in a quorum of three that goes on and is never started again."""

    async def work(cluster: Cluster) -> None:
        (leader,) = cluster.active()
        follower = next(each for each in cluster.machines if each is not leader)
        starts = [each.starts for each in cluster.machines]
        for name in ("the log of a follower", "how far the log is fsynced"):
            if (error, name) == (errno.EIO, "the log of a follower"):
                continue
            fault = follower.disk.fail("write", error, path=QUORUM[name][0])
            assert await cluster.create(f"topic{len(name)}", leader.name) == 0
            await cluster.until(lambda fault=fault: fault.fired > 0)  # type: ignore[misc]
            assert await cluster.create(f"again{len(name)}", leader.name) == 0
            follower.disk.heal()
            await cluster.until(cluster.is_settled)
        for each in cluster.machines:
            fault = each.disk.fail(operation(error), error, path=QUORUM["a snapshot"][0])
            assert each.loop is not None and each.node is not None
            each.loop.call_soon(each.node.metadata.snapshots.begin)
            await cluster.until(lambda fault=fault: fault.fired > 0)  # type: ignore[misc]
            each.disk.heal()
            await asyncio.sleep(0.1)
            assert each.node.metadata.quorum.log.newest_snapshot is None
            each.loop.call_soon(each.node.metadata.snapshots.begin)
            log = each.node.metadata.quorum.log
            await cluster.until(lambda log=log: log.newest_snapshot is not None)  # type: ignore[misc]
        logged = "\n".join(line for line in cluster.world.lines if "log: " in line)
        assert logged.count("the fsynced end of the metadata log could not be recorded") == 1
        assert logged.count("a snapshot of the metadata could not be written") == 3
        assert starts == [each.starts for each in cluster.machines]

    Cluster(41).run(work)


AT_START = "meta.properties", "bootstrap.checkpoint", ".lock", "zero_copy"
"""Written at a start, which is refused: `test_a_start_on_a_full_disk_says_how_much_room_it_needs`."""
ELSEWHERE = ".kafka_cleanshutdown", ".deleted", "-delete", "known-gaps"
"""Writes of a stop, whose next start checks more; and names of what goes."""


def test_every_write_of_a_node_is_walked() -> None:
    """A cluster does everything once; whatever file it writes to is in a table."""
    known = [each.path for each in LOGS.values()] + [path for path, _ in QUORUM.values()]
    known += [*AT_START, *ELSEWHERE, ".log", ".checkpoint"]
    seen: set[str] = set()

    async def work(cluster: Cluster) -> None:
        for each in cluster.machines:
            each.disk.observer = seen.add
        await created(cluster, "walked")
        for each in cluster.machines:
            assert each.loop is not None and each.node is not None
            each.loop.call_soon(each.node.metadata.snapshots.begin)
        (leader,) = cluster.active()
        leader.stop()
        await cluster.until(lambda: leader.loop is None)
        leader.start()
        leader.disk.observer = seen.add
        await cluster.until(cluster.is_settled)

    Cluster(42).run(work)
    written = {what.rpartition(" to ")[2] for what in seen if what.startswith("write of ")}
    assert len(written) > 8
    assert not [path for path in written if not any(each in path for each in known)]
