"""A run of a cluster that lives in ZooKeeper: nodes of which each may be the controller, an ensemble of three, and all
faults of a cluster beside those of the ensemble.

What holds in a quorum holds here too, and what is more: a controller of a new epoch finds in the tree all that was
acknowledged before it, whatever its own copy of the log has.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.simulation.checks.tree_and_image import below, differences
from ottla.simulation.clients.admins import ClusterAdmin
from ottla.simulation.clients.clients import Client, Consumer
from ottla.simulation.clients.epoch_consumer import EpochConsumer, EpochTrimmer
from ottla.simulation.faults.cluster_faults import ClusterNemesis
from ottla.simulation.faults.faults import Nemesis
from ottla.simulation.runs.quorum import ALWAYS, SETTLED_SECONDS_MAX, Plan, QuorumRun
from ottla.simulation.world import DIRECTORY, PORT
from ottla.simulation.zookeeper.ensemble import Ensemble
from ottla.simulation.zookeeper.server import PORT as ZOOKEEPER_PORT
from ottla.simulation.zookeeper.server import Server

IN_ZOOKEEPER = "in zookeeper"

ENSEMBLE = ("zk1", "zk2", "zk3")
CHROOT = "/kafka"
SESSION_TIMEOUT_MS = 3000


class InZooKeeperRun(QuorumRun):
    """The seed chooses as for a quorum, but for roles: each node has both. Who reads or looks up by time looks at
    leader epochs, since a broker without the ensemble may go on answering as the leader of an older one."""

    consumer, trimmer = EpochConsumer, EpochTrimmer

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        super().__init__(seed, IN_ZOOKEEPER, plan)

    def make_plan(self) -> Plan:
        plan = super().make_plan()
        return plan._replace(controllers=plan.brokers, is_combined=True, is_dynamic=False, has_two_disks=False)

    def make_machines(self) -> None:
        self.plan = plan = self._given or self.make_plan()
        world = self.world
        self.ensemble = Ensemble(world.process("ensemble"), world.random("ensemble"))
        self.zookeepers = []
        for name in ENSEMBLE:
            loop = world.process(name)
            server = Server(loop, world.network.of(loop, name), self.ensemble, world.random(name))
            self.zookeepers.append(server)

        def committed(txn: Any) -> None:
            world.counts["zookeeper commits"] += 1
            states = [(each.path, each.data) for each in txn.changes if each.path.endswith("/state")]
            world.counts["states set twice"] += len(states) - len(set(states))
            for each in self.zookeepers:
                each.committed()

        self.ensemble.on_commit = committed
        of_all = {
            **self.settings,
            "zookeeper.connect": ",".join(f"{each}:{ZOOKEEPER_PORT}" for each in ENSEMBLE) + CHROOT,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "3000",
            "offsets.topic.replication.factor": str(plan.replicas),
            "default.replication.factor": str(plan.replicas),
            "min.insync.replicas": str(plan.min_isr),
            "unclean.leader.election.enable": str(plan.is_unclean).lower(),
            "leader.imbalance.check.interval.seconds": "5",
            "log.dirs": DIRECTORY,
        }
        ids = range(1, plan.brokers + 1)
        for each in ids:
            own = {"node.id": str(each), "broker.id": str(each), "listeners": f"PLAINTEXT://node{each}:{PORT}"}
            world.machine(f"node{each}", {**of_all, **own})
        self.servers = self.voters = self.controllers = tuple(f"node{each}" for each in ids)

    async def set_up(self) -> None:
        for server in self.zookeepers:
            await server.start()
        await super().set_up()

    def make_clients(self) -> list[Client]:
        clients = super().make_clients()
        self.admin.decided_elsewhere = True  # the ensemble's answer may be lost, and the topic be there
        for each in clients:
            if isinstance(each, Consumer):
                # A lone broker of Kafka 3.9 keeps the leader epoch over kills and restarts, started before its session
                # ends or after: its new controller finds the leader in the tree, and alive.
                each.epoch_grows = False
            if isinstance(each, ClusterAdmin):
                each.elected = (0, 0, 1, 1)  # a decision that changes a partition twice: its znode is set twice
        return clients

    def make_nemesis(self) -> Nemesis:
        plan = self.plan
        nemesis = EnsembleNemesis(self.world, self.clients, plan.seconds, self.voters, self.servers)
        nemesis.run_of = self
        nemesis.must_elect = nemesis.may_rot = plan.replicas > 1
        nemesis.faults += [
            nemesis.lose_ensemble_leader,
            nemesis.stop_server,
            nemesis.cut_from_ensemble,
            nemesis.cut_controller,
            nemesis.lag,
        ] * 3
        return nemesis

    async def settle(self) -> None:
        """In the end the tree and every node's metadata say the same."""
        await super().settle()
        world = self.world
        deadline_s = world.time.now_s + SETTLED_SECONDS_MAX
        while problems := self._differences():
            if world.time.now_s > deadline_s:
                world.violated(f"the tree: {SETTLED_SECONDS_MAX} s later still {problems[:5]}")
            await asyncio.sleep(0.5)
        world.counts["trees compared"] += 1

    def _differences(self) -> list[str]:
        found = below({path: (node.data, node.version) for path, node in self.ensemble.tree.nodes.items()}, CHROOT)
        problems = []
        for machine in self.world.machines.values():
            if machine.node is None:
                return [f"{machine.name} is down"]
            problems += [
                f"{machine.name}: {each}" for each in differences(found, machine.node.metadata.publisher.image)
            ]
        return problems

    @property
    def about(self) -> str:
        return super().about.replace("combined", "in ZooKeeper")

    def missed(self) -> list[str]:
        counts = self.counts()
        missed = [
            f"the run met no {each}" for each in (*ALWAYS, "zookeeper commits", "trees compared") if not counts[each]
        ]
        if self.plan.brokers > 1 and counts["quorum leaders"] < 1:
            missed.append("the run met no election of the quorum")
        return missed


class EnsembleNemesis(ClusterNemesis):
    """Breaks the ensemble too, and the way to it."""

    run_of: InZooKeeperRun

    async def lose_ensemble_leader(self) -> None:
        """What the leader was handed and has not committed is lost with it."""
        self._says("the ensemble's leader")
        self.run_of.ensemble.lose_leader()
        for each in self.run_of.zookeepers:
            each.drop_all()
        await asyncio.sleep(self.random.uniform(0.1, 4))
        self.run_of.ensemble.elect()

    async def stop_server(self) -> None:
        server = self.random.choice(self.run_of.zookeepers)
        self._says("a server of the ensemble")
        server.is_up = False
        server.drop_all()
        await asyncio.sleep(self.random.uniform(0.1, 3))
        server.is_up = True

    async def cut_from_ensemble(self) -> None:
        await self._cut(self.random.choice(self.run_of.servers))

    async def cut_controller(self) -> None:
        """It goes on believing that it is the controller, until its session must have ended."""
        found = [each.name for each in self.machines if each.node is not None and each.node.metadata.quorum.is_leader]
        if found:
            await self._cut(found[0])

    async def _cut(self, name: str) -> None:
        self._says(f"from the ensemble: {name}")
        for each in ENSEMBLE:
            self.world.network.cut(name, each)
            if self.random.random() < 0.7:
                self.world.network.cut(each, name)
        await asyncio.sleep(self.random.choice((0.5, 2, 5, 8)))
        self.world.network.heal()

    async def lag(self) -> None:
        self._says("a server lags")
        until_s = self.world.time.now_s + self.random.uniform(0.5, 5)
        self.random.choice(self.run_of.zookeepers).lags_until_s = until_s

    def heal(self) -> None:
        super().heal()
        for server in self.run_of.zookeepers:
            server.is_up = True
        if self.run_of.ensemble.is_down:
            self.run_of.ensemble.elect()
