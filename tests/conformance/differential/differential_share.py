"""What is asked of both brokers about the state of share groups: see differential_cases.py. What the share coordinator
makes of it in the long run is compared by the walk of test_share_coordinator_walk.py."""

from __future__ import annotations

from typing import Any

from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential import Of
from tests.conformance.differential.differential_cases import UNKNOWN_ID, Requests, World, cases


def topic(rows: list[dict[str, Any]], topic_id: Any = None) -> dict[str, Any]:
    return {"topic_id": topic_id or Of("shared"), "partitions": rows}


def initialized(w: World, group: str, state_epoch: int = 0, start_offset: int = 0) -> None:
    rows = [{"partition": number, "state_epoch": state_epoch, "start_offset": start_offset} for number in (0, 1)]
    for side in w.sides:
        asked = {"group_id": group, "topics": [topic(rows)]}
        answer = side.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, asked)
        assert not any(row["error_code"] for row in answer["results"][0]["partitions"])


def around(w: World, group: str, **row: Any) -> Requests:
    """Rows of topics and partitions that there are and of those that there are not."""
    yield {"group_id": "", "topics": [topic([{"partition": 0, **row}])]}
    yield {"group_id": group, "topics": []}
    yield {"group_id": group, "topics": [topic([])]}
    yield {"group_id": group, "topics": [topic([{"partition": number, **row} for number in (0, 1, 3, -1)])]}
    for unknown in (UNKNOWN_ID, ZERO_UUID):
        yield {"group_id": group, "topics": [topic([{"partition": 0, **row}], unknown)]}
    yield {"group_id": group, "topics": [topic([{"partition": 2, **row}] * 2), topic([{"partition": 1, **row}])]}


@cases(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
def initialize_share_group_state(w: World, version: int) -> Requests:
    group = f"{w.prefix}initialize"
    yield from around(w, group, state_epoch=0, start_offset=0)
    for state_epoch, start_offset in ((1, 5), (0, 7), (3, -1), (2, 0), (-1, 9), (4, 4)):
        row = {"partition": 0, "state_epoch": state_epoch, "start_offset": start_offset}
        yield {"group_id": group, "topics": [topic([row])]}


@cases(ApiKey.READ_SHARE_GROUP_STATE)
def read_share_group_state(w: World, version: int) -> Requests:
    group = f"{w.prefix}read"
    yield from around(w, group, leader_epoch=0)
    initialized(w, group, start_offset=3)
    yield from around(w, group, leader_epoch=0)
    for leader_epoch in (2, 1, -1, 2, 5, 0):
        yield {"group_id": group, "topics": [topic([{"partition": 0, "leader_epoch": leader_epoch}])]}
    for side in w.sides:  # from the older leader, whose epoch is fenced, and from the newest
        for leader_epoch in (2, 5):
            side.ask(ApiKey.WRITE_SHARE_GROUP_STATE, 0, write(group, (3, 5, 0, 1), (8, 8, 4, 2), epoch=leader_epoch))
    yield {"group_id": group, "topics": [topic([{"partition": 0, "leader_epoch": 5}])]}


def write(group: str, *batches: tuple[int, int, int, int], epoch: int = 0, **more: Any) -> dict[str, Any]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    rows = [dict(zip(names, each, strict=True)) for each in batches]
    row = {"partition": 0, "state_epoch": 0, "leader_epoch": epoch, "start_offset": -1, "state_batches": rows, **more}
    return {"group_id": group, "topics": [topic([row])]}


@cases(ApiKey.WRITE_SHARE_GROUP_STATE)
def write_share_group_state(w: World, version: int) -> Requests:
    group = f"{w.prefix}write-{version}"
    row = {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": 0, "state_batches": []}
    yield from around(w, group, **row)
    initialized(w, group)
    yield from around(w, group, **row)
    yield write(group, (0, 9, 0, 1))
    yield write(group, (0, 4, 2, 1), (7, 7, 4, 1), start_offset=5, delivery_complete_count=1)
    yield write(group, (5, 6, 2, 2), epoch=-1)
    yield write(group, (5, 6, 2, 2), state_epoch=-1)
    yield write(group, (5, 6, 2, 2), state_epoch=2)
    yield write(group, epoch=3)
    for side in w.sides:
        side.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, {"group_id": group, "topics": [topic([READ])]})
    yield write(group, (5, 6, 2, 2), epoch=3)
    yield write(group, (5, 6, 2, 2), epoch=4)
    states = [
        side.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, {"group_id": group, "topics": [topic([READ])]}) for side in w.sides
    ]
    kept = [kept_of(each) for each in states]
    if kept[0] != kept[1]:
        w.found.append(f"WRITE_SHARE_GROUP_STATE v{version} left\n    {kept[0]}\n    {kept[1]}")


READ = {"partition": 0, "leader_epoch": 4}


def kept_of(answer: Any) -> Any:
    (row,) = answer["results"][0]["partitions"]
    return (
        row["error_code"],
        row["state_epoch"],
        row["start_offset"],
        [[*each.values()] for each in row["state_batches"]],
    )


@cases(ApiKey.DELETE_SHARE_GROUP_STATE)
def delete_share_group_state(w: World, version: int) -> Requests:
    group = f"{w.prefix}delete"
    yield from around(w, group)
    initialized(w, group)
    yield from around(w, group)


@cases(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
def read_share_group_state_summary(w: World, version: int) -> Requests:
    group = f"{w.prefix}summary-{version}"
    yield from around(w, group, leader_epoch=0)
    initialized(w, group, start_offset=2)
    yield from around(w, group, leader_epoch=0)
    for side in w.sides:
        side.ask(ApiKey.WRITE_SHARE_GROUP_STATE, 1, write(group, (4, 5, 2, 1), delivery_complete_count=2))
    for leader_epoch in (0, -1, 7):
        yield {"group_id": group, "topics": [topic([{"partition": 0, "leader_epoch": leader_epoch}])]}


def fetch(group: str, epoch: int, *partitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    topics = [topic([*partitions])] if partitions else []
    return {
        "group_id": group,
        "member_id": "member",
        "share_session_epoch": epoch,
        "max_wait": 3000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": topics,
        "forgotten_topics_data": [],
        **more,
    }


def row(number: int, *acks: tuple[int, int, tuple[int, ...]]) -> dict[str, Any]:
    names = ("first_offset", "last_offset", "acknowledge_types")
    return {
        "partition_index": number,
        "acknowledgement_batches": [dict(zip(names, each, strict=True)) for each in acks],
    }


RENEWAL = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}


@cases(ApiKey.SHARE_FETCH)
def share_fetch(w: World, version: int) -> Requests:
    group = f"{w.prefix}fetch-{version}"
    for wrong in ({"group_id": None}, {"member_id": None}, {"member_id": ""}, {"member_id": "x" * 37}):
        yield fetch(group, 0, row(0), **wrong)
    for epoch in (1, -1, 5):
        yield fetch(group, epoch, row(0))
    yield fetch(group, 0, row(0, (0, 0, (1,))))
    yield fetch(group, 0, row(9), max_wait=0)
    initialized(w, group)
    yield fetch(group, 0, row(0), max_records=2)
    yield fetch(group, 7, row(0))
    yield fetch(group, 1, max_wait=1000)
    yield fetch(group, 2, row(1))  # nothing is left of the other: it waits until this one is loaded
    wrong_acks: list[tuple[int, int, tuple[int, ...]]] = [
        (1, 0, (1,)),
        (0, 0, ()),
        (0, 1, (1, 1, 1)),
        (0, 0, (5,)),
        (0, 0, (-1,)),
        (0, 0, (4,)),
        (0, 100, (1,)),
        (90, 90, (1,)),
    ]
    for epoch, each in enumerate(wrong_acks, start=3):
        yield fetch(group, epoch, row(0, each), max_wait=0)
    epoch = len(wrong_acks) + 3
    yield fetch(group, epoch, row(0, (0, 0, (1,)), (1, 2, (1, 2))), max_wait=1000)
    yield fetch(group, epoch + 1, row(0, (0, 0, (1,))), row(1, (0, 1, (3,)), (3, 3, (0,))), max_wait=0)
    yield fetch(group, epoch + 2, row(7), max_wait=0)
    yield fetch(group, epoch + 3, max_wait=0, forgotten_topics_data=[{"topic_id": Of("shared"), "partitions": [7, 0]}])
    more = 4
    if version >= 2:
        yield fetch(group, epoch + 4, row(1, (2, 2, (4,))), **RENEWAL)
        yield fetch(group, epoch + 5, row(1, (2, 2, (4,))), **{**RENEWAL, "max_wait": 1})
        more = 5
    yield fetch(group, epoch + more, row(0), max_wait=1000, max_records=0)
    yield fetch(group, -1, row(1, (2, 2, (1,))), max_wait=0)
    yield fetch(group, epoch + more + 1)


@cases(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge(w: World, version: int) -> Requests:
    group = f"{w.prefix}acknowledge-{version}"

    def request(epoch: int, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "group_id": group,
            "member_id": "member",
            "share_session_epoch": epoch,
            "topics": [topic([*rows])],
            **more,
        }

    for wrong in ({"group_id": None}, {"member_id": None}, {"member_id": ""}, {"member_id": "x" * 37}):
        yield request(1, row(0, (0, 0, (1,))), **wrong)
    for epoch in (0, 1, -1):
        yield request(epoch, row(0, (0, 0, (1,))))
    initialized(w, group)
    for side in w.sides:
        side.ask(ApiKey.SHARE_FETCH, 1, fetch(group, 0, row(0)))
    yield request(9, row(0, (0, 0, (1,))))
    yield request(0, row(0, (0, 0, (1,))))
    yield request(1, row(0, (0, 0, (1,)), (1, 1, (2,))), row(9, (0, 0, (1,))), row(1, (0, 0, (1,))))
    yield request(2, row(0, (1, 1, (1,))))
    yield request(3, row(0, (2, 3, (1, 3))), row(2))
    yield request(4, row(2))
    yield request(5, row(0, (4, 4, (4,))))
    unknown = [topic([row(0, (0, 0, (1,)))], UNKNOWN_ID)]
    yield request(6, topics=unknown)
    if version >= 2:
        yield request(7, row(0, (4, 4, (4,))), is_renew_ack=True)
    yield request(-1, row(0, (4, 4, (1,))))
    yield request(1, row(0, (5, 5, (1,))))


def join(w: World, version: int, group: str, member: str = "member", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": [w.shared],
        **more,
    }


@cases(ApiKey.SHARE_GROUP_HEARTBEAT)
def share_group_heartbeat(w: World, version: int) -> Requests:
    group = f"{w.prefix}heartbeat"
    for wrong in (
        {"member_id": ""},
        {"member_id": " "},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"member_epoch": 1},
        {"member_epoch": -1},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ):
        yield join(w, version, group, **wrong)
    yield join(w, version, group)
    yield join(w, version, group, member_epoch=1, subscribed_topic_names=None)
    yield join(w, version, group, member_epoch=7, subscribed_topic_names=None)
    yield join(w, version, group, "stranger", member_epoch=1)
    yield join(w, version, group, "other", subscribed_topic_names=[w.nowhere], rack_id="r")
    yield join(w, version, group, "other", member_epoch=-1)
    yield join(w, version, group, member_epoch=-1)
    yield join(w, version, group, member_epoch=-1)
    for side in w.sides:
        side.ask(
            ApiKey.JOIN_GROUP,
            4,
            {
                "group_id": f"{group}-classic",
                "session_timeout": 10_000,
                "rebalance_timeout": 1000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        )
    yield join(w, version, f"{group}-classic")


@cases(ApiKey.SHARE_GROUP_DESCRIBE)
def share_group_describe(w: World, version: int) -> Requests:
    group = f"{w.prefix}described"
    yield {"group_ids": []}
    yield {"group_ids": [group, "", f"{w.prefix}nobody"]}
    for side in w.sides:
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, join(w, version, group, subscribed_topic_names=[w.nowhere]))
    yield {"group_ids": [group, group]}
    for side in w.sides:
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, join(w, version, group, member_epoch=-1))
    yield {"group_ids": [group]}


def altered(group: str, *topics: tuple[str, dict[int, int]]) -> dict[str, Any]:
    rows = []
    for name, offsets in topics:
        partitions = [{"partition_index": number, "start_offset": each} for number, each in offsets.items()]
        rows.append({"topic_name": name, "partitions": partitions})
    return {"group_id": group, "topics": rows}


@cases(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
def alter_share_group_offsets(w: World, version: int) -> Requests:
    group = f"{w.prefix}altered"
    yield altered("", (w.shared, {0: 1}))
    yield altered(group)
    yield altered(group, (w.shared, {0: 3, 9: 1}), (w.nowhere, {0: 0}))
    yield altered(group, (w.shared, {0: 1, 1: 2}))
    for side in w.sides:
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, join(w, version, group, subscribed_topic_names=[w.nowhere]))
    yield altered(group, (w.shared, {0: 1}))
    for side in w.sides:
        side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, join(w, version, group, member_epoch=-1))


@cases(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
def describe_share_group_offsets(w: World, version: int) -> Requests:
    group = f"{w.prefix}offsets-{version}"
    everything = [{"topic_name": w.shared, "partitions": [0, 1]}, {"topic_name": w.nowhere, "partitions": [0]}]
    for topics in (everything, [], None):
        yield {"groups": [{"group_id": group, "topics": topics}]}
    for side in w.sides:
        side.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altered(group, (w.shared, {0: 3, 1: 1})))
    for topics in (everything, [], None):
        yield {"groups": [{"group_id": group, "topics": topics}, {"group_id": f"{w.prefix}nobody", "topics": topics}]}


@cases(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
def delete_share_group_offsets(w: World, version: int) -> Requests:
    group = f"{w.prefix}deleted"

    def request(*names: str, group_id: str = group) -> dict[str, Any]:
        return {"group_id": group_id, "topics": [{"topic_name": name} for name in names]}

    yield request(w.shared, group_id="")
    yield request(w.shared)
    for side in w.sides:
        side.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altered(group, (w.shared, {0: 3, 1: 1})))
    yield request(w.empty, w.nowhere)
    yield request()
    yield request(w.shared, w.empty)
    yield request(w.shared)
