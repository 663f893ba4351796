"""A run of a streams application (KIP-1071), whose coordinator is lost in the middle of rebalances and commits.

What holds for a consumer group holds for its tasks: one member runs a task at a time, a committed offset never goes
back, who is fenced commits nothing, a coordinator that is loaded says of its group what the one before did. Besides, in
the end: a stateful task that moves stays where it runs until the member that gets it has restored its state, and moves
then; a member may not commit by the epoch of before for a task that another one has; another topology is refused, also
by a coordinator that has loaded the group, and who comes with an older one is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import Key
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.consumer_members import HEARTBEAT_MS, PARTITIONS, SESSION_MS, WORK
from ottla.simulation.clients.groups import log_of
from ottla.simulation.clients.streams_members import StreamsMember, topology
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.runs.group_protocols import (
    BALANCED_SECONDS_MAX,
    WORKERS,
    GroupNemesis,
    GroupRun,
)
from ottla.simulation.runs.quorum import Plan

STREAMS = "streams"

COLD_S = 3.0
"""For so long a member that restores nothing gets no task to run."""

ALWAYS = (
    "consumer heartbeats", "consumer group assignments", "consumer group commits", "warm-ups", "tasks moved warm",
    "stale epochs refused", "topologies refused", "stale topologies told", "coordinators compared", "fault",
)  # fmt: skip


class StreamsNemesis(GroupNemesis):
    """Aims at the coordinator."""

    def aim(self) -> Key:
        return log_of(WORKERS)


class StreamsRun(GroupRun):
    nemesis = StreamsNemesis
    always: tuple[str, ...] = ALWAYS
    topics = (WORK,)
    watched = ()

    def __init__(self, seed: int, kind: str = STREAMS, plan: Plan | None = None) -> None:
        super().__init__(seed, kind, plan)

    def more_settings(self) -> dict[str, str]:
        return super().more_settings() | {
            "group.streams.min.session.timeout.ms": "1000",
            "group.streams.session.timeout.ms": str(SESSION_MS),
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.heartbeat.interval.ms": str(HEARTBEAT_MS),
            "group.streams.assignment.interval.ms": "100",
            "group.streams.initial.rebalance.delay.ms": "200",
        }

    async def _read_from_the_start(self, wire: Wire) -> None:
        """There is a coordinator: to ask for it has its topic created."""
        asked = {"key_type": 0, "coordinator_keys": [WORKERS]}
        (found,) = (await wire.ask(ApiKey.FIND_COORDINATOR, 4, asked))["coordinators"]
        if found["error_code"]:
            raise Disconnected(ErrorCode(found["error_code"]).name)

    def make_clients(self) -> list[Client]:
        return [self._member(f"m{number}") for number in range(4)]

    def _member(self, name: str) -> StreamsMember:
        return StreamsMember(self.world, self.history, name, self.servers, self.group)

    async def check(self) -> None:
        await self.settle()
        first, second = await self._move_a_task()
        await self._check_epochs(first, second)
        members = first, second
        for each in members:  # they fall silent, and have their session
            each.loop.kill()
            self.world.network.ended(each.loop, each.name, power_loss=False)
        await self._check_topologies()
        await self._compare_coordinators()
        await self._check_topologies()

    async def _until(self, condition: Callable[[], bool], what: str, members: tuple[StreamsMember, ...]) -> None:
        deadline_s = self.world.time.now_s + BALANCED_SECONDS_MAX
        while not condition():
            if self.world.time.now_s > deadline_s:
                have = {each.name: (sorted(each.owned), each.copies) for each in members}
                self.world.violated(f"liveness: {what} within {BALANCED_SECONDS_MAX} s; members have {have}")
            await asyncio.sleep(0.1)

    async def _move_a_task(self) -> tuple[StreamsMember, StreamsMember]:
        """One member has everything; one that comes gets its share when it has restored it, and not before."""
        world, whole = self.world, {*range(PARTITIONS)}
        first = self._member("new0")
        await self._until(lambda: first.owned == whole and first.owned_is_known, "one member has all tasks", (first,))
        second = self._member("new1")
        second.restores = False
        both = first, second
        await self._until(lambda: bool(second.copies[1]), "a member that comes warms up", both)
        until_s = world.time.now_s + COLD_S
        while world.time.now_s < until_s:
            if second.owned:
                world.violated(f"a task is warm before it moves: {second.name} runs {sorted(second.owned)}, cold")
            await asyncio.sleep(0.1)
        second.restores = True
        await self._until(
            lambda: (
                bool(second.owned)
                and {*first.owned, *second.owned} == whole
                and all(each.owned_is_known and each.owned <= each.positions.keys() for each in both)
            ),
            "a task moves that is warm",
            both,
        )
        world.counts["tasks moved warm"] += 1
        return both

    async def _check_epochs(self, first: StreamsMember, second: StreamsMember) -> None:
        """By an epoch of before nobody commits for a task that another one has."""
        number = min(second.owned)
        row = {"partition_index": number, "committed_offset": 0, "committed_metadata": None}

        async def commit(wire: Wire) -> ErrorCode:
            answer = await wire.ask(
                ApiKey.OFFSET_COMMIT,
                9,
                {
                    "group_id": WORKERS,
                    "generation_id_or_member_epoch": first.epoch - 1,
                    "member_id": first.member_id,
                    "group_instance_id": None,
                    "topics": [{"name": WORK, "partitions": [row]}],
                },
            )
            return _passing(answer["topics"][0]["partitions"][0]["error_code"])

        async def beat(wire: Wire) -> ErrorCode:
            asked = second.asked_to_join() | {
                "member_epoch": second.epoch - 2,
                "rebalance_timeout": -1,
                "topology": None,
                "active_tasks": None,
                "standby_tasks": None,
                "warmup_tasks": None,
            }
            return _passing((await wire.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, asked))["error_code"])

        for ask, expected in ((commit, ErrorCode.stale_member_epoch), (beat, ErrorCode.fenced_member_epoch)):
            found = await self._patiently(ask, WORKERS)
            if found is not expected:
                self.world.violated(f"epochs fence: {ask.__name__} of before was answered {found.name}")
            self.world.counts["stale epochs refused"] += 1

    async def _check_topologies(self) -> None:
        """A member that joins with another topology is refused; one with an older topology is told."""
        for epoch, source, error in ((0, "other", ErrorCode.invalid_request), (-1, WORK, ErrorCode.none)):
            asked = self._stranger() | {"topology": topology(epoch, source)}

            async def join(wire: Wire, asked: dict[str, Any] = asked) -> dict[str, Any]:
                answer: dict[str, Any] = await wire.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, asked)
                _passing(answer["error_code"])
                return answer

            answer = await self._patiently(join, WORKERS)
            if answer["error_code"] != error:
                said = ErrorCode(answer["error_code"]).name
                self.world.violated(f"a group has one topology: of {source} in epoch {epoch} was answered {said}")
            if error:
                self.world.counts["topologies refused"] += 1
                continue
            if 0 not in {each["status_code"] for each in answer["status"] or ()}:
                self.world.violated("a group has one topology: a member with an older one is not told")
            self.world.counts["stale topologies told"] += 1

            async def leave(wire: Wire, asked: dict[str, Any] = asked) -> None:
                gone = asked | {"member_epoch": -1, "topology": None}
                _passing((await wire.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, gone))["error_code"])

            await self._patiently(leave, WORKERS)

    def _stranger(self) -> dict[str, Any]:
        """A heartbeat with which nobody's member joins."""
        return {
            "group_id": WORKERS,
            "member_id": str(UUID(int=self.random.getrandbits(128))),
            "member_epoch": 0,
            "endpoint_information_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 2000,
            "topology": topology(),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": str(UUID(int=self.random.getrandbits(128))),
            "user_endpoint": None,
            "client_tags": [],
            "task_offsets": [],
            "task_end_offsets": [],
            "shutdown_application": False,
        }

    async def _described(self, wire: Wire) -> Any:
        asked = {"group_ids": [WORKERS], "include_authorized_operations": False}
        (group,) = (await wire.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, asked))["groups"]
        _passing(group["error_code"])
        # The state and the topics of the topology are found with the next heartbeat, and members report again.
        for each in group["members"]:
            del each["task_offsets"], each["task_end_offsets"]
        return {name: group[name] for name in ("group_epoch", "assignment_epoch", "members")}


def _passing(error: int) -> ErrorCode:
    """The error, if it is one for good; one that passes is asked again."""
    code = ErrorCode(error)
    if code.retriable:
        raise Disconnected(code.name)
    return code
