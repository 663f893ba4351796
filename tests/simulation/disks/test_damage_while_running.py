"""Damage in a replica of a running cluster: whoever meets it, the replica is given up and fetched again, nothing that
was acknowledged is lost, and readers get what was written.

The table: where the damage is (bytes of a batch that its checksum covers, and those that it does not; a file cut short;
epochs; whole directories) x who meets it (a reader, the scrubber after a start or later, the start). In virtual time.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.image import DIRECTORY_LOST, PartitionRegistration
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.simulation.clients.wire import Disconnected
from ottla.simulation.world import DIRECTORY, Machine
from ottla.storage.recovery.damage import Damage as NoticedDamage
from ottla.storage.recovery.damage import DamagedLog
from ottla.testing.disk import SimulatedFileSystem
from tests.simulation.test_replicas import ALL, Replicated, records
from tests.simulation.test_three_nodes import NODES

COUNT = 24
BATCH_BYTES = 400
PER_SEGMENT = 6
SMALL = {"index_interval_bytes": "300"}
LOG = posixpath.join(DIRECTORY, "t-0")
HEAL_S_MAX = 40.0

Damage = Callable[[SimulatedFileSystem], None]


def segments(disk: SimulatedFileSystem) -> list[str]:
    return [posixpath.join(LOG, name) for name in sorted(disk.listdir(LOG)) if name.endswith(".log")]


def batches(disk: SimulatedFileSystem, path: str) -> list[int]:
    return [at for at, _ in iterate_batches(disk.read_bytes(path))]


def change(disk: SimulatedFileSystem, path: str, position: int, new: bytes) -> None:
    """Under whoever has the file open."""
    file = disk.open(path)
    assert file.pread(len(new), position) != new
    file.pwrite((new,), position)
    file.close()


def flip(place: int, mask: int = 0x5A) -> Damage:
    """A byte of the second batch of the second segment, `place` bytes behind its begin."""

    def damage(disk: SimulatedFileSystem) -> None:
        path = segments(disk)[1]
        position = batches(disk, path)[1] + place
        change(disk, path, position, bytes([disk.read_bytes(path)[position] ^ mask]))

    return damage


def cut(disk: SimulatedFileSystem) -> None:
    """The second segment ends in its last batch."""
    path = segments(disk)[1]
    file = disk.open(path)
    file.truncate(file.size() - 7)
    file.close()


def empty(disk: SimulatedFileSystem) -> None:
    file = disk.open(segments(disk)[1])
    file.truncate(0)
    file.close()


def exchange(disk: SimulatedFileSystem) -> None:
    """The content of one segment is that of another one."""
    one, other = segments(disk)[1:3]
    data = disk.read_bytes(one)
    file = disk.open(other)
    file.truncate(0)
    file.pwrite((data,), 0)
    file.close()


DAMAGES: dict[str, Damage] = {
    "base offset, goes up": flip(7, 0x40),
    "base offset, its first byte": flip(0, 0x01),
    "base offset, goes down": flip(7, 0x01),
    "batch length": flip(11),
    "leader epoch": flip(15, 0x40),
    "magic": flip(16),
    "checksum": flip(20),
    "attributes": flip(22),
    "last offset delta": flip(26, 0x40),
    "timestamp": flip(40),
    "producer id": flip(50),
    "record count": flip(60),
    "a record": flip(300),
    "cut short": cut,
    "emptied": empty,
    "another segment's content": exchange,
}


class Watched(Replicated):
    """Its acknowledged records, and which replicas were given up."""

    async def filled(self, **configs: str) -> None:
        await self.topic(**{"min_insync_replicas": "2", **SMALL, **configs})
        await self.in_sync(*ALL)
        await self.write(ALL)

    async def write(self, among: Sequence[int]) -> None:
        """Records to replicas that all get them, in several segments."""
        for number in range(COUNT):
            value = b"%d:" % number + b"x" * (BATCH_BYTES - 100)
            assert await self.produce(records(value)) == (ErrorCode.none, number)
            if not (number + 1) % PER_SEGMENT:
                await self.until(lambda end=number + 1: all(self.log(each).log_end_offset == end for each in among))
                for each in among:
                    self.log(each).roll()

    def aside(self, machine: Machine) -> list[str]:
        return [name for name in machine.disk.listdir(DIRECTORY) if name.startswith("t-0.") and "-stray" in name]

    async def healed(self, machine: Machine, *, renamed: int = 1) -> None:
        """The log was renamed and fetched again, and all are in sync."""
        await self.until(lambda: len(self.aside(machine)) == renamed, HEAL_S_MAX)
        await self.in_sync(*ALL)
        number = self.machines.index(machine) + 1
        await self.until(lambda: self.log(number).log_end_offset == COUNT)
        await self.until(lambda: self.partition().directory(number) != DIRECTORY_LOST)
        contents = {number: self.values(number) for number in ALL}
        assert contents[1] == contents[2] == contents[3] and len(contents[1]) == COUNT
        assert await self.produce(records(b"more")) == (ErrorCode.none, COUNT)

    def values(self, number: int) -> list[tuple[int, Any]]:
        log, found, offset = self.log(number), [], 0
        while offset < COUNT:
            data = log.read(offset, 1 << 20, up_to=COUNT).read()
            found += [
                (each.offset, each.value) for at, _ in iterate_batches(data) for each in iterate_records(data, at)
            ]
            offset = found[-1][0] + 1
        return found

    def leading(self) -> Machine:
        return self.machines[self.partition().leader - 1]

    def following(self) -> Machine:
        return next(each for number, each in enumerate(self.machines, 1) if number != self.partition().leader)


def run_watched(seed: int, work: Any, more: dict[str, str] | None = None) -> None:
    async def test(cluster: Any) -> None:
        await work(cluster)

    Watched(seed, more).run(test)


def scrub(cluster: Watched, machine: Machine) -> None:
    """As it would after its interval."""
    node = machine.node
    assert node is not None and machine.loop is not None
    machine.loop.call_soon(lambda: node.damaged_logs.scrubber.scrub_all())


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_scrubbed_replica_that_is_damaged_is_fetched_again(name: str, who: str) -> None:
    """The scrubber of a leader, or of a follower, meets what nobody has read."""

    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine = cluster.leading() if who == "leader" else cluster.following()
        DAMAGES[name](machine.disk)
        scrub(cluster, machine)
        await cluster.healed(machine)
        assert machine.node is not None
        assert machine.node.damaged_logs.scrubber.totals.damaged == 1 and not machine.node.damaged_logs.damaged()
        assert any("log: ERROR a log is damaged" in line for line in cluster.world.lines)

    run_watched(3, work)


NO_SCRUBBING = {"ottla.log.scrub.bytes.per.second": "0"}


def test_what_a_reader_meets_on_the_leader_is_checked_at_once() -> None:
    """CORRUPT_MESSAGE to a consumer has the log checked, without a scrubber that happens to come by."""

    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine = cluster.leading()
        empty(machine.disk)
        with pytest.raises(AssertionError, match="corrupt_message"):
            await cluster.fetch(PER_SEGMENT + 1, 1)
        await cluster.healed(machine)

    run_watched(4, work, NO_SCRUBBING)


SENT_TO_FOLLOWERS = [
    "base offset, goes up", "base offset, its first byte", "base offset, goes down", "checksum", "attributes",
    "last offset delta", "timestamp", "producer id", "record count", "a record",
]  # fmt: skip
"""What a leader serves without a look at it."""


@pytest.mark.parametrize("name", SENT_TO_FOLLOWERS)
def test_what_a_follower_refuses_to_append_is_checked_on_the_leader(name: str) -> None:
    async def work(cluster: Watched) -> None:
        await cluster.topic(min_insync_replicas="2", **SMALL)
        await cluster.in_sync(*ALL)
        leader, follower = cluster.leading(), cluster.following()
        follower.stop()
        await cluster.until(lambda: cluster.world.counts["stopped"] == 1)
        await cluster.until(lambda: len(cluster.partition().isr) == 2)
        others = [number for number in ALL if number != cluster.machines.index(follower) + 1]
        await cluster.write(others)
        assert cluster.leading() is leader
        DAMAGES[name](leader.disk)
        follower.start()
        await cluster.healed(leader)

    run_watched(10, work, NO_SCRUBBING)


@pytest.mark.parametrize("name", ["base offset, goes up", "a record", "leader epoch", "cut short"])
def test_damage_of_the_time_between_is_found_after_a_start(name: str) -> None:
    """A clean stop is believed, so a start looks at the ends of segments only: the scrubber reads the rest."""

    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine = cluster.following()
        machine.stop()
        await cluster.until(lambda: cluster.world.counts["stopped"] == 1)
        DAMAGES[name](machine.disk)
        machine.start()
        await cluster.healed(machine)

    run_watched(5, work)


def test_a_wrong_epoch_checkpoint_of_a_running_log_is_mended() -> None:
    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine = cluster.following()
        number = cluster.machines.index(machine) + 1
        log = cluster.log(number)
        right = log.epochs.entries
        log.epochs.replace([(0, 0), (7, 5)])
        scrub(cluster, machine)
        await cluster.until(lambda: log.epochs.entries == right)
        assert machine.node is not None and machine.node.damaged_logs.scrubber.totals.epochs_mended == 1
        assert not cluster.aside(machine)

    run_watched(6, work)


def test_the_only_replica_in_sync_is_not_given_up_until_another_one_is() -> None:
    """It may have what no other has: it goes on, and says that it is damaged."""

    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine, others = cluster.leading(), []
        for each in cluster.machines:
            if each is not machine:
                each.wanted = False
                each.crash(power_loss=False)
                others.append(each)
        await cluster.until(lambda: True)
        assert machine.node is not None
        log = cluster.log(cluster.machines.index(machine) + 1)
        DAMAGES["a record"](machine.disk)
        scrub(cluster, machine)
        await cluster.until(lambda: "damaged_logs" in vars(machine.node))
        damaged_logs = machine.node.damaged_logs
        await cluster.until(lambda: len(damaged_logs.damaged()) == 1)
        assert log.is_open and not cluster.aside(machine)
        for each in others:
            each.start()
        await cluster.healed(machine)
        assert not damaged_logs.damaged()

    run_watched(7, work)


def test_a_single_replica_is_served_and_says_that_it_is_damaged() -> None:
    async def work(cluster: Watched) -> None:
        await cluster.topic((1,), **SMALL)
        for number in range(COUNT):
            assert await cluster.produce(records(b"x" * 300)) == (ErrorCode.none, number)
            if not (number + 1) % PER_SEGMENT:
                cluster.log(1).roll()
        machine = cluster.machines[0]
        node = machine.node
        assert node is not None
        DAMAGES["a record"](machine.disk)
        scrub(cluster, machine)
        await cluster.until(lambda: "damaged_logs" in vars(node) and len(node.damaged_logs.damaged()) == 1)
        assert await cluster.produce(records(b"more")) == (ErrorCode.none, COUNT)
        assert not cluster.aside(machine) and cluster.log(1).is_open
        from ottla.server.http.pages import damage_of

        assert "checksum" in damage_of(node)["t-0"]

    run_watched(8, work)


def test_directories_that_changed_places_are_fetched_again() -> None:
    async def work(cluster: Watched) -> None:
        await cluster.filled()
        assert await cluster.create("u", "node1", 1, 3) == ErrorCode.none
        machine = cluster.following()
        disk = machine.disk
        await cluster.until(lambda: disk.is_dir(f"{DIRECTORY}/u-0"))
        machine.stop()
        await cluster.until(lambda: cluster.world.counts["stopped"] == 1)
        for source, target in (("t-0", "aside"), ("u-0", "t-0"), ("aside", "u-0")):
            disk.rename(f"{DIRECTORY}/{source}", f"{DIRECTORY}/{target}")
        machine.start()
        await cluster.healed(machine)

    run_watched(9, work)


def test_a_replica_that_joins_the_set_when_damage_is_found_is_not_empty_in_it() -> None:
    """The leader asks for it as the replica is caught up, and the replica's own metadata does not say so yet: elected
    now it would lead without the records."""

    async def work(cluster: Watched) -> None:
        await cluster.filled()
        machine, leader = cluster.following(), cluster.leading()
        number = cluster.machines.index(machine) + 1
        machine.stop()
        await cluster.until(lambda: len(cluster.partition(leader).isr) == 2)
        node = leader.node
        assert node is not None and node.replicas.ask_isr is not None
        ask, asked = node.replicas.ask_isr, list[Any]()
        seen: list[int] = []

        def find_damage(partition: Any, isr: tuple[int, ...]) -> None:
            ask(partition, isr)
            if partition.topic_partition.topic == "t" and not asked:
                asked.append(isr)
                damaged = machine.node
                assert number in isr and damaged is not None and machine.loop is not None
                error = DamagedLog(NoticedDamage(LOG, LOG, 0, "what the scrubber says", ""))
                machine.loop.call_soon(lambda: damaged.damaged_logs._found(cluster.log(number), error))

        def look(delta: Any, image: Any) -> None:
            partition = image.partition("t", 0)
            if asked and number in partition.isr and partition.directory(number) != DIRECTORY_LOST:
                replica = None if machine.node is None else machine.node.replicas.get("t", 0)
                seen.append(-1 if replica is None else replica.log.log_end_offset)

        node.replicas.ask_isr = find_damage
        node.metadata.publisher.subscribe(look)
        machine.start()
        await cluster.until(lambda: bool(asked))
        await cluster.healed(machine)
        assert set(seen) <= {COUNT, COUNT + 1}, "it may be elected, and has not all"

    run_watched(13, work, NO_SCRUBBING)


class Coordinated(Watched):
    """A group that commits."""

    def offsets(self) -> PartitionRegistration | None:
        return self.nodes()[0].image.partition("__consumer_offsets", 0)

    async def ask_coordinator(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        registration = self.offsets()
        host = NODES[0] if registration is None else NODES[registration.leader - 1]
        return await self.ask(host, key, version, values)

    async def commit(self, offset: int) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        values = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        while True:
            answer = await self.ask_coordinator(ApiKey.OFFSET_COMMIT, 8, values)
            if not answer["topics"][0]["partitions"][0]["error_code"]:
                return
            await asyncio.sleep(0.1)

    async def committed(self) -> int:
        """-1 while there is no answer."""
        values = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}
        try:
            (group,) = (await self.ask_coordinator(ApiKey.OFFSET_FETCH, 8, {**values, "require_stable": False}))[
                "groups"
            ]
        except (Disconnected, OSError):
            return -1
        if group["error_code"]:
            return -1
        return int(group["topics"][0]["partitions"][0]["committed_offset"])


def test_a_coordinator_that_cannot_load_its_damaged_log_lets_another_one_lead() -> None:
    """Its groups are coordinated by a replica that is sound, and the damaged one is fetched again."""

    async def work(cluster: Any) -> None:
        await cluster.topic()
        await cluster.ask(NODES[0], ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        await cluster.until(lambda: cluster.offsets() is not None and len(cluster.offsets().isr) == 3)
        for offset in range(1, 6):
            await cluster.commit(offset)
        registration = cluster.offsets()
        first = next(each for each in registration.replicas if each != registration.leader)
        leader, damaged = cluster.machines[registration.leader - 1], cluster.machines[first - 1]
        path = posixpath.join(DIRECTORY, "__consumer_offsets-0", f"{0:020d}.log")
        await cluster.until(lambda: damaged.disk.size(path) == leader.disk.size(path))
        change(damaged.disk, path, 100, b"\xa5")
        leader.crash(power_loss=False)
        while await cluster.committed() != 5:  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.1)
        assert cluster.offsets().leader not in (first, registration.leader)
        leader.start()
        await cluster.until(lambda: len(cluster.offsets().isr) == 3)
        assert [name for name in damaged.disk.listdir(DIRECTORY) if name.startswith("__c") and "-stray" in name]

    more = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1", **NO_SCRUBBING}

    async def test(cluster: Any) -> None:
        await work(cluster)

    Coordinated(11, more).run(test)


def test_a_replica_that_begins_again_is_not_elected_before_it_has_all() -> None:
    """With two replicas and min.insync.replicas=2 one that leaves the set stays an eligible leader (KIP-966), unless
    its log is lost: the controller elects nobody when the other one dies, and that one when it is back."""

    async def work(cluster: Watched) -> None:
        await cluster.topic((1, 2), min_insync_replicas="2", **SMALL)
        await cluster.until(lambda: len(cluster.partition().isr) == 2)
        await cluster.write((1, 2))
        machine = cluster.leading()
        number = cluster.machines.index(machine) + 1
        other = cluster.machines[2 - number]
        node = machine.node
        assert node is not None

        def kill_the_other(partition: Any) -> None:
            if partition.topic_partition.topic == "t" and partition.leader_id < 0 and other.loop is not None:
                other.crash(power_loss=False)

        other.wanted = False
        node.replicas.on_leadership.append(kill_the_other)
        DAMAGES["a record"](machine.disk)
        scrub(cluster, machine)
        await cluster.until(lambda: not other.is_serving and cluster.partition(machine).leader == -1)
        assert cluster.aside(machine) and cluster.log(number).log_end_offset == 0
        assert number not in cluster.partition(machine).elr
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert cluster.partition(machine).leader == -1, "what it has not fetched would be lost"
        node.replicas.on_leadership.remove(kill_the_other)
        other.start()
        await cluster.until(lambda: sorted(cluster.partition().isr) == [1, 2])
        await cluster.until(lambda: cluster.partition().directory(number) != DIRECTORY_LOST)
        assert cluster.log(number).log_end_offset == COUNT

    run_watched(12, work)
