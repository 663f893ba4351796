"""Random walks of several members of one group, done in step on two brokers.

A step is one request, sent to both. What was answered, to this request and to others that waited, must be the same but
for member ids, which are compared by who got them; so must the group as DescribeGroups shows it after every step, and
at the end its records in `__consumer_offsets`. Some choices Kafka makes in the order of a hash map (next leader, the
protocol where votes are even): a walk ends where they show.

`python -m tests.conformance.walks.group_walk OTTLA KAFKA FIRST_SEED COUNT` walks by hand.
"""

from __future__ import annotations

import random
import re
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.coordinator.partitioning import partition_for
from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.internal.group_records import decode_record
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.protocol.schemas.records import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

SETTLED_WITHIN_S = 60
PARTITIONS = 3
LOOKS = 5
"""At a group in a row that show the same before a request counts as one that waits."""
UNANSWERED_AFTER_S = 2
"""An answer of an earlier request is not waited for any longer: Kafka forgets some."""
OTTLA, KAFKA = 0, 1
HUNG_UP = {"error_code": "hung up"}
Answers = list[Any]
"""Ottla's and Kafka's."""


class Line:
    """A connection to one broker with at most one request under way, as Kafka wants it."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = host, int(port)
        self.socket = socket.create_connection(self.address, timeout=SETTLED_WITHIN_S)
        self.client_id = client_id
        self.waiting: tuple[ApiKey, int] | None = None
        self._data = bytearray()

    def send(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> None:
        assert self.waiting is None
        frame = messages.encode_request(key, version, 1, self.client_id, values)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self.waiting = key, version

    def ready(self, timeout_s: float = 0) -> bool:
        return bool(select.select([self.socket], [], [], timeout_s)[0])

    def receive(self) -> Any:
        """The answer; HUNG_UP where the broker closes the connection. Raises TimeoutError where it says nothing."""
        assert self.waiting is not None
        (key, version), self.waiting = self.waiting, None
        try:
            (size,) = struct.unpack(">i", self._read(4))
        except ConnectionError:
            self.socket = socket.create_connection(self.address, timeout=SETTLED_WITHIN_S)
            return HUNG_UP
        return messages.plain(messages.decode_response(key, version, self._read(size))[1])

    def _read(self, size: int) -> bytes:
        while len(self._data) < size:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("the broker hung up")
            self._data += more
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        self.send(key, version, values)
        return self.receive()


@dataclass(eq=False)
class Actor:
    """A client: a connection to each broker."""

    lines: list[Line]
    asked: str = ""
    answers: Answers = field(default_factory=lambda: [None, None])

    @property
    def is_free(self) -> bool:
        return all(line.waiting is None for line in self.lines)

    def is_late(self, state: str) -> bool:
        """Whether both brokers owe an answer that comes in this state of the group."""
        waits_in = {ApiKey.JOIN_GROUP: "PreparingRebalance", ApiKey.SYNC_GROUP: "CompletingRebalance"}
        return all(line.waiting is not None and waits_in.get(line.waiting[0]) != state for line in self.lines)


class Diverged(Exception):
    """The brokers chose differently where they may."""


class Walk:
    def __init__(self, brokers: tuple[str, str], seed: int, run: str) -> None:
        self.dice = random.Random(seed)
        self.brokers = brokers
        self.seed = seed
        self.group = f"walk-{run}-{seed}"
        self.topic = f"walk-{run}"
        self.topic_ids = [UUID(int=0), UUID(int=0)]
        self.side = [Line(broker, "walk") for broker in brokers]
        self.actors = [Actor([Line(broker, f"c{n}") for broker in brokers]) for n in range(6)]
        self.ids: list[dict[str, str]] = [{}, {}]
        """For each broker: our name of each member id."""
        self.members: dict[str, str | None] = {}
        """Our name to the instance id that it joined with."""
        self.generation = 0
        self.state = "Dead"
        self.leader = ""
        self.log: list[str] = []
        self.unanswered: list[Actor] = []
        """Their request waits on both brokers in a state in which no such request waits any more."""

    # Names

    def real(self, name: str, side: int) -> str:
        return next((each for each, known in self.ids[side].items() if known == name), name)

    def values(self, values: Any, side: int) -> Any:
        """A request for one broker: members and topics by its own ids."""
        if isinstance(values, Mapping):
            return {name: self.values(each, side) for name, each in values.items()}
        if isinstance(values, list):
            return [self.values(each, side) for each in values]
        if isinstance(values, str) and values in self.members:
            return self.real(values, side)
        return self.topic_ids[side] if values == "TOPIC" else values

    def view(self, value: Any, side: int) -> Any:
        """An answer of one broker, in our names."""
        if isinstance(value, Mapping):
            return {name: self.view(each, side) for name, each in value.items() if name not in NOT_COMPARED}
        if isinstance(value, list | tuple):
            return sorted((self.view(each, side) for each in value), key=str)
        if isinstance(value, str):
            return self.ids[side].get(value, value)
        if isinstance(value, UUID):
            return "TOPIC" if value == self.topic_ids[side] else str(value)
        return value.name if isinstance(value, ErrorCode) else value

    def learn(self, answers: Answers, instance_id: str | None) -> None:
        """New member ids that a JoinGroup answered."""
        both = [answer.get("member_id") or "" for answer in answers]
        if all(both) and not any(each in self.ids[side] or each in UNKNOWN for side, each in enumerate(both)):
            name = f"M{len(self.members) + 1}"
            self.members[name] = instance_id
            for side, each in enumerate(both):
                self.ids[side][each] = name

    # Steps

    def set_up(self) -> None:
        new = {
            "name": self.topic,
            "num_partitions": PARTITIONS,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for side, line in enumerate(self.side):
            line.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout": 10_000, "validate_only": False})
            end = time.monotonic() + 60
            while time.monotonic() < end:
                asked = {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}
                (found,) = line.ask(ApiKey.METADATA, 12, asked)["topics"]
                line.ask(ApiKey.FIND_COORDINATOR, 0, {"key": self.group})
                offsets = line.ask(ApiKey.OFFSET_FETCH, 5, {"group_id": self.group, "topics": None})
                if not found["error_code"] and not offsets["error_code"]:
                    self.topic_ids[side] = found["topic_id"]
                    break
                time.sleep(0.05)
            else:
                raise RuntimeError("no coordinator")

    def run(self, steps: int) -> None:
        """Raises AssertionError with the steps where the brokers differ, Diverged where they may."""
        self.set_up()
        try:
            for _ in range(steps):
                free = [actor for actor in self.actors if actor.is_free]
                if not free:
                    break
                self.step(self.dice.choice(free), *self.draw())
        finally:
            self.leave_all()
        self.compare_records()

    def draw(self) -> tuple[ApiKey, int, dict[str, Any]]:
        from tests.conformance.walks.group_walk_requests import draw

        return draw(self)

    def step(self, actor: Actor, key: ApiKey, version: int, values: dict[str, Any]) -> None:
        self.log.append(short(f"{key.name} v{version} {values}"))
        actor.asked, actor.answers = self.log[-1], [None, None]
        before = self.state
        for side, line in enumerate(actor.lines):
            line.send(key, version, self.values(values, side))
        if key not in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            actor.answers = [line.receive() for line in actor.lines]
        self.settle(before, actor)
        found = [each for each in self.actors if each.answers != [None, None]]
        for each in found:
            if "JOIN_GROUP" in each.asked:
                self.learn(each.answers, _instance_of(each.asked))
        for each in found:
            self.compare(each)
            each.answers = [None, None]
        self.compare_descriptions()

    def settle(self, before: str, asks: Actor | None = None) -> None:
        """Collect answers until no broker owes one that the other gave, and both have acted on what `asks` sent.

        Kafka serves connections by several threads: it may describe the group as it was before a request that was sent
        earlier, and show what a request led to before it answers that.
        """
        end = time.monotonic() + SETTLED_WITHIN_S
        looks, since = 0, time.monotonic()
        owed: dict[Actor, float] = {}
        while True:
            states = [each["groups"][0] for each in self.describe()]
            got = 0
            for actor in self.actors:
                for side, line in enumerate(actor.lines):
                    if line.waiting is not None and line.ready():
                        actor.answers[side] = line.receive()
                        got += 1
            owing = [actor for actor in self.actors if len({line.waiting is None for line in actor.lines}) == 2]
            shapes = [
                (each["group_state"], sorted(self.ids[side].get(row["member_id"], "new") for row in each["members"]))
                for side, each in enumerate(states)
            ]
            same = shapes[OTTLA] == shapes[KAFKA]
            initial = before in ("Empty", "Dead") and "PreparingRebalance" in (each["group_state"] for each in states)
            if got or not same or owing or initial:
                looks, since = 0, time.monotonic()
            else:
                looks += 1
                late = [actor for actor in self.actors if actor.is_late(shapes[KAFKA][0])]
                late = [actor for actor in late if actor not in self.unanswered]
                if not late and (asks is None or asks.is_free or looks >= LOOKS):
                    return
                if asks not in late and time.monotonic() - since > UNANSWERED_AFTER_S:
                    self.unanswered += late
            for actor in owing:
                lasts = time.monotonic() - owed.setdefault(actor, time.monotonic())
                if actor is not asks and lasts > UNANSWERED_AFTER_S and self.forgotten_by_kafka(actor):
                    fresh = Actor(
                        [Line(broker, line.client_id) for broker, line in zip(self.brokers, actor.lines, strict=True)]
                    )
                    self.actors[self.actors.index(actor)] = fresh
            if time.monotonic() > end:
                told = [(a.asked, [self.view(x, s) for s, x in enumerate(a.answers)]) for a in owing]
                raise AssertionError(
                    self.story(f"one broker waits: {told} {[self.view(x, s) for s, x in enumerate(states)]}")
                )
            time.sleep(0.002)

    @staticmethod
    def forgotten_by_kafka(actor: Actor) -> bool:
        """Kafka never answers the SyncGroup of a member that then leaves, and a JoinGroup that another connection
        repeats; Ottla does."""
        answer = actor.answers[OTTLA]
        return (
            actor.lines[OTTLA].waiting is None
            and answer is not None
            and answer["error_code"] in (ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress)
        )

    def describe(self) -> Answers:
        for line in self.side:
            line.send(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [self.group], "include_authorized_operations": True})
        return [line.receive() for line in self.side]

    def compare(self, actor: Actor) -> None:
        views = [self.view(answer, side) for side, answer in enumerate(actor.answers)]
        if actor.asked.startswith("LIST_GROUPS"):
            views = [[row for row in view["groups"] if row["group_id"] == self.group] for view in views]
        self.log.append(f"    {short(views[KAFKA])}   to {actor.asked[:30]}")
        if views[0] != views[1] and not _is_mistake_of_kafka(views):
            if "JOIN_GROUP" in actor.asked and views[0]["error_code"] == views[1]["error_code"]:
                leaders = [view["leader"] for view in views]
                names = [view["protocol_name"] for view in views]
                if leaders[0] != leaders[1] or names[0] != names[1]:
                    raise Diverged
            raise AssertionError(self.story(f"ottla {views[0]}\nkafka {views[1]}\nto {actor.asked}"))
        if "JOIN_GROUP" in actor.asked and views[0]["error_code"] == "none":
            self.generation, self.leader = views[0]["generation_id"], views[0]["leader"]

    def compare_descriptions(self) -> None:
        """Wait until they are equal: a broker may still have the request before it that the other has acted on."""
        end = time.monotonic() + SETTLED_WITHIN_S
        while True:
            views = self._descriptions()
            if views[OTTLA] == views[KAFKA]:
                break
            assert time.monotonic() < end, self.story(f"described: ottla {views[OTTLA]}\nkafka {views[KAFKA]}")
            time.sleep(0.005)
        self.state = views[OTTLA]["groups"][0]["group_state"]

    def _descriptions(self) -> Answers:
        found = self.describe()
        new = [
            [row for row in each["groups"][0]["members"] if row["member_id"] not in self.ids[side]]
            for side, each in enumerate(found)
        ]
        if len(new[OTTLA]) == len(new[KAFKA]) == 1:  # a member that waits and has not been told its id
            self.learn([new[OTTLA][0], new[KAFKA][0]], new[KAFKA][0]["group_instance_id"])
        return [self.view(each, side) for side, each in enumerate(found)]

    def leave_all(self) -> None:
        for side, broker in enumerate(self.brokers):
            line = Line(broker, "end")
            rows = [{"member_id": each} for each in self.ids[side]]
            line.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group, "members": rows})
        for actor in self.actors:
            for line in actor.lines:
                line.socket.close()

    # Records

    def compare_records(self) -> None:
        mine, theirs = ([*self.records(side)] for side in (OTTLA, KAFKA))
        assert _in_order(mine) == _in_order(theirs), self.story(
            "\n".join(["records of ottla:", *map(short, mine), "records of kafka:", *map(short, theirs)])
        )

    def records(self, side: int) -> Iterator[tuple[str, ...]]:
        """What the broker wrote about the group: key, version of the value, value; of timestamps whether they are."""
        line = self.side[side]
        number = partition_for(self.group, 50)
        offset = 0
        while True:
            asked = {
                "topic": "__consumer_offsets",
                "partitions": [{"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 24}],
            }
            values = {"topics": [asked], "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 24, "session_epoch": -1}
            answer = line.ask(
                ApiKey.FETCH,
                12,
                {
                    "replica_id": -1,
                    "isolation_level": 0,
                    "session_id": 0,
                    "forgotten_topics_data": [],
                    "rack_id": "",
                    **values,
                },
            )
            data = answer["responses"][0]["partitions"][0]["records"] or b""
            if not data:
                return
            for start, header in iterate_batches(data):
                offset = header.next_offset
                if header.is_control:  # others have transactions on the partition
                    continue
                for record in iterate_records(data, start):
                    decoded = decode_record(record.key or b"", record.value)
                    if decoded is not None and decoded.key.group == self.group:
                        yield self.words(decoded, record.value, side)

    def words(self, record: Any, value_bytes: bytes | None, side: int) -> tuple[str, ...]:
        key, value = record
        name = f"{key.topic}-{key.partition}" if isinstance(key, OffsetCommitKey) else "group"
        if value is None:
            return name, "deleted"
        version = str(struct.unpack_from(">h", value_bytes or b"")[0])
        if isinstance(value, OffsetCommitValue):
            lasts = value.expire_timestamp - value.commit_timestamp if value.expire_timestamp != -1 else -1
            topic_id = self.view(value.topic_id, side)
            return (name, version, f"{value.offset} {value.leader_epoch} {value.metadata} {lasts} {topic_id}")
        assert isinstance(value, GroupMetadataValue)
        members = sorted(
            f"{self.view(m.member_id, side)} {m.group_instance_id} {m.client_id} {m.client_host} {m.rebalance_timeout} "
            f"{m.session_timeout} {m.subscription!r} {m.assignment!r}"
            for m in value.members
        )
        leader = self.view(value.leader, side)
        timed = value.current_state_timestamp > 0
        return (name, version, f"{value.protocol_type} {value.generation} {value.protocol} {leader} {timed}", *members)

    def story(self, end: str) -> str:
        return f"seed {self.seed}\n" + "\n".join(self.log[-60:]) + f"\n{end}"


NOT_COMPARED = {"throttle_time", "node_id", "host", "port"}
UNKNOWN = {"", "nobody"}


def _is_mistake_of_kafka(views: list[Any]) -> bool:
    """It fails with an IllegalStateException over an id that was handed out to a dynamic member and joins as static."""
    ours = views[OTTLA].get("error_code")
    return views[KAFKA].get("error_code") == "unknown_server_error" and ours in (
        "unknown_member_id",
        "fenced_instance_id",
    )


def _instance_of(asked: str) -> str | None:
    _, found, rest = asked.partition("'group_instance_id': '")
    return rest.partition("'")[0] if found else None


def short(value: Any) -> str:
    return re.sub(r"xxx+", "xxx", re.sub(r"ééé+", "ééé", str(value)))


def _in_order(rows: list[tuple[str, ...]]) -> list[Any]:
    """Offsets that were written or deleted together come in the order of a hash map."""
    out: list[Any] = []
    for row in rows:
        if row[0] == "group":
            out.append(row)
        elif out and isinstance(out[-1], list):
            out[-1].append(row)
        else:
            out.append([row])
    return [sorted(each) if isinstance(each, list) else each for each in out]


def main() -> None:
    ottla, kafka, first, count = sys.argv[1:5]
    run = f"{time.time_ns() % 10**9}"
    diverged = steps = 0
    for seed in range(int(first), int(first) + int(count)):
        walk = Walk((ottla, kafka), seed, run)
        try:
            walk.run(70)
        except Diverged:
            diverged += 1
        except AssertionError as error:
            print(error, "\n")
        steps += sum(not line.startswith(" ") for line in walk.log)
    print(f"{count} walks, {steps} steps, {diverged} ended where brokers may differ")


if __name__ == "__main__":
    main()
