"""A run of one node, or of one controller and one broker: set up, break things while clients work, heal, look at
everything. The kind of a run (calm, network, kill, power, disk, mixed) and all else comes from the seed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, TypeVar

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History, Key
from ottla.simulation.clients.admins import Admin
from ottla.simulation.clients.clients import Client, Consumer, Producer
from ottla.simulation.clients.groups import COMMITTER, TOPIC, Committer, Group, Member
from ottla.simulation.clients.retrier import GONE, Retrier
from ottla.simulation.clients.wire import Disconnected, Wire, coordinator_of, leader_of
from ottla.simulation.faults.faults import CLUSTER, CONTROL, FAULT_SECONDS, NODE, Nemesis
from ottla.simulation.world import BUSY_S, CONTROL_PORT, QUICK_S, World
from ottla.testing.loop import SimulatedLoop
from ottla.testing.network import HostNetwork

T = TypeVar("T")

TINY_SEGMENT_BYTES = 2500
"""A handful of batches: readers cross the end of a segment all the time."""

QUIET_SECONDS_MAX = 120.0
"""After the last fault everything that clients wait for has to come within this."""

KINDS = ("power", "network", "kill", "disk", "mixed", "calm")

DISCONNECTED = tuple(f"{each} disconnected" for each in ("producer", "consumer", "committer", "admin"))

REACHED: dict[str, tuple[tuple[str, ...], ...]] = {
    "calm": (("started",),),
    "network": (DISCONNECTED,),
    "kill": (("kill",),),
    "power": (("power loss",),),
    "disk": (("error kafka_storage_error", "disk error"),),
    "mixed": (("produce retried",),),
    "cluster": (("produce retried",), ("kill", "power loss", "stopped", "stalled")),
}
"""What a run of each kind is about: of each group something has to have happened."""

ALWAYS = ("acknowledged", "read", "checked", "commits", "offset fetches", "rebalanced", "group commits",
          "retried after deletion", "admin")  # fmt: skip
"""What clients have to have done in every run."""


class Run:
    """A run from beginning to end."""

    topics: tuple[str, ...] = (TOPIC, GONE[0])
    seconds_max = FAULT_SECONDS + 3 * QUIET_SECONDS_MAX

    def __init__(self, seed: int, kind: str, *, fsynced: bool | None = None) -> None:
        self.kind = kind
        self.world = World(seed)
        self.random = self.world.random("plan")
        self.servers: tuple[str, ...] = (NODE,)
        """The brokers that clients know."""
        self.fsynced = self.random.random() < 0.7 if fsynced is None else fsynced
        self.settings = {
            "log.retention.check.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "log.flush.start.offset.checkpoint.interval.ms": "1000",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "300",
            "metadata.log.max.record.bytes.between.snapshots": "3000",
        }
        """Settings of every node."""
        if self.fsynced:
            self.settings["log.flush.interval.messages"] = "1"
        self.make_machines()
        for machine in self.world.machines.values():
            machine.disk_s = self.random.choice((QUICK_S, BUSY_S))
            machine.interleaving = self.random.choice((0.0, 0.0, 0.05, 0.3))
            machine.disk.cold_probability = self.random.choice((0.0, 0.1, 0.5))
        self.history = self.make_history()
        self.keys: list[Key] = [(TOPIC, 0), (TOPIC, 1)]
        self.clients: list[Client] = []
        self.committer: Committer
        self.admin: Admin

    @property
    def about(self) -> str:
        """What the seed chose."""
        return "fsynced" if self.fsynced else "not fsynced"

    def make_machines(self) -> None:
        settings = self.settings
        if self.kind == CLUSTER:
            where = f"{CONTROL}:{CONTROL_PORT}"
            of_all = {
                "controller.listener.names": "CONTROLLER",
                "offsets.topic.replication.factor": "1",
                "broker.session.timeout.ms": "3000",
                "broker.heartbeat.interval.ms": "500",
            }
            of_controller = {
                "process.roles": "controller",
                "node.id": "100",
                "listeners": f"CONTROLLER://{where}",
                "controller.quorum.voters": f"100@{where}",
            }
            settings = settings | of_all
            settings |= {"process.roles": "broker", "node.id": "1", "controller.quorum.bootstrap.servers": where}
        self.world.machine(NODE, settings)
        if self.kind == CLUSTER:
            self.world.machine(CONTROL, {**self.settings, **of_all, **of_controller})

    def make_history(self) -> History:
        return History(self.world, fsynced=self.fsynced)

    def make_clients(self) -> list[Client]:
        world, history, servers, keys = self.world, self.history, self.servers, self.keys
        self.committer = Committer(world, history, COMMITTER, servers)
        self.admin = Admin(world, history, "admin", servers)
        group = Group("members")
        return [
            Producer(world, history, "p-idem", servers, keys[0], idempotent=True, in_flight=3),
            Producer(world, history, "p-idem1", servers, keys[1], idempotent=True, in_flight=1),
            Producer(world, history, "p-plain", servers, keys[0], idempotent=False, in_flight=2),
            *(Consumer(world, history, f"c{number}", servers, key) for number, key in enumerate(keys)),
            self.committer,
            self.admin,
            *(Member(world, history, f"m{number}", servers, group) for number in range(2)),
            Retrier(world, history, "retrier", servers),
        ]

    def make_nemesis(self) -> Nemesis:
        return Nemesis(self.world, self.clients, self.kind)

    async def set_up(self) -> None:
        for machine in self.world.machines.values():
            machine.start()
        while not all(self.world.machines[name].is_serving for name in self.servers):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await self._patiently(self._create_topic)

    def topic(self) -> dict[str, Any]:
        configs = [
            {"name": "internal.segment.bytes", "value": str(TINY_SEGMENT_BYTES)},
            {"name": "index.interval.bytes", "value": "300"},
        ]
        return {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": configs}

    async def _create_topic(self, wire: Wire) -> None:
        topics = [self.topic() | {"name": name} for name in self.topics]
        values = {"topics": topics, "timeout": 5000, "validate_only": False}
        answer = await wire.ask(ApiKey.CREATE_TOPICS, 7, values)
        if {each["error_code"] for each in answer["topics"]} - {ErrorCode.none, ErrorCode.topic_already_exists}:
            raise Disconnected(str(answer))

    def _network(self, name: str) -> HostNetwork:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return self.world.network.of(loop, name)

    async def main(self) -> None:
        await self.set_up()
        world = self.world
        self.clients = self.make_clients()
        nemesis = self.make_nemesis()
        await nemesis.run()
        nemesis.heal()
        healed_s = world.time.now_s
        world.pace = 1.0
        for client in self.clients:
            client.stopping = True
        while not all(client.done for client in self.clients):
            if world.time.now_s > healed_s + QUIET_SECONDS_MAX:
                waiting = [client.name for client in self.clients if not client.done]
                world.violated(f"liveness: {QUIET_SECONDS_MAX} s after the last fault {waiting} still wait for answers")
            await asyncio.sleep(0.5)
        await self.check()
        world.counts["seconds to quiet"] = round(world.time.now_s - healed_s)

    async def check(self) -> None:
        """Check, with all faults healed, that every promised record is there."""
        for number, key in enumerate(self.keys):
            last = Consumer(self.world, self.history, f"last{number}", self.servers, key)
            last.stopping = True
            found = await self._patiently(last.read_all, key)
            self.history.check_final(key, found)
        while not await self._patiently(self.committer.check, self.committer.name):
            pass
        await self._patiently(self.admin.check)

    async def _patiently(self, ask: Callable[[Wire], Awaitable[T]], where: Key | str | None = None) -> T:
        """Ask any broker, the leader of a partition or the coordinator of a group, until there is an answer."""
        network, servers = self._network("checker"), self.servers
        for _ in range(100):
            try:
                host = self.random.choice(servers)
                if len(servers) > 1 and isinstance(where, str):
                    host = await coordinator_of(network, servers, self.random, where)
                elif len(servers) > 1 and isinstance(where, tuple):
                    host = await leader_of(network, servers, self.random, where)
                with closing(await Wire.connect(network, host)) as wire:
                    return await ask(wire)
            except Disconnected:
                await asyncio.sleep(0.2)
        raise self.world.violated("liveness: no broker can be reached in the end")

    def counts(self) -> Counter[str]:
        """What happened, how often."""
        return self.world.counts + self.world.network.counts + self.history.counts

    def missed(self) -> list[str]:
        """What the run is about and did not meet."""
        counts = self.counts()
        always = ALWAYS if self.kind != CLUSTER else ALWAYS[:-1]  # a broker that is cut off changes no metadata
        missed = [f"the run met no {each}" for each in always if not counts[each]]
        missed += [
            f"the run met none of {', '.join(group)}"
            for group in REACHED[self.kind]
            if not any(counts[each] for each in group)
        ]
        return missed
