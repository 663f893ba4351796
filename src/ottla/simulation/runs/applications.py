"""A run of a streams application of several processes (KIP-1071), with static members, standbys over zones and tasks
that warm up, whose coordinator is lost in the middle of all of it.

What holds for `streams` holds here. Besides, at any time: a process has a task once; a member that joins with the
instance id of another one is refused, and who has lost it is fenced; a target has one active owner for each task, as
many standbys as are asked for, as far apart by their tags as can be; epochs never go back; a member that missed an
answer hears of its tasks. In the end, beside faults of the coordinator: a static member that comes back has its
tasks at once and nobody else moves; one that stays away has lost them when its session is over;
another number of standbys is heeded; and task offsets are reported to a new coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks import tasks
from ottla.simulation.clients.application_members import Application, ApplicationMember, Host, Watcher
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.consumer_members import SESSION_MS
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.runs import streams
from ottla.simulation.runs.group_protocols import BALANCED_SECONDS_MAX, WORKERS
from ottla.simulation.runs.quorum import Plan

APPLICATIONS = "applications"

TASKS = 4
ZONES = "a", "b", "c", "c"
"""Zones of the processes."""
TAGS = ("zone", "cluster")
OFFSETS_MS = 1000
SILENT_S_MAX = 1.0
"""Rest of a member after its last heartbeat: then its session begins."""
GROUP_RESOURCE = 32

ALWAYS = (
    "consumer heartbeats", "consumer group assignments", "consumer group commits", "warm-ups", "standbys",
    "members that went", "descriptions checked", "static members returned", "instance ids refused",
    "old members fenced", "standbys changed", "offsets reported again", "answers lost", "absent members lost",
    "coordinators compared", "fault",
)  # fmt: skip


class ApplicationRun(streams.StreamsRun):
    always = ALWAYS

    def __init__(self, seed: int, kind: str = APPLICATIONS, plan: Plan | None = None) -> None:
        super().__init__(seed, kind, plan)
        random = self.random
        tags = random.choice(((), TAGS[:1], TAGS))
        self.application = Application(WORKERS, asked=tasks.Asked(range(TASKS), random.choice((1, 1, 2)), tags))
        self.group = self.application

    def more_settings(self) -> dict[str, str]:
        return super().more_settings() | {
            "group.streams.min.task.offset.interval.ms": str(OFFSETS_MS),
            "group.streams.task.offset.interval.ms": str(OFFSETS_MS),
        }

    def topic(self) -> dict[str, Any]:
        return super().topic() | {"num_partitions": TASKS}

    async def _read_from_the_start(self, wire: Wire) -> None:
        await super()._read_from_the_start(wire)
        asked = self.application.asked
        await self._set(
            wire,
            {
                "streams.num.standby.replicas": str(asked.replicas),
                "streams.rack.aware.assignment.tags": ",".join(asked.tags),
                "streams.num.warmup.replicas": str(self.random.choice((1, 2, 4))),
            },
        )

    async def _set(self, wire: Wire, settings: dict[str, str]) -> None:
        changes = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": WORKERS, "configs": changes}
        asked = {"resources": [resource], "validate_only": False}
        answer = await wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        if any(row["error_code"] for row in answer["responses"]):
            raise Disconnected(str(answer))

    # Its processes

    def _host(self, name: str, zone: str) -> Host:
        tags = {"zone": zone, "cluster": self.random.choice("xy")}
        if self.random.random() < 0.2:
            del tags["zone"]
        return Host(name, self._new_id(), tags)

    def _new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128)))

    def _of(self, host: Host, name: str, instance_id: str | None = None, *, goes: float = 0.0) -> ApplicationMember:
        return ApplicationMember(
            self.world, self.history, name, self.servers, self.application, host, instance_id, goes=goes
        )

    def make_clients(self) -> list[Client]:
        hosts = [self._host(f"host{number}", zone) for number, zone in enumerate(ZONES)]
        goes = self.random.choice((0.0, 0.02, 0.05))
        members: list[Client] = [
            self._of(host, f"m{number}", f"i{number}" if self.random.random() < 0.7 else None, goes=goes)
            for number, host in enumerate(hosts)
        ]
        members.append(self._of(hosts[0], "beside", "i9", goes=goes))
        if self.random.random() < 0.5:
            members.append(self._of(self._host("other", "d"), "twin", "i0", goes=0.1))
        return [*members, Watcher(self.world, self.history, "watcher", self.servers, self.application)]

    # In the end

    async def check(self) -> None:
        await self.settle()
        hosts = [self._host(f"last{number}", zone) for number, zone in enumerate(ZONES)]
        watcher = Watcher(self.world, self.history, "watcher2", self.servers, self.application)
        static = [self._of(host, f"new{number}", f"n{number}") for number, host in enumerate(hosts[:2])]
        await self._settled(static, "two processes have everything")
        late = [self._of(host, f"new{number}", f"n{number}") for number, host in enumerate(hosts[2:], 2)]
        static += late
        await self._settled(static, "tasks move")
        if cold := {each.name: sorted(each.cold) for each in late if each.cold}:
            self.world.violated(f"a task is warm before it moves: {cold}")
        members = [*static, self._of(hosts[0], "beside2", "n9"), self._of(hosts[1], "dynamic")]
        await self._settled(members, "all tasks and standbys are where they should be")
        for number in range(2):
            await self._return(members, self.random.choice(members[:-1]), through=number)
        await self._refuse(self.random.choice(static))
        await self._report_again(members)
        watcher.stopping = True  # the number of standbys is another one soon
        await self._change_standbys(members)
        members = await self._be_absent(members)
        for each in members:  # they fall silent, and have their session
            self._silence(each)
        await self._check_topologies()
        await self._compare_coordinators()

    def _silence(self, member: ApplicationMember) -> None:
        member.loop.kill()
        self.world.network.ended(member.loop, member.name, power_loss=False)

    async def _look(self) -> dict[str, Any]:
        async def ask(wire: Wire) -> dict[str, Any]:
            asked = {"group_ids": [WORKERS], "include_authorized_operations": False}
            (group,) = (await wire.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 1, asked))["groups"]
            streams._passing(group["error_code"])
            found: dict[str, Any] = group
            return found

        found = await self._patiently(ask, WORKERS)
        for problem in tasks.always(found):
            self.world.violated(problem)
        return found

    async def _eventually(self, problems: Callable[[dict[str, Any]], list[str]], what: str) -> dict[str, Any]:
        """The group, as soon as nothing is wrong with it."""
        deadline_s = self.world.time.now_s + BALANCED_SECONDS_MAX
        while found := problems(group := await self._look()):
            if self.world.time.now_s > deadline_s:
                self.world.violated(f"liveness: {what} within {BALANCED_SECONDS_MAX} s: {found}")
            await asyncio.sleep(0.1)
        return group

    async def _settled(self, members: list[ApplicationMember], what: str) -> dict[str, Any]:
        asked = self.application.asked

        def problems(group: dict[str, Any]) -> list[str]:
            rows = {each["member_id"]: each for each in group["members"]}
            found = [*tasks.settled(group, asked), *tasks.target(group, asked)]
            if rows.keys() != {each.member_id for each in members}:
                found.append(f"members are {sorted(rows)}")
            for each in members:
                heard = (sorted(each.owned), *each.copies)
                if each.member_id in rows and tasks.of(rows[each.member_id]["assignment"]) != heard:
                    found.append(f"{each.name} was heard {heard}")
                if not each.owned_is_known or not each.owned <= each.positions.keys():
                    found.append(f"{each.name} has not begun")
            return found

        return await self._eventually(problems, what)

    async def _return(self, members: list[ApplicationMember], member: ApplicationMember, *, through: int) -> None:
        """A static member goes and comes back. Its tasks are its own, at once, and nobody else moves."""
        world = self.world
        before = await self._settled(members, "nothing moves")
        old, epoch, heard = member.member_id, member.epoch, (sorted(member.owned), *member.copies)
        others = [(each, (sorted(each.owned), *each.copies)) for each in members if each is not member]
        await self._go(member, 1.0)
        if through:
            world.machines[self._coordinator()].crash(power_loss=False)
        await self._until_joined(member)
        if (has := (sorted(member.owned), *member.copies)) != heard:
            world.violated(f"a static member comes back to its tasks: {member.name} had {heard}, has {has}")
        after = await self._settled(members, "a static member has come back")
        if (after["group_epoch"], after["assignment_epoch"]) != (before["group_epoch"], before["assignment_epoch"]):
            text = f"epoch {after['group_epoch']} after {before['group_epoch']}"
            world.violated(f"a static member comes back without a rebalance: {member.name}: {text}")
        for each, had in others:
            if (sorted(each.owned), *each.copies) != had:
                world.violated(f"a static member comes back without a rebalance: {each.name} had {had}")
        world.counts["static members returned"] += 1
        asked = member.asked_to_join() | {
            "member_id": old,
            "member_epoch": epoch,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
        }
        found = await self._beat(asked)
        if found not in (ErrorCode.fenced_instance_id, ErrorCode.unknown_member_id):
            world.violated(f"who has lost its instance id is fenced: {member.name} was answered {found.name}")
        world.counts["old members fenced"] += 1

    async def _go(self, member: ApplicationMember, away_s: float) -> None:
        member.goes, member.away_s = 1.0, away_s
        went = member.went
        await self._wait(lambda: member.went > went, f"{member.name} goes")
        member.goes = 0.0

    async def _until_joined(self, member: ApplicationMember) -> None:
        await self._wait(lambda: member.epoch > 0, f"{member.name} joins")

    async def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = self.world.time.now_s + BALANCED_SECONDS_MAX
        while not condition():
            if self.world.time.now_s > deadline_s:
                self.world.violated(f"liveness: {what} within {BALANCED_SECONDS_MAX} s")
            await asyncio.sleep(0.02)

    async def _beat(self, asked: dict[str, Any]) -> ErrorCode:
        async def beat(wire: Wire) -> ErrorCode:
            return streams._passing((await wire.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, asked))["error_code"])

        return await self._patiently(beat, WORKERS)

    async def _refuse(self, member: ApplicationMember) -> None:
        """A join with the instance id of a living member is refused, by a coordinator that was loaded too."""
        for is_loaded in (False, True):
            if is_loaded:
                self.world.machines[self._coordinator()].crash(power_loss=False)
            asked = member.asked_to_join() | {"member_id": self._new_id(), "process_id": self._new_id()}
            found = await self._beat(asked)
            if found is not ErrorCode.unreleased_instance_id:
                self.world.violated(f"one member per instance id: a second {member.instance_id} got {found.name}")
            self.world.counts["instance ids refused"] += 1

    async def _report_again(self, members: list[ApplicationMember]) -> None:
        """Offsets are not in the log: a coordinator that has loaded the group hears of them again."""

        def missing(group: dict[str, Any]) -> list[str]:
            by_id = {each.member_id: each for each in members}
            found = []
            for row in group["members"]:
                member = by_id.get(row["member_id"])
                reported = {each["partition"]: each["offset"] for each in row["task_offsets"]}
                if member is not None:
                    known = {each["partition"]: each["offset"] for each in member._offsets()}
                    if known != reported:
                        found.append(f"{member.name} has {known}, and is said to have {reported}")
            return found

        await self._eventually(missing, "offsets of tasks are known")
        self.world.machines[self._coordinator()].crash(power_loss=False)
        await self._eventually(missing, "offsets of tasks are known to a new coordinator")
        self.world.counts["offsets reported again"] += 1

    async def _change_standbys(self, members: list[ApplicationMember]) -> None:
        application = self.application
        for replicas in sorted({0, 1, 2} - {application.asked.replicas}):
            for each in members:
                each.loses = True
            await self._patiently(partial(self._set, settings={"streams.num.standby.replicas": str(replicas)}))
            application.asked = application.asked._replace(replicas=replicas)
            await self._settled(members, f"each task has {replicas} standbys")
            self.world.counts["standbys changed"] += 1

    async def _be_absent(self, members: list[ApplicationMember]) -> list[ApplicationMember]:
        """One that goes and does not come back has its tasks while its session lasts. Returns the others."""
        world = self.world
        member = max(members[:-1], key=lambda each: len(each.owned))
        await self._settled(members, "nothing moves")
        had = {*member.owned}
        old = member.member_id
        others = [each for each in members if each is not member]
        until_s = world.time.now_s + SESSION_MS / 1000 - SILENT_S_MAX
        await self._go(member, 1000.0)
        if self.random.random() < 0.5:
            world.machines[self._coordinator()].crash(power_loss=False)
        while world.time.now_s < until_s:
            given = {number for each in others for number in each.owned} & had
            if given:
                world.violated(f"a static member that is away has its tasks: {given} of {member.name} run elsewhere")
            await asyncio.sleep(0.1)
        await self._settled(others, f"the tasks of {member.name} ({old}), which is away, run elsewhere")
        world.counts["absent members lost"] += 1
        self._silence(member)
        member.process.members.remove(member)
        return others
