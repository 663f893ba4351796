"""`ottla share ...`: share groups (KIP-932), and their dead letters (KIP-1191)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.client import admin_client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.group.command import Names, print_group
from ottla.cli.group.requests import names_of_groups
from ottla.cli.group.view import Ages, Group, groups
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_time_ms
from ottla.cli.output import iso_time, plural, print_json, print_json_line, print_table
from ottla.cli.share.dead_topic import DeadTopic, dead_topics
from ottla.cli.values import Count, GroupId, Text, TopicName

if TYPE_CHECKING:
    from ottla.cli.share.redrive import Letters, Redriving

app = App(
    name="share", help="Show share groups and their dead letters, and put dead letters back.", sort_key=6,
)  # fmt: skip

LIMIT = 1_000


@app.command(name="list", sort_key=1)
def list_(*, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None) -> int:
    """List share groups with their state, members, backlog and topic for dead letters."""
    found = [
        each
        for each in groups(bootstrap, admin_client(bootstrap), names_of_groups(bootstrap), known=True)
        if each.is_shared
    ]
    dead = dead_topics(bootstrap, [each.name for each in found])
    if json:
        print_json([each.as_json(partitions=False) | {"dead_letters": dead[each.name].as_json()} for each in found])
    elif found:
        print_table(
            ("GROUP", "STATE", "MEMBERS>", "TOPICS>", "BACKLOG>", "DEAD LETTERS"),
            [
                (
                    each.name,
                    each.state,
                    len(each.members),
                    len({p.topic for p in each.progress}),
                    each.lag,
                    _short(dead[each.name]),
                )
                for each in found
            ],
        )
    else:
        print("no share groups yet")
    return OK


def _short(dead: DeadTopic) -> str | None:
    if not dead.name:
        return None
    return dead.name if dead.why_not is None else f"{dead.name} (not written: {dead.why_not})"


@app.command(sort_key=2)
def describe(
    *names: Names, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """Show a share group's members and partitions, and where its dead letters go, or why they do not.

    Brokers of Ottla tell how many records are in flight, redelivered, waiting and archived while a member is reading.
    Offsets are moved with `ottla group reset`, groups deleted with `ottla group delete`.
    """
    found = _shared(bootstrap, list(dict.fromkeys(names)))
    dead = dead_topics(bootstrap, [each.name for each in found])
    with closing(Ages(bootstrap)) as ages:
        ages.add(found)
    if json:
        print_json([each.as_json() | {"dead_letters": dead[each.name].as_json()} for each in found])
        return OK
    for number, group in enumerate(found):
        if number:
            print()
        print_group(group)
        topic = dead[group.name]
        if not topic.name:
            print("  no topic for dead letters: errors.deadletterqueue.topic.name is not set")
            continue
        print(f"  dead letters go to {topic.name}, {'with' if topic.copies else 'without'} the payload")
        if topic.problem is not None:
            print(f"  but are NOT WRITTEN, and their records are archived: {topic.problem}")
        elif topic.is_hidden:
            print(
                f"  whether it may have them is not known: this user has no right to DESCRIBE_CONFIGS of {topic.name}"
            )
        for each in topic.lost:
            print(
                f"  the last letters of broker {each.node} were LOST, and their records archived: {each.place} at "
                f"{iso_time(each.timestamp_ms)}: {each.why}"
            )
    return OK


def _shared(bootstrap: str, names: list[str]) -> list[Group]:
    found = groups(bootstrap, admin_client(bootstrap), names)
    for each in found:
        if not each.is_shared:
            raise CommandFailed(f"{each.name!r} is a group of type {each.kind}, not a share group")
    return found


def _topic_of(bootstrap: str, group: str, given: str | None) -> str:
    """The topic with a group's dead letters."""
    if given is not None:
        return given
    name = dead_topics(bootstrap, [group])[group].name
    if not name:
        raise CommandFailed(f"group {group!r} has no errors.deadletterqueue.topic.name: say --dead-topic TOPIC")
    return name


def _filter(topic: str | None, reason: str | None, since: str | None) -> Callable[[Any], bool]:
    since_ms = None if since is None else parse_time_ms(since, int(time.time() * 1000))
    if since is not None and since_ms is None:
        wanted = "a time such as 2026-05-01T12:00 or an age such as 2h"
        raise CommandFailed(f"--since must be {wanted}, not {since!r}", MISUSED)
    if reason not in (None, "rejected", "deliveries"):
        raise CommandFailed(f"--reason must be rejected or deliveries, not {reason!r}", MISUSED)

    def wants(letter: Any) -> bool:
        return (
            (topic is None or letter.topic == topic)
            and (reason is None or letter.reason == reason)
            and (since_ms is None or letter.timestamp_ms >= since_ms)
        )

    return wants


@app.command(sort_key=3)
def dead(
    group: GroupId,
    /,
    *,
    topic: TopicName | None = None,
    reason: Text | None = None,
    since: Text | None = None,
    limit: Count = LIMIT,
    dead_topic: TopicName | None = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show the dead letters of a share group, oldest first in each partition: where the record is, why it died, after
    how many deliveries, and when.

    Parameters
    ----------
    group
        Which share group.
    topic
        Only records of this topic.
    reason
        rejected, or deliveries: delivered as often as may be.
    since
        Only letters since a time such as 2026-05-01T12:00, or an age such as 10m, 2h, 7d.
    limit
        Letters at most.
    dead_topic
        Where the letters are. Default: the group's errors.deadletterqueue.topic.name.
    """
    from ottla.cli.share.letters import Letter, close, letters, partitions_of, reader
    from ottla.cli.share.redrive import id_of

    wants = _filter(topic, reason, since)
    name = _topic_of(bootstrap, group, dead_topic)
    consumer = reader(bootstrap, id_of(group))
    shown: list[Letter] = []
    is_cut = False
    try:
        starts = dict.fromkeys(partitions_of(consumer, name), 0)
        for each in letters(consumer, name, starts):
            if isinstance(each, Letter) and each.group == group and wants(each):
                if len(shown) == limit:
                    is_cut = True
                    break
                shown.append(each)
    finally:
        close(consumer)
    if json:
        for each in shown:
            print_json_line(each.as_json())
        return OK
    if not shown:
        print(f"no dead letters of {group} in {name}")
        return OK
    print_table(
        ("RECORD", "REASON", "DELIVERIES>", "REDRIVEN>", "TIME", "LETTER"),
        [
            (
                each.place,
                each.reason,
                each.deliveries,
                each.attempts,
                iso_time(each.timestamp_ms),
                f"{each.partition}@{each.offset}",
            )
            for each in shown
        ],
    )
    if is_cut:
        print(f"there are more than {limit}: see --limit")
    return OK


@app.command(sort_key=4)
def redrive(
    group: GroupId,
    /,
    *,
    topic: TopicName | None = None,
    reason: Text | None = None,
    since: Text | None = None,
    limit: Count | None = None,
    rate: Annotated[Count | None, Parameter(help="Records per second at most.")] = None,
    dead_topic: TopicName | None = None,
    execute: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Put the dead letters of a share group back into their topics, each exactly once; without --execute only show what
    that would do.

    A record goes to the partition that it came from, behind what is there, with its key, value and headers and with its
    history: __ottla.redrive.attempts, __ottla.redrive.deliveries and __ottla.redrive.history. All groups that read the
    topic get it. The command can be interrupted and repeated: the position is committed with the records, as that of
    consumer group ottla-redrive.GROUP.

    Parameters
    ----------
    group
        Which share group.
    topic
        Only records of this topic.
    reason
        rejected, or deliveries: delivered as often as may be.
    since
        Only letters since a time such as 2026-05-01T12:00, or an age such as 10m, 2h, 7d.
    limit
        Records at most.
    dead_topic
        Where the letters are. Default: the group's errors.deadletterqueue.topic.name.
    execute
        Do it.
    """
    from ottla.cli.share.letters import close, reader
    from ottla.cli.share.redrive import Letters, Redriving, id_of

    if rate == 0:
        raise CommandFailed("--rate must be at least 1", MISUSED)
    wants = _filter(topic, reason, since)
    name = _topic_of(bootstrap, group, dead_topic)
    redriving = Redriving(bootstrap, group) if execute else None
    consumer = reader(bootstrap, id_of(group))
    try:
        found = Letters(consumer, name, group, wants, limit)
        if redriving is not None:
            redriving.run(consumer, found, rate)
        else:
            for _ in found.chunks():
                pass
    finally:
        close(consumer)
        if redriving is not None:
            redriving.close()
    return _told(group, found, redriving, json=json)


def _told(group: str, found: Letters, redriving: Redriving | None, *, json: bool) -> int:
    """What a redrive would do or has done; the exit code."""
    to_do = found.chosen
    lost = [] if redriving is None else redriving.lost
    if json:
        print_json(
            {
                "group": group,
                "dead_topic": found.topic,
                "executed": redriving is not None,
                "chosen": sum(to_do.values()),
                "left": found.left,
                "put_back": 0 if redriving is None else redriving.written,
                "put_back_before": found.done_before,
                "without_record": [each.as_json() for each in lost],
                "partitions": [
                    {"topic": each, "partition": number, "records": count}
                    for (each, number), count in sorted(to_do.items())
                ],
            }
        )
        return FAILED if lost else OK
    if to_do:
        rows = [(each, number, count) for (each, number), count in sorted(to_do.items())]
        print_table(("TOPIC", "PARTITION>", "RECORDS>"), rows)
    if redriving is None:
        print(f"would put back {plural(sum(to_do.values()), 'record')}; do it with --execute")
    else:
        print(f"put back {plural(redriving.written, 'record')}")
    for each in lost:
        print(f"NOT put back: {each.place}, which is no longer in its topic, and whose letter has no payload")
    return FAILED if lost else OK
