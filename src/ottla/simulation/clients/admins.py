"""Simulated administrators: what they were answered is so, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.groups import TOPIC
from ottla.simulation.clients.wire import OF_CLUSTERS, Wire
from ottla.simulation.world import CONTROL_PORT, World


class Admin(Client):
    """Creates and deletes topics; what was answered is so, whatever happens."""

    decided_elsewhere = False
    """Whether even a node that is alone may not know if a decision was taken, and repeats the request."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], *, replicas: int = 1) -> None:
        self.number = 0
        self.replicas = replicas
        self.present: dict[str, int] = {}
        """Topics that must be there, with their retention."""
        self.absent: dict[str, None] = {}
        super().__init__(world, history, name, servers)

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            what = self.random.choice((self._create, self._create, self._delete, self._configure, self.check))
            await what(wire)
            await self.pause(0.3)

    async def _create(self, wire: Wire) -> None:
        self.number += 1
        name = f"churn-{self.number}"
        configs = [{"name": "retention.ms", "value": "1000000"}]
        topic = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": self.replicas,
            "assignments": (),
            "configs": configs,
        }
        values = {"topics": [topic], "timeout": 2000, "validate_only": False}
        response = await wire.ask(ApiKey.CREATE_TOPICS, 7, values)
        if self._good(response["topics"][0]["error_code"], f"create {name}"):
            self.present[name] = 1_000_000

    async def _delete(self, wire: Wire) -> None:
        if len(self.present) < 3:
            return
        victim = next(iter(self.present))
        del self.present[victim]  # from here on it may be there or not
        response = await wire.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [victim], "timeout": 2000})
        if self._good(response["responses"][0]["error_code"], f"delete {victim}"):
            self.absent[victim] = None

    async def _configure(self, wire: Wire) -> None:
        if not self.present:
            return
        name = self.random.choice(list(self.present))
        value = self.present.pop(name) + 1
        entry = {"name": "retention.ms", "config_operation": 0, "value": str(value)}
        resource = {"resource_type": 2, "resource_name": name, "configs": [entry]}
        response = await wire.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
        )
        if self._good(response["responses"][0]["error_code"], f"configure {name}"):
            self.present[name] = value

    def _good(self, error: int, what: str) -> bool:
        if error in OF_CLUSTERS and (self.decided_elsewhere or len(self.world.machines) > 1):
            self.note(f"{what}: {ErrorCode(error).name}")
            return False
        if error:
            self.check_retriable(error, what)
            return False
        self.note(what)
        self.history.counts["admin"] += 1
        return True

    async def check(self, wire: Wire) -> None:
        """A broker alone may know of a change later than the controller that answered it; in the end it does."""
        alone = len(self.world.machines) > 1
        if alone and not self.stopping:
            return
        problems = await self.problems(wire)
        for _ in range(50 if alone else 0):
            if not problems:
                break
            await self.pause(0.2)
            problems = await self.problems(wire)
        if problems:
            self.world.violated(f"{self.name}: {'; '.join(problems)}")
        self.history.counts["metadata checks"] += 1

    async def problems(self, wire: Wire) -> list[str]:
        found = []
        response = await wire.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
        names = {topic["name"] for topic in response["topics"]}
        found += [f"{name} was created and is not there" for name in self.present if name not in names]
        found += [f"{name} was deleted and is there" for name in self.absent if name in names]
        resources = [
            {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]} for name in self.present
        ]
        described = await wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources})
        for result in described["results"]:
            if result["error_code"]:
                continue
            name, value = result["resource_name"], int(result["configs"][0]["value"])
            if self.present.get(name, value) != value:
                found.append(f"{name} has retention.ms {value}, {self.present[name]} was acknowledged")
        return found


class ClusterAdmin(Client):
    """Reassigns partitions and moves leaders; whether that comes about is for the invariants to see."""

    elected: Sequence[int] = (0, 1)
    """The partitions that are named for an election."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], replicas: int) -> None:
        self.replicas = replicas
        super().__init__(world, history, name, servers)

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            await self.pause(1.5)
            await self.random.choice((self._reassign, self._reassign, self._cancel, self._elect))(wire)

    async def _reassign(self, wire: Wire) -> None:
        ids = [machine.node_id for machine in self.world.machines.values() if machine.name in self.servers]
        await self._alter(wire, self.random.sample(ids, self.replicas))

    async def _cancel(self, wire: Wire) -> None:
        await self._alter(wire, None)

    async def _alter(self, wire: Wire, replicas: list[int] | None) -> None:
        row = {"partition_index": self.random.randrange(2), "replicas": replicas}
        values = {"timeout": 2000, "topics": [{"name": TOPIC, "partitions": [row]}]}
        answer = await wire.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        error = answer["error_code"] or answer["responses"][0]["partitions"][0]["error_code"]
        self._said(f"reassign {row}", error)

    async def _elect(self, wire: Wire) -> None:
        rows = [{"topic": TOPIC, "partitions": list(self.elected)}]
        answer = await wire.ask(
            ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": rows, "timeout": 2000}
        )
        self._said("elect", answer["error_code"])

    def _said(self, what: str, error: int) -> None:
        code = ErrorCode(error)
        self.note(f"{what}: {code.name}")
        self.world.counts[f"{what.split()[0]} {code.name}"] += 1
        if code is ErrorCode.unknown_server_error:
            self.world.violated(f"{self.name}: {what} was answered {code.name}")


class VoterAdmin(Client):
    """Lets controllers vote, and vote no more (KIP-853). One that lost its disk is another one."""

    def __init__(
        self, world: World, history: History, name: str, servers: Sequence[str], controllers: Sequence[str]
    ) -> None:
        self.controllers = {world.machines[each].node_id: each for each in controllers}
        self.votes_least = max(1, len(controllers) - 2)
        super().__init__(world, history, name, servers)

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            await self.pause(0.7)
            topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
            answer = await wire.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics})
            if answer["error_code"] or not answer["topics"]:
                self.note(f"quorum: {ErrorCode(answer['error_code']).name}")
                return
            found = answer["topics"][0]["partitions"][0]
            voters = {each["replica_id"]: each["replica_directory_id"] for each in found["current_voters"]}
            others = {each["replica_id"]: each["replica_directory_id"] for each in found["observers"]}
            others = {node_id: directory for node_id, directory in others.items() if node_id in self.controllers}
            again = [node_id for node_id in others if node_id in voters]
            if again:
                await self._remove(wire, again[0], voters[again[0]])
            elif others and (len(voters) <= self.votes_least or self.random.random() < 0.7):
                node_id = self.random.choice(list(others))
                await self._add(wire, node_id, others[node_id])
            elif len(voters) > self.votes_least:
                node_id = self.random.choice(list(voters))
                await self._remove(wire, node_id, voters[node_id])

    async def _add(self, wire: Wire, node_id: int, directory: UUID) -> None:
        listener = {"name": "CONTROLLER", "host": self.controllers[node_id], "port": CONTROL_PORT}
        values = {"timeout": 2000, "voter_id": node_id, "voter_directory_id": directory, "listeners": [listener]}
        answer = await wire.ask(ApiKey.ADD_RAFT_VOTER, 0, {"cluster_id": None, **values})
        self._said(f"add voter {node_id}", answer["error_code"])

    async def _remove(self, wire: Wire, node_id: int, directory: UUID) -> None:
        values = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory}
        answer = await wire.ask(ApiKey.REMOVE_RAFT_VOTER, 0, values)
        self._said(f"remove voter {node_id}", answer["error_code"])

    def _said(self, what: str, error: int) -> None:
        code = ErrorCode(error)
        self.note(f"{what}: {code.name}")
        self.world.counts[f"{what.split()[0]} voter {code.name}"] += 1
        if code is ErrorCode.unknown_server_error:
            self.world.violated(f"{self.name}: {what} was answered {code.name}")
