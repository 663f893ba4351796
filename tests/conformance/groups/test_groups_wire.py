"""Group requests in every version, good and bad, on the wire: Ottla's answers are those that Apache Kafka 4.3 gave.

Kafka's are in tests/scripts/wire_groups.txt. `OTTLA_REWRITE=1 OTTLA_TEST_BOOTSTRAP=host:port pytest` on this file asks
a Kafka (with group.initial.rebalance.delay.ms=0) again and rewrites them.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

TRANSCRIPT = Path(__file__).parents[2] / "scripts" / "wire_groups.txt"
_MEMBER = re.compile(r"[A-Za-z0-9]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
TOO_LONG = "x" * 4_097
NOT_COMPARED = {"throttle_time", "node_id", "host", "port"}


def there(layout: Any, value: Any) -> Any:
    """The fields that the version has, as plain values."""
    if isinstance(value, tuple | list):
        return [there(layout, each) for each in value]
    if layout is None or value is None:
        return value
    fields = {field.name: field for field in (*layout.fields, *layout.tagged)}
    names = [field.name for field in value._schema if field.name in fields]
    return {name: there(fields[name].layout, getattr(value, name)) for name in names}


class Wire:
    """A connection, and what was asked and answered on it in words that are the same in every run."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=300)
        self.run = uuid.uuid4().hex[:8]
        self.members: dict[str, str] = {}
        self.topic_id = uuid.UUID(int=0)
        self.lines: list[str] = []

    def ask(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        frame = messages.encode_request(api_key, version, 1, "wire", values)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        return there(
            messages.response_layout(api_key, version), messages.decode_response(api_key, version, self._read(size))[1]
        )

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the connection was closed"
            data += part
        return bytes(data)

    def __call__(self, api_key: ApiKey, version: int, **values: Any) -> Any:
        """Ask, note request and answer, return the answer."""
        answer = self.ask(api_key, version, values)
        self.lines.append(f"{api_key.name} v{version} {self.words(values)}\n    {self.words(answer)}")
        return answer

    def note(self, text: str) -> None:
        self.lines.append(f"\n# {text}")

    def words(self, value: Any) -> str:
        if isinstance(value, dict):
            return " ".join(f"{key}={self.words(item)}" for key, item in value.items() if key not in NOT_COMPARED)
        if isinstance(value, list | tuple):
            return "[" + "; ".join(sorted(map(self.words, value))) + "]"
        if isinstance(value, ErrorCode):
            return value.name
        if isinstance(value, uuid.UUID):
            return "ID" if value == self.topic_id else str(value.int)
        text = str(value) if value != "" else "''"
        text = _MEMBER.sub(lambda found: self.members.setdefault(found[0], f"M{len(self.members) + 1}"), text)
        return text.replace(f"t{self.run}", "topic").replace(self.run, "group").replace(TOO_LONG, "(too long)")


def set_up(wire: Wire) -> str:
    """A topic of three partitions; returns its name. Waits until groups have a coordinator."""
    topic = f"t{wire.run}"
    new = {"name": topic, "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout": 10_000, "validate_only": False})
    for _ in range(300):
        found = wire.ask(ApiKey.METADATA, 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        coordinator = wire.ask(ApiKey.FIND_COORDINATOR, 0, {"key": wire.run})
        if found["topics"][0]["topic_id"] and not found["topics"][0]["error_code"] and not coordinator["error_code"]:
            wire.topic_id = found["topics"][0]["topic_id"]
            break
        time.sleep(0.1)
    for group in (wire.run, f"{wire.run}-v", f"{wire.run}-s", f"{wire.run}-nobody", ""):
        while wire.ask(ApiKey.OFFSET_FETCH, 5, {"group_id": group, "topics": None})["error_code"]:
            time.sleep(0.1)
    return topic


def join(wire: Wire, version: int, group: str, **values: Any) -> Any:
    protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
    return wire(
        ApiKey.JOIN_GROUP,
        version,
        **{
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
            **values,
        },
    )


def sync(wire: Wire, version: int, group: str, generation: int, member_id: str, **values: Any) -> Any:
    assignments = [{"member_id": member_id, "assignment": b"mine"}]
    return wire(
        ApiKey.SYNC_GROUP,
        version,
        **{
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": assignments,
            **values,
        },
    )


def every_version(wire: Wire, topic: str) -> None:
    """The life of a member, once for each version of JoinGroup, with the other APIs' versions going along."""
    group = f"{wire.run}-v"
    for version in range(10):
        wire.note(f"a member by JoinGroup v{version}")
        answer = join(wire, version, group)
        if version >= 4:
            answer = join(wire, version, group, member_id=answer["member_id"])
        member_id, generation = answer["member_id"], answer["generation_id"]
        sync(wire, min(version, 5), group, generation, member_id)
        wire(ApiKey.HEARTBEAT, min(version, 4), group_id=group, generation_id=generation, member_id=member_id)
        partitions = [{"partition_index": 0, "committed_offset": version, "committed_metadata": f"by {version}"}]
        commit(wire, 2 + min(version, 8), group, topic, partitions, generation, member_id)
        wire(ApiKey.DESCRIBE_GROUPS, min(version, 6), groups=[group], include_authorized_operations=version % 2 == 0)
        leaving = {"member_id": member_id, "members": [{"member_id": member_id}]}
        wire(ApiKey.LEAVE_GROUP, min(version, 5), group_id=group, **leaving)
        fetch(wire, 1 + min(version, 9), group, topic)


def commit(
    wire: Wire, version: int, group: str, topic: str, partitions: list[Any], generation: int = -1, member_id: str = ""
) -> Any:
    return wire(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            {"name": topic, "topic_id": wire.topic_id, "partitions": partitions},
            {"name": "absent", "topic_id": uuid.UUID(int=77), "partitions": [{"partition_index": 0}]},
        ],
    )


def fetch(wire: Wire, version: int, group: str, topic: str) -> None:
    topics = [
        {"name": topic, "topic_id": wire.topic_id, "partition_indexes": [0, 1, 9]},
        {"name": "absent", "topic_id": uuid.UUID(int=77), "partition_indexes": [0]},
    ]
    for asked, stable in itertools.product([topics, []] if version < 2 else [topics, [], None], [False, True]):
        if version < 7 and stable:
            continue
        one = {"group_id": group, "topics": asked}
        wire(ApiKey.OFFSET_FETCH, version, groups=[one], require_stable=stable, **one)


def errors(wire: Wire, topic: str) -> None:
    group = wire.run
    wire.note("requests that must fail")
    for version in (0, 3, 4, 7, 9):
        join(wire, version, "")
        join(wire, version, group, session_timeout=5_999)
        join(wire, version, group, session_timeout=1_800_001)
        join(wire, version, group, member_id="nobody")
        join(wire, version, group, protocols=[])
    first = join(wire, 3, group)
    member_id, generation = first["member_id"], first["generation_id"]
    one = [{"partition_index": 0, "committed_offset": 1}]
    commit(wire, 8, group, topic, one, generation, member_id)
    for version in (0, 2, 3, 5):
        sync(wire, version, group, generation + 1, member_id)
        sync(wire, version, group, generation, "nobody")
        sync(wire, version, "", generation, member_id)
        sync(wire, version, f"{group}-nobody", generation, member_id)
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}, {"protocol_type": None}):
        sync(wire, 5, group, generation, member_id, **wrong)
    wire(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])
    sync(wire, 3, group, generation, member_id)
    for version in (0, 3, 4):
        for wrong in (
            {"generation_id": generation + 1},
            {"member_id": "nobody"},
            {"group_id": f"{group}-nobody"},
            {"group_id": ""},
            {"group_instance_id": "instance"} if version >= 3 else {},
        ):
            asked = {"group_id": group, "generation_id": generation, "member_id": member_id, **wrong}
            wire(ApiKey.HEARTBEAT, version, **asked)
    join(wire, 9, group, protocol_type="connect")
    join(wire, 9, group, protocols=[{"name": "sticky", "metadata": b""}])
    join(wire, 9, group, member_id="nobody", group_instance_id="instance")
    for version in (2, 8, 9, 10):
        commit(wire, version, group, topic, one)
        commit(wire, version, group, topic, one, generation + 1, member_id)
        commit(wire, version, group, topic, one, generation, "nobody")
        commit(wire, version, f"{group}-nobody", topic, one, 1, "nobody")
        commit(wire, version, group, topic, [{"partition_index": 9, "committed_offset": 1}], generation, member_id)
        long = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": TOO_LONG}]
        commit(wire, version, group, topic, [*long, {"partition_index": 1}], generation, member_id)
    admin_errors(wire, topic)
    for version in (0, 2):
        wire(ApiKey.LEAVE_GROUP, version, group_id=group, member_id="nobody")
        wire(ApiKey.LEAVE_GROUP, version, group_id=f"{group}-nobody", member_id=member_id)
        wire(ApiKey.LEAVE_GROUP, version, group_id="", member_id=member_id)
    for version in (3, 5):
        nobody = [{"member_id": "nobody"}, {"member_id": "", "group_instance_id": "instance"}]
        wire(ApiKey.LEAVE_GROUP, version, group_id=group, members=nobody)
        wire(ApiKey.LEAVE_GROUP, version, group_id=f"{group}-nobody", members=nobody)
    wire(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member_id}])


def admin_errors(wire: Wire, topic: str) -> None:
    """While the group has a member that reads topic `t`."""
    group = wire.run
    for names in ([group], [f"{group}-nobody"], []):
        for version in (0, 2):
            wire(ApiKey.DELETE_GROUPS, version, groups_names=names)
    for version in (0, 5, 6):
        wire(ApiKey.DESCRIBE_GROUPS, version, groups=[f"{group}-nobody"])
    for name in (group, f"{group}-nobody", ""):
        for topic_name in (topic, "absent"):
            asked = [{"name": topic_name, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
            wire(ApiKey.OFFSET_DELETE, 0, group_id=name, topics=asked)


def static_members(wire: Wire) -> None:
    group = f"{wire.run}-s"
    member_id = ""
    for version in (5, 7, 8, 9, 9):
        wire.note(f"a static member by JoinGroup v{version}")
        answer = join(wire, version, group, group_instance_id="instance")
        if member_id:
            old = {"member_id": member_id, "group_instance_id": "instance"}
            wire(ApiKey.HEARTBEAT, 4, group_id=group, generation_id=answer["generation_id"], **old)
            wire(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[old])
            join(wire, version, group, **old)
        member_id = answer["member_id"]
        sync(wire, 5, group, answer["generation_id"], member_id, group_instance_id="instance")
        wire(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])
    wire(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": "", "group_instance_id": "instance"}])
    wire(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])


def simple_group(wire: Wire, topic: str) -> None:
    wire.note("offsets without members")
    for group in (f"{wire.run}-o", ""):
        commit(wire, 9, group, topic, [{"partition_index": n, "committed_offset": n} for n in range(3)])
        fetch(wire, 8, group, topic)
        wire(ApiKey.DESCRIBE_GROUPS, 6, groups=[group], include_authorized_operations=True)
        asked = [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
        wire(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked if group else [])
        fetch(wire, 10, group, topic)
        wire(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
        fetch(wire, 10, group, topic)


def coordinators(wire: Wire) -> None:
    wire.note("coordinators")
    for version in range(7):
        wire(ApiKey.FIND_COORDINATOR, version, key="g", key_type=0, coordinator_keys=["g", "", "h"])
        if version >= 4:
            wire(ApiKey.FIND_COORDINATOR, version, key="g:x:0", key_type=2, coordinator_keys=["g:x:0"])


def listed(wire: Wire) -> Iterator[str]:
    """Groups of this run in lists with every filter; other groups of the broker are left out."""
    for version in range(6):
        for filters in (
            {},
            {"states_filter": ["empty"]},
            {"states_filter": ["Stable"]},
            {"types_filter": ["classic"]},
            {"types_filter": ["consumer"]},
            {"states_filter": ["?"]},
        ):
            if (version < 4 and filters) or (version < 5 and "types_filter" in filters):
                continue
            answer = wire.ask(ApiKey.LIST_GROUPS, version, filters)
            ours = [each for each in answer["groups"] if each["group_id"].startswith(wire.run)]
            yield f"LIST_GROUPS v{version} {wire.words(filters)}\n    {wire.words({**answer, 'groups': ours})}"


def transcript(bootstrap: str) -> str:
    wire = Wire(bootstrap)
    topic = set_up(wire)
    every_version(wire, topic)
    errors(wire, topic)
    static_members(wire)
    simple_group(wire, topic)
    coordinators(wire)
    wire.note("lists")
    wire.lines += listed(wire)
    return "\n".join(wire.lines) + "\n"


def test_answers_are_those_of_kafka(bootstrap: str) -> None:
    found = transcript(bootstrap)
    if os.environ.get("OTTLA_REWRITE"):
        TRANSCRIPT.write_text(found)
    assert found.splitlines() == TRANSCRIPT.read_text().splitlines()
