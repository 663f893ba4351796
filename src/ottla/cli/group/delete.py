"""`ottla group delete`: whole groups, or what they have committed in some topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from ottla.cli import wire
from ottla.cli.batch_results import report_each
from ottla.cli.client import REQUEST_TIMEOUT_S, admin_client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.group import shares as group_shares
from ottla.cli.group.reset import parse_topic
from ottla.cli.group.shares import Place
from ottla.cli.group.view import Group, groups
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import plural, print_json
from ottla.cli.values import GroupId, Text
from ottla.protocol.messages import ApiKey

_MISSING = ("GROUP_ID_NOT_FOUND", "does not exist")
"""What is no error with --if-exists, and what is printed then."""


def delete(
    *names: Annotated[GroupId, Parameter(help="One or more groups.", required=True)],
    topic: Annotated[list[Text] | None, Parameter(alias="-t", negative="", consume_multiple=False)] = None,
    if_exists: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Delete groups and their committed offsets, or with --topic only their offsets (a share group's progress) in some
    topics.

    Fails while the group has members or, with --topic, while its members are subscribed to the topic.

    Parameters
    ----------
    topic
        Delete only the offsets in this topic, or in these of its partitions: orders, orders:0,2 (whole topics only for
        a share group). May be repeated. The group itself is kept.
    if_exists
        Succeed if the group does not exist or has no offsets in the topic.
    """
    chosen = list(dict.fromkeys(names))
    if topic is not None:
        return _delete_in_topics(bootstrap, chosen, topic, if_exists, json)
    client = admin_client(bootstrap)
    futures = client.delete_consumer_groups(chosen, request_timeout=REQUEST_TIMEOUT_S)
    return report_each("group", futures, "deleted", json, ignored=_MISSING if if_exists else None)


def _delete_in_topics(
    bootstrap: str, names: Sequence[str], topics: Sequence[str], if_exists: bool, as_json: bool
) -> int:
    """OffsetDelete (KIP-496), to each group's coordinator."""
    client = admin_client(bootstrap)
    results = []
    for group in groups(bootstrap, client, names, known=if_exists):
        if group.is_shared:
            places = _of_share_group(group, topics, if_exists)
            if places:
                group_shares.delete_offsets(bootstrap, group.name, sorted({topic for topic, _ in places}))
        else:
            committed = {(each.topic, each.partition) for each in group.progress if each.committed is not None}
            places = _chosen(group.name, committed, topics, if_exists)
            if places:
                _delete_offsets(bootstrap, group.name, places)
        results.append({"group": group.name, "partitions": [{"topic": t, "partition": p} for t, p in places]})
        if not as_json:
            print(f"{group.name}: offsets of {plural(len(places), 'partition')} deleted")
    if as_json:
        print_json(results)
    return OK


def _of_share_group(group: Group, topics: Sequence[str], if_exists: bool) -> list[Place]:
    """Raises CommandFailed for partitions of a topic, and for topics that the group has not read."""
    for text in topics:
        if parse_topic(text)[1] is not None:
            sentence = f"{group.name!r} is a share group: only whole topics can be deleted, not {text}"
            raise CommandFailed(sentence, MISUSED)
    return _chosen(group.name, {(each.topic, each.partition) for each in group.progress}, topics, if_exists)


def _chosen(group: str, committed: set[Place], topics: Sequence[str], if_exists: bool) -> list[Place]:
    """The committed partitions among the named ones. Raises CommandFailed if there are none."""
    places: set[Place] = set()
    for text in topics:
        topic, numbers = parse_topic(text)
        found = {place for place in committed if place[0] == topic and (numbers is None or place[1] in numbers)}
        if not found and not if_exists:
            raise CommandFailed(
                f"group {group!r} has no committed offsets in {text}\n  see its offsets with: ottla group describe "
                f"{group}"
            )
        places |= found
    return sorted(places)


def _delete_offsets(bootstrap: str, group: str, places: Sequence[Place]) -> None:
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append({"partition_index": number})
    values = {
        "group_id": group,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
    answer = wire.ask(wire.coordinator(bootstrap, group), ApiKey.OFFSET_DELETE, values)
    wire.ensure_none(answer, f"group {group!r}")
    for each in answer["topics"]:
        for part in each["partitions"]:
            wire.ensure_none(part, f"group {group!r}, {each['name']} partition {part['partition_index']}")
