"""`ottla group reset`: moves the offsets that a group has committed, and shows what that changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ottla.cli import client as clients
from ottla.cli.client import admin_client, explain, failure, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.group import shares as group_shares
from ottla.cli.group.shares import Place
from ottla.cli.group.view import INACTIVE, Group, groups, refused, watermarks
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_time_ms
from ottla.cli.output import plural, print_json, print_table
from ottla.cli.records.positions import POSITIONS, position_of
from ottla.cli.values import GroupId, Text, topic_name

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True)
class Move:
    """The change of one partition by a reset. `before` is None if nothing was committed."""

    topic: str
    partition: int
    before: int | None
    after: int

    @property
    def effect(self) -> str:
        """The effect in words: what the group reads again or skips."""
        if self.before is None:
            return "a first commit"
        if self.after == self.before:
            return "stays"
        if self.after < self.before:
            return f"reads {plural(self.before - self.after, 'record')} again"
        return f"skips {plural(self.after - self.before, 'record')}"


def reset(
    name: GroupId,
    /,
    *,
    to: Annotated[Text, Parameter(allow_leading_hyphen=True)],
    topic: Annotated[list[Text] | None, Parameter(alias="-t", negative="", consume_multiple=False)] = None,
    dry_run: Flag = False,
    execute: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Reset a group's committed offsets, or a share group's start offsets, IMMEDIATELY; --dry-run only shows the
    change.

    Fails while the group has members. Prints the changes. Offsets stay within each partition's range. Unlike
    kafka-consumer-groups.sh, which needs --execute, this command executes by default.

    Parameters
    ----------
    name
        Which group.
    to
        beginning (or earliest), end (or latest), an offset, -N for the last N records of each partition, a time such
        as 2026-05-01T12:00, or an age such as 90s, 10m, 2h, 7d.
    topic
        Only this topic, or these of its partitions: orders, orders:0,2. May be repeated. Default: all topics with
        committed offsets of the group.
    dry_run
        Show the changes without making them.
    execute
        The default; accepted for scripts written for Kafka's tool.
    """
    if dry_run and execute:
        raise CommandFailed("--dry-run and --execute cannot be used together", MISUSED)
    if position_of(to) is None and parse_time_ms(to, 0) is None:
        raise CommandFailed(f"--to must be {POSITIONS}, not {to!r}", MISUSED)
    client = admin_client(bootstrap)
    group = _group(bootstrap, client, name, new=topic is not None)
    if not dry_run:
        _ensure_inactive(group)
    before = {(each.topic, each.partition): each.committed for each in group.progress if each.committed is not None}
    places = _chosen(client, before, topic)
    if not places:
        raise CommandFailed(f"group {name!r} has no committed offsets; name a topic with --topic")
    after = _targets(client, places, to)
    moves = [Move(*place, before.get(place), after[place]) for place in sorted(places)]
    if not dry_run and group.is_shared:
        # Also to where it is: what lies behind and was delivered or acknowledged before is read again.
        group_shares.alter_offsets(bootstrap, name, {(move.topic, move.partition): move.after for move in moves})
    elif not dry_run:
        _commit(client, name, moves)
    _show(group, moves, dry_run, json)
    return OK


def _group(bootstrap: str, client: AdminClient, name: str, *, new: bool) -> Group:
    """The group; where topics are named it need not be there yet, as with Kafka's tool."""
    found = groups(bootstrap, client, [name], known=new)
    return found[0] if found else Group(name, "Dead", "classic", "", None, [])


def _ensure_inactive(group: Group) -> None:
    if group.state not in INACTIVE:
        raise CommandFailed(
            f"group {group.name!r} is {group.state} with {plural(len(group.members), 'member')}; offsets can be "
            f"reset only while the group has no members\n  stop its consumers first: ottla group describe {group.name}"
        )


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`orders` or `orders:0,2`. Raises CommandFailed."""
    topic, colon, numbers = text.partition(":")
    wanted = topic_name(topic)
    if wanted is not None:
        raise CommandFailed(f"--topic must be {wanted}, not {topic!r}", MISUSED)
    if not colon:
        return topic, None
    try:
        return topic, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise CommandFailed(f"--topic must be TOPIC or TOPIC:0,1,..., not {text!r}", MISUSED) from None


def _chosen(client: AdminClient, before: Mapping[Place, int], wanted: Sequence[str] | None) -> set[Place]:
    if wanted is None:
        return set(before)
    places: set[Place] = set()
    for topic, numbers in map(parse_topic, wanted):
        known = sorted(_partitions(client, topic))
        for number in numbers or ():
            if number not in known:
                raise CommandFailed(f"topic {topic!r} has no partition {number}; it has 0 to {len(known) - 1}", MISUSED)
        places |= {(topic, number) for number in (known if numbers is None else numbers)}
    return places


def _partitions(client: AdminClient, topic: str) -> Iterable[int]:
    from confluent_kafka import KafkaException, TopicCollection

    try:
        return [each.id for each in wait(client.describe_topics(TopicCollection([topic]))[topic]).partitions]
    except KafkaException as exception:
        raise failure(exception, f"topic {topic!r}: ") from exception


def _targets(client: AdminClient, places: set[Place], to: str) -> dict[Place, int]:
    """The new offset of every partition, within what it holds."""
    bounds: dict[Place, tuple[int, int]] = {}
    for (topic, number), (low, high) in watermarks(client, places).items():
        if low is None or high is None:
            raise CommandFailed(
                f"{topic} partition {number} does not exist or has no leader: its offsets are unknown\n  name the "
                f"topics to reset with --topic"
            )
        bounds[topic, number] = (low, high)
    where = position_of(to)
    if where is not None:
        return {place: min(max(where(low, high), low), high) for place, (low, high) in bounds.items()}
    timestamp_ms = parse_time_ms(to, time.time_ns() // 1_000_000)
    assert timestamp_ms is not None, "checked before"
    return _at_time(client, bounds, timestamp_ms)


def _at_time(client: AdminClient, bounds: Mapping[Place, tuple[int, int]], timestamp_ms: int) -> dict[Place, int]:
    """The first record of that time or later; the end where there is none."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec = OffsetSpec.for_timestamp(timestamp_ms)
    futures = client.list_offsets({TopicPartition(*place): spec for place in bounds})
    found = {(tp.topic, tp.partition): int(wait(future).offset) for tp, future in futures.items()}
    return {place: offset if offset >= 0 else bounds[place][1] for place, offset in found.items()}


def _commit(client: AdminClient, name: str, moves: Iterable[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    offsets = [TopicPartition(move.topic, move.partition, move.after) for move in moves if move.after != move.before]
    if not offsets:
        return
    request = ConsumerGroupTopicPartitions(name, offsets)
    try:
        answer = wait(client.alter_consumer_group_offsets([request], request_timeout=clients.REQUEST_TIMEOUT_S)[name])
    except KafkaException as exception:
        raise refused(exception, name) from exception
    errors = [(tp, tp.error) for tp in answer.topic_partitions if tp.error is not None]
    if errors:
        tp, error = errors[0]
        sentence, unreachable = explain(error, f"group {name!r}, {tp.topic} partition {tp.partition}: ")
        if error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"):
            sentence += f"\n  a consumer has joined in the meantime; stop it first: ottla group describe {name}"
        raise CommandFailed(sentence, UNREACHABLE if unreachable else FAILED)


def _show(group: Group, moves: Sequence[Move], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "group": group.name,
                "dry_run": dry_run,
                "partitions": [
                    {"topic": m.topic, "partition": m.partition, "old_offset": m.before, "new_offset": m.after}
                    for m in moves
                ],
            }
        )
        return
    print_table(
        ("TOPIC", "PARTITION>", "WAS>", "NOW>" if not dry_run else "WOULD BE>", "THE GROUP"),
        [(m.topic, m.partition, m.before, m.after, m.effect) for m in moves],
    )
    moved = sum(m.after != m.before for m in moves)
    changed = plural(moved, "partition")
    print()
    if not moved:
        print(f"{group.name} is at these offsets already: nothing to change")
    elif dry_run:
        print(f"nothing was changed; without --dry-run {changed} of {group.name} would be")
        if group.state not in INACTIVE:
            print(f"while the group is {group.state}, this fails: stop its consumers first")
    else:
        print(f"{changed} of {group.name} changed; to see changes without making them: --dry-run")
