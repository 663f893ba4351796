"""Replicas move between the log directories of a node while they are written, through crashes (KIP-113)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.world import DIRECTORY, Machine, ProcessDisk
from ottla.storage.log.log import Log
from ottla.storage.recovery.duplicate_logs import COPY_FILE
from ottla.testing.disk import SimulatedFile, SimulatedFileSystem
from tests.simulation.disks.test_failed_directory import PARTITIONS, SETTINGS, SPARE, TOPIC, Loaded, fails
from tests.simulation.test_three_nodes import Cluster

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


async def ask(cluster: Cluster, host: str, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    wire = await Wire.connect(cluster.network, host)
    try:
        return await wire.ask(key, version, values)
    finally:
        wire.close()


async def move(cluster: Cluster, machine: Machine, path: str, numbers: list[int], topic: str = TOPIC) -> list[int]:
    """The error codes."""
    values = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": numbers}]}]}
    answer = await ask(cluster, machine.name, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, values)
    return [row["error_code"] for row in answer["results"][0]["partitions"]]


async def limit(cluster: Cluster, machine: Machine, rate: int) -> None:
    change = {"name": RATE, "config_operation": 0, "value": str(rate)}
    row = {"resource_type": 4, "resource_name": str(machine.node_id), "configs": [change]}
    values = {"resources": [row], "validate_only": False}
    answer = await ask(cluster, machine.name, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    assert not answer["responses"][0]["error_code"]


async def described(cluster: Cluster, machine: Machine) -> dict[str, list[tuple[int, bool]]]:
    """(partition, whether it is on its way) by directory."""
    answer = await ask(cluster, machine.name, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return {
        row["log_dir"]: sorted(
            (each["partition_index"], each["is_future_key"])
            for topic in row["topics"]
            if topic["name"] == TOPIC
            for each in topic["partitions"]
        )
        for row in answer["results"]
    }


def is_known(cluster: Cluster, machine: Machine, directory: str) -> bool:
    """Whether the metadata says that all partitions are in this directory of a node."""
    assert machine.node is not None
    directory_id = machine.node.metadata.directory_ids[directory]
    topic = cluster.nodes()[0].image.topic(TOPIC)
    assert topic is not None
    return all(each.directory(machine.node_id) == directory_id for each in topic.partitions.values())


def test_replicas_move_while_they_are_written() -> None:
    """There and back, of leaders and followers; clients notice nothing, and the metadata hears of it (KIP-858)."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        everything = list(range(PARTITIONS))
        machine = cluster.machines[0]
        for directory, other in ((SPARE, DIRECTORY), (DIRECTORY, SPARE)):
            assert await move(cluster, machine, directory, everything) == [ErrorCode.none] * PARTITIONS
            await cluster.until(lambda to=directory: cluster.held_in(machine, to) == everything)  # type: ignore[misc]
            assert cluster.held_in(machine, other) == []
            await cluster.until(lambda to=directory: is_known(cluster, machine, to))  # type: ignore[misc]
            assert (await described(cluster, machine))[directory] == [(number, False) for number in everything]
            await cluster.more_is_acknowledged()
        assert set(cluster.leaders()) >= {1, 2}, "leaders and followers moved"
        machine.crash(power_loss=True)
        machine.start()
        await cluster.until(cluster.is_settled)
        await cluster.until(cluster.all_in_sync)
        assert cluster.held_in(machine, DIRECTORY) == everything
        await cluster.end()

    Loaded(5).run(work)


def copies(machine: Machine) -> dict[str, int]:
    """Directories of copies that are being made, and how many records each has."""
    assert machine.node is not None
    return {log.directory: log.log_end_offset for log in machine.node.logs.futures}


def arrived(cluster: Cluster, machine: Machine, moved: list[int]) -> set[int]:
    return {*cluster.held_in(machine, SPARE)} & {*moved}


@pytest.mark.parametrize("how", ["stop", "crash", "power loss"])
def test_a_move_goes_on_after_a_restart(how: str) -> None:
    """With the copy that was begun."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine = cluster.machines[1]
        moved = cluster.held_in(machine, DIRECTORY)
        await limit(cluster, machine, 10)
        await move(cluster, machine, SPARE, moved)
        futures = {(number, True) for number in moved}
        assert set((await described(cluster, machine))[SPARE]) >= futures
        await cluster.until(lambda: len(copies(machine)) == len(moved) and all(copies(machine).values()))
        before = copies(machine)
        if how == "stop":
            machine.stop()
            await cluster.until(lambda: machine.loop is None)
        else:
            machine.crash(power_loss=how == "power loss")
        machine.start()
        await cluster.until(cluster.is_settled)
        if how == "power loss":  # which may have taken the name of a copy, and what was in it
            await cluster.until(lambda: set(copies(machine)) <= set(before))
        else:
            # What fits into one read may be there before the limit is felt.
            await cluster.until(lambda: len(copies(machine)) + len(arrived(cluster, machine, moved)) == len(moved))
            found = copies(machine)
            assert found.keys() <= before.keys()
            assert all(found[name] >= before[name] > 0 for name in found), "nothing is copied again"
            gone = arrived(cluster, machine, moved)
            assert set((await described(cluster, machine))[SPARE]) >= {(each, each not in gone) for each in moved}
            await limit(cluster, machine, 1 << 40)
            await cluster.until(lambda: cluster.held_in(machine, SPARE) == list(range(PARTITIONS)))
            await cluster.until(lambda: is_known(cluster, machine, SPARE))
        await cluster.end()

    Loaded(6).run(work)


def test_a_copy_is_cut_to_what_its_log_still_has_after_a_restart() -> None:
    """A power loss takes the end of the log, which another one leads meanwhile, and not that of the copy."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine = cluster.machines[1]
        moved = cluster.held_in(machine, DIRECTORY)
        await limit(cluster, machine, 10)
        await move(cluster, machine, SPARE, moved)
        await cluster.until(lambda: len(copies(machine)) == len(moved) and all(copies(machine).values()))
        assert machine.node is not None
        for log in machine.node.logs.futures:
            log.flush()
            machine.disk.fsync_dir(SPARE)
        before = copies(machine)
        machine.crash(power_loss=True)
        await cluster.more_is_acknowledged()
        machine.start()
        await cluster.until(cluster.is_settled)
        assert set(copies(machine)) == set(before)
        await limit(cluster, machine, 1 << 40)
        await cluster.until(lambda: cluster.held_in(machine, SPARE) == list(range(PARTITIONS)))
        await cluster.end()

    Loaded(12).run(work)


def test_a_replica_moves_only_when_the_controller_knows_where_to() -> None:
    """KIP-858: before it is led or followed from another directory. Clients go on meanwhile, and so does the copy."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine = cluster.machines[0]
        assert machine.node is not None
        lifecycle, everything = machine.node.lifecycle, list(range(PARTITIONS))
        moved = cluster.held_in(machine, DIRECTORY)
        told: list[dict[Any, Any]] = []
        assign = lifecycle.assign_directories

        async def refuse(directories: Any) -> None:
            told.append(directories)
            raise KafkaError(ErrorCode.not_controller)

        lifecycle.assign_directories = refuse  # type: ignore[method-assign]
        assert await move(cluster, machine, SPARE, everything) == [ErrorCode.none] * PARTITIONS
        await cluster.until(lambda: {number for each in told for _, number in each} == set(moved))
        await cluster.more_is_acknowledged()
        assert {log.directory.rpartition("/")[0] for log in logs_of(machine)} == {DIRECTORY, SPARE}
        assert len(copies(machine)) == len(moved)
        lifecycle.assign_directories = assign  # type: ignore[method-assign]
        await cluster.until(lambda: {log.directory.rpartition("/")[0] for log in logs_of(machine)} == {SPARE})
        await cluster.until(lambda: is_known(cluster, machine, SPARE))
        await cluster.until(lambda: cluster.held_in(machine, DIRECTORY) == [])
        await cluster.end()

    Loaded(13).run(work)


def test_a_move_that_is_given_up_in_the_end_is_undone() -> None:
    """The controller was told already, and hears that the replica stays where it is."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine = cluster.machines[2]
        node = machine.node
        assert node is not None
        (number, *_) = cluster.held_in(machine, DIRECTORY)
        assign, told = node.directories.assign, []

        async def too_late(partition: Any, directory: str) -> bool:
            await assign(partition, directory)
            told.append(directory)
            await asyncio.sleep(1000)
            return True

        node.directories.assign = too_late  # type: ignore[method-assign]
        assert await move(cluster, machine, SPARE, [number]) == [ErrorCode.none]
        await cluster.until(lambda: told == [SPARE] and known_in(cluster, machine, number) == SPARE)
        assert await move(cluster, machine, DIRECTORY, [number]) == [ErrorCode.none]
        await cluster.until(lambda: known_in(cluster, machine, number) == DIRECTORY)
        assert number in cluster.held_in(machine, DIRECTORY) and number not in cluster.held_in(machine, SPARE)
        await cluster.more_is_acknowledged()
        await cluster.end()

    Loaded(14).run(work)


def test_nothing_of_a_move_is_fsynced_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: list[str] = []
    threads = [0]
    run, fsync, fsync_dir = ProcessDisk.run, SimulatedFile.fsync, SimulatedFileSystem.fsync_dir

    def counted(self: ProcessDisk, work: Callable[[], Any]) -> Any:
        def in_thread() -> Any:
            threads[0] += 1
            try:
                return work()
            finally:
                threads[0] -= 1

        return run(self, in_thread)

    def note(path: str) -> None:
        if not threads[0] and ("/t-" in path or path in (SPARE, DIRECTORY)):
            on_loop.append(path)

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine, everything = cluster.machines[0], list(range(PARTITIONS))
        monkeypatch.setattr(ProcessDisk, "run", counted)
        monkeypatch.setattr(SimulatedFile, "fsync", lambda self: (note(self.path), fsync(self))[1])
        monkeypatch.setattr(SimulatedFileSystem, "fsync_dir", lambda self, path: (note(path), fsync_dir(self, path))[1])
        assert await move(cluster, machine, SPARE, everything) == [ErrorCode.none] * PARTITIONS
        await cluster.until(lambda: cluster.held_in(machine, SPARE) == everything)
        await cluster.until(lambda: cluster.held_in(machine, DIRECTORY) == [])
        assert on_loop == []
        monkeypatch.undo()
        await cluster.end()

    Loaded(15).run(work)


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("changes", [0, 1, 2, 3, 4, 5, 6, 8, 12, 20])
def test_a_crash_in_the_middle_of_a_swap_loses_nothing_and_the_move_goes_on(changes: int, power_loss: bool) -> None:
    """At one of the changes to the disk from when the first copy has everything, with both directories' logs of one
    name among them."""

    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        await cluster.more_is_acknowledged()
        machine, everything = cluster.machines[0], list(range(PARTITIONS))
        node = machine.node
        assert node is not None
        name = node.logs.futures.name

        async def crash(log: Log) -> Log:
            machine.crash_at_disk(changes, power_loss=power_loss)
            node.logs.futures.name = name  # type: ignore[method-assign]
            return await name(log)

        node.logs.futures.name = crash  # type: ignore[method-assign]
        with contextlib.suppress(Disconnected):
            await move(cluster, machine, SPARE, everything)
        await cluster.until(lambda: machine.loop is None)
        machine.start()
        await cluster.until(cluster.is_settled)
        await cluster.until(cluster.all_in_sync)
        if power_loss:  # copies that were not on disk are gone
            await move(cluster, machine, SPARE, everything)
        await cluster.until(lambda: cluster.held_in(machine, SPARE) == everything)
        await cluster.until(lambda: is_known(cluster, machine, SPARE))
        await cluster.until(lambda: not [path for path in remains(machine) if not path.endswith("-delete")])
        await cluster.end()

    Loaded(16 + changes).run(work)


def remains(machine: Machine) -> set[str]:
    """Directories of the topic that are no partition's log, and files that say that one is a copy."""
    found = set()
    for directory in (DIRECTORY, SPARE):
        for path in machine.disk.files(directory):
            name, _, file = path.removeprefix(f"{directory}/").partition("/")
            if name.startswith(f"{TOPIC}-") and (not name.removeprefix(f"{TOPIC}-").isdecimal() or file == COPY_FILE):
                found.add(f"{directory}/{name}")
    return found


def logs_of(machine: Machine) -> list[Log]:
    """Logs of the topic's partitions."""
    assert machine.node is not None
    found = [each.log for each in machine.node.replicas.by_name[TOPIC].values()]
    assert all(isinstance(each, Log) for each in found)
    return found  # type: ignore[return-value]


def known_in(cluster: Cluster, machine: Machine, number: int) -> str | None:
    """The directory of a node in which a partition is by the metadata."""
    assert machine.node is not None
    topic = cluster.nodes()[0].image.topic(TOPIC)
    assert topic is not None
    found = topic.partitions[number].directory(machine.node_id)
    return next((path for path, each in machine.node.metadata.directory_ids.items() if each == found), None)


def test_errors_are_kafkas() -> None:
    async def work(cluster: Cluster) -> None:
        assert isinstance(cluster, Loaded)
        await cluster.load()
        machine = cluster.machines[2]
        (inside, *_) = cluster.held_in(machine, SPARE)
        assert await move(cluster, machine, "/nowhere", [inside]) == [ErrorCode.log_dir_not_found]
        assert await move(cluster, machine, DIRECTORY, [PARTITIONS]) == [ErrorCode.replica_not_available]
        assert await move(cluster, machine, SPARE, [inside]) == [ErrorCode.none], "it is there"
        assert (await described(cluster, machine))[SPARE].count((inside, True)) == 0
        await cluster.more_is_acknowledged()
        await limit(cluster, machine, 10)
        assert await move(cluster, machine, DIRECTORY, [inside]) == [ErrorCode.none]
        assert (inside, True) in (await described(cluster, machine))[DIRECTORY]
        assert await move(cluster, machine, SPARE, [inside]) == [ErrorCode.none], "the move is given up"
        assert (inside, True) not in (await described(cluster, machine))[DIRECTORY]
        fails(machine, SPARE)
        assert machine.node is not None
        node = machine.node
        await cluster.until(lambda: node.logs.offline_dirs == [SPARE])
        assert await move(cluster, machine, SPARE, [inside]) == [ErrorCode.kafka_storage_error]
        assert await move(cluster, machine, DIRECTORY, [inside]) == [ErrorCode.kafka_storage_error]
        machine.crash(power_loss=False)
        machine.disk.heal()
        machine.start()
        await cluster.until(cluster.is_settled)
        await cluster.end()

    Loaded(7, SETTINGS).run(work)
