"""Carries a plan of moves out: reassignments in portions, with a throttle and progress, and the leaders afterwards."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ottla.cli import interrupts, wire
from ottla.cli.cluster.facts import Facts, Key, sizes_by_broker
from ottla.cli.config.command import Resource, change_at
from ottla.cli.exits import CommandFailed
from ottla.cli.options import asked_at
from ottla.cli.output import human_bytes, plural
from ottla.cli.status_line import StatusLine
from ottla.cli.units import duration
from ottla.client.move_plan import RATES, REPLICAS, Move
from ottla.config.explained import BROKER, TOPIC
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey

AT_ONCE = 50
"""Reassignments under way: enough to keep disks busy, and few enough that a cancel leaves little half done."""
POLL_S = 0.2
SIZES_EVERY_S = 1.0
REQUEST_MS_MAX = 30_000
RETRIED = frozenset({ErrorCode.not_controller, ErrorCode.request_timed_out, ErrorCode.coordinator_not_available})
"""Errors that are retried while the controller moves."""
PATIENCE_S = 30.0
TOPICS_AT_ONCE = 1000
"""Topics whose settings one request asks for."""


def ask(bootstrap: str, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    """A request to whichever broker answers, again while there is no controller. Raises CommandFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = wire.ask(bootstrap, key, values)
        if answer.get("error_code", 0) not in RETRIED or time.monotonic() > deadline:
            wire.ensure_none(answer, "the controller refuses")
            return answer
        time.sleep(POLL_S)


def under_way(bootstrap: str) -> dict[Key, dict[str, Any]]:
    """Every reassignment that is not finished. Raises CommandFailed."""
    answer = ask(bootstrap, ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": REQUEST_MS_MAX, "topics": None})
    return {
        (topic["name"], part["partition_index"]): part for topic in answer["topics"] for part in topic["partitions"]
    }


def ensure_none_under_way(bootstrap: str) -> None:
    """Raises CommandFailed: a plan is made from where things are, not from where they are going."""
    found = under_way(bootstrap)
    if found:
        raise CommandFailed(
            f"{plural(len(found), 'partition')} {'is' if len(found) == 1 else 'are'} being moved already\n"
            f"  wait for the moves with: {asked_at('ottla cluster balance --watch', bootstrap)}\n  cancel them "
            f"with: {asked_at('ottla cluster balance --cancel', bootstrap)}"
        )


def submit(bootstrap: str, wanted: Mapping[Key, Sequence[int] | None]) -> None:
    """Begin reassignments; None cancels one. Raises CommandFailed for the first that is refused."""
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, number), replicas in wanted.items():
        topics[topic].append({"partition_index": number, "replicas": None if replicas is None else list(replicas)})
    values = {
        "timeout": REQUEST_MS_MAX,
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
    }
    answer = ask(bootstrap, ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    for topic in answer["responses"]:
        for part in topic["partitions"]:
            if part["error_code"] == ErrorCode.no_reassignment_in_progress:
                continue  # finished meanwhile
            wire.ensure_none(part, f"topic {topic['name']!r} partition {part['partition_index']}")


class Mover:
    """`run` begins the moves and waits for them."""

    def __init__(self, facts: Facts, moves: Sequence[Move], throttle: int | None = None) -> None:
        self._facts = facts
        self._bootstrap = facts.bootstrap
        self._moves = moves
        self._throttle = throttle
        """Bytes a second of each broker; None for as fast as it goes."""
        self._total = sum(each.bytes for each in moves)
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Ctrl-C ends the waiting; what has begun goes on in the cluster, without the throttle: nobody would be there
        to take it away in the end. Raises CommandFailed."""
        with StatusLine() as line:
            try:
                if self._throttle is not None:
                    self._set_throttle(self._throttle)
                self._move(line)
            finally:
                if self._throttle is not None:
                    self._remove_throttle()
            line.show("electing the preferred leaders")
            elect(self._bootstrap, [each.partition.key for each in self._moves])
        self._ensure_done()

    def _move(self, line: StatusLine) -> None:
        waiting = list(self._moves)
        going: dict[Key, Move] = {}
        done: list[Move] = []
        looked_s, copied = 0.0, 0
        while waiting or going:
            portion = [waiting.pop(0) for _ in range(min(len(waiting), AT_ONCE - len(going)))]
            if portion:
                submit(self._bootstrap, {each.partition.key: each.after for each in portion})
                going.update((each.partition.key, each) for each in portion)
            left = under_way(self._bootstrap)
            done += [going.pop(key) for key in list(going) if key not in left]
            if time.monotonic() - looked_s > SIZES_EVERY_S:
                looked_s, copied = time.monotonic(), self._copied(going.values())
            line.show(self._progress(done, copied))
            if going:
                time.sleep(POLL_S)

    def _progress(self, done: Sequence[Move], copied: int) -> str:
        so_far = sum(each.bytes for each in done) + copied
        text = f"{len(done):,} of {plural(len(self._moves), 'partition')} done"
        if self._total:
            text += f", {human_bytes(so_far)} of {human_bytes(self._total)} copied"
            passed_s = time.monotonic() - self._began_s
            if so_far and passed_s > 1:
                left_s = (self._total - so_far) * passed_s / so_far
                text += f", {human_bytes(int(so_far / passed_s))}/s, about {duration(max(0.0, left_s))} left"
        return text

    def _copied(self, going: Iterable[Move]) -> int:
        """Bytes copied so far to the new replicas of running moves."""
        moves = [each for each in going if each.adds]
        sizes = sizes_by_broker(self._facts.addresses, {broker for each in moves for broker in each.adds})
        return sum(
            min(each.partition.bytes, sizes.get(broker, {}).get(each.partition.key, 0))
            for each in moves
            for broker in each.adds
        )

    def _set_throttle(self, rate: int) -> None:
        """Set the throttle as Kafka's tool does: the rate on all brokers, and the throttled replicas on the topics."""
        for broker, address in self._facts.addresses.items():
            change_at(address, Resource(BROKER, str(broker)), dict.fromkeys(RATES, str(rate)), False)
        lists: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for each in self._moves:
            leaders, followers = lists[each.partition.topic]
            leaders += [f"{each.partition.number}:{broker}" for broker in each.partition.replicas]
            followers += [f"{each.partition.number}:{broker}" for broker in each.adds]
        for topic, both in lists.items():
            values = {name: ",".join(texts) for name, texts in zip(REPLICAS, both, strict=True)}
            change_at(self._bootstrap, Resource(TOPIC, topic), values, False)

    def _remove_throttle(self) -> None:
        with interrupts.held():
            remove_throttle(self._facts, {each.partition.topic for each in self._moves})

    def _ensure_done(self) -> None:
        from ottla.cli.cluster.facts import facts

        there = {each.key: each.replicas for each in facts(self._bootstrap).partitions}
        wrong = [each for each in self._moves if there.get(each.partition.key, each.after) != each.after]
        if wrong:
            first = wrong[0].partition
            raise CommandFailed(
                f"{plural(len(wrong), 'partition')} were not moved as planned, the first is {first.topic} "
                f"partition {first.number}: another command cancelled the move or changed it\n  see the current "
                f"state, and run the command again: {asked_at('ottla cluster describe', self._bootstrap)}"
            )


def elect(bootstrap: str, keys: Sequence[Key] | None = None) -> int:
    """The first replica of each partition, or of all, leads again where it is in sync. How many leaders were elected.
    Raises CommandFailed."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in keys or ():
        topics[topic].append(number)
    asked = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    values = {"election_type": 0, "topic_partitions": None if keys is None else asked, "timeout": REQUEST_MS_MAX}
    answer = ask(bootstrap, ApiKey.ELECT_LEADERS, values)
    rows = [row for topic in answer["replica_election_results"] for row in topic["partition_result"]]
    return sum(not row["error_code"] for row in rows)


def elect_when_in_sync(bootstrap: str, patience_s: float) -> None:
    """Preferred leaders lead again once every partition has all its replicas in sync, or, where some of them stay away,
    those that can when `patience_s` are over. Raises CommandFailed."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
        except CommandFailed:
            time.sleep(POLL_S)
            continue
        partitions = [part for topic in answer["topics"] for part in topic["partitions"]]
        if all(len(each["isr_nodes"]) == len(each["replica_nodes"]) for each in partitions):
            break
        time.sleep(POLL_S)
    elect(bootstrap)


def remove_throttle(facts: Facts, topics: Collection[str]) -> None:
    """From all brokers and from the topics. Raises CommandFailed when one refuses or is not reached; the others have
    none then."""
    changes: list[tuple[str, Resource, Sequence[str]]] = [
        *((address, Resource(BROKER, str(broker)), RATES) for broker, address in facts.addresses.items()),
        *((facts.bootstrap, Resource(TOPIC, topic), REPLICAS) for topic in sorted(topics)),
    ]
    failures: list[CommandFailed] = []
    for address, resource, names in changes:
        try:
            change_at(address, resource, dict.fromkeys(names), False)
        except CommandFailed as failure:
            failures.append(failure)
    if failures:
        raise CommandFailed(
            f"{failures[0]}\n  the throttle may still be set; remove it with: "
            + asked_at("ottla cluster balance --cancel", facts.bootstrap)
        ) from failures[0]


def throttled_topics(facts: Facts) -> set[str]:
    """The topics with replicas that a throttle is for. Raises CommandFailed."""
    topics = sorted({each.topic for each in facts.partitions})
    found: set[str] = set()
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        some = topics[first : first + TOPICS_AT_ONCE]
        for name in REPLICAS:
            found |= {topic for topic, value in wire.topic_settings(facts.bootstrap, some, name).items() if value}
    return found


def cancel(facts: Facts) -> int:
    """Everything that is under way goes back to where it was, and every throttle goes, also one of moves that are over.
    Returns how many were stopped."""
    found = under_way(facts.bootstrap)
    if found:
        submit(facts.bootstrap, dict.fromkeys(found))
    remove_throttle(facts, throttled_topics(facts))
    return len(found)
