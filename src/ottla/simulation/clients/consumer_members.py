"""Simulated members of a consumer group of KIP-848: they ask the coordinator what is theirs, and commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.simulation.checks.history import History
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.groups import CommittedOffsets, log_of
from ottla.simulation.clients.wire import Wire, coordinator_of
from ottla.simulation.world import World

WORK = "work"
"""What the members read."""

PARTITIONS = 3

SESSION_MS = 3000
REBALANCE_MS = 2000
HEARTBEAT_MS = 300

SURE_S = 1.0
"""A member that was answered within this is still one, to who answered: sessions are far longer."""

LEAVING = -1

_OUT = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})

Process = tuple[str, int]
"""A broker, and which of its starts."""


class Hold(NamedTuple):
    """The owner of a partition, the member that assigned it, and the time of the last confirmation."""

    name: str
    process: Process
    sent_s: float


@dataclass
class ConsumerGroup(CommittedOffsets):
    """What the members of a group know together, as nobody in it does."""

    holds: dict[int, Hold] = field(default_factory=dict)


class ConsumerMember(Client):
    """Works through what it is given from the committed offsets on, gives back what it is asked for, and leaves."""

    pause_s_max = 0.4
    heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
    owned_as = "topic_partitions"
    """The field of a heartbeat with what is owned."""
    out = _OUT
    """Errors by which it is no member any more."""
    instance_id: str | None = None

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], group: ConsumerGroup) -> None:
        self.group = group
        self.is_settled = False
        """Whether it has all partitions assigned to it since it should stop."""
        super().__init__(world, history, name, servers)

    def start(self) -> None:
        self.member_id = str(UUID(int=self.random.getrandbits(128)))
        self._join_again()
        super().start()

    async def where(self) -> str:
        return await coordinator_of(self.network, self.servers, self.random, self.group.name)

    def _join_again(self) -> None:
        self.epoch = 0
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}
        self.topic_id: UUID | None = None
        self.owned_is_known = False
        """Whether the coordinator knows what is owned."""
        for number in [each for each, hold in self.group.holds.items() if hold.name == self.name]:
            del self.group.holds[number]

    def finished(self) -> bool:
        return self.stopping and self.is_settled

    async def session(self, wire: Wire) -> None:
        is_first = True
        while not self.finished():
            is_last = self.stopping
            if not await self._beat(wire, whole=is_first or self.epoch == 0) or not await self._work(wire):
                await self.pause(0.1)
                return
            is_first = False
            self.is_settled = is_last and self.epoch > 0 and self.owned_is_known
            await self.pause(0.1)
        epoch, self.epoch = self.epoch, LEAVING
        member_id = self.member_id
        self._join_again()
        answer = await wire.ask(self.heartbeat, 1, self._asked_to_leave(member_id))
        self.note(f"left in epoch {epoch}: {ErrorCode(answer['error_code']).name}")

    def _asked_to_leave(self, member_id: str) -> dict[str, Any]:
        return self._asked(whole=False) | {"member_id": member_id, "member_epoch": LEAVING, self.owned_as: None}

    def _asked(self, *, whole: bool) -> dict[str, Any]:
        owned = None
        if whole or not self.owned_is_known:
            topics = [{"topic_id": self.topic_id, "partitions": sorted(self.owned)}] if self.owned else []
            owned = topics if self.epoch else []
        return {
            "group_id": self.group.name,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_MS if whole else -1,
            "subscribed_topic_names": [WORK] if whole else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": owned,
        }

    async def _beat(self, wire: Wire, *, whole: bool) -> bool:
        """Whether it is a member, of which the coordinator has heard just now."""
        process = wire.host, self.world.machines[wire.host].starts
        asked, sent_s = self._asked(whole=whole), self.world.time.now_s
        answer = await wire.ask(self.heartbeat, 1, asked)
        self._arrived(asked, answer)
        code = ErrorCode(answer["error_code"])
        if code in self.out:
            self.note(f"heartbeat: {code.name}")
            self.world.counts[f"consumer group {code.name}"] += 1
            self._join_again()
            return False
        if code:
            self.note(str(answer["error_message"]))
            self.check_retriable(code, "heartbeat")
            return False
        if answer["member_epoch"] < self.epoch:
            self.world.violated(
                f"epochs are monotonic: {self.name} is in {answer['member_epoch']}, was in {self.epoch}"
            )
        self.epoch = answer["member_epoch"]
        self.owned_is_known = self.owned_is_known or asked[self.owned_as] is not None
        for number in self.owned:
            self.group.holds[number] = Hold(self.name, process, sent_s)
        self._heard(asked, answer, process, sent_s)
        given = self._given(answer)
        if given is not None:
            self._take(given, process, sent_s)
        self.history.counts["consumer heartbeats"] += 1
        return not self.owned - self.positions.keys() or await self._find_positions(wire)

    def _arrived(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        """A heartbeat was answered. Raises Disconnected where the answer is to be lost on its way."""

    def _heard(self, asked: dict[str, Any], answer: dict[str, Any], process: Process, sent_s: float) -> None:
        """A heartbeat was answered without an error."""

    def _given(self, answer: dict[str, Any]) -> set[int] | None:
        """What is assigned, None where that is as it was."""
        if answer["assignment"] is None:
            return None
        topics = answer["assignment"]["topic_partitions"]
        if topics:
            self.topic_id = topics[0]["topic_id"]
        return {number for topic in topics for number in topic["partitions"]}

    def _take(self, given: set[int], process: Process, sent_s: float) -> None:
        self.note(f"epoch {self.epoch}: {sorted(given)}, had {sorted(self.owned)}")
        now_s = self.world.time.now_s
        for number in sorted(given - self.owned):
            hold = self.group.holds.get(number)
            if hold is not None and hold.name != self.name and hold.process == process and now_s - hold.sent_s < SURE_S:
                text = f"{WORK}-{number} was given to {self.name}, while {hold.name} has it"
                self.world.violated(f"one member per partition: {text}, both by {process}")
            self.group.holds[number] = Hold(self.name, process, sent_s)
        for number in self.owned - given:
            self.positions.pop(number, None)
            if self.group.holds[number].name == self.name:
                del self.group.holds[number]
        self.owned_is_known = given == self.owned
        self.owned = given
        self.history.counts["consumer group assignments"] += 1

    async def _find_positions(self, wire: Wire) -> bool:
        """Where those before left off: never behind what was acknowledged to one of them."""
        group = self.group
        new = sorted(self.owned - self.positions.keys())
        before = {each: group.committed.get(each) for each in new}
        topic = {"name": WORK, "partition_indexes": new}
        asked = {"group_id": group.name, "member_id": self.member_id, "member_epoch": self.epoch, "topics": [topic]}
        values = {"groups": [asked], "require_stable": False}
        (answer,) = (await wire.ask(ApiKey.OFFSET_FETCH, 9, values))["groups"]
        if self._refused(answer["error_code"], "offset fetch"):
            return False
        if not self.world.may_coordinate(wire.host, group.name):  # with what it knew, as in Kafka
            self.world.counts["stale coordinator"] += 1
            return False
        for row in answer["topics"][0]["partitions"]:
            number, found = row["partition_index"], row["committed_offset"]
            if (wrong := group.error_of(number, found, before[number], self.history)) is not None:
                self.world.violated(wrong)
            self.positions[number] = max(found, 0)
        return True

    def _refused(self, error: int, what: str) -> bool:
        code = ErrorCode(error)
        if code is ErrorCode.none:
            return False
        if code in self.out or code is ErrorCode.stale_member_epoch:
            self.note(f"{what}: {code.name}")
            self.world.counts[f"consumer group {code.name}"] += 1
            if code in self.out:
                self._join_again()
        else:
            self.check_retriable(error, what)
        return True

    async def _work(self, wire: Wire) -> bool:
        """Commit an offset of something. Whether all is well."""
        group = self.group
        if not self.positions or self.random.random() < 0.3:
            return True
        number = self.random.choice(sorted(self.positions))
        offset = self.positions[number] + self.random.randint(1, 3)
        group.begin(number, offset)
        before, mark = group.committed.get(number), self.history.mark(log_of(group.name))
        row = {"partition_index": number, "committed_offset": offset, "committed_metadata": None}
        values = {
            "group_id": group.name,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [{"name": WORK, "partitions": [row]}],
        }
        answer = await wire.ask(ApiKey.OFFSET_COMMIT, 9, values)
        group.open.discard((number, offset))
        if self._refused(answer["topics"][0]["partitions"][0]["error_code"], "commit"):
            return self.epoch > 0  # a newer epoch comes with the next heartbeat
        if before is not None and offset <= before[0] and self.history.holds(log_of(group.name), before[1]):
            text = f"{self.name} committed {offset} of {number}, after {before[0]}"
            self.world.violated(f"members of before are fenced: {text}")
        self.positions[number] = offset
        self.history.counts["consumer group commits"] += 1
        if offset > group.committed.get(number, (-1, mark))[0]:
            group.committed[number] = offset, mark
        return True
