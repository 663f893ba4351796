"""What is asked of both brokers about consumer groups: see differential_cases.py."""

from __future__ import annotations

import itertools
from typing import Any

from ottla.protocol.messages import ApiKey
from tests.conformance.differential import differential_streams as of_streams
from tests.conformance.differential.differential import Of
from tests.conformance.differential.differential_cases import UNKNOWN_ID, Requests, T, World, cases

FOR_LONG_MS = 1_800_000
"""Members that never synchronise stay so until all is compared, however long that takes."""

NOBODY = {"member_id": "nobody", "generation_id": 1, "generation_id_or_member_epoch": 1}


def share_group(w: World, version: int) -> str:
    """A share group with the member `member`, to which classic members' requests come by mistake."""
    group = f"{w.prefix}shared-{version}"
    asked = {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": [w.nowhere],
    }
    for side in w.sides:
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, asked)
    return group


@cases(ApiKey.OFFSET_COMMIT)
def offset_commit(w: World, version: int) -> Requests:
    def request(*partitions: Any, name: str = w.t, topic_id: Any = T, **more: Any) -> Any:
        rows = [{"partition_index": index, "committed_offset": offset, **own} for index, offset, own in partitions]
        topics = [{"name": name, "topic_id": topic_id, "partitions": rows}]
        base = {"group_id": f"{w.prefix}c{version}", "generation_id_or_member_epoch": -1, "member_id": ""}
        return {**base, "topics": topics, **more}

    for offset in (0, 5, -1, -2, 1 << 60):
        yield request((0, offset, {}), (1, offset, {"committed_leader_epoch": 3}), (3, offset, {}), (-1, offset, {}))
    for words in (None, "", "x", "x" * 4096, "x" * 4097, "é" * 4096):
        yield request((0, 1, {"committed_metadata": words}))
    for name, topic_id in ((w.nowhere, UNKNOWN_ID), ("a b", None), ("", None), ("__consumer_offsets", UNKNOWN_ID)):
        yield request((0, 1, {}), name=name, topic_id=topic_id)
    yield request((0, 1, {}), (0, 2, {}))
    yield request()
    yield request(topics=[])
    for group in ("", w.prefix + "nobody"):
        for member, generation in itertools.product(("", "nobody"), (-1, 0, 1)):
            both = {"member_id": member, "generation_id_or_member_epoch": generation}
            yield request((0, 1, {}), group_id=group, **both)
    yield request((0, 1, {}), group_instance_id="i")
    yield request((0, 1, {}), retention_time=5)


@cases(ApiKey.OFFSET_FETCH)
def offset_fetch(w: World, version: int) -> Requests:
    everything = [
        {"name": w.t, "topic_id": Of("t"), "partition_indexes": [0, 1, 2, 3, -1]},
        {"name": w.nowhere, "topic_id": UNKNOWN_ID, "partition_indexes": [0]},
        {"name": "a b", "topic_id": None, "partition_indexes": [0, 0]},
    ]
    groups = (f"{w.prefix}c{max(2, min(version, 10))}", w.prefix + "nobody", "")
    for group, asked, stable in itertools.product(groups, (everything, everything[:1] * 2, [], None), (False, True)):
        if asked is None and version < 2:
            continue
        one = {"group_id": group, "topics": asked}
        yield {"groups": [one], "require_stable": stable, **one}
    one = {"group_id": groups[0], "topics": everything[:1]}
    if version >= 8:
        yield {"groups": [one, {**one, "group_id": groups[1]}], "require_stable": False}
        yield {"groups": [one, one], "require_stable": False}
        yield {"groups": [], "require_stable": False}
        for member, epoch in (("nobody", 1), ("", 0), (None, 5)):
            yield {"groups": [{**one, "member_id": member, "member_epoch": epoch}], "require_stable": False}


@cases(ApiKey.JOIN_GROUP)
def join_group(w: World, version: int) -> Requests:
    protocols = [{"name": "range", "metadata": b"m"}]
    base: dict[str, Any] = {
        "group_id": f"{w.prefix}j{version}",
        "session_timeout": FOR_LONG_MS,
        "rebalance_timeout": FOR_LONG_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    for number, wrong in enumerate(
        (
            {"group_id": ""},
            {"session_timeout": 5_999},
            {"session_timeout": 1_800_001},
            {"session_timeout": -1},
            {"member_id": "nobody"},
            {"protocols": []},
            {"protocol_type": ""},
            {"group_instance_id": ""},
            {"group_instance_id": "a b"},
            {"member_id": "nobody", "group_instance_id": "i"},
            {"group_instance_id": "x" * 250},
            {"group_instance_id": "."},
            {},
            {"reason": "x" * 300},
        )
    ):
        yield {**base, "group_id": f"{base['group_id']}-{number}", **wrong}
    yield {**base, "group_id": share_group(w, version)}


@cases(ApiKey.SYNC_GROUP)
def sync_group(w: World, version: int) -> Requests:
    base = {"group_id": w.prefix + "nobody", **NOBODY, "assignments": []}
    for group, member, generation in itertools.product((w.prefix + "nobody", ""), ("nobody", ""), (-1, 0, 1)):
        yield {**base, "group_id": group, "member_id": member, "generation_id": generation}
    for kind, name in itertools.product((None, "", "consumer"), repeat=2):
        yield {**base, "protocol_type": kind, "protocol_name": name}
    yield {**base, "group_id": share_group(w, version), "member_id": "member"}
    yield {**base, "group_instance_id": "i"}
    yield {**base, "assignments": [{"member_id": "nobody", "assignment": b"x"}] * 2}


@cases(ApiKey.HEARTBEAT)
def heartbeat(w: World, version: int) -> Requests:
    for group, member, generation in itertools.product((w.prefix + "nobody", ""), ("nobody", ""), (-1, 0, 1)):
        for instance in (None, "i", ""):
            yield {"group_id": group, "member_id": member, "generation_id": generation, "group_instance_id": instance}
    yield {"group_id": share_group(w, version), "member_id": "member", "generation_id": 1}


@cases(ApiKey.LEAVE_GROUP)
def leave_group(w: World, version: int) -> Requests:
    for group, member in itertools.product((w.prefix + "nobody", ""), ("nobody", "")):
        for instance in (None, "i", ""):
            row = {"member_id": member, "group_instance_id": instance, "reason": "done"}
            yield {"group_id": group, "member_id": member, "members": [row]}
        yield {"group_id": group, "member_id": member, "members": []}
        yield {"group_id": group, "member_id": member, "members": [{"member_id": member}] * 2}
    yield {"group_id": share_group(w, version), "member_id": "member", "members": [{"member_id": "member"}] * 2}
    streams = f"{w.prefix}streams-{version}"
    joining = of_streams.asked(streams, topology=of_streams.topology(of_streams.subtopology("0", w.t)))
    for side in w.sides:
        side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, joining)
    yield {"group_id": streams, "member_id": "m", "members": [{"member_id": "m"}] * 2}


@cases(ApiKey.DESCRIBE_GROUPS)
def describe_groups(w: World, version: int) -> Requests:
    for groups in ([], [""], [w.prefix + "nobody"], [w.prefix + "c8"], [w.prefix + "c8", w.prefix + "c8", "x"]):
        for operations in (False, True):
            yield {"groups": groups, "include_authorized_operations": operations}


@cases(ApiKey.LIST_GROUPS)
def list_groups(w: World, version: int) -> Requests:
    states = ([], ["Empty"], ["empty", "STABLE"], ["nonsense"], [""], ["PreparingRebalance"])
    kinds = ([], ["classic"], ["Consumer"], ["share"], ["nonsense"], ["classic", "consumer"], [""])
    for state, kind in itertools.product(states if version >= 4 else [[]], kinds if version >= 5 else [[]]):
        yield {"states_filter": state, "types_filter": kind}


@cases(ApiKey.DELETE_GROUPS)
def delete_groups(w: World, version: int) -> Requests:
    for groups in ([], [""], [w.prefix + "nobody"], [w.prefix + "nobody"] * 2, ["", w.prefix + "nobody"]):
        yield {"groups_names": groups}


@cases(ApiKey.OFFSET_DELETE)
def offset_delete(w: World, version: int) -> Requests:
    for group in (w.prefix + "nobody", "", w.prefix + "c9"):
        for name, partitions in ((w.t, [3, -1, 2]), (w.nowhere, [0]), ("a b", [0]), (w.t, []), (w.t, [2, 2])):
            rows = [{"partition_index": each} for each in partitions]
            yield {"group_id": group, "topics": [{"name": name, "partitions": rows}]}
        yield {"group_id": group, "topics": []}


@cases(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(w: World, version: int) -> Requests:
    """Invalid requests, then the lives of a member and of a static one; no member waits for another."""
    group = f"{w.prefix}848-{version}"
    known: dict[str, Any] = {
        "group_id": group,
        "member_id": "nobody",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 5000,
        "subscribed_topic_names": [w.t],
        "topic_partitions": [],
        "server_assignor": None,
        "subscribed_topic_regex": None,
    }
    wrong: tuple[dict[str, Any], ...] = (
        {"server_assignor": "nonsense"},
        {"group_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"member_epoch": 1},
        {"member_epoch": -1},
        {"member_epoch": -2, "instance_id": "i"},
        {"group_id": f"{w.prefix}c9"},
        {"subscribed_topic_regex": "(", "subscribed_topic_names": None},
    )
    for change in wrong:
        yield {**known, **change}
    same = {**known, "rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    for epoch in (0, 2, 1, 7, -2, -1, -1, 2):
        yield {**(known if epoch == 0 else same), "member_id": "alone", "member_epoch": epoch}
    for member, epoch in (("s1", 0), ("s2", 0), ("s1", 4), ("s1", -2), ("s2", 0), ("s1", 4), ("s2", -1), ("s2", 5)):
        yield {**(known if epoch == 0 else same), "member_id": member, "member_epoch": epoch, "instance_id": "i"}


@cases(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe(w: World, version: int) -> Requests:
    for groups in ([], [f"{w.prefix}848-0"], ["", f"{w.prefix}nobody", f"{w.prefix}c9"]):
        for wanted in (False, True):
            yield {"group_ids": groups, "include_authorized_operations": wanted}
