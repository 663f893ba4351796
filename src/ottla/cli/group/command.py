"""`ottla group ...`: list, describe, watch, reset and delete groups of consumers, share groups and streams groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.client import admin_client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import OK
from ottla.cli.group.delete import delete
from ottla.cli.group.requests import CONSUMER, STREAMS, names_of_groups
from ottla.cli.group.reset import reset
from ottla.cli.group.view import Ages, Group, Member, groups
from ottla.cli.group.watch import watch
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.cli.units import duration
from ottla.cli.values import GroupId

app = App(name="group", help="Show, reset and delete consumer groups, share groups and streams groups.", sort_key=5)
app.command(watch, sort_key=3)
app.command(reset, sort_key=4)
app.command(delete, sort_key=5)

Names = Annotated[GroupId, Parameter(help="One or more groups.", required=True)]

ID_CHARACTERS = 13
"""Characters of a member id in a table; --json has the whole id."""


@app.command(name="list", sort_key=1)
def list_(*, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None) -> int:
    """List all groups, including those without members, with their lag in records.

    A group's type is classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071).
    """
    client = admin_client(bootstrap)
    found = groups(bootstrap, client, names_of_groups(bootstrap), known=True)
    if json:
        print_json([group.as_json(partitions=False) for group in found])
    elif found:
        print_table(
            ("GROUP", "TYPE", "STATE", "MEMBERS>", "TOPICS>", "LAG>"),
            [
                (each.name, each.kind, each.state, len(each.members), len({p.topic for p in each.progress}), each.lag)
                for each in found
            ],
        )
    else:
        print("no groups yet; create one with: ottla consume TOPIC --group NAME")
    return OK


@app.command(sort_key=2)
def describe(
    *names: Names,
    topology: Annotated[bool, Parameter(help="Draw what a streams application runs.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show a group's members, their assignments, and their lag in records and in time.

    Time behind is the time since the timestamp of the oldest record that the group has not committed; 0 when there is
    none.

    Members of a consumer group (KIP-848) have an epoch and pending partitions, which they get once other members have
    revoked them. A share group (KIP-932) has a backlog (records not yet acknowledged) and the age of its oldest record.
    Brokers of Ottla tell how many records are in flight, redelivered, waiting and archived while a member is reading.
    A member of a streams group (KIP-1071) has active tasks, each reading a partition, and standby tasks; warm-up tasks
    restore state before an active task moves. With --topology, its processing graph is drawn as its members described
    it (Kafka Streams 4.4 or newer): sources, processors with their state stores, and sinks, each node below one that
    leads to it.
    """
    if topology:
        return _print_topologies(list(dict.fromkeys(names)), bootstrap, json=json)
    client = admin_client(bootstrap)
    found = groups(bootstrap, client, list(dict.fromkeys(names)))
    with closing(Ages(bootstrap)) as ages:
        ages.add(found)
    if json:
        print_json([group.as_json() for group in found])
        return OK
    for number, group in enumerate(found):
        if number:
            print()
        print_group(group)
    return OK


def _print_topologies(names: list[str], bootstrap: str, *, json: bool) -> int:
    from ottla.cli.group import topology

    found = topology.descriptions(bootstrap, names)
    if json:
        print_json([topology.as_json(name, description) for name, description in found.items()])
        return OK
    for number, (name, description) in enumerate(found.items()):
        if number:
            print()
        print(bold(name))
        for line in topology.drawn(description):
            print(line)
    return OK


def print_group(group: Group) -> None:
    facts = [group.state, plural(len(group.members), "member")]
    if group.is_shared:
        facts.insert(0, "share group")
    if group.kind == STREAMS:
        facts.insert(0, "streams group")
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        facts.append(f"epoch {group.epoch}")
        if group.assignment_epoch != group.epoch:
            facts.append(f"assignment of epoch {group.assignment_epoch}")
    if group.coordinator is not None:
        facts.append(f"coordinator {group.coordinator}")
    print(f"{bold(group.name)}  {', '.join(facts)}")
    numbers = {member.member_id: number for number, member in enumerate(group.members, 1)}
    if group.members:
        _print_members(group, numbers)
        print()
    if not group.progress:
        print("  nothing read yet" if group.is_shared else "  no committed offsets")
        return
    if group.is_shared:
        _print_shared(group, numbers)
        return
    print_table(
        ("TOPIC", "PARTITION>", "COMMITTED>", "END>", "LAG>", "BEHIND>", "MEMBER>"),
        [
            (p.topic, p.partition, p.committed, p.end, p.lag, _behind(p.lag_s), numbers.get(p.member_id or ""))
            for p in group.progress
        ],
        indent=2,
    )


def _print_members(group: Group, numbers: Mapping[str, int]) -> None:
    """Print members; columns that an older protocol lacks are left out."""
    columns: list[tuple[str, Callable[[Member], Any]]] = [
        ("MEMBER>", lambda member: numbers[member.member_id]),
        ("CLIENT", lambda member: member.client_id),
        ("HOST", lambda member: member.host),
        ("PARTITIONS>", lambda member: len(member.places)),
    ]
    if group.epoch is not None:
        columns.insert(3, ("EPOCH>", lambda member: member.epoch))
    if group.kind == CONSUMER:
        columns.append(("PENDING>", lambda member: len(member.pending)))
        columns.append(("REVOKING>", lambda member: len(member.revoking)))
    if group.kind == STREAMS:
        columns += [
            ("ACTIVE>", lambda member: len(member.tasks.active) if member.tasks else None),
            ("STANDBY>", lambda member: len(member.tasks.standby) if member.tasks else None),
            ("WARM-UP>", lambda member: len(member.tasks.warmup) if member.tasks else None),
            ("PENDING>", lambda member: len(member.tasks.pending) if member.tasks else None),
            ("REVOKING>", lambda member: len(member.tasks.revoking) if member.tasks else None),
        ]
    columns.append(("ID", _identity))
    rows = [tuple(value(member) for _, value in columns) for member in group.members]
    print_table(tuple(title for title, _ in columns), rows, indent=2)


def _print_shared(group: Group, numbers: Mapping[str, int]) -> None:
    rows = []
    for each in group.progress:
        held, redelivered, waiting, archived, _ = each.in_flight or (None,) * 5
        readers = ",".join(str(numbers[member_id]) for member_id in each.member_ids) or None
        rows.append(
            (
                each.topic,
                each.partition,
                each.committed,
                each.end,
                each.lag,
                _behind(each.lag_s),
                held,
                redelivered,
                waiting,
                archived,
                readers,
            )
        )
    print_table(
        (
            "TOPIC",
            "PARTITION>",
            "START>",
            "END>",
            "BACKLOG>",
            "BEHIND>",
            "IN FLIGHT>",
            "REDELIVERED>",
            "WAITING>",
            "ARCHIVED>",
            "MEMBERS",
        ),
        rows,
        indent=2,
    )


def _identity(member: Any) -> str:
    """A short identity that tells members of one client apart; clients make ids of their own name and a long random
    part."""
    if member.instance_id:
        return f"{member.instance_id} (static)"
    return str(member.member_id.removeprefix(f"{member.client_id}-"))[:ID_CHARACTERS]


def _behind(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
