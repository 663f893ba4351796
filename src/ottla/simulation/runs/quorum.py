"""A run of a cluster: several controllers and brokers, combined or separate, under all faults at once.

The plan comes from the seed: how many nodes, replicas, what is required in sync, what acknowledgements producers ask
for. What may be lost follows from it (`History.holds`), and all else is a broken promise.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ottla.drivers.metadata.directories import identify
from ottla.drivers.metadata.formatting import InitialController, format_directories
from ottla.model import uuid_to_base64
from ottla.simulation.checks.history import ACKS_ALL, History
from ottla.simulation.checks.invariants import Invariants
from ottla.simulation.clients.admins import Admin, ClusterAdmin, VoterAdmin
from ottla.simulation.clients.bumping import BumpingProducer
from ottla.simulation.clients.clients import Client, Consumer, Producer
from ottla.simulation.clients.groups import COMMITTER, TOPIC, Committer, Group, Member
from ottla.simulation.clients.trimmer import TRIMMED, Trimmer
from ottla.simulation.faults.aimed_faults import AimedNemesis
from ottla.simulation.faults.cluster_faults import ClusterNemesis
from ottla.simulation.faults.faults import Nemesis
from ottla.simulation.runs.single import QUIET_SECONDS_MAX, Run
from ottla.simulation.world import CONTROL_PORT, DIRECTORY, PORT, SECOND_DIRECTORY, Machine
from ottla.testing.disk_nodes import Directory

QUORUM = "quorum"

LONG = "long"
"""Minutes of such a cluster, whose clients rest between requests and which comes to rest between faults."""

KINDS = QUORUM, LONG

SECONDS = 10.0, 25.0
LONG_SECONDS = 180.0, 420.0
LONG_PACE = 10.0, 40.0
LONG_REST_S = 12.0
"""Between two faults, at most."""

CONTROLLERS = (1, 3, 3, 3, 5)
BROKERS = (1, 2, 3, 3, 3, 3, 4)
REPLICAS = (1, 2, 2, 3, 3, 3, 3, 3)
"""How many there are, at choice."""

SPARE = 200
"""The controller that does not vote at first."""

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"

SETTLED_SECONDS_MAX = 60.0
"""After the last client is done, every replica is in sync again within this."""

ALWAYS = ("acknowledged", "read", "checked", "commits", "offset fetches", "rebalanced", "group commits",
          "looked up by time", "trimmed", "quorum states checked", "partition states checked", "fault")  # fmt: skip


class Plan(NamedTuple):
    controllers: int
    brokers: int
    is_combined: bool
    replicas: int
    min_isr: int
    acks: int
    """acks of the producer that is not idempotent."""
    is_unclean: bool
    seconds: float
    """For how long things break."""
    is_dynamic: bool = False
    """Voters come and go (KIP-853); there is one controller more than vote at first."""
    has_two_disks: bool = False
    """Each broker has two log directories, of which one may fail."""


class QuorumRun(Run):
    topics: tuple[str, ...] = (TOPIC, TRIMMED[0])
    watched: tuple[str, ...] = (TOPIC,)
    """Topics whose records are compared between replicas."""
    consumer: type[Consumer] = Consumer
    trimmer: type[Trimmer] = Trimmer
    seconds_max = 60 + LONG_SECONDS[1] + 2 * QUIET_SECONDS_MAX + SETTLED_SECONDS_MAX

    def __init__(self, seed: int, kind: str = QUORUM, plan: Plan | None = None, *, fsynced: bool | None = None) -> None:
        """`plan`: else the seed chooses one."""
        self._given = plan
        super().__init__(seed, kind, fsynced=fsynced)
        if kind == LONG:
            self.world.pace = self.random.uniform(*LONG_PACE)

    def make_machines(self) -> None:
        self.plan = plan = self._given or self.make_plan()
        ids = [*range(1, plan.brokers + 1)]
        voters = ids[: plan.controllers] if plan.is_combined else [100 + each for each in range(plan.controllers)]
        spare = [SPARE] * plan.is_dynamic
        where = {each: f"node{each}:{CONTROL_PORT}" for each in (*voters, *spare)}
        fixed = {"controller.quorum.voters": ",".join(f"{each}@{where[each]}" for each in voters)}
        moving = {"controller.quorum.bootstrap.servers": ",".join(where.values())}
        of_all = {
            **self.settings,
            **(moving if plan.is_dynamic else fixed),
            "controller.listener.names": "CONTROLLER",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "3000",
            "offsets.topic.replication.factor": str(plan.replicas),
            "default.replication.factor": str(plan.replicas),
            "min.insync.replicas": str(plan.min_isr),
            "unclean.leader.election.enable": str(plan.is_unclean).lower(),
            "leader.imbalance.check.interval.seconds": "5",
            **self.more_settings(),
        }
        if self.kind == LONG:
            of_all |= {"broker.heartbeat.interval.ms": "1000", "replica.fetch.wait.max.ms": "1000"}
        self.initial = [
            InitialController(each, f"node{each}", CONTROL_PORT, uuid_to_base64(self._directory_id(each)))
            for each in voters
        ]
        for each in sorted({*ids, *where}):
            roles = ["broker"] * (each in ids) + ["controller"] * (each in where)
            listeners = [f"PLAINTEXT://node{each}:{PORT}"] * (each in ids)
            listeners += [f"CONTROLLER://{where.get(each)}"] * (each in where)
            own = {"node.id": str(each), "process.roles": ",".join(roles), "listeners": ",".join(listeners)}
            if plan.has_two_disks and each in ids:
                own |= {"log.dirs": f"{DIRECTORY},{SECOND_DIRECTORY}", "metadata.log.dir": DIRECTORY}
            machine = self.world.machine(f"node{each}", {**of_all, **own})
            if each in where:
                self._format(machine, votes=each in voters)
            if each in where or plan.has_two_disks:
                # A disk that replaces another is formatted, as Kafka wants it: else it may be one that is not mounted.
                machine.prepare = partial(self._format, machine, votes=False)
        self.servers = tuple(f"node{each}" for each in ids)
        self.voters = tuple(f"node{each}" for each in voters)
        self.controllers = tuple(f"node{each}" for each in where)

    def more_settings(self) -> dict[str, str]:
        """Additional settings of every node."""
        return {}

    def _directory_id(self, node_id: int) -> UUID:
        return UUID(int=self.world.random(f"directory/{node_id}").getrandbits(128))

    def _format(self, machine: Machine, *, votes: bool) -> None:
        disk: Any = machine.disk
        random, node_id = self.world.random(f"format/{machine.node_id}/{machine.wipes}"), machine.node_id
        paths, now_ms = machine.settings["log.dirs"].split(","), machine.now_ms()
        if self.plan.is_dynamic:
            voters = self.initial if votes else None
            format_directories(disk, paths, DIRECTORY, node_id, CLUSTER_ID, random, now_ms, voters=voters)
        else:
            paths = paths if machine.wipes else [DIRECTORY]
            identify(disk, paths, DIRECTORY, node_id, random, now_ms, followed_cluster=CLUSTER_ID)
        machine.disk.fsync_all()

    def make_plan(self) -> Plan:
        random = self.random
        brokers = random.choice(BROKERS)
        controllers = random.choice(CONTROLLERS)
        is_combined = random.random() < 0.6
        if is_combined:
            controllers = min(controllers, brokers - 1 + brokers % 2)
        replicas = random.choice([each for each in REPLICAS if each <= brokers])
        seconds = LONG_SECONDS if self.kind == LONG else SECONDS
        return Plan(
            controllers,
            brokers,
            is_combined,
            replicas,
            random.choice((1, 2, 2)) if replicas > 1 else 1,
            random.choice((0, 1, 1, ACKS_ALL)),
            random.random() < 0.1,
            random.uniform(*seconds),
            random.random() < 0.4,
            random.random() < 0.3,
        )

    @property
    def about(self) -> str:
        plan = self.plan
        roles = "combined" if plan.is_combined else "separate"
        more = ", unclean" * plan.is_unclean + ", voters change" * plan.is_dynamic + ", two disks" * plan.has_two_disks
        return (
            f"{plan.controllers} controllers, {plan.brokers} brokers, {roles}, {plan.replicas} replicas, "
            f"{plan.min_isr} in sync at least, acks {plan.acks}, {super().about}{more}"
        )

    def make_history(self) -> History:
        plan = self.plan
        history = History(self.world, fsynced=self.fsynced, budget=min(plan.min_isr, plan.replicas))
        self.invariants = Invariants(self.world, history, self.voters, lambda topic: topic in self.watched)
        self.invariants.may_be_unclean = plan.is_unclean
        self.world.watch = self.invariants.watch
        self.world.on_end = self.invariants.ended
        self.world.on_wipe = self.invariants.wiped
        self.world.may_coordinate = self.invariants.may_coordinate
        return history

    def topic(self) -> dict[str, Any]:
        return super().topic() | {"replication_factor": self.plan.replicas}

    def make_clients(self) -> list[Client]:
        world, history, servers, keys = self.world, self.history, self.servers, self.keys
        self.committer = Committer(world, history, COMMITTER, servers)
        self.admin = Admin(world, history, "admin", servers, replicas=self.plan.replicas)
        group = Group("members")
        return [
            Producer(world, history, "p-idem", servers, keys[0], idempotent=True, in_flight=3),
            Producer(world, history, "p-idem1", servers, keys[1], idempotent=True, in_flight=1),
            Producer(world, history, "p-plain", servers, keys[0], idempotent=False, in_flight=2, acks=self.plan.acks),
            BumpingProducer(world, history, "p-bump", servers, keys),
            *(self.consumer(world, history, f"c{number}", servers, key) for number, key in enumerate(keys)),
            self.committer,
            self.admin,
            ClusterAdmin(world, history, "admin2", servers, self.plan.replicas),
            *(Member(world, history, f"m{number}", servers, group) for number in range(2)),
            self.trimmer(world, history, "trimmer", servers),
            *([VoterAdmin(world, history, "admin3", servers, self.controllers)] if self.plan.is_dynamic else []),
        ]

    def make_nemesis(self) -> Nemesis:
        plan = self.plan
        nemesis = ClusterNemesis(self.world, self.clients, plan.seconds, self.voters, self.servers)
        if self.kind == LONG:
            nemesis.rest_s = LONG_REST_S
        nemesis.must_elect = nemesis.may_rot = plan.replicas > 1
        nemesis.may_wipe_voters = plan.is_dynamic and plan.controllers > 2
        if plan.has_two_disks:
            nemesis.faults += [nemesis.fail_directory] * 3
        return nemesis

    async def check(self) -> None:
        """Besides what clients were told: in the end all nodes live, all replicas are in sync, and the same."""
        await self.settle()
        await super().check()

    async def settle(self) -> None:
        """Until all replicas are in sync; then they are compared."""
        world = self.world
        deadline_s = world.time.now_s + SETTLED_SECONDS_MAX
        while problems := self.invariants.settled(list(world.machines.values())):
            if world.time.now_s > deadline_s:
                world.violated(f"liveness: {SETTLED_SECONDS_MAX} s later still {problems}")
            await asyncio.sleep(0.5)
        self.invariants.check_identical()
        for machine in world.machines.values():
            place = machine.disk.look(SECOND_DIRECTORY)
            world.counts["in the second directory"] += isinstance(place, Directory) and TOPIC in str(
                list(place.entries)
            )

    def missed(self) -> list[str]:
        counts = self.counts()
        always = [*ALWAYS]
        if self.plan.replicas == 1 and self.world.wipes:
            always.remove("checked")  # all that there was may be on a disk that is no more
        missed = [f"the run met no {each}" for each in always if not counts[each]]
        if len(self.world.machines) > 1 and not counts["images compared"]:
            missed.append("the run met no images to compare")
        if self.plan.replicas > 1 and not (counts["leaders elected"] and counts["replicas compared"]):
            missed.append("the run met no change of leader")
        if self.plan.replicas > 1 and not (counts["ISR shrunk"] and counts["ISR expanded"]):
            missed.append("the run met no replica that left the ISR, or none that joined it")
        if self.plan.controllers > 1 and counts["quorum leaders"] < 1:
            missed.append("the run met no election of the quorum")
        if self.plan.is_dynamic and not counts["voters changed"]:
            missed.append("the run met no change of voters")
        if self.plan.has_two_disks and self.plan.replicas > 1 and not counts["in the second directory"]:
            missed.append("the run met no log in the second directory")
        return missed


class AimedRun(QuorumRun):
    """A run of a small cluster, whose faults are aimed at the nodes that it is about."""

    nemesis: type[AimedNemesis]
    always: tuple[str, ...]
    """What has to have happened in every run."""
    lasts_s = 8.0, 16.0
    """For how long things break."""

    def make_plan(self) -> Plan:
        random = self.random
        brokers = random.choice((1, 2, 3, 3, 3))
        controllers = min(brokers - 1 + brokers % 2, random.choice((1, 3)))
        replicas = min(brokers, random.choice((2, 3, 3)))
        return Plan(
            controllers,
            brokers,
            random.random() < 0.7,
            replicas,
            random.choice((1, 2)) if replicas > 1 else 1,
            ACKS_ALL,
            is_unclean=False,
            seconds=random.uniform(*self.lasts_s),
        )

    def make_nemesis(self) -> Nemesis:
        nemesis = self.nemesis(self.world, self.clients, self.plan.seconds, self.voters, self.servers)
        nemesis.must_elect = self.plan.replicas > 1
        return nemesis

    def missed(self) -> list[str]:
        counts = self.counts()
        missed = [f"the run met no {each}" for each in self.always if not counts[each]]
        if self.plan.replicas > 1 and not counts["leaders elected"]:
            missed.append("the run met no change of leader")
        return missed
