"""The same requests for Ottla's group coordinator and for Kafka's own class, from a seed: members of consumer groups
(KIP-848) join, leave, subscribe, by name and by pattern, are fenced and forgotten, while topics come, grow and go, time
passes, and another coordinator takes over. The same answers, the same records.

With `range`, which leaves nothing to the order of Java's hash maps; records of one step are compared as a set.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.consumer.consumer_protocol import decode_assignment
from ottla.coordinator.group.consumer.describe import describe as describe_consumer
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.heartbeat import check
from ottla.coordinator.group.requests import (
    ConsumerHeartbeat,
    DeleteGroups,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.codec import encode_into
from ottla.protocol.internal.group_records import encode_key, encode_value
from ottla.protocol.schemas.records import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicNumbers
from tests.conformance.line_program import Lines
from tests.conformance.walks.consumer_group_texts import (
    MADE_ID,
    Owned,
    described,
    in_order,
    maker,
    only_assignments,
    places,
    read_places,
    shown,
    split,
    without_leader,
    without_order,
)
from tests.conformance.walks.coordinator_walk import grown, register_brokers, removed
from tests.unit.coordinator.harness import WALL_START_MS, SimulatedDriver

WALKS = int(os.environ.get("OTTLA_CONSUMER_GROUP_WALKS", "40"))
FIRST_SEED = int(os.environ.get("OTTLA_CONSUMER_GROUP_SEED", "0"))
STEPS = 150
TRACE = int(os.environ.get("OTTLA_CONSUMER_GROUP_TRACE", "12"))
"""How many of the steps before are shown."""
SAME_SESSIONS_MS = 61_000
"""Sessions and rebalances end in that time."""
LEAST = {
    "joined": 200, "heartbeat": 800, "reconciled": 80, "static": 15, "pattern": 100, "left": 80, "expired": 30,
    "topic": 120, "reload": 80, "committed": 35, "records": 3_000, "upgraded": 5, "downgraded": 5,
    "FENCED_MEMBER_EPOCH": 15, "UNKNOWN_MEMBER_ID": 200, "UNRELEASED_INSTANCE_ID": 15, "FENCED_INSTANCE_ID": 8,
    "STALE_MEMBER_EPOCH": 25,
    "INVALID_REGULAR_EXPRESSION": 20, "GROUP_MAX_SIZE_REACHED": 10, "REBALANCE_IN_PROGRESS": 25,
    "join NONE": 80, "join MEMBER_ID_REQUIRED": 20, "sync NONE": 20,
}  # fmt: skip
"""Minimum counts of events in 40 walks, or they prove little."""
GROUPS = ("g", "h")
TOPICS = ("t1", "t2", "t3", "u1")
PATTERNS = ("t.*", "[tu]1", "t[23]", "none", "u.+")


@pytest.fixture(scope="module")
def kafka() -> Iterator[Lines]:
    started = Lines("org.apache.kafka.coordinator.group.GroupCoordinatorLines", "4.4")
    yield started
    started.close()


@dataclasses.dataclass
class Client:
    """A member's own state."""

    member_id: str
    group: str
    instance_id: str | None = None
    epoch: int = 0
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    owned: Owned = dataclasses.field(default_factory=dict)
    target: Owned = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Classic:
    """A member that uses the classic protocol."""

    group: str
    token: str
    instance_id: str | None
    topics: tuple[str, ...]
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    members: tuple[str, ...] = ()
    asked: str = ""
    """The request that waits for an answer."""
    joined: bool = False
    assigned: tuple[TopicNumbers, ...] = ()

    def metadata(self) -> bytes:
        out = bytearray(struct.pack(">h", 3))
        encode_into(out, ConsumerProtocolSubscription(self.topics, None, self.assigned, self.generation), 3)
        return bytes(out)

    def answered(self, response: Mapping[str, Any]) -> str:
        """As the other side prints it."""
        asked, self.asked = self.asked, ""
        error = ErrorCode(response["error_code"])
        if asked == "sync":
            if error is ErrorCode.none and response["assignment"]:
                self.assigned = decode_assignment(response["assignment"]).assigned_partitions
            return f"sync/{error.name.upper()}/{response['assignment'].hex()}"
        members = sorted(f"{each['member_id']}={each['metadata'].hex()}" for each in response["members"])
        if error in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = response["member_id"]
        if error is ErrorCode.none:
            self.generation = response["generation_id"]
            self.leads = response["leader"] == self.member_id
            self.members = tuple(each["member_id"] for each in response["members"])
            self.joined = True
        elif error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.member_id = ""
        shown = [
            error.name.upper(),
            response["member_id"],
            response["generation_id"],
            response["protocol_name"] or "",
            response["leader"],
            str(response["skip_assignment"]).lower(),
            ",".join(members),
        ]
        return "join/" + "/".join(map(str, shown))


class Diverged(Exception):
    """A member has joined without a topic, or subscribed by a pattern that is not resolved yet, which begins no epoch.
    Until one begins, Kafka takes a group of which all read the same for one that still does, and gives its members what
    the first of them reads."""


class Walk:
    def __init__(self, seed: int, kafka: Lines) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.kafka = kafka
        self.done: Counter[str] = Counter()
        self.clients: list[Client] = []
        self.gone: list[Client] = []
        self.topics: dict[str, tuple[int, int]] = {}
        """Number of the id, and partitions."""
        self.ids = 0
        self.trace: list[str] = []
        self.muddled_ms = -SAME_SESSIONS_MS
        """When all sessions began at once, to end in the order of a hash map; or a group became a classic one, where
        Kafka leaves a timer behind that removes the member when the group has become a consumer group again."""
        self.classics: list[Classic] = []
        self.names: dict[str, str] = {}
        """Ids that Kafka has made, and what Ottla's are for the same members."""
        interval = self.random.choice((0, 0, 1_000))
        max_size = self.random.choice((1_000, 4))
        self.driver = SimulatedDriver(
            GroupConfig(
                consumer_assignors=("range",),
                consumer_assignment_interval_ms=interval,
                consumer_max_size=max_size,
                initial_rebalance_delay_ms=0,
            )
        )
        register_brokers(self.driver)
        settings = {
            "group.consumer.assignors": "range",
            "group.consumer.assignment.interval.ms": interval,
            "group.consumer.max.size": max_size,
            "group.initial.rebalance.delay.ms": 0,
        }
        self.both(f"new {WALL_START_MS} " + " ".join(f"{name}={value}" for name, value in settings.items()), lambda: "")

    def both(self, line: str, ours: Any) -> str:
        """Do a step on both sides and compare. Returns Ottla's answer."""
        self.trace.append(line)
        written = len(self.driver.log)
        self.driver.replies.clear()
        began_ms = self.driver.timer_ms
        if len(self.trace) > 1:
            self.driver.wait(1)
        try:
            answer = ours()
        except KafkaError as error:
            answer = error.code.name.upper()
        answers = [each for each in (answer, *self._late()) if each]
        said, records = self.kafka.ask(self._translated(line))
        if "NoSuchElementException" in said:
            raise Diverged  # Kafka fails where a group of the classic protocol is in its very first rebalance
        if "REBALANCE_IN_PROGRESS" in said and len(said.split()) > len(answers) and answer.isupper():
            raise Diverged  # Kafka sends the members of a group away before it finds that it will not be upgraded
        mine = [
            (encode_key(each.key), encode_value(each.value)) for batch in self.driver.log[written:] for each in batch
        ]
        found = [shown(*each) for each in mine]
        expected = [shown(*split(each)) for each in records]
        self._meet(" ".join([*answers, *found]), " ".join([said, *expected]))
        theirs = [self._named(each) for each in said.split()]
        expected = [shown(*split(each), self._named) for each in records]
        if line.startswith("time"):  # (and no other: two sessions that began with a request end at different times)
            found, expected = without_order(found), without_order(expected)
        extra, lacking = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
        words = line.split()
        if words[0] == "heartbeat" and (words[3] == "0" or words[8] != "-") and only_assignments([*extra, *lacking]):
            raise Diverged
        if {*map(without_leader, extra)} == {*map(without_leader, lacking)} != set():
            raise Diverged  # of several members of a group that becomes a classic one the first in a hash map leads it
        if (extra or lacking) and began_ms - self.muddled_ms < SAME_SESSIONS_MS:
            raise Diverged
        context = f"seed {self.seed}, step {len(self.trace)}\n" + "\n".join(self.trace[-TRACE:])
        assert not extra and not lacking, "\n  ".join([context, "only Ottla:", *extra, "only Kafka:", *lacking])
        answers, theirs = sorted(map(in_order, answers)), sorted(map(in_order, theirs))
        assert answers == theirs, f"{context}\nOttla: {answers}\nKafka: {theirs}"
        self.done["records"] += len(found)
        self.done["upgraded"] += any(re.match("GroupMetadataKey.*gone", each) for each in found)
        if any(re.match(r"ModernKey\(type=3.*gone", each) for each in found):
            self.done["downgraded"] += 1
            self.muddled_ms = self.driver.timer_ms
        self.done[answer] += 1
        return str(answer)

    def _late(self) -> list[str]:
        """Answers to members of the classic protocol, which may have waited."""
        found = []
        for token, response in self.driver.replies:
            if isinstance(token, Classic):
                found.append(f"{token.token}:{token.answered(response)}")
                self.done[" ".join(found[-1].split(":")[1].split("/")[:2])] += 1
        return found

    def _meet(self, ours: str, theirs: str) -> None:
        """Each side makes ids for members of the classic protocol: note which is which."""
        mine = {*MADE_ID.findall(ours)} - {*self.names.values()}
        other = {*MADE_ID.findall(theirs)} - {*self.names}
        assert sorted(map(maker, mine)) == sorted(map(maker, other)), (mine, other)
        self.names.update(zip(sorted(other, key=maker), sorted(mine, key=maker), strict=True))

    def _named(self, text: str) -> str:
        return MADE_ID.sub(lambda found: self.names.get(found[0], found[0]), text)

    def _translated(self, line: str) -> str:
        back = {ours: theirs for theirs, ours in self.names.items()}
        return MADE_ID.sub(lambda found: back.get(found[0], found[0]), line)

    def step(self) -> None:
        names = {
            "join": 10,
            "beat": 40,
            "leave": 5,
            "subscribe": 8,
            "wrong": 6,
            "topic": 6,
            "untopic": 2,
            "time": 8,
            "reload": 3,
            "commit": 5,
            "describe": 6,
            "list": 1,
            "delete": 1,
            "classic_join": 6,
            "classic_sync": 8,
            "classic_beat": 8,
            "classic_leave": 2,
        }
        getattr(self, self.random.choices([*names], [*names.values()])[0])()

    # Members

    def join(self) -> None:
        self.ids += 1
        client = Client(f"m{self.ids}", self.random.choice(GROUPS))
        if self.random.random() < 0.4:
            client.instance_id = self.random.choice(("i1", "i2"))
        self._choose(client)
        rack = self.random.choice(("-", "rack1"))
        assignor = self.random.choice(("-", "-", "range"))
        if self._send(client, 0, topics=True, rack=rack, assignor=assignor, owned={}):
            self.clients.append(client)
            self.done["joined"] += 1

    def _choose(self, client: Client) -> None:
        client.topics, client.pattern = None, None
        if self.random.random() < 0.3:
            client.pattern = self.random.choice((*PATTERNS, "(")) if self.random.random() < 0.9 else "t(?=1)"
            if self.random.random() < 0.3:
                client.topics = ("u1",)
            self.done["pattern"] += 1
        else:
            client.topics = tuple(self.random.sample(TOPICS, self.random.randint(0, 3)))

    def beat(self) -> None:
        if not self.clients:
            return
        client = self.random.choice(self.clients)
        if client.epoch < 0:
            return
        if client.owned != client.target and self.random.random() < 0.7:
            revoked = {
                topic: both
                for topic, found in client.owned.items()
                if (both := found & client.target.get(topic, set()))
            }
            client.owned = revoked if revoked != client.owned else client.target
            self.done["reconciled"] += 1
        self.done["heartbeat"] += 1
        # Java's client names what it has where that has changed.
        owned = client.owned if self.random.random() < 0.6 else None
        self._send(client, client.epoch, owned=owned)

    def subscribe(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            if client.epoch > 0:
                self._choose(client)
                self._send(client, client.epoch, topics=True, owned=client.owned)

    def leave(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            epoch = -2 if client.instance_id is not None and self.random.random() < 0.7 else -1
            self._send(client, epoch)
            if client in self.clients:
                self.clients.remove(client)
                self.gone.append(client)
            self.done["left"] += 1
            if epoch == -2 and self.random.random() < 0.7:
                self.ids += 1
                again = Client(f"m{self.ids}", client.group, client.instance_id)
                again.topics, again.pattern = client.topics, client.pattern
                if self.random.random() < 0.3:
                    self._choose(again)
                if self._send(again, 0, topics=True, owned={}):
                    self.clients.append(again)
                    self.done["static"] += 1

    def wrong(self) -> None:
        """Send a request that no correct client sends."""
        known = [*self.clients, *self.gone]
        if not known:
            return
        client = dataclasses.replace(self.random.choice(known))
        match self.random.randrange(5):
            case 0:
                client.epoch += self.random.choice((-1, 1, 5))
            case 1:
                client.member_id = "lost"
            case 2:
                client.instance_id = self.random.choice((None, "i1", "i9"))
            case 3:
                client.owned = {UUID(int=self.random.randint(1, 9)): frozenset({0})}
            case 4:
                client.epoch = -2
        owned = self.random.choice((None, client.owned, {}))
        self._send(client, client.epoch, topics=self.random.random() < 0.3, owned=owned)

    def _send(
        self,
        client: Client,
        epoch: int,
        *,
        topics: bool = False,
        rack: str = "-",
        assignor: str = "-",
        owned: Owned | None = None,
    ) -> bool:
        timeout = 60_000 if epoch == 0 else self.random.choice((-1, -1, -1, 30_000))
        names = client.topics if topics else None
        pattern = (client.pattern or "") if topics and (client.pattern or epoch > 0) else None
        words = [
            "heartbeat",
            client.group,
            client.member_id,
            epoch,
            client.instance_id or "-",
            rack,
            timeout,
            "-" if names is None else ",".join(names) or "=",
            "-" if pattern is None else pattern or "=",
            assignor,
            "-" if owned is None else places(owned) or "=",
        ]
        request = ConsumerHeartbeat(
            group_id=client.group,
            member_id=client.member_id,
            member_epoch=epoch,
            instance_id=client.instance_id,
            rack_id=None if rack == "-" else rack,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=timeout,
            topics=names,
            pattern=pattern,
            assignor=None if assignor == "-" else assignor,
            owned=owned,
        )
        try:
            check(request, ("range",))
        except KafkaError:
            return False  # Kafka's shard is not asked; differential cases have these
        answer = self.both(" ".join(map(str, words)), lambda: self._heartbeat(request))
        if "/" not in answer:
            if answer in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID") and client in self.clients:
                self.clients.remove(client)
                self.gone.append(client)
            return False
        _, new_epoch, _, assigned = answer.split("/")
        client.epoch = int(new_epoch)
        if assigned != "-":
            client.target = read_places(assigned)
        return True

    def _heartbeat(self, request: ConsumerHeartbeat) -> str:
        answer = self.answer(lambda token: self.driver.shard.ask(token, request, self.driver.now))
        if answer["error_code"]:
            return str(ErrorCode(answer["error_code"]).name.upper())
        assigned = answer["assignment"]
        listed = "-" if assigned is None else "[" + places(assigned) + "]"
        return f"{answer['member_id']}/{answer['member_epoch']}/{answer['heartbeat_interval']}/{listed}"

    def answer(self, ask: Any) -> Any:
        token = object()
        ask(token)
        self.driver.run()
        (found,) = [answer for each, answer in self.driver.replies if each is token]
        return found

    # Members of the classic protocol

    def classic_join(self) -> None:
        free = [each for each in self.classics if not each.asked]
        if free and self.random.random() < 0.6:
            client = self.random.choice(free)
        else:
            group, instance = self.random.choice(GROUPS), self.random.choice((None, "i3", "i4"))
            if any((each.group, each.instance_id) == (group, instance) for each in self.classics):
                return  # with two ids that each side makes for itself the assignor's order would be another
            self.ids += 1
            topics = tuple(self.random.sample(TOPICS, self.random.randint(1, 2)))
            client = Classic(group, f"T{self.ids}", instance, topics)
            self.classics.append(client)
        if self.random.random() < 0.2:
            client.topics = tuple(self.random.sample(TOPICS, self.random.randint(1, 2)))
        request = JoinGroup(
            group_id=client.group,
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols={"range": client.metadata()},
        )
        there = self.driver.shard.state.groups.get(client.group)
        if client.member_id and isinstance(there, ConsumerGroup) and not there.members:
            return  # Kafka forgets the group until it is loaded again, without a record
        client.asked = "join"
        line = (
            f"join {client.token} {client.group} {client.member_id or '='} {client.instance_id or '-'} 45000 60000 "
            f"range={client.metadata().hex()}"
        )
        self.both(line, lambda: self._do(lambda: self.driver.shard.ask(client, request, self.driver.now)))

    def classic_sync(self) -> None:
        joined = [each for each in self.classics if not each.asked and each.joined]
        if not joined:
            return
        client = self.random.choice(joined)
        client.joined = False
        assignments = {}
        if client.leads:
            for index, member_id in enumerate(client.members):
                out = bytearray(struct.pack(">h", 3))
                rows = [TopicNumbers(name, (index,)) for name, (_, count) in self.topics.items() if index < count]
                encode_into(out, ConsumerProtocolAssignment(tuple(rows)), 3)
                assignments[member_id] = bytes(out)
        request = SyncGroup(
            group_id=client.group,
            generation=client.generation,
            member_id=client.member_id,
            instance_id=client.instance_id,
            protocol_type="consumer",
            protocol_name=None,
            assignments=assignments,
        )
        client.asked = "sync"
        listed = ",".join(f"{name}={data.hex()}" for name, data in assignments.items()) or "="
        who = f"{client.group} {client.member_id} {client.instance_id or '-'} {client.generation}"
        line = f"sync {client.token} {who} {listed}"
        self.both(line, lambda: self._do(lambda: self.driver.shard.ask(client, request, self.driver.now)))

    def classic_beat(self) -> None:
        known = [each for each in self.classics if each.member_id]
        if known:
            client = self.random.choice(known)
            where = (client.group, client.member_id, client.instance_id, client.generation)
            line = f"beat {client.group} {client.member_id} {client.generation} {client.instance_id or '-'}"
            self.both(line, lambda: self._do(lambda: self.driver.heartbeat(*where)) or "NONE")

    def classic_leave(self) -> None:
        known = [each for each in self.classics if each.member_id and not each.asked]
        if not known:
            return
        client = self.random.choice(known)
        self.classics.remove(client)
        leaving = Leaving("" if client.instance_id else client.member_id, client.instance_id)

        def ours() -> str:
            answer = self.answer(
                lambda token: self.driver.shard.ask(token, LeaveGroup(client.group, [leaving]), self.driver.now)
            )
            of = "".join(f"/{ErrorCode(each['error_code']).name.upper()}" for each in answer["members"])
            return f"{ErrorCode(answer['error_code']).name.upper()}{of}"

        self.both(f"leave {client.group} {leaving.member_id or '='} {client.instance_id or '-'}", ours)

    def _do(self, ask: Callable[[], None]) -> str:
        ask()
        self.driver.run()
        return ""

    # Everything else

    def topic(self) -> None:
        name = self.random.choice(TOPICS)
        self.ids += 1
        number, count = self.topics.get(name, (self.ids, 0))
        more = count + self.random.randint(1, 3)
        self.topics[name] = number, more
        delta = grown(self.driver, name, number, count, more)
        self.both(f"topic {name} {number} {more}", lambda: self.driver.change_topics(delta) or "")
        self.done["topic"] += 1

    def untopic(self) -> None:
        if self.topics:
            name = self.random.choice([*self.topics])
            number, _ = self.topics.pop(name)
            delta = removed(self.driver, number)
            self.both(f"untopic {number}", lambda: self.driver.change_topics(delta) or "")

    def time(self) -> None:
        passed = self.random.choice((100, 1_000, 5_000, 20_000, 46_000))
        before = self.done["records"]
        self.both(f"time {passed}", lambda: self.driver.wait(passed) or "")
        self.done["expired"] += self.done["records"] > before

    def reload(self) -> None:
        self.both("reload", lambda: self.driver.restart() or "")
        self.muddled_ms = self.driver.timer_ms
        for each in self.classics:
            each.asked = ""  # whoever waited at the coordinator before is told to look for this one
        self.done["reload"] += 1

    def commit(self) -> None:
        known = [*self.clients, *self.gone]
        if not known:
            return
        client = self.random.choice(known)
        epoch = self.random.choice((client.epoch, client.epoch, client.epoch - 1, -1))
        offset = OffsetToCommit("t1", 0, self.random.randint(0, 99), -1, "")
        request = OffsetCommit(
            group_id=client.group,
            member_id=client.member_id,
            generation=epoch,
            offsets=[offset],
            knows_unknown_group=True,
        )

        def ours() -> str:
            answer = self.answer(lambda token: self.driver.shard.ask(token, request, self.driver.now))
            (code,) = answer["partitions"].values()
            return str(ErrorCode(code).name.upper())

        line = f"commit {client.group} {client.member_id} {epoch} t1 0 {offset.offset}"
        self.done["committed"] += self.both(line, ours) == "NONE"

    def describe(self) -> None:
        group = self.random.choice(GROUPS)

        def ours() -> str:
            found = describe_consumer(self.driver.shard.state, group)
            members = ",".join(sorted(map(described, found["members"])))
            about = [found["group_state"], found["group_epoch"], found["assignment_epoch"], found["assignor_name"]]
            return "/".join(map(str, [*about, members]))

        self.both(f"describe {group}", ours)

    def list(self) -> None:
        def ours() -> str:
            rows = list_groups(self.driver.shard.state, (), ())
            shown = (f"{x['group_id']}/{x['protocol_type']}/{x['group_state']}/{x['group_type']}" for x in rows)
            return "[" + ",".join(sorted(shown)) + "]"

        self.both("list", ours)

    def delete(self) -> None:
        group = self.random.choice(GROUPS)

        def ours() -> str:
            answer = self.answer(lambda token: self.driver.shard.ask(token, DeleteGroups([group]), self.driver.now))
            (code,) = answer["groups"].values()
            return str(ErrorCode(code).name.upper())

        self.both(f"delete {group}", ours)


def test_walks(kafka: Lines) -> None:
    done: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + WALKS):
        walk = Walk(seed, kafka)
        try:
            for _ in range(STEPS):
                walk.step()
        except Diverged:
            done["diverged"] += 1
        done += walk.done
    assert done["diverged"] < WALKS / 2
    if WALKS >= 40:
        assert all(done[what] >= least for what, least in LEAST.items()), {each: done[each] for each in LEAST}
