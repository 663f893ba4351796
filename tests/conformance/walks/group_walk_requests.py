"""The next request of a walk: mostly like a client's, often a little wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from tests.conformance.walks.group_walk import Walk

Request = tuple[ApiKey, int, dict[str, Any]]
NOBODY = "nobody"
INSTANCES = (None, None, None, "i", "j")
SESSION_MS, REBALANCE_MS = 30_000, 60_000


def subscription(*topics: str) -> bytes:
    named = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


def draw(w: Walk) -> Request:
    kind = w.dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    return kind(w)


def member(w: Walk) -> str:
    """A member, most often one of the latest."""
    if not w.members or w.dice.random() < 0.05:
        return w.dice.choice((NOBODY, ""))
    names = list(w.members)
    return w.dice.choice(names[-4:] if w.dice.random() < 0.8 else names)


def instance(w: Walk, name: str) -> str | None:
    return w.members.get(name) if w.dice.random() < 0.9 else w.dice.choice(("i", "j", "k", None))


def generation(w: Walk) -> int:
    return w.generation + w.dice.choice((0,) * 10 + (-1, 1))


def protocols(w: Walk) -> list[dict[str, Any]]:
    known = {"range": subscription(w.topic), "sticky": subscription(w.topic), "other": subscription("else")}
    names = w.dice.choice(
        (["range"],) * 6 + (["range", "sticky"],) * 3 + (["sticky", "range"], ["other"], ["sticky"], [])
    )
    return [{"name": name, "metadata": known[name]} for name in names]


def join(w: Walk, name: str, instance_id: str | None, version: int) -> Request:
    return (
        ApiKey.JOIN_GROUP,
        version,
        {
            "group_id": w.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": name,
            "group_instance_id": instance_id,
            "protocol_type": "connect" if w.dice.random() < 0.03 else "consumer",
            "protocols": protocols(w),
            "reason": w.dice.choice((None, "why", "x" * 300)),
        },
    )


def join_new(w: Walk) -> Request:
    instance_id = w.dice.choice(INSTANCES)
    return join(w, "", instance_id, w.dice.randint(5, 9) if instance_id else w.dice.randint(0, 9))


def join_again(w: Walk) -> Request:
    name = member(w)
    instance_id = instance(w, name)
    return join(w, name, instance_id, w.dice.randint(5, 9) if instance_id else w.dice.randint(0, 9))


def sync(w: Walk, name: str) -> Request:
    version = w.dice.randint(3 if w.members.get(name) else 0, 5)
    rows = [{"member_id": each, "assignment": f"{each} {w.generation}".encode()} for each in w.members]
    kind, protocol = w.dice.choice(
        (("consumer", "range"),) * 7 + ((None, None), ("connect", "range"), ("consumer", "x"))
    )
    return (
        ApiKey.SYNC_GROUP,
        version,
        {
            "group_id": w.group,
            "generation_id": generation(w),
            "member_id": name,
            "assignments": rows,
            "group_instance_id": instance(w, name) if version >= 3 else None,
            "protocol_type": kind,
            "protocol_name": protocol,
        },
    )


def sync_any(w: Walk) -> Request:
    return sync(w, member(w))


def sync_leader(w: Walk) -> Request:
    return sync(w, w.leader or member(w))


def heartbeat(w: Walk) -> Request:
    name = member(w)
    instance_id = instance(w, name)
    version = w.dice.randint(3 if instance_id else 0, 4)
    asked = {"group_id": w.group, "generation_id": generation(w), "member_id": name, "group_instance_id": instance_id}
    return ApiKey.HEARTBEAT, version, asked


def leave(w: Walk) -> Request:
    version = w.dice.randint(0, 5)
    if version < 3:
        return ApiKey.LEAVE_GROUP, version, {"group_id": w.group, "member_id": member(w)}
    rows = []
    for _ in range(w.dice.choice((0, 1, 1, 1, 1, 2, 3))):
        name = w.dice.choice((member(w), member(w), ""))
        instance_id = instance(w, name) if name else w.dice.choice(("i", "j", None))
        rows.append({"member_id": name, "group_instance_id": instance_id, "reason": "enough"})
    return ApiKey.LEAVE_GROUP, version, {"group_id": w.group, "members": rows}


def commit(w: Walk) -> Request:
    name = member(w)
    outside = w.dice.random() < 0.3
    instance_id = None if outside else instance(w, name)
    version = w.dice.randint(7 if instance_id else 2, 10)
    # Of a commit without a single good offset Kafka keeps a group that some requests find and others do not.
    words = (None, "", "m", "é" * 4_096, "x" * 4_097)[: 4 if w.state == "Dead" else 5]
    row = {
        "committed_offset": w.dice.choice((0, 7, -1, 1 << 60)),
        "committed_leader_epoch": w.dice.choice((-1, 0, 3)),
        "committed_metadata": w.dice.choice(words),
    }
    topics: list[dict[str, Any]] = [
        {"name": w.topic, "topic_id": "TOPIC"},
        {"name": "absent", "topic_id": UUID(int=77)},
    ]
    numbers = [w.dice.sample(range(4), w.dice.randint(1, 3)) for _ in topics]
    return (
        ApiKey.OFFSET_COMMIT,
        version,
        {
            "group_id": w.group,
            "generation_id_or_member_epoch": -1 if outside else generation(w),
            "member_id": "" if outside else name,
            "group_instance_id": instance_id,
            "retention_time": w.dice.choice((-1, -1, 5_000, 0)),
            "topics": [
                {**topic, "partitions": [{**row, "partition_index": n} for n in ours]}
                for topic, ours in zip(w.dice.choice((topics[:1], topics[:1], topics)), numbers, strict=False)
            ],
        },
    )


def fetch(w: Walk) -> Request:
    version = w.dice.randint(1, 10)
    topics = [{"name": w.topic, "topic_id": "TOPIC", "partition_indexes": [0, 1, 2, 3]}]
    asked = None if version > 1 and w.dice.random() < 0.4 else topics
    one = {
        "group_id": w.group,
        "topics": asked,
        "member_id": w.dice.choice((None, member(w))),
        "member_epoch": w.dice.choice((-1, generation(w))),
    }
    return (
        ApiKey.OFFSET_FETCH,
        version,
        {**one, "groups": [one], "require_stable": version >= 7 and w.dice.random() < 0.5},
    )


def describe(w: Walk) -> Request:
    return ApiKey.DESCRIBE_GROUPS, w.dice.randint(0, 6), {"groups": [w.group, f"{w.group}-none"]}


def list_groups(w: Walk) -> Request:
    version = w.dice.randint(0, 5)
    states = w.dice.choice(([], ["Stable"], ["empty", "preparingrebalance"], ["Dead"])) if version >= 4 else []
    types = w.dice.choice(([], ["classic"], ["consumer"])) if version >= 5 else []
    return ApiKey.LIST_GROUPS, version, {"states_filter": states, "types_filter": types}


def delete(w: Walk) -> Request:
    return ApiKey.DELETE_GROUPS, w.dice.randint(0, 2), {"groups_names": [w.group, f"{w.group}-none"]}


def delete_offsets(w: Walk) -> Request:
    rows = [{"partition_index": n} for n in w.dice.sample(range(4), 2)]
    topics = [{"name": w.dice.choice((w.topic, w.topic, "absent")), "partitions": rows}]
    return ApiKey.OFFSET_DELETE, 0, {"group_id": w.group, "topics": topics}


WEIGHTS: dict[Callable[[Walk], Request], int] = {
    join_new: 10, join_again: 14, sync_any: 12, sync_leader: 12, heartbeat: 8, leave: 6, commit: 10, fetch: 5,
    describe: 2, list_groups: 2, delete: 2, delete_offsets: 4,
}  # fmt: skip
