"""Three nodes with two log directories each; one directory fails under load, and later is replaced (KIP-112, 858)."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.errors import ErrorCode
from ottla.simulation.checks.history import History
from ottla.simulation.clients.clients import Consumer, Producer
from ottla.simulation.clients.wire import Wire, leader_of
from ottla.simulation.world import DIRECTORY, Machine
from ottla.storage.checkpoints.meta_properties import META_PROPERTIES_FILE
from tests.simulation.test_three_nodes import NODES, Cluster

SPARE = "/spare"
TOPIC = "t"
PARTITIONS = 6
TIMEOUT_S = 4.0
SETTINGS = {"log.dirs": f"{DIRECTORY},{SPARE}", "min.insync.replicas": "2"}


class Loaded(Cluster):
    """The same with replicated partitions, each with a producer and a reader of its own."""

    def __init__(self, seed: int, settings: dict[str, str] = SETTINGS) -> None:
        super().__init__(seed, settings)
        self.history = History(self.world, fsynced=False)
        self.clients: list[Producer | Consumer] = []

    async def load(self) -> None:
        assert await self.create(TOPIC, NODES[0], PARTITIONS, 3) == ErrorCode.none
        await self.until(lambda: all(len(each.replicas.by_name.get(TOPIC, ())) == PARTITIONS for each in self.nodes()))
        for number in range(PARTITIONS):
            key = TOPIC, number
            name = f"producer{number}"
            self.clients.append(
                Producer(self.world, self.history, name, NODES, key, idempotent=bool(number % 2), in_flight=2)
            )
            self.clients.append(Consumer(self.world, self.history, f"reader{number}", NODES, key))

    def isrs(self) -> list[tuple[int, ...]]:
        topic = self.nodes()[0].image.topic(TOPIC)
        return [] if topic is None else [each.isr for each in topic.partitions.values()]

    def all_in_sync(self) -> bool:
        return [len(each) for each in self.isrs()] == [3] * PARTITIONS

    def leaders(self) -> list[int]:
        topic = self.nodes()[0].image.topic(TOPIC)
        assert topic is not None
        return [each.leader for each in topic.partitions.values()]

    async def more_is_acknowledged(self) -> None:
        """In every partition."""
        clients = [each for each in self.clients if isinstance(each, Producer)]
        before = [each.number for each in clients]
        await self.until(lambda: all(each.number > was + 5 for each, was in zip(clients, before, strict=True)))

    async def end(self) -> None:
        for each in self.clients:
            each.stopping = True
        await self.until(lambda: all(each.done for each in self.clients))
        await self.until(self.all_in_sync)
        for number in range(PARTITIONS):
            key = TOPIC, number
            last = Consumer(self.world, self.history, f"last{number}", NODES, key)
            last.stopping = True
            wire = await Wire.connect(
                self.network, await leader_of(self.network, NODES, self.world.random("check"), key)
            )
            try:
                self.history.check_final(key, await last.read_all(wire))
            finally:
                wire.close()
        assert self.history.counts["checked"] > 100
        self.check_copies()

    def check_copies(self) -> None:
        """Every replica has the same bytes."""
        for number in range(PARTITIONS):
            copies = {
                b"".join(
                    data
                    for path, data in machine.disk.files().items()
                    if f"/{TOPIC}-{number}/" in path and path.endswith(".log")
                )
                for machine in self.machines
            }
            assert len(copies) == 1 and copies != {b""}

    def held_in(self, machine: Machine, directory: str) -> list[int]:
        return sorted(
            int(name.rpartition("-")[2])
            for name in machine.disk.listdir(directory)
            if name.startswith(f"{TOPIC}-") and "." not in name
        )


def fails(machine: Machine, path: str) -> None:
    """All that begins with `path`."""
    machine.disk.fail("write", errno.EIO, path=path)


def test_a_directory_fails_under_load_and_is_replaced() -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        leaders = cluster.leaders()
        victim = next(
            each for each in cluster.machines if any(leaders[n] == each.node_id for n in cluster.held_in(each, SPARE))
        )
        node_id = victim.node_id
        lost = cluster.held_in(victim, SPARE)
        assert cluster.held_in(victim, DIRECTORY)
        await cluster.more_is_acknowledged()
        fails(victim, SPARE)
        await cluster.until(lambda: not any(node_id in cluster.isrs()[number] for number in lost))
        assert all(cluster.leaders()[number] not in (node_id, -1) for number in lost)
        others = [number for number in range(PARTITIONS) if number not in lost]
        assert all(node_id in cluster.isrs()[number] for number in others), "the other directory goes on"
        assert victim.node is not None and not victim.node.image.brokers[node_id].fenced
        assert victim.node.logs.offline_dirs == [SPARE]
        await cluster.more_is_acknowledged()
        assert not any(node_id in cluster.isrs()[number] for number in lost), "who has no disk does not join"
        await replace(cluster, victim)
        await cluster.until(cluster.is_settled)
        await cluster.until(cluster.all_in_sync)
        await cluster.more_is_acknowledged()
        await cluster.end()

    Loaded(3).run(work)


async def replace(cluster: Cluster, machine: Machine) -> None:
    """A new disk, formatted as the error message of a start without that says."""
    machine.stop()
    await cluster.until(lambda: machine.loop is None)
    replace_disk(machine)
    machine.start()


def replace_disk(machine: Machine) -> None:
    disk = machine.disk
    disk.heal()
    disk.rmtree(SPARE)
    disk.makedirs(SPARE)
    lines = disk.read_bytes(f"{DIRECTORY}/{META_PROPERTIES_FILE}").splitlines(keepends=True)
    disk.write_atomic(
        f"{SPARE}/{META_PROPERTIES_FILE}", b"".join(each for each in lines if not each.startswith(b"directory.id"))
    )
    disk.fsync_all()


async def halts(cluster: Loaded, victim: Machine, path: str) -> None:
    """What is beneath `path` cannot be written any more: the node ends its process, others go on, and after a repair
    it comes back with everything."""
    await cluster.load()
    await cluster.more_is_acknowledged()
    fails(victim, path)
    await cluster.until(lambda: victim.loop is None, seconds_max=10)
    assert cluster.world.counts["halted"] == 1
    node_id = victim.node_id
    await cluster.until(lambda: cluster.nodes()[0].image.brokers[node_id].fenced)
    assert node_id not in cluster.leaders() and not any(node_id in each for each in cluster.isrs())
    await cluster.more_is_acknowledged()
    victim.disk.heal()
    victim.start()
    await cluster.until(cluster.is_settled)
    await cluster.until(cluster.all_in_sync)
    await cluster.end()


def test_a_broker_whose_last_directory_fails_is_fenced_and_halts() -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await halts(cluster, cluster.machines[2], SPARE)
        assert "fenced this broker" in "\n".join(cluster.world.lines), "it has told the controller before"

    Loaded(4, {**SETTINGS, "log.dirs": SPARE, "metadata.log.dir": DIRECTORY}).run(work)


def test_a_node_halts_when_the_directory_of_its_metadata_fails() -> None:
    """At a log of a topic in there, while another directory could be used."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await halts(cluster, cluster.machines[1], f"{DIRECTORY}/{TOPIC}-")

    Loaded(8).run(work)


@pytest.mark.parametrize("active", [True, False])
def test_a_node_halts_when_its_metadata_log_fails(active: bool) -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        victim = next(each for each in cluster.machines if (each in cluster.active()) is active)
        writing = cluster.loop.create_task(change_metadata(cluster))
        await halts(cluster, victim, f"{DIRECTORY}/__cluster_metadata-0")
        writing.cancel()

    Loaded(9).run(work)


async def change_metadata(cluster: Cluster) -> None:
    """Until cancelled."""
    number = 0
    while True:
        for name in NODES:
            await cluster.create(f"more{number}", name)
            number += 1
            await asyncio.sleep(0.3)


def test_a_full_disk_halts_no_node() -> None:
    """Neither records nor metadata have room: both are refused, and taken again when there is room."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        victim = cluster.active()[0]
        starts = victim.starts
        writing = cluster.loop.create_task(change_metadata(cluster))
        victim.disk.capacity_bytes = sum(map(len, victim.disk.files().values()))
        await asyncio.sleep(20)
        assert victim.is_serving and victim.starts == starts
        assert "No space" in "\n".join(cluster.world.lines)
        writing.cancel()
        victim.disk.heal()
        await cluster.until(cluster.is_settled)
        assert victim.starts == starts
        await cluster.until(cluster.all_in_sync)
        await cluster.end()

    Loaded(10).run(work)


def test_a_broker_that_cannot_report_a_failed_directory_stops() -> None:
    """`log.dir.failure.timeout.ms` (KIP-858): it is cut off from all controllers, not from its clients."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        leaders = cluster.leaders()
        victim = next(
            each
            for each in cluster.machines
            if each not in cluster.active() and any(leaders[n] == each.node_id for n in cluster.held_in(each, SPARE))
        )
        await cluster.more_is_acknowledged()
        for each in cluster.machines:
            cluster.world.network.cut(each.name, victim.name)
            cluster.world.network.cut(victim.name, each.name)
        fails(victim, SPARE)
        node = victim.node
        assert node is not None
        await cluster.until(lambda: SPARE in node.logs.offline_dirs)
        failed_s = cluster.world.time.now_s
        await cluster.until(lambda: node.failure.gave_up is not None)
        assert cluster.world.time.now_s - failed_s == pytest.approx(TIMEOUT_S, abs=0.2)
        assert node.failure.gave_up is not None and SPARE in node.failure.gave_up
        await cluster.until(lambda: victim.loop is None)
        assert cluster.world.counts["stopped"] == 1
        cluster.world.network.heal()
        replace_disk(victim)
        victim.start()
        await cluster.until(cluster.is_settled)
        await cluster.until(cluster.all_in_sync)
        await cluster.end()

    Loaded(11, {**SETTINGS, "log.dir.failure.timeout.ms": str(int(TIMEOUT_S * 1000))}).run(work)
