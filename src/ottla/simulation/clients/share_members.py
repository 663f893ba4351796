"""Simulated members of a share group (KIP-932), which accept, release, reject and forget what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.simulation.checks.history import History, Key
from ottla.simulation.clients.clients import RECONNECT_S, Client
from ottla.simulation.clients.wire import RETRIABLE, Disconnected, Wire, coordinator_of, leader_of
from ottla.simulation.world import World

JOBS = "jobs"
"""What is worked through."""
DEAD = "dlq.jobs"
"""Where dead letters go."""

LOCK_MS = 1500
CLOCK_MS = 1
"""Brokers count in whole milliseconds: a lock may be so much shorter."""
DELIVERIES_MAX = 5

ACCEPT, RELEASE, REJECT = 1, 2, 3

_OPEN, _CLOSE = 0, -1
"""Epochs that begin and end a share session."""

_OUT = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
_NO_SESSION = frozenset({
    ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch, ErrorCode.share_session_limit_reached,
})  # fmt: skip
_AGAIN = RETRIABLE | {ErrorCode.fenced_leader_epoch, ErrorCode.fenced_state_epoch, ErrorCode.coordinator_not_available}

Process = tuple[str, int]


class _Lock(NamedTuple):
    """A record that somebody has."""

    name: str
    process: Process
    sent_s: float
    """When it was asked for: the lock is younger."""
    wire: Wire
    elections: int
    """How often the leader had changed: the locks of one that comes back are gone with its leader epoch."""


@dataclass
class Jobs:
    """What the members of a share group know together."""

    name: str
    leads: Callable[[str, Key], bool]
    """Whether a broker leads a partition, by the newest metadata."""
    delivered: dict[Key, dict[int, bytes]] = field(default_factory=dict)
    finished: dict[tuple[Key, int], float] = field(default_factory=dict)
    """When it was answered that a record was accepted or rejected."""
    accepted: set[tuple[Key, int]] = field(default_factory=set)
    rejected: set[tuple[Key, int]] = field(default_factory=set)
    """Which of both it was."""
    said: set[tuple[Key, int]] = field(default_factory=set)
    """Records that somebody has asked to be done with, answered or not. Only these, and the dead, may be left."""
    locks: dict[tuple[Key, int], _Lock] = field(default_factory=dict)


class ShareMember(Client):
    """Takes jobs from the leaders of what the coordinator assigns to it."""

    def __init__(
        self, world: World, history: History, name: str, servers: Sequence[str], jobs: Jobs, *, diligent: bool = False
    ) -> None:
        self.jobs = jobs
        self.diligent = diligent
        """Accepts everything."""
        self.last_delivery_s = 0.0
        super().__init__(world, history, name, servers)

    def start(self) -> None:
        self.member_id = str(UUID(int=self.random.getrandbits(128)))
        self.epoch = 0
        self.assigned: dict[int, UUID] = {}
        self.wires: dict[str, Wire] = {}
        self.sessions: dict[str, int] = {}
        """The next epoch of the session with each host."""
        super().start()

    def drop_state(self) -> None:
        for place in [each for each, lock in self.jobs.locks.items() if lock.name == self.name]:
            del self.jobs.locks[place]

    async def _run(self) -> None:
        while not self.stopping:
            try:
                await self._beat()
                if self.assigned:
                    for _ in range(3):
                        await self._fetch(self.random.choice(sorted(self.assigned)))
                        await self.pause(0.05)
            except Disconnected as error:
                self.world.counts["share member disconnected"] += 1
                self.note(f"disconnected: {error}")
                await asyncio.sleep(2 * RECONNECT_S)
            await self.pause(0.05)
        for wire in self.wires.values():
            wire.close()
        self.drop_state()
        self.done = True

    async def _wire(self, host: str) -> Wire:
        wire = self.wires.get(host)
        if wire is None or wire.transport is None:
            self.sessions.pop(host, None)  # it ends with the connection
            wire = self.wires[host] = await Wire.connect(self.network, host)
        return wire

    async def _beat(self) -> None:
        name = self.jobs.name
        wire = await self._wire(await coordinator_of(self.network, self.servers, self.random, name))
        asked = {
            "group_id": name,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": [JOBS] if self.epoch == 0 else None,
        }
        answer = await wire.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, asked)
        code = ErrorCode(answer["error_code"])
        if code in _OUT:
            self.note(f"heartbeat: {code.name}")
            self.epoch, self.assigned = 0, {}
            return
        if code:
            self.check_retriable(code, "share heartbeat")
            return
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.assigned = {
                number: topic["topic_id"]
                for topic in answer["assignment"]["topic_partitions"]
                for number in topic["partitions"]
            }
            self.note(f"epoch {self.epoch}: {sorted(self.assigned)}")

    async def _fetch(self, number: int) -> None:
        key = JOBS, number
        host = await leader_of(self.network, self.servers, self.random, key)
        wire = await self._wire(host)
        process = host, self.world.machines[host].starts
        epoch, sent_s = self.sessions.get(host, _OPEN), self.world.time.now_s
        partition = {"partition_index": number, "acknowledgement_batches": []}
        records_max = 100 if self.diligent else self.random.choice((1, 5, 50))
        answer = await wire.ask(
            ApiKey.SHARE_FETCH,
            1,
            {
                "group_id": self.jobs.name,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "max_wait": 200,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": records_max,
                "batch_size": 10,
                "topics": [{"topic_id": self.assigned[number], "partitions": [partition]}],
                "forgotten_topics_data": [],
            },
        )
        if not self._is_session(host, epoch, answer["error_code"]):
            return
        for row in [row for topic in answer["responses"] for row in topic["partitions"]]:
            if row["error_code"]:
                self._refused(row["error_code"], "share fetch")
                self.sessions.pop(host, None)  # which has the partition still: the next one has those that it leads
                continue
            got = (JOBS, row["partition_index"])
            offsets = self._take(got, row, process, sent_s, wire)
            if offsets:
                await self._acknowledge(wire, host, got, offsets)

    def _is_session(self, host: str, epoch: int, error: int) -> bool:
        code = ErrorCode(error)
        if code is ErrorCode.none:
            self.sessions[host] = epoch + 1
            return True
        self.sessions.pop(host, None)
        if code in _NO_SESSION:
            self.note(f"share session: {code.name}")
            self.world.counts[f"share {code.name}"] += 1
        else:
            self._refused(error, "share session")
        return False

    def _refused(self, error: int, what: str) -> None:
        code = ErrorCode(error)
        self.world.counts[f"error {code.name}"] += 1
        self.note(f"{what}: {code.name}")
        if code not in _AGAIN:
            self.world.violated(f"{self.name}: {what} was answered {code.name}")

    def _take(self, key: Key, row: dict[str, Any], process: Process, sent_s: float, wire: Wire) -> list[int]:
        """The offsets of what was delivered; who has them, and whether that may be, is noted."""
        jobs, now_s = self.jobs, self.world.time.now_s
        values = dict(_records(row["records"] or b""))
        offsets: list[int] = []
        for batch in row["acquired_records"]:
            if not 1 <= batch["delivery_count"] <= DELIVERIES_MAX:
                self.world.violated(f"delivery count: {key} was delivered {batch['delivery_count']} times")
            self.world.counts["share redeliveries"] += batch["delivery_count"] > 1
            if offsets and batch["first_offset"] <= offsets[-1]:  # clients walk them beside the records
                self.world.violated(f"acquired records are in order: {key} {batch['first_offset']} after {offsets[-1]}")
            offsets += range(batch["first_offset"], batch["last_offset"] + 1)
        for offset in offsets:
            if offset not in values:
                self.world.violated(f"{self.name}: {key} {offset} was acquired, and is not in what was sent")
            finished_s = jobs.finished.get((key, offset))
            if finished_s is not None and finished_s < sent_s and jobs.leads(process[0], key):
                text = f"{key} {offset} was delivered to {self.name} at {sent_s:.3f}, done at {finished_s:.3f}"
                self.world.violated(f"what is acknowledged is not delivered again: {text}")
            lock = jobs.locks.get((key, offset))
            if (
                lock is not None
                and lock.name != self.name
                and lock.process == process
                and lock.wire.transport is not None
                and now_s < lock.sent_s + (LOCK_MS - CLOCK_MS) / 1000
                and lock.elections == self.world.elections[key]
            ):
                self.world.violated(f"one member per record: {key} {offset} to {self.name}, while {lock.name} has it")
            jobs.locks[key, offset] = _Lock(self.name, process, sent_s, wire, self.world.elections[key])
            jobs.delivered.setdefault(key, {})[offset] = values[offset]
            self.last_delivery_s = now_s
        if offsets:
            self.note(f"took {offsets[0]} to {offsets[-1]} of {key} by {process}")
            self.history.counts["share deliveries"] += len(offsets)
        return offsets

    async def _acknowledge(self, wire: Wire, host: str, key: Key, offsets: Sequence[int]) -> None:
        """Acknowledge each record, or leave some unacknowledged until their locks expire."""
        await self.pause(0.02)
        chosen = {offset: ACCEPT if self.diligent else self._fate() for offset in offsets}
        fates = {offset: fate for offset, fate in chosen.items() if fate}
        self.world.counts["share records forgotten"] += len(chosen) - len(fates)
        if not fates:
            return
        for offset in fates:  # from now on another may have it
            self.jobs.locks.pop((key, offset), None)
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [fate]}
            for first, last, fate in _runs(fates)
        ]
        epoch = self.sessions.get(host)
        if epoch is None:  # the other partition of the session has another leader
            return
        self.jobs.said.update((key, offset) for offset, fate in fates.items() if fate != RELEASE)
        partition = {"partition_index": key[1], "acknowledgement_batches": batches}
        answer = await wire.ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            1,
            {
                "group_id": self.jobs.name,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "topics": [
                    {
                        "topic_id": self.assigned.get(key[1], next(iter(self.assigned.values()))),
                        "partitions": [partition],
                    }
                ],
            },
        )
        if not self._is_session(host, epoch, answer["error_code"]):
            return
        for row in [row for topic in answer["responses"] for row in topic["partitions"]]:
            if row["error_code"] == ErrorCode.invalid_record_state:
                self.world.counts["share locks over"] += 1
            elif row["error_code"]:
                self._refused(row["error_code"], "share acknowledge")
            else:
                now_s = self.world.time.now_s
                done = [offset for offset, fate in fates.items() if fate != RELEASE]
                self.jobs.finished.update({(key, offset): now_s for offset in done})
                self.jobs.accepted.update((key, offset) for offset, fate in fates.items() if fate == ACCEPT)
                self.jobs.rejected.update((key, offset) for offset, fate in fates.items() if fate == REJECT)
                self.history.counts["share acknowledgements"] += len(fates)
                self.note(f"acknowledged {fates} of {key}")

    def _fate(self) -> int:
        return self.random.choices((ACCEPT, RELEASE, REJECT, 0), (80, 12, 3, 5))[0]


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at, _ in iterate_batches(data):
        for record in iterate_records(data, at):
            assert record.value is not None
            yield record.offset, record.value


def _runs(fates: dict[int, int]) -> list[tuple[int, int, int]]:
    """First and last of offsets in a row with one fate."""
    runs: list[tuple[int, int, int]] = []
    for offset, fate in sorted(fates.items()):
        if runs and runs[-1][1] == offset - 1 and runs[-1][2] == fate:
            runs[-1] = runs[-1][0], offset, fate
        else:
            runs.append((offset, offset, fate))
    return runs
