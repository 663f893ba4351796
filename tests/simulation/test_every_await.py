"""A crash at each await and at each change to the disk of a node's life: start, requests, clean stop.

Runs from a seed choose some of these moments; here all of them come, one life after the other on the same disk. After
each crash the next life finds everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.world import EPOCH_MS, World

KEPT = "kept"
PASSING = "passing"
"""Topics: one is deleted in each life."""

PLAIN = "a directory or a file without a suffix"
EVERY = 2
"""Every second await is tried: a life has some two hundred."""

LIVES_OF_A_DISK = 20
"""Then another one: what lives leave behind makes each longer than the one before."""

SETTINGS = {
    "log.flush.interval.messages": "1",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "group.initial.rebalance.delay.ms": "0",
}
SMALL = [{"name": "internal.segment.bytes", "value": "2500"}]


class Lives:
    """One machine, whose lives end by a crash that is planned for each."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.machine = self.world.machine("node1", SETTINGS)
        self.machine.wanted = False  # started again below
        self.lives = 0
        self.produced = 0
        """Records in `KEPT` that were acknowledged."""
        self.committed = -1
        self.present: set[str] = set()
        self.absent: set[str] = set()
        """Topics of which an acknowledged request says that they are there, or are not."""
        self.cut: set[str] = set()
        """Kinds of changes to the disk that a crash fell on."""
        self.last = ""
        """The kind of the newest change."""
        self._watch()

    def _watch(self) -> None:
        disk = self.machine.disk
        observe = disk.observer
        assert observe is not None

        def observed(what: str) -> None:
            observe(what)
            self.last = _kind_of_change(what)

        disk.observer = observed

    async def _client(self, wire: Wire) -> None:
        """Every acknowledged record is found; then more of everything."""
        topics = {"topics": None, "allow_auto_topic_creation": False}
        names = {each["name"] for each in (await wire.ask(ApiKey.METADATA, 9, topics))["topics"]}
        assert names >= self.present and not names & self.absent, (names, self.present, self.absent)
        if PASSING in names:
            await self._delete(wire)
        for each in (KEPT, PASSING):
            self.absent.discard(each)  # from here on it may be there
            topic = {"name": each, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": SMALL}
            values: dict[str, Any] = {"topics": [topic], "timeout": 5000, "validate_only": False}
            (answer,) = (await wire.ask(ApiKey.CREATE_TOPICS, 7, values))["topics"]
            assert answer["error_code"] in (0, 36), answer
            self.present.add(each)
        for number in range(3):
            records = bytes(build_batch([SimpleRecord(EPOCH_MS + number, None, b"x" * 900)]))
            data = [{"name": KEPT, "partition_data": [{"index": 0, "records": records}]}]
            values = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": data}
            response = await wire.ask(ApiKey.PRODUCE, 9, values)
            (answer,) = response["responses"][0]["partition_responses"]
            assert not answer["error_code"], answer
            assert answer["base_offset"] >= self.produced, "offsets of acknowledged records are not given again"
            self.produced = answer["base_offset"] + 1
        await self._commit(wire)
        await self._delete(wire)

    async def _delete(self, wire: Wire) -> None:
        self.present.discard(PASSING)
        response = await wire.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [PASSING], "timeout": 2000})
        assert not response["responses"][0]["error_code"], response
        self.absent.add(PASSING)

    async def _commit(self, wire: Wire) -> None:
        for _ in range(100):  # the topic of the offsets is made, and its coordinator loads
            await wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            topic = {"name": KEPT, "partition_indexes": [0]}
            values: dict[str, Any] = {"groups": [{"group_id": "g", "topics": [topic]}], "require_stable": False}
            (group,) = (await wire.ask(ApiKey.OFFSET_FETCH, 8, values))["groups"]
            if not group["error_code"]:
                break
            await asyncio.sleep(0.05)
        found = group["topics"][0]["partitions"][0]["committed_offset"]
        assert not group["error_code"] and found >= self.committed, (group, self.committed)
        partition = {"partition_index": 0, "committed_offset": self.lives + 1, "committed_metadata": ""}
        values = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": KEPT, "partitions": [partition]}],
        }
        answer = await wire.ask(ApiKey.OFFSET_COMMIT, 8, values)
        assert not answer["topics"][0]["partitions"][0]["error_code"], answer
        self.committed = self.lives + 1

    async def _life(self) -> None:
        machine, loop = self.machine, self.world.process(f"client{self.lives}")
        task = loop.create_task(self._ask(self.world.network.of(loop, "client")))
        while machine.loop is not None and not task.done():  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.001)
        if task.done():
            task.result()
        machine.stop()
        while machine.loop is not None:  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.001)
        loop.kill()

    async def _ask(self, network: Any) -> None:
        while not self.machine.is_serving:  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.001)
        try:
            wire = await Wire.connect(network, "node1")
            try:
                await self._client(wire)
            finally:
                wire.close()
        except Disconnected:
            pass

    def end(self) -> None:
        self.world.close()
        assert not self.world.violations, self.world.violations

    def live(self, *, at_await: int | None = None, at_change: int | None = None, power_loss: bool = False) -> bool:
        """From a start to a crash, or to a clean stop; whether it was a crash."""
        world, machine = self.world, self.machine
        crashes = world.crashes
        machine.start()
        if at_await is not None:
            machine.crash_at_await(at_await, power_loss=power_loss)
        if at_change is not None:
            machine.crash_at_disk(at_change, power_loss=power_loss)
        world.run(self._life(), seconds_max=60, name=f"life{self.lives}")
        assert not world.violations, world.violations
        assert machine.loop is None and not world.counts["refused start"]
        self.lives += 1
        if at_change is not None and world.crashes > crashes:
            self.cut.add(self.last)
        return world.crashes > crashes


def _kind_of_change(what: str) -> str:
    """`fsync of *.log`"""
    name = what.rpartition("/")[2]
    where = f"*.{name.rpartition('.')[2]}" if "." in name else PLAIN
    return f"{what.split(' ')[0]} of {where}"


def test_a_crash_at_every_second_await() -> None:
    """Each await, end of a task or call is met by many events; a crash between requests alone would meet a handful."""
    crashed_at: set[str] = set()
    moment, crashed = 0, True
    while crashed:
        lives = Lives(moment)
        for _ in range(LIVES_OF_A_DISK):
            crashed = lives.live(at_await=moment, power_loss=moment % (2 * EVERY) == 0)
            if not crashed:
                break
            moment += EVERY
        lives.end()
        crashed_at |= lives.world.crashed_at.keys()
    assert moment > 120, "a life has more events"
    assert len(crashed_at) >= 20, sorted(crashed_at)
    assert sum(each.startswith("await in ") for each in crashed_at) >= 8, sorted(crashed_at)
    assert crashed_at >= {"call of SimulatedLoop.run_blocking.<locals>.do", "call of SimulatedTransport._read"}


def test_a_crash_at_every_change_to_the_disk() -> None:
    """Kinds of changes, by the kind of file."""
    cut: set[str] = set()
    moment, crashed = 0, True
    while crashed:
        lives = Lives(moment)
        for _ in range(LIVES_OF_A_DISK):
            crashed = lives.live(at_change=moment, power_loss=moment % 2 == 0)
            if not crashed:
                break
            moment += 1
        lives.end()
        cut |= lives.cut
    assert moment > 100, "a life has more changes"
    assert len(cut) >= 15, sorted(cut)
    assert cut >= {
        "write of *.log",
        "fsync of *.log",
        "creation of *.log",
        "write of *.tmp",
        "fsync of *.tmp",
        "rename of *.tmp",
        "truncate of *.tmp",
        f"fsync of {PLAIN}",
        f"mkdir of {PLAIN}",
        f"rename of {PLAIN}",
    }, sorted(cut)
