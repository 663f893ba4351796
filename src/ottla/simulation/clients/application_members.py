"""Simulated processes of a streams application (KIP-1071): their members are static or not, have standbys and warm-ups
of each other's tasks, go and come back, and are mistaken for each other. And one who watches the group from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks import tasks
from ottla.simulation.checks.history import History, Mark
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.consumer_members import LEAVING, SESSION_MS, SURE_S, ConsumerGroup, Hold, Process
from ottla.simulation.clients.groups import log_of
from ottla.simulation.clients.streams_members import END, StreamsMember, topology
from ottla.simulation.clients.wire import Disconnected, Wire, coordinator_of
from ottla.simulation.world import World

LEAVING_STATIC: Final = -2
STALE_TOPOLOGY, MISSING_CLIENT_TAGS = 0, 6
"""Statuses of an answer."""
LAG: Final = 10_000
"""Records that a copy may be behind to be active: what the coordinator goes by, as nothing else is set."""
OFFSETS_S: Final = 1.0
"""After so long members report their offsets again."""
GOES: Final = 0.03
"""How often a member goes after a heartbeat, to come back later."""
LOSES: Final = 0.02
AWAY_S_MAX: Final = 1.5 * SESSION_MS / 1000


@dataclass
class Host:
    """One process of the application. It outlives its members, as its state directory does."""

    name: str
    process_id: str
    tags: dict[str, str]
    restored: dict[int, int] = field(default_factory=dict)
    """How far the state on its disk is, by task."""
    members: list[ApplicationMember] = field(default_factory=list)

    @property
    def running(self) -> set[int]:
        return {number for each in self.members for number in each.owned}


@dataclass
class Application(ConsumerGroup):
    """What is known of the members by who sees all of them."""

    asked: tasks.Asked = field(default_factory=lambda: tasks.Asked((), 0))
    copies: dict[tuple[str, int], Hold] = field(default_factory=dict)
    """Standbys and warm-ups, by member and task."""
    instances: dict[str, tuple[str, Hold]] = field(default_factory=dict)
    """The member id that joined last with an instance id."""
    members: dict[str, ApplicationMember] = field(default_factory=dict)
    """By member id."""
    highest: tuple[int, Mark] = -1, Mark()
    """The highest epoch that a member was told, and when it was."""
    described: tuple[int, int, Mark] = -1, -1, Mark()
    """Epochs of the group and of its target in the last description, and when it was asked for."""


class ApplicationMember(StreamsMember):
    group: Application
    out = frozenset({
        ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.fenced_instance_id,
        ErrorCode.unreleased_instance_id,
    })  # fmt: skip

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        servers: Sequence[str],
        group: Application,
        process: Host,
        instance_id: str | None = None,
        *,
        goes: float = GOES,
    ) -> None:
        self.process = process
        self.instance_id = instance_id
        self.goes = goes
        self.away_s: float | None = None
        """For how long it goes; None: for any time."""
        self.loses = False
        """Whether the next answer with other tasks is lost on its way."""
        self.went = 0
        """How often the coordinator has answered that it may go."""
        self.back_s = 0.0
        """When it comes back."""
        self.topology_epoch = 0
        self.reported_s = -OFFSETS_S
        self.cold: set[int] = set()
        """Tasks that it was given to run before it had restored them."""
        self.unheard: tuple[tuple[list[int], ...], Process, float] | None = None
        """Tasks that it should have heard of, from which broker, and since when."""
        self.heard_s = 0.0
        """When it last heard of its tasks, or joined again."""
        process.members.append(self)
        super().__init__(world, history, name, servers, group)
        self.restored = process.restored

    def start(self) -> None:
        super().start()
        self.process_id = self.process.process_id
        if self.instance_id is None:  # the topology of before, in a rolling upgrade
            self.topology_epoch = self.random.choice((0, 0, -1))

    def asked_to_join(self) -> dict[str, Any]:
        if self.group.highest[0] < 0:  # an older topology than any is no topology
            self.topology_epoch = 0
        self.group.members[self.member_id] = self
        return super().asked_to_join() | {
            "instance_id": self.instance_id,
            "topology": topology(self.topology_epoch),
            "client_tags": [{"key": key, "value": value} for key, value in self.process.tags.items()],
        }

    def _asked(self, *, whole: bool) -> dict[str, Any]:
        asked = super()._asked(whole=whole)
        now_s = self.world.time.now_s
        if self.epoch and now_s - self.reported_s < OFFSETS_S:
            return asked | {"task_offsets": None, "task_end_offsets": None}
        self.reported_s = now_s
        return asked

    def _offsets(self) -> list[dict[str, Any]]:
        running = self.process.running
        return [each for each in super()._offsets() if each["partition"] not in running]

    def _join_again(self) -> None:
        super()._join_again()
        self.unheard, self.heard_s = None, self.world.time.now_s
        self._drop_copies()
        self.reported_s = -OFFSETS_S

    def _drop_copies(self) -> None:
        for key in [key for key in self.group.copies if key[0] == self.name]:
            del self.group.copies[key]

    # It goes and comes back

    async def session(self, wire: Wire) -> None:
        while self.world.time.now_s < self.back_s and not self.stopping:  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.1)
        await super().session(wire)

    async def _work(self, wire: Wire) -> bool:
        if not await super()._work(wire):
            return False
        self.loses = self.loses or (self.goes > 0 and self.random.random() < LOSES)
        if self.epoch <= 0 or self.stopping or self.random.random() >= self.goes:
            return True
        away_s = self.random.uniform(0, AWAY_S_MAX) if self.away_s is None else self.away_s
        self.back_s = self.world.time.now_s + away_s
        await self._go(wire)
        return False

    def _asked_to_leave(self, member_id: str) -> dict[str, Any]:
        if self.instance_id is not None and self.group.instances.get(self.instance_id, ("",))[0] == member_id:
            del self.group.instances[self.instance_id]
        return super()._asked_to_leave(member_id)

    async def _go(self, wire: Wire) -> None:
        """A static member keeps its tasks meanwhile. It is another member when it comes back."""
        epoch = LEAVING if self.instance_id is None else LEAVING_STATIC
        asked = self._asked_to_leave(self.member_id) | {"member_epoch": epoch}
        self._join_again()
        self.member_id = str(UUID(int=self.random.getrandbits(128)))
        answer = await wire.ask(self.heartbeat, 1, asked)
        code = ErrorCode(answer["error_code"])
        self.note(f"went as {asked['member_id']}: {code.name}")
        if code and code not in self.out:
            self.check_retriable(code, "to go")
        self.world.counts["members that went"] += not code
        self.went += not code

    # What it is heard

    def _arrived(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        if not answer["error_code"] and asked["member_epoch"] and answer["active_tasks"] is not None and self.loses:
            self.loses = False
            self.world.counts["answers lost"] += 1
            raise Disconnected("an answer is lost")

    def _heard(self, asked: dict[str, Any], answer: dict[str, Any], process: Process, sent_s: float) -> None:
        world = self.world
        statuses = {each["status_code"] for each in answer["status"] or ()}
        if (STALE_TOPOLOGY in statuses) != (self.topology_epoch < 0):
            world.violated(
                f"a member with an older topology is heard: {self.name} of {self.topology_epoch}: {statuses}"
            )
        lacks = not {*self.group.asked.tags} <= self.process.tags.keys()
        if MISSING_CLIENT_TAGS in statuses and not lacks:
            world.violated(f"a member is heard which tags it lacks: {self.name} lacks none: {statuses}")
        world.counts["tags missed"] += MISSING_CLIENT_TAGS in statuses
        hold = Hold(self.name, process, sent_s)
        if answer["member_epoch"] > self.group.highest[0]:
            self.group.highest = answer["member_epoch"], self.history.mark(log_of(self.group.name))
        if self.instance_id is not None:
            self._own_instance(asked, hold)
        for number in {*self.copies[0], *self.copies[1]}:
            self.group.copies[self.name, number] = hold
        if answer["active_tasks"] is not None:
            heard, self.unheard, self.heard_s = tasks.of(answer), None, world.time.now_s
            if self.epoch and heard != (sorted(self.owned), *self.copies):
                self.world.counts["assignments heard"] += 1
        elif self.unheard is not None and asked["active_tasks"] is not None:
            should, by, since_s = self.unheard
            if by == process and sent_s > since_s:
                world.violated(f"a member is heard of its tasks: {self.name} was not of {should}, and has {self.owned}")

    def _own_instance(self, asked: dict[str, Any], hold: Hold) -> None:
        """One member at a time has an instance id; who has it no more is fenced."""
        assert self.instance_id is not None
        instances = self.group.instances
        member_id, other = instances.get(self.instance_id, (self.member_id, hold))
        is_known = member_id != self.member_id and other.process == hold.process
        if is_known and asked["member_epoch"] and other.sent_s < hold.sent_s:
            self.world.violated(f"one member per instance id: {self.name} beats as {self.instance_id} of {other.name}")
        # A node that was paused answers late, and the other one's session may have ended meanwhile.
        if is_known and asked["member_epoch"] == 0 and self.world.time.now_s - other.sent_s < SURE_S:
            self.world.violated(f"one member per instance id: {self.name} joins as {self.instance_id} of {other.name}")
        instances[self.instance_id] = self.member_id, hold

    def _take(self, given: set[int], process: Process, sent_s: float) -> None:
        self.cold |= {each for each in given - self.owned if self.restored.get(each, 0) < END - LAG}
        super()._take(given, process, sent_s)
        self._drop_copies()
        copies = {*self.copies[0], *self.copies[1]}
        if len(copies) < len(self.copies[0]) + len(self.copies[1]) or copies & given:
            self.world.violated(f"a process has a task once: {self.name} has {given} and {self.copies}")
        for other in self.process.members:
            if other is self:
                continue
            for number in copies | given:
                hold = self.group.copies.get((other.name, number))
                self._check_beside(hold, other, number, "a copy", process)
            for number in copies:
                hold = self.group.holds.get(number)
                self._check_beside(hold, other, number, "it active", process)
        for number in copies:
            self.group.copies[self.name, number] = Hold(self.name, process, sent_s)
        self.world.counts["standbys"] += len(self.copies[0])

    def _check_beside(
        self, hold: Hold | None, other: ApplicationMember, number: int, what: str, process: Process
    ) -> None:
        if hold is None or hold.name != other.name or hold.process != process:
            return
        if self.world.time.now_s - hold.sent_s < SURE_S:
            text = f"{self.name} is given {number}, while {other.name} of {self.process.name} has {what}"
            self.world.violated(f"a process has a task once: {text}, both by {process}")


class Watcher(Client):
    """Describes the group again and again, and finds nothing that may not be."""

    pause_s_max = 0.4

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], group: Application) -> None:
        self.group = group
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await coordinator_of(self.network, self.servers, self.random, self.group.name)

    async def session(self, wire: Wire) -> None:
        while not self.finished():
            mark = self.history.mark(log_of(self.group.name))
            highest, process = self.group.highest, (wire.host, self.world.machines[wire.host].starts)
            asked_s = self.world.time.now_s
            asked = {"group_ids": [self.group.name], "include_authorized_operations": False}
            (found,) = (await wire.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 1, asked))["groups"]
            code = ErrorCode(found["error_code"])
            if code is ErrorCode.none:
                if self.world.may_coordinate(wire.host, self.group.name):  # else with what it knew, as in Kafka
                    self._look(found, highest, process, asked_s)
                    self._compare((found["group_epoch"], found["assignment_epoch"], mark))
            elif code is not ErrorCode.group_id_not_found:
                self.check_retriable(code, "describe")
                return
            await self.pause(0.15)

    def _compare(self, found: tuple[int, int, Mark]) -> None:
        """A description shows what is committed: the next one, of whichever coordinator, has no lower epoch."""
        *epochs, mark = self.group.described
        if (found[0] < epochs[0] or found[1] < epochs[1]) and self.history.holds(log_of(self.group.name), mark):
            self.world.violated(f"epochs are monotonic: described with {found[:2]}, after {epochs}")
        self.group.described = found

    def _look(self, found: dict[str, Any], highest: tuple[int, Mark], process: Process, asked_s: float) -> None:
        group, world = self.group, self.world
        for problem in (*tasks.always(found), *tasks.target(found, group.asked)):
            world.violated(problem)
        epoch, target_epoch = found["group_epoch"], found["assignment_epoch"]
        last, mark = highest
        if min(epoch, target_epoch) < last and self.history.holds(log_of(self.group.name), mark):
            world.violated(f"epochs are monotonic: {epoch}, and {target_epoch} of the target, after {last}")
        for row in found["members"]:
            member = group.members.get(row["member_id"])
            if member is None or member.member_id != row["member_id"] or member.epoch <= 0:
                continue
            if member.heard_s >= asked_s:  # what it heard meanwhile may be newer than this
                continue
            has = tasks.of(row["assignment"])
            is_known_there = has == (sorted(member.owned), *member.copies)
            member.unheard = None if is_known_there else (has, process, world.time.now_s)
        world.counts["descriptions checked"] += 1
