"""The same requests for Ottla's group coordinator and Kafka 4.4's, from a seed: members of streams groups (KIP-1071)
join, move their tasks, change, are fenced and forgotten, while topics come, grow and go, time passes, and another
coordinator takes over. The same answers, the same records.

Both deal tasks in turn, so that nothing is left to the order of Java's hash maps; the real assignors are compared in
`test_streams_walk.py`. Records of one step are compared as a set.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.requests import (
    ConsumerHeartbeat,
    DeleteGroups,
    OffsetCommit,
    OffsetToCommit,
    StreamsHeartbeat,
)
from ottla.coordinator.group.streams import endpoints, target, warmups
from ottla.coordinator.group.streams.assignor import MemberTasks, SubtopologySize, TaskAssignorError, TaskMember
from ottla.coordinator.group.streams.describe import describe as describe_streams
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.heartbeat import check
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import encode_key, encode_value
from ottla.protocol.internal.group_values import encode_group_value
from ottla.protocol.schemas.records import CopartitionGroup, StreamsEndpoint, StreamsGroupTopologyValue, Subtopology
from tests.conformance.line_program import Lines
from tests.conformance.walks.consumer_group_texts import shown, split, without_order
from tests.conformance.walks.coordinator_walk import grown, register_brokers, removed
from tests.conformance.walks.test_streams_walk import comparable
from tests.unit.coordinator.harness import WALL_START_MS, SimulatedDriver
from tests.unit.coordinator.streams_groups import COUNTING, subtopology

WALKS = int(os.environ.get("OTTLA_STREAMS_GROUP_WALKS", "40"))
FIRST_SEED = int(os.environ.get("OTTLA_STREAMS_GROUP_SEED", "0"))
STEPS = 150
TRACE = int(os.environ.get("OTTLA_STREAMS_GROUP_TRACE", "12"))
"""How many of the steps before are shown."""
SAME_SESSIONS_MS = 61_000
LEAST = {
    "joined": 100, "heartbeat": 500, "reconciled": 60, "left": 50, "expired": 20, "topic": 100, "reload": 50,
    "records": 2_000, "standby": 20, "described": 50, "endpoints": 100, "committed": 20,
    "FENCED_MEMBER_EPOCH": 10, "UNKNOWN_MEMBER_ID": 50, "GROUP_ID_NOT_FOUND": 20, "GROUP_MAX_SIZE_REACHED": 5,
    "INVALID_REQUEST": 20, "STALE_MEMBER_EPOCH": 10, "status 0": 5, "status 1": 20, "status 2": 5, "status 3": 20,
    "status 4": 20, "status 5": 50, "status 6": 20, "static": 50, "slept": 20, "UNRELEASED_INSTANCE_ID": 5,
    "FENCED_INSTANCE_ID": 1,
}  # fmt: skip
"""Minimum counts of events in 40 walks, or they prove little."""
REFUSED_BY_NAME = {"UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", "STREAMS_INVALID_TOPOLOGY", "FENCED_MEMBER_EPOCH"}
GROUPS = ("g", "h")
TOPICS = ("t", "u", "r", "c")
"""The last two are internal ones of `COUNTING`."""
JOINED = StreamsGroupTopologyValue(
    1,
    (
        subtopology("0", "t", "u", keeps=["c"]).replaced(copartition_groups=(CopartitionGroup((0, 1), (), ()),)),
        subtopology("1", "u"),
    ),
)
"""Reads t and u together, and u once more."""
TOPOLOGIES = (
    COUNTING, COUNTING, JOINED, COUNTING.replaced(epoch=1),
    StreamsGroupTopologyValue(0, (Subtopology("0", ("t",)),)),
)  # fmt: skip

Rows = tuple[tuple[str, tuple[int, ...]], ...]
Owned = tuple[Rows, Rows, Rows]
NOTHING: Owned = ((), (), ())


def deal_in_turn(
    members: Mapping[str, TaskMember],
    subtopologies: Mapping[str, SubtopologySize],
    standby_replicas: int,
    tags: Sequence[str] = (),
) -> dict[str, MemberTasks]:
    """As `StreamsGroupLines.InTurn`: each task to the next member, standbys to those behind it."""
    names = sorted(members)
    dealt: dict[str, tuple[dict[str, set[int]], ...]] = {name: ({}, {}, {}) for name in names}
    tasks = [(each, number) for each, size in sorted(subtopologies.items()) for number in range(size.tasks)]
    for place, (each, number) in enumerate(tasks):
        if not names:
            raise TaskAssignorError("there is nobody")
        first = names[place % len(names)]
        dealt[first][0].setdefault(each, set()).add(number)
        taken, given = {members[first].process_id}, 0
        for offset in range(1, len(names)):
            name = names[(place + offset) % len(names)]
            if given >= standby_replicas or not subtopologies[each].is_stateful:
                break
            if members[name].process_id not in taken:
                taken.add(members[name].process_id)
                dealt[name][1].setdefault(each, set()).add(number)
                given += 1
    return {
        name: MemberTasks(*({each: frozenset(found) for each, found in kind.items()} for kind in kinds))
        for name, kinds in dealt.items()
    }


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
    process: str
    topology: StreamsGroupTopologyValue
    endpoint: int | None
    instance: str | None = None
    epoch: int = 0
    endpoint_epoch: int = 0
    owned: Owned = NOTHING
    target: Owned = NOTHING


class Diverged(Exception):
    """The next event depends on the order of a hash map."""


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
        """When all sessions began at once, to end in the order of a hash map."""
        self.response: Mapping[str, Any] = {}
        settings = {
            "group.streams.initial.rebalance.delay.ms": self.random.choice((0, 3_000)),
            "group.streams.assignment.interval.ms": self.random.choice((0, 1_000)),
            "group.streams.num.standby.replicas": self.random.choice((0, 1, 1)),
            # With warm-ups Kafka 4.4 gives a member that comes back under its id the target that it had before.
            "group.streams.num.warmup.replicas": 0,
        }
        tags = self.random.choice((None, None, "c", "c,x"))
        if tags is not None:
            settings["group.streams.rack.aware.assignment.tags"] = tags
        max_size = self.random.choice((1_000, 2, 3))
        streams = {**GroupConfig().streams, **settings}
        if tags is not None:
            streams["group.streams.rack.aware.assignment.tags"] = tuple(tags.split(","))
        self.driver = SimulatedDriver(
            GroupConfig(initial_rebalance_delay_ms=0, streams=streams, streams_max_size=max_size)
        )
        register_brokers(self.driver)
        words = (f"{name}={value}" for name, value in {**settings, "group.streams.max.size": max_size}.items())
        self.both(f"new {WALL_START_MS} " + " ".join(words), lambda: "")
        for name in TOPICS if self.random.random() < 0.6 else TOPICS[:2]:
            self._grow(name)

    def both(self, line: str, ours: Any) -> str:
        """Do a step on both sides and compare. Returns Ottla's answer."""
        self.trace.append(line)
        written = len(self.driver.log)
        self.driver.replies.clear()
        began_ms = self.driver.timer_ms
        if len(self.trace) > 1:
            self.driver.wait(1)
        try:
            answer = str(ours())
        except KafkaError as error:
            answer = error.code.name.upper()
        said, records = self.kafka.ask(line)
        if said.startswith("thrown:") and answer in REFUSED_BY_NAME:
            said = answer  # which the service says as UNKNOWN_SERVER_ERROR
        mine = [
            (encode_key(each.key), encode_value(each.value)) for batch in self.driver.log[written:] for each in batch
        ]
        found = [shown(*each) for each in mine]
        expected = [shown(*split(each)) for each in records]
        if line.startswith("time"):
            found, expected = without_order(found), without_order(expected)
        extra, lacking = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
        if (extra or lacking) and began_ms - self.muddled_ms < SAME_SESSIONS_MS:
            raise Diverged
        context = f"seed {self.seed}, step {len(self.trace)}\n" + "\n".join(self.trace[-TRACE:])
        assert not extra and not lacking, "\n  ".join([context, "only Ottla:", *extra, "only Kafka:", *lacking])
        if line.startswith("streams"):
            answer = without_repeated_tasks(line, answer, said)
        assert comparable_answer(answer) == comparable_answer(said), f"{context}\nOttla: {answer}\nKafka: {said}"
        self.done["records"] += len(found)
        self.done[answer] += 1
        return answer

    @staticmethod
    def _quietly(do: Callable[..., None], *arguments: Any) -> str:
        do(*arguments)
        return ""

    def step(self) -> None:
        names = {
            "join": 10,
            "beat": 70,
            "leave": 4,
            "change": 4,
            "wrong": 6,
            "topic": 5,
            "untopic": 1,
            "time": 9,
            "reload": 2,
            "commit": 5,
            "describe": 5,
            "list": 1,
            "delete": 2,
            "intrude": 2,
        }
        getattr(self, self.random.choices([*names], [*names.values()])[0])()

    # Members

    def join(self) -> None:
        self.ids += 1
        group = self.random.choice(GROUPS)
        known = [each.topology for each in self.clients if each.group == group]
        usual = known and self.random.random() < 0.95
        topology = self.random.choice(known if usual else TOPOLOGIES)
        endpoint = self.random.choice((None, 8_000 + self.ids))
        instance = self.random.choice((None, None, "i1", "i2", "i3"))
        client = Client(f"m{self.ids}", group, f"p{self.random.randint(1, 4)}", topology, endpoint, instance)
        rejoins = [each for each in [*self.clients, *self.gone] if self.random.random() < 0.1]
        if rejoins:
            client.member_id, client.group = rejoins[0].member_id, rejoins[0].group
            self.clients = [each for each in self.clients if each is not rejoins[0]]
        if self._send(client, 0, owned=NOTHING, joins=True):
            self.clients.append(client)
            self.done["joined"] += 1
            self.done["static"] += client.instance is not None

    def beat(self) -> None:
        if not self.clients:
            return
        client = self.random.choice(self.clients)
        if client.owned != client.target and self.random.random() < 0.7:
            kept = both_of(client.owned, client.target)
            client.owned = kept if kept != client.owned else client.target
            self.done["reconciled"] += 1
        self.done["heartbeat"] += 1
        self._send(client, client.epoch, owned=client.owned if self.random.random() < 0.7 else None)

    def change(self) -> None:
        """Change the member's metadata, or ask all to stop."""
        if not self.clients:
            return
        client = self.random.choice(self.clients)
        if self.random.random() < 0.15:
            self._send(client, client.epoch, owned=client.owned, shuts_down=True)
            return
        client.process = f"p{self.random.randint(1, 4)}"
        client.endpoint = self.random.choice((None, 9_000 + self.ids))
        self._send(client, client.epoch, owned=client.owned, tells=True)

    def leave(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            sleeps = client.instance is not None and self.random.random() < 0.6
            self.done["slept"] += self._send(client, -2 if sleeps else -1) and sleeps
            if client in self.clients:
                self.clients.remove(client)
                self.gone.append(client)
            self.done["left"] += 1

    def wrong(self) -> None:
        """Send a request that no correct client sends."""
        known = [*self.clients, *self.gone]
        if not known:
            return
        client = dataclasses.replace(self.random.choice(known))
        match self.random.randrange(6):
            case 0:
                client.epoch += self.random.choice((-1, 1, 5))
            case 1:
                client.member_id = "lost"
            case 2:
                client.group = self.random.choice((*GROUPS, "none"))
            case 3:
                client.owned = ((("0", (self.random.choice((0, 1, 77)),)),), (), ())
            case 4:
                client.owned = ((("9", (0,)),), (), ())
            case 5:
                client.instance = self.random.choice((None, "i1", "i2", "i9"))
        self._send(client, client.epoch, owned=self.random.choice((None, client.owned, client.owned, NOTHING)))

    def _send(
        self,
        client: Client,
        epoch: int,
        *,
        owned: Owned | None = None,
        joins: bool = False,
        tells: bool = False,
        shuts_down: bool = False,
    ) -> bool:
        tells = tells or joins
        rack = self.random.choice((None, "rack1")) if tells else None
        tags = self.random.choice((None, (), (("a", "b"), ("c", self.random.choice("de"))))) if tells else None
        endpoint = None
        if tells and client.endpoint is not None:
            endpoint = StreamsEndpoint("h", client.endpoint)
        request = StreamsHeartbeat(
            group_id=client.group,
            member_id=client.member_id,
            member_epoch=epoch,
            rack_id=rack,
            client_id="c",
            endpoint_epoch=self.random.choice((client.endpoint_epoch, client.endpoint_epoch, 0)),
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000 if joins else self.random.choice((-1, -1, -1, 30_000)),
            topology=client.topology if joins else None,
            owned=(None, None, None) if owned is None else owned,
            process_id=client.process if tells else None,
            user_endpoint=endpoint,
            client_tags=tags,
            shuts_down=shuts_down,
            instance_id=client.instance,
            task_offsets=None if joins else self._offsets(),
            task_end_offsets=None if joins else self._offsets(),
        )
        try:
            check(request)
        except KafkaError:
            return False  # Kafka's shard is not asked; differential cases have these
        self.response = {}
        self.both(line_of(request), lambda: self._heartbeat(request))
        response = self.response
        if not response:
            for each in [each for each in self.clients if each.member_id == client.member_id]:
                if not isinstance(self.driver.shard.state.groups.get(each.group), StreamsGroup) or (
                    self.random.random() < 0.3
                ):
                    self.clients.remove(each)
                    self.gone.append(each)
            return False
        if epoch < 0:
            return True
        client.epoch, client.endpoint_epoch = response["member_epoch"], response["endpoint_information_epoch"]
        if response["active_tasks"] is not None:
            active, standby, warmup = (
                tuple((row["subtopology_id"], tuple(row["partitions"])) for row in response[f"{kind}_tasks"])
                for kind in ("active", "standby", "warmup")
            )
            client.target = active, standby, warmup
        for status in response["status"]:
            self.done[f"status {int(status['status_code'])}"] += 1
        self.done["standby"] += bool(client.target[1])
        self.done["warmup"] += bool(client.target[2])
        self.done["endpoints"] += bool(response["partitions_by_user_endpoint"])
        return True

    def _offsets(self) -> list[tuple[str, int, int]] | None:
        """(Kafka loses what the first member of a group reports as it joins.)"""
        if self.random.random() < 0.7:
            return None
        tasks = self.random.sample([("0", 0), ("0", 1), ("1", 0), ("1", 1)], self.random.randint(0, 3))
        if tasks and self.random.random() < 0.05:
            tasks.append(tasks[0])
        return [(name, number, self.random.randint(0, 99)) for name, number in tasks]

    def _heartbeat(self, request: StreamsHeartbeat) -> str:
        response = self.answer(lambda token: self.driver.shard.ask(token, request, self.driver.now))
        self.response = response
        return answered(response)

    def answer(self, ask: Any) -> Any:
        token = object()
        ask(token)
        self.driver.run()
        (found,) = [answer for each, answer in self.driver.replies if each is token]
        return found

    def intrude(self) -> None:
        """A consumer that takes the group for one of its own."""
        group = self.random.choice(GROUPS)
        if not isinstance(self.driver.shard.state.groups.get(group), StreamsGroup):
            return
        request = ConsumerHeartbeat(
            group_id=group,
            member_id="consumer",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            topics=("t",),
            pattern=None,
            assignor=None,
            owned={},
        )
        line = f"heartbeat {group} consumer 0 - - 60000 t - - ="
        self.both(line, lambda: self.answer(lambda token: self.driver.shard.ask(token, request, self.driver.now)))

    # Everything else

    def topic(self) -> None:
        self._grow(self.random.choice(TOPICS))

    def _grow(self, name: str) -> None:
        self.ids += 1
        number, count = self.topics.get(name, (self.ids, 0))
        more = count + (self.random.randint(1, 2) if self.random.random() < 0.2 else 2)
        if count and self.random.random() < 0.8:
            return
        self.topics[name] = number, more
        delta = grown(self.driver, name, number, count, more)
        self.both(f"topic {name} {number} {more}", partial(self._quietly, self.driver.change_topics, delta))
        self.done["topic"] += 1

    def untopic(self) -> None:
        if self.topics:
            number, _ = self.topics.pop(self.random.choice([*self.topics]))
            delta = removed(self.driver, number)
            self.both(f"untopic {number}", partial(self._quietly, self.driver.change_topics, delta))

    def time(self) -> None:
        passed = self.random.choice((100, 1_000, 1_000, 3_000, 5_000, 20_000, 46_000))
        before = self.done["records"]
        self.both(f"time {passed}", partial(self._quietly, self.driver.wait, passed))
        self.done["expired"] += self.done["records"] > before

    def reload(self) -> None:
        self.both("reload", partial(self._quietly, self.driver.restart))
        self.muddled_ms = self.driver.timer_ms
        self.done["reload"] += 1

    def commit(self) -> None:
        known = [*self.clients, *self.gone]
        if not known:
            return
        client = self.random.choice(known)
        epoch = self.random.choice((client.epoch, client.epoch, client.epoch - 1, client.epoch + 1, -1))
        topic, number = self.random.choice(TOPICS), self.random.randint(0, 2)
        offset = OffsetToCommit(topic, number, self.random.randint(0, 99), -1, "")
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

        line = f"commit {client.group} {client.member_id} {epoch} {topic} {number} {offset.offset}"
        self.done["committed"] += self.both(line, ours) == "NONE"

    def describe(self) -> None:
        group = self.random.choice(GROUPS)
        said = self.both(
            f"describe_streams {group}", lambda: described(describe_streams(self.driver.shard.state, group))
        )
        self.done["described"] += "/" in said

    def list(self) -> None:
        def ours() -> str:
            rows = list_groups(self.driver.shard.state, (), ())
            found = (f"{x['group_id']}/{x['protocol_type']}/{x['group_state']}/{x['group_type']}" for x in rows)
            return "[" + ",".join(sorted(found)) + "]"

        self.both("list", ours)

    def delete(self) -> None:
        group = self.random.choice(GROUPS)

        def ours() -> str:
            answer = self.answer(lambda token: self.driver.shard.ask(token, DeleteGroups([group]), self.driver.now))
            (code,) = answer["groups"].values()
            return str(ErrorCode(code).name.upper())

        self.both(f"delete {group}", ours)


def both_of(first: Owned, second: Owned) -> Owned:
    """The tasks that are in both, by kind."""

    def common(mine: Rows, other: Rows) -> Rows:
        theirs = {name: {*numbers} for name, numbers in other}
        kept = ((name, tuple(x for x in numbers if x in theirs.get(name, ()))) for name, numbers in mine)
        return tuple((name, numbers) for name, numbers in kept if numbers)

    return common(first[0], second[0]), common(first[1], second[1]), common(first[2], second[2])


# As text


def line_of(request: StreamsHeartbeat) -> str:
    """As `StreamsGroupLines.heartbeat` reads it."""
    tags, endpoint = request.client_tags, request.user_endpoint
    kinds = (
        "-" if rows is None else ",".join(f"{name}.{number}" for name, numbers in rows for number in numbers) or "="
        for rows in request.owned
    )
    words = [
        "streams",
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.endpoint_epoch,
        request.rebalance_timeout_ms,
        request.rack_id or "-",
        request.process_id or "-",
        "-" if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        "-" if tags is None else ",".join(f"{key}={value}" for key, value in tags) or "=",
        "-" if request.topology is None else encode_group_value(request.topology).hex(),
        *kinds,
        int(request.shuts_down),
        request.instance_id or "-",
        *(
            "-" if rows is None else ",".join(".".join(map(str, row)) for row in rows) or "="
            for rows in (request.task_offsets, request.task_end_offsets)
        ),
    ]
    return " ".join(map(str, words))


def answered(response: Mapping[str, Any]) -> str:
    statuses = [f"{int(each['status_code'])}={each['status_detail']}" for each in response["status"]]
    creatable = []
    for name, topic in response.get("creatable", {}).items():
        configs = ", ".join(sorted(f"{key}={value}" for key, value in topic.configs.items()))
        creatable.append(f"{name}:{topic.partitions}:{topic.replication_factor or -1}:[{configs}]")
    endpoints = "-"
    if response.get("partitions_by_user_endpoint") is not None:
        rows = response["partitions_by_user_endpoint"]
        endpoints = in_brackets(
            f"{row['user_endpoint']['host']}:{row['user_endpoint']['port']}:"
            f"{places(row['active_partitions'], 'topic')}{places(row['standby_partitions'], 'topic')}"
            for row in rows
        )
    tasks = (
        "-" if response.get(f"{kind}_tasks") is None else places(response[f"{kind}_tasks"])
        for kind in ("active", "standby", "warmup")
    )
    fields = [
        ErrorCode(response["error_code"]).name.upper(),
        response["member_id"],
        response["member_epoch"],
        response["heartbeat_interval"],
        response["acceptable_recovery_lag"],
        response["task_offset_interval"],
        in_brackets(statuses),
        *tasks,
        response["endpoint_information_epoch"],
        endpoints,
        in_brackets(creatable),
    ]
    return "/".join(map(str, fields)).replace(" ", "_")


def without_repeated_tasks(line: str, answer: str, said: str) -> str:
    """A member that reports other tasks than it has is told what it has, as it may have missed an answer. Kafka 4.4
    does not tell it."""
    ours, theirs = answer.split("/"), said.split("/")
    reports = line.split(" ")[11:14] != ["-"] * 3
    if reports and len(ours) == len(theirs) and theirs[-6:-3] == ["-"] * 3:
        ours[-6:-3] = theirs[-6:-3]
    return "/".join(ours)


def comparable_answer(answer: str) -> str:
    """Without the choice of topics to name in a status, which Java's hash maps make."""
    return re.sub(r"(\d=)([^+\]]*(?:\[[^]]*\][^+\]]*)*)", lambda found: found[1] + _status(found[2]), answer)


def _status(detail: str) -> str:
    return comparable(detail.replace("_", " "))


def in_brackets(found: Iterable[str]) -> str:
    return "[" + "+".join(sorted(found)) + "]"


def places(rows: Iterable[Mapping[str, Any]], name: str = "subtopology_id") -> str:
    return in_brackets(f"{row[name]}.{number}" for row in rows for number in row["partitions"])


def described(group: Mapping[str, Any]) -> str:
    subtopologies = [
        f"{each['subtopology_id']}:{listed(each['source_topics'])}{listed(each['repartition_sink_topics'])}"
        f"{topics(each['repartition_source_topics'])}{topics(each['state_changelog_topics'])}"
        for each in group["topology"]["subtopologies"]
    ]
    about = [
        group["group_state"],
        group["group_epoch"],
        group["assignment_epoch"],
        group["topology"]["epoch"],
        in_brackets(subtopologies),
        in_brackets(map(described_member, group["members"])),
    ]
    return "/".join(map(str, about)).replace(" ", "_")


def described_member(member: Mapping[str, Any]) -> str:
    endpoint = member["user_endpoint"]
    tags = in_brackets(f"{each['key']}={each['value']}" for each in member["client_tags"])
    tasks = (
        places(member[name][f"{kind}_tasks"])
        for name in ("assignment", "target_assignment")
        for kind in ("active", "standby", "warmup")
    )
    held = [*tasks]
    fields = [
        member["member_id"],
        member["member_epoch"],
        member["rack_id"] or "null",
        member["client_id"],
        member["client_host"],
        member["topology_epoch"],
        member["process_id"],
        "-" if endpoint is None else f"{endpoint['host']}:{endpoint['port']}",
        tags,
        "".join(held[:3]),
        "".join(held[3:]),
        member["instance_id"] or "null",
        *(
            in_brackets(f"{each['subtopology_id']}.{each['partition']}.{each['offset']}" for each in member[name])
            for name in ("task_offsets", "task_end_offsets")
        ),
    ]
    return ":".join(map(str, fields))


def listed(names: Iterable[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def topics(rows: Iterable[Mapping[str, Any]]) -> str:
    return in_brackets(f"{row['name']}:{row['partitions']}:{row['replication_factor']}" for row in rows)


def fails() -> list[Any]:
    raise KafkaError(ErrorCode.unknown_server_error)


def test_walks(kafka: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "assign_tasks", deal_in_turn)
    # Where Ottla is ahead of Kafka 4.4 on purpose: a topic that is gone, and warm-ups.
    monkeypatch.setattr(endpoints, "lacking", fails)
    monkeypatch.setattr(warmups, "refine", lambda *_: {})
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
        lacking = {what: (done[what], least) for what, least in LEAST.items() if done[what] < least}
        assert not lacking
