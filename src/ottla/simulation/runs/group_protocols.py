"""A run of groups of the newer protocols: members of a consumer group (KIP-848) and of a share group (KIP-932), whose
coordinators and leaders are lost in the middle of rebalances, commits and acknowledgements.

Everything is fsynced and no disk is replaced, so that in the end nothing of what a member was told may be untrue: a
partition has one member at a time, a committed offset never goes back, who is fenced commits nothing; a record that was
acknowledged is not delivered again, nobody else is given one that somebody has, and none is lost. A coordinator that
is loaded says of its group what the one before did. A record whose rejection was answered has a dead letter, which says
what the record did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.errors import ErrorCode
from ottla.model import SHARE_STATE_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import Key
from ottla.simulation.clients import consumer_members, share_members
from ottla.simulation.clients.clients import Client, Consumer, Producer
from ottla.simulation.clients.consumer_members import SESSION_MS, WORK, ConsumerGroup, ConsumerMember
from ottla.simulation.clients.dead_letters import DeadReader
from ottla.simulation.clients.groups import log_of
from ottla.simulation.clients.share_members import DEAD, JOBS, Jobs, ShareMember
from ottla.simulation.clients.wire import Disconnected, Wire
from ottla.simulation.faults.aimed_faults import AimedNemesis
from ottla.simulation.runs.quorum import AimedRun, Plan
from ottla.simulation.world import LOG_PARTITIONS

GROUPS = "groups"

WORKERS, SHARERS = "workers", "sharers"
"""The groups."""

PARTITIONS = consumer_members.PARTITIONS
"""Partitions of both topics."""

"""Partitions of the coordinators' topics."""

BALANCED_SECONDS_MAX = 20.0
"""Members that join when nothing breaks any more have everything between them within this."""

DRAINED_S = 4 * SESSION_MS / 1000
"""When nothing was delivered for so long, nothing is left: leaders are elected, and members out that have died."""

_TOPIC_RESOURCE, _GROUP_RESOURCE = 2, 32
_FOR_DEAD_LETTERS = {"errors.deadletterqueue.group.enable": "true"}

ALWAYS = (
    "consumer heartbeats", "consumer group assignments", "consumer group commits", "share deliveries",
    "share acknowledgements", "share redeliveries", "coordinators compared", "jobs checked", "dead letters", "fault",
)  # fmt: skip


class GroupNemesis(AimedNemesis):
    """Aims at the coordinator of a group, the keeper of share state or the holder of the records."""

    what = "groups"

    def aim(self) -> Key:
        number = self.random.randrange(LOG_PARTITIONS)
        keys = [
            log_of(WORKERS),
            log_of(SHARERS),
            (SHARE_STATE_TOPIC, number),
            (SHARE_STATE_TOPIC, number),
            (JOBS, self.random.randrange(PARTITIONS)),
        ]
        return self.random.choice(keys)


class GroupRun(AimedRun):
    nemesis = GroupNemesis
    always: tuple[str, ...] = ALWAYS
    topics: tuple[str, ...] = (WORK, JOBS, DEAD)
    watched: tuple[str, ...] = (JOBS,)
    sharer = ShareMember
    group_settings: Mapping[str, str] = {
        "share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": DEAD,
        "errors.deadletterqueue.copy.record.enable": "true",
    }  # fmt: skip

    @property
    def employer(self) -> type[Producer]:
        return Employer

    def __init__(self, seed: int, kind: str = GROUPS, plan: Plan | None = None) -> None:
        super().__init__(seed, kind, plan, fsynced=True)
        self.group = ConsumerGroup(WORKERS)
        self.jobs = Jobs(SHARERS, self._leads)

    def more_settings(self) -> dict[str, str]:
        found = {
            "share.coordinator.state.topic.num.partitions": str(LOG_PARTITIONS),
            "share.coordinator.state.topic.replication.factor": str(self.plan.replicas),
            "share.coordinator.state.topic.min.isr": str(self.plan.min_isr),
            "share.coordinator.snapshot.update.records.per.snapshot": "20",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": str(share_members.LOCK_MS),
            "group.share.delivery.count.limit": str(share_members.DELIVERIES_MAX),
            "group.share.initialize.retry.interval.ms": "1000",
        }
        for kind in ("consumer", "share"):
            found |= {
                f"group.{kind}.min.session.timeout.ms": "1000",
                f"group.{kind}.session.timeout.ms": str(consumer_members.SESSION_MS),
                f"group.{kind}.min.heartbeat.interval.ms": "100",
                f"group.{kind}.heartbeat.interval.ms": str(consumer_members.HEARTBEAT_MS),
                f"group.{kind}.assignment.interval.ms": "100",
            }
        return found

    def topic(self) -> dict[str, Any]:
        return super().topic() | {"num_partitions": PARTITIONS}

    async def set_up(self) -> None:
        await super().set_up()
        await self._patiently(self._read_from_the_start)

    async def _read_from_the_start(self, wire: Wire) -> None:
        """And have dead letters written."""
        update = {"feature": "share.version", "max_version_level": 2, "upgrade_type": 1}
        values = {"timeout": 10_000, "feature_updates": [update], "validate_only": False}
        answer = await wire.ask(ApiKey.UPDATE_FEATURES, 1, values)
        if answer["error_code"]:
            raise Disconnected(str(answer))
        resources = [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": each, "config_operation": 0, "value": value} for each, value in changes.items()],
            }
            for kind, name, changes in (
                (_TOPIC_RESOURCE, DEAD, _FOR_DEAD_LETTERS),
                (_GROUP_RESOURCE, SHARERS, self.group_settings),
            )
        ]
        answer = await wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
        if any(row["error_code"] for row in answer["responses"]):
            raise Disconnected(str(answer))

    def make_clients(self) -> list[Client]:
        world, history, servers = self.world, self.history, self.servers
        return [
            *(self._member(f"m{number}") for number in range(3)),
            *(self.sharer(world, history, f"s{number}", servers, self.jobs) for number in range(3)),
            *(
                self.employer(world, history, f"p{number}", servers, (JOBS, number), idempotent=True, in_flight=2)
                for number in range(PARTITIONS)
            ),
        ]

    def _member(self, name: str) -> ConsumerMember:
        return ConsumerMember(self.world, self.history, name, self.servers, self.group)

    def _leads(self, host: str, key: Key) -> bool:
        topic = None if self.invariants.image is None else self.invariants.image.topic(key[0])
        if topic is None:
            return False
        return topic.partitions[key[1]].leader == self.world.machines[host].node_id

    async def check(self) -> None:
        await self.settle()
        await self._balance()
        await self._drain()
        for number in range(PARTITIONS):
            key = JOBS, number
            last = Consumer(self.world, self.history, f"last{number}", self.servers, key)
            last.stopping = True
            found = await self._patiently(last.read_all, key)
            self.history.check_final(key, found)
            delivered = self.jobs.delivered.get(key, {})
            lost = sorted(found.keys() - delivered.keys())
            if lost:
                self.world.violated(f"every record is delivered: {key} lacks {lost[:9]}, of {len(found)}")
            if wrong := [offset for offset, value in delivered.items() if found.get(offset) != value]:
                self.world.violated(f"what is delivered was written: {key} at {wrong[:9]}")
            self.world.counts["jobs checked"] += len(found)
            await self._check_dead(number, found)

    async def _check_dead(self, number: int, found: dict[int, bytes]) -> None:
        """What dead letters promise: at least one for a record whose rejection was answered, which says what the record
        says; none that says "rejected" of a record whose acceptance was answered."""
        key = JOBS, number
        last = DeadReader(self.world, self.history, f"dead{number}", self.servers, (DEAD, number))
        last.stopping = True
        await self._patiently(last.read_all, (DEAD, number))
        violated = self.world.violated
        for letter in last.letters:
            if (letter.topic, letter.partition, letter.group) != (*key, SHARERS):
                violated(f"a dead letter says where its record is: {letter} in {DEAD}-{number}")
            if found.get(letter.offset) != letter.value:
                violated(f"a dead letter says what its record does: {letter}, {found.get(letter.offset)!r}")
            if letter.is_rejected and (key, letter.offset) in self.jobs.accepted:
                violated(f"what was accepted is not rejected: {letter}")
        dead = {letter.offset for letter in last.letters}
        rejected = {offset for where, offset in self.jobs.rejected if where == key}
        if lost := sorted(rejected - dead):
            violated(f"what is rejected has a dead letter: {key} lacks {lost[:9]}, of {len(rejected)}")
        said = {offset for where, offset in self.jobs.said if where == key}
        if left := sorted(found.keys() - said - dead):
            # Delivered it was, to a member that did not say anything: its lock ends, whoever leads then.
            violated(f"every record comes to its end: {key} lacks {left[:9]}, of {len(found)}")
        self.world.counts["dead letters"] += len(last.letters)
        self.world.counts["dead letters again"] += len(last.letters) - len(dead)

    async def _balance(self) -> None:
        """Two members that join have everything between them, and a new coordinator knows it."""
        world = self.world
        members = [self._member(f"new{number}") for number in range(2)]
        deadline_s = world.time.now_s + BALANCED_SECONDS_MAX
        whole = set(range(PARTITIONS))
        while not (
            all(each.owned_is_known and each.owned <= each.positions.keys() for each in members)
            and sorted(number for each in members for number in each.owned) == sorted(whole)
        ):
            if world.time.now_s > deadline_s:
                owned = {each.name: sorted(each.owned) for each in members}
                world.violated(f"liveness: {BALANCED_SECONDS_MAX} s after they joined members have {owned}")
            await asyncio.sleep(0.1)
        for each in members:  # they fall silent, and have their session
            each.loop.kill()
            world.network.ended(each.loop, each.name, power_loss=False)
        await self._compare_coordinators()

    async def _compare_coordinators(self) -> None:
        """A coordinator that is loaded says of the group what the one before did."""
        world = self.world
        before = await self._patiently(self._described, WORKERS)
        world.machines[self._coordinator()].crash(power_loss=False)
        after = await self._patiently(self._described, WORKERS)
        if before != after:
            world.violated(f"a coordinator is what its log says: {before}, and once loaded {after}")
        world.counts["coordinators compared"] += 1
        while any(not machine.is_serving for machine in world.machines.values()):  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.1)

    def _coordinator(self) -> str:
        (found,) = [name for name in self.servers if self.world.may_coordinate(name, WORKERS)]
        return found

    async def _described(self, wire: Wire) -> Any:
        asked = {"group_ids": [WORKERS], "include_authorized_operations": False}
        (group,) = (await wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked))["groups"]
        if group["error_code"]:
            raise Disconnected(ErrorCode(group["error_code"]).name)
        return group

    async def _drain(self) -> None:
        """One member takes all that is left."""
        world = self.world
        last = self.sharer(world, self.history, "drainer", self.servers, self.jobs, diligent=True)
        last.last_delivery_s = world.time.now_s
        while world.time.now_s < last.last_delivery_s + DRAINED_S or last.epoch == 0:  # noqa: ASYNC110  in virtual time
            await asyncio.sleep(0.2)
        last.stopping = True


class Employer(Producer):
    """Writes no faster than jobs are done."""

    async def pause(self, seconds: float) -> None:
        await super().pause(8 * seconds)
