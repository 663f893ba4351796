"""Simulated clients of group coordinators: one that only commits offsets, and members that join and rebalance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.partitioning import partition_for
from ottla.errors import ErrorCode
from ottla.model import OFFSETS_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History, Key, Mark
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.wire import Disconnected, Wire, coordinator_of
from ottla.simulation.world import LOG_PARTITIONS, World

SESSION_MS = 3000
REBALANCE_MS = 2000

TOPIC = "fast"
"""What groups commit offsets of; whether there is such a topic matters to nobody."""

COMMITTER = "group"
"""The group of the client that only commits, and its name."""


def log_of(group: str) -> Key:
    """The partition that keeps what a group's coordinator acknowledges."""
    return OFFSETS_TOPIC, partition_for(group, LOG_PARTITIONS)


async def find_coordinator(wire: Wire, group: str) -> None:
    """Ask for it, which creates the offsets topic in a new cluster. Raises Disconnected where another host has it."""
    response = await wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
    (found,) = response["coordinators"]
    if not found["error_code"] and found["host"] != wire.host:
        raise Disconnected(f"the coordinator of {group} is {found['host']}")


class Committer(Client):
    """Commits growing offsets for a group without members, and asks for them."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str]) -> None:
        self.tried = 0
        self.open: dict[int, None] = {}
        """Without an answer so far: an old connection may deliver it late, as there is no member to fence."""
        self.committed = (-1, Mark())
        """The last one acknowledged, and when it was sent."""
        self.said: dict[tuple[str, int], tuple[int, Mark]] = {}
        """The same by who acknowledged it, and which of its starts."""
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await coordinator_of(self.network, self.servers, self.random, self.name)

    async def session(self, wire: Wire) -> None:
        if self.committed[0] >= 0:
            while not await self.check(wire):  # before another commit hides what is lost
                await self.pause(0.1)
        while not self.stopping:
            if self.random.random() < 0.7:
                await self._commit(wire)
            else:
                await self.check(wire)
            await self.pause(0.03)

    async def _commit(self, wire: Wire) -> None:
        self.tried += 1
        offset, mark = self.tried, self.history.mark(log_of(self.name))
        self.open[offset] = None
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": str(offset)}
        values = {
            "group_id": self.name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        }
        response = await wire.ask(ApiKey.OFFSET_COMMIT, 8, values)
        error = response["topics"][0]["partitions"][0]["error_code"]
        if error:
            self.check_retriable(error, "commit")
            await find_coordinator(wire, self.name)
            await self.pause(0.1)
        else:
            del self.open[offset]
            self.note(f"committed {offset}")
            self.history.counts["commits"] += 1
            self.committed = self.said[self._process(wire)] = offset, mark

    async def check(self, wire: Wire) -> bool:
        """Whether there was an answer, which has to be the last acknowledged commit or a later one."""
        topic = {"name": TOPIC, "partition_indexes": [0]}
        values = {"groups": [{"group_id": self.name, "topics": [topic]}], "require_stable": False}
        (group,) = (await wire.ask(ApiKey.OFFSET_FETCH, 8, values))["groups"]
        if group["error_code"]:
            self.check_retriable(group["error_code"], "offset fetch")
            await find_coordinator(wire, self.name)
            await self.pause(0.1)
            return False
        found = group["topics"][0]["partitions"][0]["committed_offset"]
        committed, mark = self.committed
        self.note(f"found {found}")
        must = self.history.holds(log_of(self.name), mark)
        if must and found < committed and self._is_cut_off(wire, found):
            self.world.counts["stale coordinator"] += 1
            return False
        if found > self.tried or (found < committed and must and found not in self.open):
            self.world.violated(f"{self.name}: committed {committed}, tried {self.tried}, found {found}")
        self.history.counts["offset fetches"] += 1
        return True

    def _process(self, wire: Wire) -> tuple[str, int]:
        return wire.host, self.world.machines[wire.host].starts

    def _is_cut_off(self, wire: Wire, found: int) -> bool:
        """Whether a coordinator answers as Kafka's does until it hears that another one has the group: with what it
        knew. It forgets nothing that it said itself; and in the end, with all nodes up to date, nobody may."""
        said, mark = self.said.get(self._process(wire), (-1, Mark()))
        forgets = found < said and self.history.holds(log_of(self.name), mark)
        return not (self.done or forgets or self.world.may_coordinate(wire.host, self.name))


@dataclass
class CommittedOffsets:
    """What the members of a group know together of its offsets, as nobody in it does."""

    name: str
    committed: dict[int, tuple[int, Mark]] = field(default_factory=dict)
    """The newest acknowledged offset of each partition, and when it was sent."""
    tried: dict[int, int] = field(default_factory=dict)
    open: set[tuple[int, int]] = field(default_factory=set)
    """Commits without an answer: an old connection may deliver one late, while its member is still in its epoch."""

    def begin(self, number: int, offset: int) -> None:
        self.tried[number] = max(offset, self.tried.get(number, -1))
        self.open.add((number, offset))

    def error_of(self, number: int, found: int, known: tuple[int, Mark] | None, history: History) -> str | None:
        """What is wrong with an offset that was found, where `known` was committed when it was asked for."""
        if found > self.tried.get(number, -1):
            return f"phantom offset: {self.name} {number}: found {found}, which nobody committed"
        if known is None or found >= known[0] or not history.holds(log_of(self.name), known[1]):
            return None
        if (number, found) not in self.open:
            return f"backward offset: {self.name} {number}: committed {known[0]}, found {found}"
        if self.committed.get(number) == known:
            self.committed[number] = found, known[1]
        return None


@dataclass
class Group(CommittedOffsets):
    """What the members of a group know together, as nobody in it does."""

    partitions: int = 2
    assigned: dict[tuple[int, str], dict[str, list[int]]] = field(default_factory=dict)
    """What the leader of a generation gave to whom, by both: a coordinator that does not know of its successor yet can
    begin a generation of the same number."""
    settled: dict[int, Mark] = field(default_factory=dict)
    """Generations that a member was told an assignment of, and when."""


class Member(Client):
    """Joins its group, works through what it is given from the committed offsets on, commits, and joins again."""

    pause_s_max = 0.9  # its session is 3 s

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], group: Group) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.positions: dict[int, int] = {}
        self.is_settled = False
        """Whether it was in a generation since it should stop."""
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await coordinator_of(self.network, self.servers, self.random, self.group.name)

    def drop_state(self) -> None:
        self.member_id = ""
        self.generation = -1

    def finished(self) -> bool:
        return self.stopping and self.is_settled

    async def session(self, wire: Wire) -> None:
        if len(self.servers) == 1:
            await find_coordinator(wire, self.group.name)
        while not self.finished():
            if not await self._join(wire):
                await self.pause(0.2)
                return
            while not self.finished() and await self._work(wire):
                await self.pause(0.1)
        await wire.ask(ApiKey.LEAVE_GROUP, 3, {"group_id": self.group.name, "members": [self._me]})

    @property
    def _me(self) -> dict[str, Any]:
        return {"member_id": self.member_id, "group_instance_id": None}

    def _refused(self, error: int, what: str) -> bool:
        """Whether it was; then it may have to join as somebody new."""
        code = ErrorCode(error)
        if code is ErrorCode.none:
            return False
        if code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id):
            self.note(f"{what}: {code.name}")
            self.world.counts[f"error {code.name}"] += 1
            self.drop_state()
        else:
            self.check_retriable(error, what)
        return True

    async def _join(self, wire: Wire) -> bool:
        group = self.group
        asked = {
            "group_id": group.name,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": self.name.encode()}],
        }
        answer = await wire.ask(ApiKey.JOIN_GROUP, 5, asked)
        if answer["error_code"] == ErrorCode.member_id_required:
            self.member_id = answer["member_id"]
            answer = await wire.ask(ApiKey.JOIN_GROUP, 5, asked | {"member_id": self.member_id})
        if self._refused(answer["error_code"], "join"):
            return False
        self.member_id, generation, leader = answer["member_id"], answer["generation_id"], answer["leader"]
        given: dict[str, list[int]] = {}
        if leader == self.member_id:
            members = sorted(each["member_id"] for each in answer["members"])
            given = {member: list(range(at, group.partitions, len(members))) for at, member in enumerate(members)}
            group.assigned[generation, leader] = given
        assignments = [
            {"member_id": member, "assignment": json.dumps(parts).encode()} for member, parts in given.items()
        ]
        log = log_of(group.name)
        mark = self.history.mark(log)
        values = {"group_id": group.name, "generation_id": generation, **self._me, "assignments": assignments}
        answer = await wire.ask(ApiKey.SYNC_GROUP, 3, values)
        if self._refused(answer["error_code"], "sync"):
            return False
        mine = json.loads(answer["assignment"] or b"[]")
        by_leader = group.assigned.get((generation, leader), {})
        if mine != by_leader.get(self.member_id):
            text = f"{mine} in generation {generation}, its leader gave {by_leader}"
            self.world.violated(f"assignment: {self.name} got {text}")
        newest = max((each for each, at in group.settled.items() if self.history.holds(log, at)), default=-1)
        if generation < newest and generation not in group.settled:
            self.world.violated(f"generation: {self.name} is in {generation} of {group.name}, which had {newest}")
        group.settled.setdefault(generation, mark)
        self.generation = generation
        self.note(f"generation {generation}: {mine}")
        self.history.counts["rebalanced"] += 1
        return await self._find_positions(wire, mine)

    async def _find_positions(self, wire: Wire, partitions: list[int]) -> bool:
        """Where those before left off: never behind what was acknowledged to one of them."""
        self.positions = {}
        if not partitions:
            return True
        group = self.group
        before = {each: group.committed.get(each) for each in partitions}
        topic = {"name": TOPIC, "partition_indexes": partitions}
        values = {"groups": [{"group_id": group.name, "topics": [topic]}], "require_stable": False}
        (answer,) = (await wire.ask(ApiKey.OFFSET_FETCH, 8, values))["groups"]
        if self._refused(answer["error_code"], "offset fetch"):
            return False
        for row in answer["topics"][0]["partitions"]:
            number, found = row["partition_index"], row["committed_offset"]
            if (wrong := group.error_of(number, found, before[number], self.history)) is not None:
                self.world.violated(wrong)
            self.positions[number] = max(found, 0)
        return True

    async def _work(self, wire: Wire) -> bool:
        """Whether it is still a member of this generation."""
        group = self.group
        is_last = self.stopping
        identity = {"group_id": group.name, "generation_id": self.generation, **self._me}
        if self.positions and self.random.random() < 0.6:
            number = self.random.choice(list(self.positions))
            offset = self.positions[number] + self.random.randint(1, 3)
            group.begin(number, offset)
            mark = self.history.mark(log_of(self.group.name))
            row = {"partition_index": number, "committed_offset": offset, "committed_metadata": None}
            values = {
                "group_id": group.name,
                "generation_id_or_member_epoch": self.generation,
                **self._me,
                "topics": [{"name": TOPIC, "partitions": [row]}],
            }
            answer = await wire.ask(ApiKey.OFFSET_COMMIT, 8, values)
            group.open.discard((number, offset))
            error = answer["topics"][0]["partitions"][0]["error_code"]
            if error != ErrorCode.rebalance_in_progress and self._refused(error, "commit"):
                return False
            if not error:
                self.positions[number] = offset
                self.history.counts["group commits"] += 1
                if offset > group.committed.get(number, (-1, mark))[0]:
                    group.committed[number] = offset, mark
        answer = await wire.ask(ApiKey.HEARTBEAT, 3, identity)
        if self._refused(answer["error_code"], "heartbeat"):
            return False
        self.is_settled = is_last
        return True
