"""`ottla group ...`: list, describe, watch, reset and delete consumer groups."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.client import admin_client
from ottla.cli.exits import OK
from ottla.cli.group_delete import delete
from ottla.cli.group_requests import names_of_groups
from ottla.cli.group_reset import reset
from ottla.cli.group_view import Ages, Group, groups
from ottla.cli.group_watch import watch
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.cli.units import duration
from ottla.cli.values import GroupId

app = App(name="group", help="See, reset and delete consumer groups.", sort_key=5)
app.command(watch, sort_key=3)
app.command(reset, sort_key=4)
app.command(delete, sort_key=5)

Names = Annotated[GroupId, Parameter(help="One group or more.", required=True)]

ID_CHARACTERS = 13
"""Of a member's id in a table; --json has all of it."""


@app.command(name="list", sort_key=1)
def list_(*, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> int:
    """List groups, those without members too, with the records that they have yet to read."""
    client = admin_client(bootstrap)
    found = groups(bootstrap, client, names_of_groups(bootstrap), known=True)
    if json:
        print_json([group.as_json(partitions=False) for group in found])
    elif found:
        print_table(
            ("GROUP", "STATE", "MEMBERS>", "TOPICS>", "LAG>"),
            [
                (group.name, group.state, len(group.members), len({each.topic for each in group.progress}), group.lag)
                for group in found
            ],
        )
    else:
        print("no groups yet; a consumer makes one: ottla consume TOPIC --group NAME")
    return OK


@app.command(sort_key=2)
def describe(*names: Names, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> int:
    """Show a group's members, what each reads, and how far behind they are in records and in time.

    Time behind is the time since the timestamp of the oldest record that the group has not committed; 0 when there is
    none.
    """
    client = admin_client(bootstrap)
    found = groups(bootstrap, client, list(dict.fromkeys(names)))
    ages = Ages(bootstrap)
    try:
        ages.add(found)
    finally:
        ages.close()
    if json:
        print_json([group.as_json() for group in found])
        return OK
    for number, group in enumerate(found):
        if number:
            print()
        _print_group(group)
    return OK


def _print_group(group: Group) -> None:
    facts = [group.state, plural(len(group.members), "member")]
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.coordinator is not None:
        facts.append(f"coordinator {group.coordinator}")
    print(f"{bold(group.name)}  {', '.join(facts)}")
    numbers = {member.member_id: number for number, member in enumerate(group.members, 1)}
    if group.members:
        print_table(
            ("MEMBER>", "CLIENT", "HOST", "PARTITIONS>", "ID"),
            [
                (numbers[member.member_id], member.client_id, member.host, len(member.places), _identity(member))
                for member in group.members
            ],
            indent=2,
        )
        print()
    if not group.progress:
        print("  nothing committed yet")
        return
    print_table(
        ("TOPIC", "PARTITION>", "COMMITTED>", "END>", "LAG>", "BEHIND>", "MEMBER>"),
        [
            (p.topic, p.partition, p.committed, p.end, p.lag, _behind(p.lag_s), numbers.get(p.member_id or ""))
            for p in group.progress
        ],
        indent=2,
    )


def _identity(member: Any) -> str:
    """What tells members of one client apart; clients make ids of their own name and a long random part."""
    if member.instance_id:
        return f"{member.instance_id} (static)"
    return str(member.member_id.removeprefix(f"{member.client_id}-"))[:ID_CHARACTERS]


def _behind(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
