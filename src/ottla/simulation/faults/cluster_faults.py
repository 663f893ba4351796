"""What breaks in a cluster of several nodes, one after the other, and the sequences that have broken others."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from random import Random

from ottla.coordinator.partitioning import partition_for
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import ATTRIBUTES_POSITION, read_batch_header
from ottla.simulation.checks.history import Key
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.groups import COMMITTER, TOPIC
from ottla.simulation.faults.faults import SLOW_S, FaultKind, Nemesis
from ottla.simulation.world import SECOND_DIRECTORY, Machine, World
from ottla.storage.segments.segment_files import LOG
from ottla.testing.disk import OPERATIONS
from ottla.testing.loop import State

TAKEN_OVER = 0.6
"""Share of the runs with replicas in which, at the end, a leader is lost together with records that no follower has."""


SHORT_LOG = 0.4
"""Share of the runs with three or more voters in which, at the end, one that lacks committed metadata may ask for
votes."""


FULL_VOTER = 0.4
"""Share of the runs with three or more voters in which, at the end, one has no room for its vote."""

ROTTEN = 0.4
"""In how many of the runs with replicas a bit flips on the disk of a follower, in the end."""

FETCHED_SECONDS_MAX = 60.0
"""Damage that a scrubber met is given up for another replica's copy within this."""

ELECTED_SECONDS_MAX = 30.0
"""A majority of voters without a fault has a leader within this."""


class ClusterNemesis(Nemesis):
    """`kind` of `Nemesis` says nothing here: all faults of a run come from `faults`."""

    def __init__(
        self, world: World, clients: Sequence[Client], seconds: float, voters: Sequence[str], brokers: Sequence[str]
    ) -> None:
        super().__init__(world, clients, "calm")
        self.seconds = seconds
        self.voters = [world.machines[name] for name in voters]
        self.brokers = [world.machines[name] for name in brokers]
        self.rest_s = 1.0
        """Between two faults, at most."""
        self.must_elect = True
        """Whether a run without a change of leader has missed what it is about."""
        self.may_wipe_voters = False
        """Where a voter is a node with its disk: with a new one it does not vote."""
        self.may_rot = False
        """Whether bits flip; what they are of is fetched from another replica."""
        self.wipes_max = 1
        """No more disks than this are replaced: with two of three lost nothing is guaranteed."""
        network: list[FaultKind] = [
            self._isolate,
            self._isolate,
            self._split,
            self._one_way,
            self._bridge,
            self._reset,
            self._half_open,
            self._clog,
            self._late,
            self._late,
            self._kill_client,
        ]
        killing: list[FaultKind] = [
            self._kill,
            self._kill,
            self._kill_at_await,
            self._kill_at_disk,
            self._stop,
            self._pause,
            self._pause,
            self._rolling_restart,
        ]
        power: list[FaultKind] = [self._power, self._power_at_await, self._power_at_disk]
        disk: list[FaultKind] = [self._full, self._write_error, self._slow, self._jump]
        sequences: list[FaultKind] = [self._minority_sequence, self._leader_sequence, self._two_of_three]
        self.faults = [*network, *killing, *power, *disk, self._wipe, *sequences]

    async def run(self) -> None:
        """About a quarter of the time nothing breaks."""
        until_s = self.world.time.now_s + self.seconds
        await asyncio.sleep(self.random.uniform(0, self.seconds / 6))
        while self.world.time.now_s < until_s:
            if self.random.random() < 0.15:
                await asyncio.sleep(self.random.uniform(2, 4))
            await asyncio.sleep(self.random.uniform(0.1, self.rest_s))
            self.machine = self.random.choice(self.machines)
            await self.random.choice(self.faults)()
            self.world.counts["fault"] += 1
        for _ in range(10):  # what every run is about
            leader = self._leader()
            if not self.must_elect or self.world.counts["leaders elected"] or leader is None:
                break
            self._says(f"kill of a leader: {leader.name}")
            leader.crash(power_loss=False)
            await asyncio.sleep(5)
        if self.must_elect and not self.world.counts["ISR shrunk"]:
            await self._leave_in_sync_set()
        closing = self.world.random("nemesis/closing")  # so that all before is the same, drawn or not
        if self.must_elect and closing.random() < TAKEN_OVER:
            await self._take_over(closing)
        if len(self.voters) > 2 and closing.random() < SHORT_LOG:
            await self._short_log(closing)
        voting = self.world.random("nemesis/full voter")
        if len(self.voters) > 2 and not self.may_wipe_voters and voting.random() < FULL_VOTER:
            self.world.network.heal()
            await self._full_voter(voting)
        rotting = self.world.random("nemesis/rotten")
        if self.may_rot and rotting.random() < ROTTEN:
            self.world.network.heal()
            await self._rotten(rotting)

    async def _leave_in_sync_set(self) -> None:
        """A run whose faults were all short: a broker is away for longer than its session."""
        leader = self._leader()
        if leader is not None:
            self._says(f"longer than a session: {leader.name}")
            leader.wanted = False
            leader.crash(power_loss=False)
            await asyncio.sleep(5)
            leader.comes_back()

    def _leader(self) -> Machine | None:
        """A broker that leads something."""
        for each in self.brokers:
            if each.node is not None and any(partition.is_leader for partition in each.node.replicas):
                return each
        return None

    def _leader_of(self, key: Key) -> Machine | None:
        """The broker that leads a partition in the newest epoch."""
        found = [
            (partition.leader_epoch, machine.name)
            for machine in self.brokers
            if machine.is_serving and machine.node is not None
            for partition in machine.node.replicas
            if partition.is_leader and partition.topic_partition == key
        ]
        return self.world.machines[max(found)[1]] if found else None

    async def _take_over(self, random: Random) -> None:
        """A leader continues without its followers, serving only clients, and is lost; its successor is slow to load.
        Or it comes back to a cluster that has another leader.
        """
        await asyncio.sleep(random.uniform(1, 3))
        groups = "__consumer_offsets", partition_for(COMMITTER, 2)
        key = random.choice((groups, groups, (TOPIC, 0)))
        is_slow, is_killed = random.random() < 0.6, random.random() < 0.6
        leader = self._leader_of(key)
        if leader is None:
            return
        self._says(f"take over: from {leader.name} of {key}, slow {is_slow}, killed {is_killed}")
        elections = self.world.elections[key]
        others = [each for each in self.machines if each is not leader]
        self._cut_between([leader.name], [each.name for each in others])
        before = {each: each.disk_s for each in others if each in self.brokers and is_slow}
        for each in before:
            each.disk_s = SLOW_S
        await asyncio.sleep(random.uniform(0.5, 2))
        if is_killed:
            leader.wanted = False
            if leader.loop is not None:
                leader.crash(power_loss=False)
            self.world.network.heal()
        await asyncio.sleep(random.uniform(4, 5))
        self.world.network.heal()
        leader.comes_back()
        await asyncio.sleep(1)
        for each, disk_s in before.items():
            each.disk_s = disk_s
        self.world.counts["taken over"] += self.world.elections[key] > elections

    async def _short_log(self, random: Random) -> None:
        """The quorum goes on without some voters, then loses its leader: who is left must not elect one of those."""
        leaders = [each for each in self.voters if each.node is not None and each.node.metadata.quorum.is_leader]
        if not leaders:
            return
        leader = leaders[-1]
        followers = [each for each in self.voters if each is not leader]
        behind = random.sample(followers, (len(self.voters) - 1) // 2)
        self._says(f"short log: of {[each.name for each in behind]}, {leader.name} is lost")
        names = [each.name for each in behind]
        self._cut_between(names, [each.name for each in self.machines if each not in behind])
        await asyncio.sleep(random.uniform(2, 4))
        leader.wanted = False
        if leader.loop is not None:
            leader.crash(power_loss=False)
        self.world.network.heal()
        await asyncio.sleep(random.uniform(3, 5))
        leader.comes_back()
        self.world.counts["short logs"] += 1

    async def _full_voter(self, random: Random) -> None:
        """A voter's disk is full while the quorum elects another leader. Then there is room, and so many others are
        lost that its vote is needed: the rest has to elect somebody, and nobody has started it again."""
        victim = await self._without_room(random)
        if victim is None:
            return
        others = [each for each in self.voters if each is not victim]
        lost = random.sample(others, (len(self.voters) - 1) // 2)
        self._says(f"full voter: {victim.name} had no room, {[each.name for each in lost]} are lost")
        for each in lost:
            each.wanted = False
            if each.loop is not None:
                each.crash(power_loss=False)
        rest = [each for each in self.voters if each not in lost]
        if not await self._elected(rest):
            names = [each.name for each in rest]
            self.world.violated(f"liveness: {names} elect no leader; the disk of {victim.name} was full for a while")
        for each in lost:
            each.comes_back()
        self.world.counts["full voters"] += 1

    async def _without_room(self, random: Random) -> Machine | None:
        """A voter that had no room for its vote, and has some again; None where the voters are not all there."""
        leaders = [each for each in self.voters if each.node is not None and each.node.metadata.quorum.is_leader]
        if not leaders or not all(each.is_serving for each in self.voters):
            return None
        leader = leaders[-1]
        victim = random.choice([each for each in self.voters if each is not leader])
        victim.disk.capacity_bytes = sum(map(len, victim.disk.files().values()))
        starts = victim.starts
        leader.wanted = False
        if leader.loop is not None:
            leader.crash(power_loss=False)
        await asyncio.sleep(random.uniform(3, 6))
        victim.disk.heal()
        leader.comes_back()
        is_there = await self._elected(self.voters) and victim.starts == starts
        return victim if is_there else None

    async def _rotten(self, random: Random) -> None:
        """A bit flips in a batch on the disk of a replica that does not lead, so that no client meets it first. Its
        scrubber does, and the log is fetched again from another one."""
        key = TOPIC, random.randrange(2)
        leader = self._leader_of(key)
        found = [each for each in self.brokers if each is not leader and self._in_sync_with(leader, each, key)]
        if not found:
            return
        victim = random.choice(found)
        node, loop = victim.node, victim.loop
        assert node is not None and loop is not None
        log = node.logs.get(TopicPartition(*key))
        assert log is not None
        path = log.segments[0].path(LOG)
        size = min(victim.disk.size(path), read_batch_header(victim.disk.read_bytes(path)).size)
        bit = random.randrange(8 * ATTRIBUTES_POSITION, 8 * size)
        self._says(f"rotten: bit {bit} of {path} of {victim.name}")
        self.world.rotten.add((victim.name, key))
        victim.disk.flip_bit(path, bit)
        loop.call_soon(lambda: node.damaged_logs.scrubber.scrub_all())
        for _ in range(round(FETCHED_SECONDS_MAX * 10)):
            await asyncio.sleep(0.1)
            if victim.node is not None and victim.node.logs.get(TopicPartition(*key)) not in (None, log):
                self.world.counts["fetched again"] += 1
                return
        self.world.violated(f"liveness: {victim.name} does not fetch {key} again, of which a bit flipped")

    def _in_sync_with(self, leader: Machine | None, machine: Machine, key: Key) -> bool:
        """Whether a broker has records of a partition, all that its leader has, and they are on disk."""
        if leader is None or leader.node is None or machine.node is None or not machine.is_serving:
            return False
        led, own = (each.node.replicas.get(*key) for each in (leader, machine) if each.node is not None)
        if led is None or own is None or machine.node_id not in led.isr:
            return False
        return bool(own.log.segments[0].size) and own.log.log_end_offset == led.log.log_end_offset

    async def _elected(self, machines: Sequence[Machine]) -> bool:
        """Whether all of these serve within the time, and one leads the quorum."""
        for _ in range(round(ELECTED_SECONDS_MAX * 10)):
            nodes = [each.node for each in machines if each.is_serving and each.node is not None]
            if len(nodes) == len(machines) and any(each.metadata.quorum.is_active for each in nodes):
                return True
            await asyncio.sleep(0.1)
        return False

    # The network.

    def _hosts(self) -> list[str]:
        return [*self.world.machines, *(client.name for client in self.clients)]

    def _cut_between(self, some: Sequence[str], others: Sequence[str]) -> None:
        for one in some:
            for other in others:
                self.world.network.cut(one, other)
                self.world.network.cut(other, one)

    async def _isolate(self) -> None:
        """One machine reaches nobody, or no other machine."""
        name = self.machine.name
        others = self._hosts() if self.random.random() < 0.5 else list(self.world.machines)
        self._says(f"isolate: {name} from {len(others)}")
        self._cut_between([name], [each for each in others if each != name])
        await self._lasting(3)
        self.world.network.heal()

    async def _split(self) -> None:
        """Two halves, clients among them."""
        hosts = self._hosts()
        half = {name for name in sorted(hosts) if self.random.random() < 0.5}
        self._says(f"split: {sorted(half)}")
        self._cut_between(sorted(half), [each for each in hosts if each not in half])
        await self._lasting(3)
        self.world.network.heal()

    async def _one_way(self) -> None:
        name = self.machine.name
        others = [each for each in self._hosts() if each != name]
        others = self.random.sample(others, self.random.randint(1, len(others)))
        outward = self.random.random() < 0.5
        self._says(f"one way: {'from' if outward else 'to'} {name}: {others}")
        for other in others:
            self.world.network.cut(*((name, other) if outward else (other, name)))
        await self._lasting(3)
        self.world.network.heal()

    async def _bridge(self) -> None:
        """Two halves of machines that only one of them sees both of."""
        names = list(self.world.machines)
        if len(names) < 3:
            return
        self.random.shuffle(names)
        middle = (len(names) - 1) // 2
        self._says(f"bridge: {names[-1]} between {names[:middle]} and {names[middle:-1]}")
        self._cut_between(names[:middle], names[middle:-1])
        await self._lasting(3)
        self.world.network.heal()

    async def _clog(self) -> None:
        one, other = self.random.sample(self._hosts(), 2)
        self._says(f"clog: {one} to {other}")
        self.world.network.clog(one, other, self.random.uniform(0.5, 5))

    async def _late(self) -> None:
        """A connection breaks for its client, and its old data arrives after the retries."""
        found = self.world.network.connections()
        if found:
            end = self.random.choice(found)
            self._says(f"late: {end.name} from {end.host}")
            end.strand_s = self.random.uniform(0.3, 4)

    # Nodes.

    async def _wipe(self) -> None:
        """A node loses its disk; of a fixed quorum no voter, whose vote would be given twice, and none of two, after
        which nobody could be elected any more: the new disk is another voter (KIP-853)."""
        found = self.machines if self.may_wipe_voters else [each for each in self.brokers if each not in self.voters]
        needed = self._needed_voters()
        found = [each for each in found if each.node_id not in needed]
        if found and self.world.wipes < self.wipes_max:
            self.machine = self.random.choice(found)
            self._says(f"wipe: {self.machine.name}")
            self.machine.wipe()

    def _needed_voters(self) -> set[int]:
        """Voters of the quorums with at most two voters, as some node sees them."""
        quorums = [each.node.metadata.quorum.core.voters for each in self.machines if each.node is not None]
        return {key.node_id for voters in quorums if len(voters) < 3 for key in voters.keys}

    async def fail_directory(self) -> None:
        """One of two log directories fails, until the node is started again."""
        self.machine = machine = self.random.choice(self.brokers)
        self._says(f"failed directory: {machine.name}")
        path = f"{SECOND_DIRECTORY}/"
        faults = {what: machine.disk.fail(what, errno.EIO, path=path, times=1 << 30) for what in sorted(OPERATIONS)}
        await self._lasting(3)
        machine.disk.heal()
        if any(fault.fired for fault in faults.values()):
            self.world.counts["directory failed"] += 1
            if machine.loop is not None:
                machine.crash(power_loss=faults["fsync"].fired > 0)

    async def _two_of_three(self) -> None:
        """Most of the brokers, or of who votes, are gone for a while."""
        group = self.random.choice((self.brokers, self.voters))
        gone = self.random.sample(group, len(group) // 2 + 1)
        if len(group) < 2:
            return
        self._says(f"most are lost: {[each.name for each in gone]}")
        for machine in gone:
            machine.wanted = False
            if machine.loop is not None:
                machine.crash(power_loss=self.random.random() < 0.3)
            await asyncio.sleep(self.random.choice((0, 0.5)))
        await self._lasting(2)
        self.random.shuffle(gone)
        for machine in gone:
            machine.comes_back()
            await asyncio.sleep(self.random.choice((0, 0.5)))

    async def _rolling_restart(self) -> None:
        self._says("rolling restart")
        for machine in self.machines:
            self.machine = machine
            starts = machine.starts
            machine.stop()
            for _ in range(100):
                await asyncio.sleep(0.1)
                if machine.starts > starts and machine.is_serving:
                    break
            else:
                self.world.counts["rolling restart cut short"] += 1
                return
        self.world.counts["rolled"] += 1

    def _pause_now(self, machine: Machine) -> bool:
        if machine.loop is None or machine.loop.state is not State.RUNNING:
            return False
        machine.loop.pause()
        return True

    async def _minority_sequence(self) -> None:
        """Pause a minority, write, kill one with data loss, pause the rest, resume the minority."""
        brokers = list(self.brokers)
        if len(brokers) < 3:
            return
        self.random.shuffle(brokers)
        minority, victim, rest = brokers[: (len(brokers) - 1) // 2], brokers[-1], brokers[len(brokers) // 2 : -1]
        self._says(f"minority: {[each.name for each in minority]}, {victim.name} loses power")
        paused = [each for each in minority if self._pause_now(each)]
        await self._lasting(2)
        if victim.loop is not None:
            victim.crash(power_loss=True)
        held = [each for each in rest if self._pause_now(each)]
        for machine in paused:
            if machine.loop is not None:
                machine.loop.resume()
        await self._lasting(2)
        for machine in held:
            if machine.loop is not None:
                machine.loop.resume()

    async def _leader_sequence(self) -> None:
        """Cut off the leader of the quorum or of a partition, let the others go on, kill one, and let it come back."""
        leaders = [each for each in self.machines if each.node is not None and each.node.metadata.quorum.is_leader]
        leaders += [
            each for each in self.brokers if each.node is not None and any(p.is_leader for p in each.node.replicas)
        ]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        others = [each for each in self.machines if each is not leader]
        self._says(f"old leader: {leader.name}")
        self._cut_between([leader.name], [each.name for each in others])
        await self._lasting(3)
        if others and self.random.random() < 0.5:
            victim = self.random.choice(others)
            if victim.loop is not None:
                victim.crash(power_loss=self.random.random() < 0.5)
        self.world.network.heal()
