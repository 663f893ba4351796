"""Acts on groups: move their offsets, delete those of a topic, remove a member, delete a group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.console.acts.act import (
    PINNED_MAX,
    PLACES_MAX,
    Act,
    Blocked,
    Change,
    Field,
    Plan,
    command,
    group_page,
    pinned_places,
    places_of,
    plural,
    rows_by,
)
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.brokers import ensure_none
from ottla.console.cluster import EARLIEST, LATEST, Cluster, places, read_cluster, read_offsets
from ottla.console.groups import SHARE, Listed, read_described, read_groups, read_progress
from ottla.console.views.messages import moment_of
from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey

AT_REST: Final = ("Empty", "Dead", "")
GROUP: Final = Field("group", "A group's id.", is_required=True, label="Group")
TOPIC: Final = Field("topic", "Only this topic; all that the group has offsets in if left out.", label="Topic")
TARGETS: Final = ("earliest", "latest", "offset", "time", "shift", "places")
_SHIFT: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
SHELL_LINES_MAX: Final = 20
"""Partitions for each of which a command is shown, where one command cannot say it."""

Committed = dict[TopicPartition, int]


def reset(asking: Asking) -> Plan:
    cluster, group = _group(asking)
    progress = read_progress(asking.brokers, cluster, [group])
    for error in progress.failures.values():
        raise error
    before = {at: each.committed for at, each in progress.by_group.get(group.name, {}).items() if each.committed >= 0}
    targets = _targets(asking, before)
    begins = _bound(asking, cluster, targets, EARLIEST)
    ends = _bound(asking, cluster, targets, LATEST)
    after = {at: min(max(target, begins[at]), ends[at]) for at, target in targets.items()}
    changes = [
        Change(
            f"{at.topic}-{at.partition}",
            str(before[at]) if at in before else None,
            str(offset),
            _effect(before.get(at), offset),
        )
        for at, offset in sorted(after.items())
    ]
    moved = {at: offset for at, offset in after.items() if offset != before.get(at)}
    return Plan(
        f"Offsets of group {group.name} are moved in {plural(len(moved), 'partition')}.",
        lambda: _move(asking, group, after if group.kind == SHARE else moved),
        changes,
        _command(asking, group, after),
        [] if moved else ["The group is at these offsets already: nothing changes."],
        _members(asking, group),
        pinned={"to": "places", "value": pinned_places({(at.topic, at.partition): each for at, each in after.items()})},
        back=group_page(group.name),
    )


def _group(asking: Asking) -> tuple[Cluster, Listed]:
    """The group as its coordinator has it now. Raises NotFound."""
    name = asking.text("group")
    cluster = read_cluster(asking.brokers)
    found = read_groups(asking.brokers, cluster)
    group = found.by_name.get(name)
    if group is None:
        for error in found.failures.values():
            raise error
        raise NotFound(f"There is no group {name}, or you may not see it (Describe on Group {name}).")
    return cluster, group


def _targets(asking: Asking, before: Committed) -> Committed:
    """The offset that is asked for of each partition, not yet within its bounds."""
    to, value, topic = asking.text("to"), asking.text("value"), asking.text("topic")
    if to == "places":
        return {TopicPartition(*place): offset for place, offset in places_of(value, "value").items()}
    if topic:
        found = read_cluster(asking.brokers, [topic])
        if topic not in found.topics:
            raise NotFound(f"There is no topic {topic}, or you may not see it (Describe on Topic {topic}).")
        chosen: Iterable[TopicPartition] = places([found.topics[topic]])
    else:
        found, chosen = read_cluster(asking.brokers), before
    wanted = list(chosen)
    if not wanted:
        raise Invalid("the group has committed no offset: choose a topic")
    if len(wanted) > PLACES_MAX:
        raise Invalid(f"the group reads more than {PLACES_MAX} partitions: choose a topic")
    if value and to in ("earliest", "latest"):
        raise Invalid(f"value must be empty with to={to}")
    if to == "offset":
        if not (value.isascii() and value.isdecimal() and len(value) <= 18):
            raise Invalid("value must be an offset with to=offset")
        return dict.fromkeys(wanted, int(value))
    if to == "shift":
        if not _SHIFT.fullmatch(value):
            raise Invalid("value must be a number such as -100 or +10 with to=shift")
        return {at: max(0, before[at] + int(value)) for at in wanted if at in before}
    if to == "time":
        ends = _bound(asking, found, wanted, LATEST)
        at_time = _bound(asking, found, wanted, moment_of(value))
        return {at: at_time[at] if at_time[at] >= 0 else ends[at] for at in wanted}
    return _bound(asking, found, wanted, EARLIEST if to == "earliest" else LATEST)


def _bound(asking: Asking, cluster: Cluster, wanted: Iterable[TopicPartition], timestamp: int) -> Committed:
    found = read_offsets(asking.brokers, cluster, dict.fromkeys(wanted, timestamp))
    for error in found.failures.values():
        raise error
    return found.found


def _effect(before: int | None, after: int) -> str:
    if before is None:
        return "a first commit"
    if before == after:
        return "stays"
    if after < before:
        return f"reads {plural(before - after, 'record')} again"
    return f"skips {plural(after - before, 'record')}"


def _members(asking: Asking, group: Listed) -> str:
    """Why its offsets cannot be changed now; empty if they can."""
    row = read_described(asking.brokers, [group]).get(group.name)
    state = row.get("group_state") or group.state if isinstance(row, Mapping) else group.state
    if state in AT_REST:
        return ""
    count = len(row["members"]) if isinstance(row, Mapping) else 0
    return f"The group is {state} with {plural(count, 'member')}. Stop its members first."


def _move(asking: Asking, group: Listed, moved: Mapping[TopicPartition, int]) -> None:
    if not moved:
        return
    blocked = _members(asking, group)
    if blocked:
        raise Blocked(blocked)
    rows = rows_by({(at.topic, at.partition): offset for at, offset in moved.items()})
    if group.kind == SHARE:
        topics: list[dict[str, Any]] = [
            {
                "topic_name": name,
                "partitions": [{"partition_index": number, "start_offset": offset} for number, offset in some.items()],
            }
            for name, some in rows.items()
        ]
        values: dict[str, Any] = {"group_id": group.name, "topics": topics}
        answer = asking.brokers.change(ApiKey.ALTER_SHARE_GROUP_OFFSETS, values, group.coordinator)
        ensure_none(ApiKey.ALTER_SHARE_GROUP_OFFSETS, answer, group.name)
        _ensure_each(ApiKey.ALTER_SHARE_GROUP_OFFSETS, answer["responses"], "topic_name", group.name)
        return
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
                for number, offset in some.items()
            ],
        }
        for name, some in rows.items()
    ]
    values = {"group_id": group.name, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer = asking.brokers.change(ApiKey.OFFSET_COMMIT, values, group.coordinator)
    _ensure_each(ApiKey.OFFSET_COMMIT, answer["topics"], "name", group.name)


def _ensure_each(key: ApiKey, topics: Iterable[Mapping[str, Any]], name: str, group: str) -> None:
    for topic in topics:
        for row in topic["partitions"]:
            code, whole = row["error_code"], f"{topic[name]}-{row['partition_index']}"
            of = {ErrorCode.group_authorization_failed: group, ErrorCode.topic_authorization_failed: topic[name]}
            ensure_none(key, row, of.get(code, whole))


def _command(asking: Asking, group: Listed, after: Mapping[TopicPartition, int]) -> str:
    to, value, topic = asking.text("to"), asking.text("value"), asking.text("topic")
    option = {"--topic": topic} if topic else {}
    simple = {"earliest": "earliest", "latest": "latest", "offset": value, "time": _iso(value)}.get(to)
    if simple is not None:
        return command(asking, "group reset", [group.name], {"--to": simple, **option})
    if len(after) > SHELL_LINES_MAX:
        return ""
    return "\n".join(
        command(asking, "group reset", [group.name], {"--to": offset, "--topic": f"{at.topic}:{at.partition}"})
        for at, offset in sorted(after.items())
    )


def _iso(text: str) -> str:
    """In UTC, unless it says another zone: a command would take its own."""
    return text if re.search(r"(Z|[+-]\d\d:?\d\d)$", text) else f"{text}Z"


def delete_offsets(asking: Asking) -> Plan:
    cluster, group = _group(asking)
    topic = asking.text("topic")
    known = read_progress(asking.brokers, cluster, [group]).by_group.get(group.name, {})
    mine = {at: each.committed for at, each in known.items() if at.topic == topic}
    if not mine:
        raise NotFound(f"Group {group.name} has no offsets in topic {topic}.")

    def run() -> None:
        if group.kind == SHARE:
            values: dict[str, Any] = {"group_id": group.name, "topics": [{"topic_name": topic}]}
            answer = asking.brokers.change(ApiKey.DELETE_SHARE_GROUP_OFFSETS, values, group.coordinator)
            ensure_none(ApiKey.DELETE_SHARE_GROUP_OFFSETS, answer, group.name)
            for each in answer["responses"]:
                ensure_none(ApiKey.DELETE_SHARE_GROUP_OFFSETS, each, topic)
            return
        rows = [{"name": topic, "partitions": [{"partition_index": at.partition} for at in mine]}]
        values = {"group_id": group.name, "topics": rows}
        answer = asking.brokers.change(ApiKey.OFFSET_DELETE, values, group.coordinator)
        ensure_none(ApiKey.OFFSET_DELETE, answer, group.name)
        _ensure_each(ApiKey.OFFSET_DELETE, answer["topics"], "name", group.name)

    return Plan(
        f"Offsets of group {group.name} in topic {topic} are deleted.",
        run,
        [Change(f"{topic}-{at.partition}", str(offset), None) for at, offset in sorted(mine.items())],
        command(asking, "group delete", [group.name], {"--topic": topic}),
        ["The group begins there again by its consumers' auto.offset.reset."],
        back=group_page(group.name),
    )


def delete(asking: Asking) -> Plan:
    cluster, group = _group(asking)
    known = read_progress(asking.brokers, cluster, [group]).by_group.get(group.name, {})

    def run() -> None:
        answer = asking.brokers.change(ApiKey.DELETE_GROUPS, {"groups_names": [group.name]}, group.coordinator)
        for each in answer["results"]:
            ensure_none(ApiKey.DELETE_GROUPS, each, group.name)

    return Plan(
        f"Group {group.name} is deleted, with its offsets.",
        run,
        [Change("kind", group.kind, None), Change("offsets, in partitions", f"{len(known):,}", None)],
        command(asking, "group delete", [group.name]),
        ["Its consumers begin again by auto.offset.reset: they read all records again, or skip those of meanwhile."],
        _members(asking, group),
        back=("/groups", "Groups"),
    )


def remove_member(asking: Asking) -> Plan:
    _, group = _group(asking)
    member = asking.text("member")
    row = read_described(asking.brokers, [group]).get(group.name)
    if isinstance(row, Exception):
        raise row
    found = next((each for each in (row or {}).get("members", ()) if each["member_id"] == member), None)
    if found is None:
        raise NotFound(f"Group {group.name} has no member {member}.")
    instance = found.get("group_instance_id") or found.get("instance_id")

    def run() -> None:
        identity = {"member_id": member, "group_instance_id": instance, "reason": "removed in the console"}
        values = {"group_id": group.name, "members": [identity]}
        answer = asking.brokers.change(ApiKey.LEAVE_GROUP, values, group.coordinator)
        ensure_none(ApiKey.LEAVE_GROUP, answer, group.name)
        for each in answer["members"]:
            ensure_none(ApiKey.LEAVE_GROUP, each, member)

    return Plan(
        f"Member {member} is removed from group {group.name}.",
        run,
        [Change("client", found.get("client_id") or "", None), Change("host", found.get("client_host") or "", None)],
        warnings=["A consumer that is still running joins again: stop it, or this changes nothing for long."],
        blocked="" if group.kind != SHARE else "Kafka's protocol removes no member of a share group: stop it.",
        back=group_page(group.name),
    )


ACTS: Final = (
    Act("reset-offsets", "Move offsets", "How far a group has read: to the beginning, the end, an offset, a time, or "
        "by a number of records. Of share groups the first record that is not done with.",
        "Read on the group and its topics", reset,
        (GROUP, TOPIC,
         Field("to", "Where to: earliest, latest, offset, time, shift, or places as a preview pins them.", TARGETS,
               "earliest", widget="choice"),
         Field("value", "The offset, the time (ISO, in UTC unless it has a zone), the records to shift by, or "
               "TOPIC:PARTITION:OFFSET,...", length_max=PINNED_MAX, hint="2026-05-01T12:00, 1200 or -100")),
        "group", is_direct=False, body_max=4 * PINNED_MAX),
    Act("delete-offsets", "Delete offsets of a topic", "What a group has committed in one topic.",
        "Delete on the group, Read on the topic", delete_offsets,
        (GROUP, Field("topic", "The topic.", is_required=True, label="Topic")), "group", confirm="group"),
    Act("remove-member", "Remove a member", "A member of a group, whose partitions the others get.",
        "Read on the group", remove_member,
        (GROUP, Field("member", "The member's id.", is_required=True, label="Member")), "group", is_listed=False,
        is_direct=False),
    Act("delete-group", "Delete the group", "A group and its offsets.", "Delete on the group", delete, (GROUP,),
        "group", confirm="group"),
)  # fmt: skip
