"""Which groups are listed, whom they are asked of, and what is made of the answers; without a broker."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla.cli import wire
from ottla.cli.exits import FAILED, UNREACHABLE, CommandFailed
from ottla.cli.group import requests as group_requests
from ottla.cli.group.requests import ask, assigned_places, names_of_groups
from ottla.cli.group.view import groups
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey

FIRST, SECOND = "10.0.0.1:9092", "10.0.0.2:9092"


def topic_bytes(name: str, *partitions: int) -> bytes:
    return struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name.encode(), len(partitions), *partitions)


def assignment(*topics: bytes, version: int = 0, user_data: bytes = b"\xff\xff\xff\xff") -> bytes:
    return struct.pack(">hi", version, len(topics)) + b"".join(topics) + user_data


def test_what_a_consumer_is_assigned() -> None:
    two = (topic_bytes("b", 1, 0), topic_bytes("a", 7))
    expected = [("a", 7), ("b", 0), ("b", 1)]
    assert assigned_places(assignment(*two)) == expected
    assert assigned_places(assignment(*two, version=3, user_data=b"\0\0\0\2xy")) == expected
    assert assigned_places(assignment(*two, user_data=b"")) == expected, "some clients leave it out"
    assert assigned_places(assignment()) == []


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"\0",
        b"member 7",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        assignment(topic_bytes("t", 0), version=-1),
        assignment(topic_bytes("t", 0), topic_bytes("", 0)),
        assignment(topic_bytes("no/topic", 0)),
        assignment(topic_bytes("t", -1)),
        assignment(topic_bytes("t", 0))[:-6],
        struct.pack(">hihsi", 0, 1, 1, b"t", 2**31 - 1),
        struct.pack(">hihsi", 0, 1, 1, b"t", -1),
        struct.pack(">hihsi", 0, 1, 1, b"\xff", 0),
        struct.pack(">hih", 0, 1, -1),
    ],
)
def test_what_is_no_assignment_of_a_consumer(other: bytes) -> None:
    assert assigned_places(other) == []


class Brokers:
    """Two brokers; what they answer is set by tests, by API and group."""

    def __init__(self) -> None:
        self.coordinators = {"g": [FIRST]}
        """Coordinators of each group, one after the other; the last one stays."""
        self.described: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """By address and group, likewise."""
        self.newer: dict[str, dict[str, Any]] = {}
        self.committed: dict[str, Any] = {}
        self.listed: dict[str, list[dict[str, Any] | Exception]] = {FIRST: [], SECOND: []}

    def ask(self, address: str, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[ApiKey, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.OFFSET_FETCH: self._offsets,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._describe_newer,
        }
        return answers[key](address, values)

    def _metadata(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """A broker that does not lead a partition of `__consumer_offsets` is not asked for groups."""
        assert [each["name"] for each in values["topics"]] == ["__consumer_offsets"]
        addresses = [*self.listed, "10.0.0.8:9092"]
        brokers = [
            {"node_id": number, "host": each.split(":")[0], "port": 9092} for number, each in enumerate(addresses)
        ]
        parts = [{"leader_id": number} for number in (-1, *range(len(self.listed)))]
        return {"brokers": brokers, "topics": [{"partitions": parts}]}

    def _list(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.listed[address].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _find(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = []
        for key in values["coordinator_keys"]:
            found = self.coordinators[key]
            host, _, port = (found.pop(0) if len(found) > 1 else found[0]).rpartition(":")
            code = ErrorCode.none if port else ErrorCode.coordinator_not_available
            rows.append({"key": key, "error_code": code, "host": host, "port": port})
        return {"coordinators": rows}

    def _describe(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"groups": [self._row(address, each) for each in values["groups"]]}

    def _row(self, address: str, group: str) -> dict[str, Any]:
        found = self.described.get((address, group))
        if found is None:
            row: dict[str, Any] = {"group_state": "Dead"}
        else:
            row = found.pop(0) if len(found) > 1 else found[0]
        empty = {"protocol_type": "", "protocol_data": "", "members": (), "group_state": ""}
        return {"group_id": group, "error_code": ErrorCode.none, **empty, **row}

    def _offsets(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        none: dict[str, Any] = {"error_code": ErrorCode.none, "topics": ()}
        rows = [{"group_id": each["group_id"], **none} for each in values["groups"]]
        return {"groups": [{**row, **self.committed.get(row["group_id"], {})} for row in rows]}

    def _describe_newer(self, address: str, values: Mapping[str, Any]) -> dict[str, Any]:
        missing = {"error_code": ErrorCode.group_id_not_found}
        return {"groups": [{"group_id": each, **self.newer.get(each, missing)} for each in values["group_ids"]]}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()

    class Link:
        def __init__(self, address: str) -> None:
            if address not in made.listed:
                raise ConnectionRefusedError(111, "Connection refused")
            self.address = address

        def ask(self, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
            return made.ask(self.address, key, values)

        def version_max(self, key: ApiKey) -> int:
            return 1 if made.newer else -1

        def close(self) -> None: ...

    monkeypatch.setattr(wire, "ask", made.ask)
    monkeypatch.setattr(wire, "Link", Link)
    monkeypatch.setattr(group_requests, "PAUSE_S", 0.0)
    return made


def ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_requests, "REQUEST_TIMEOUT_S", -1.0)


def listed(**types: str) -> dict[str, Any]:
    rows = [{"group_id": name, "protocol_type": kind} for name, kind in types.items()]
    return {"error_code": ErrorCode.none, "groups": rows}


LOADING = {"error_code": ErrorCode.coordinator_load_in_progress, "groups": []}


def test_groups_of_consumers_and_share_groups_are_listed(brokers: Brokers) -> None:
    brokers.listed = {FIRST: [listed(b="consumer", c="connect", s="share")], SECOND: [listed(**{"a": "", "": ""})]}
    assert names_of_groups(FIRST) == ["a", "b", "s"], "a group without an id is not asked about"


def test_a_broker_that_loads_or_has_just_gone_is_asked_again(brokers: Brokers) -> None:
    gone = CommandFailed("no broker answers", UNREACHABLE)
    brokers.listed = {FIRST: [listed(b=""), listed(b="")], SECOND: [gone, LOADING, listed(a="")]}
    assert names_of_groups(FIRST) == ["a", "b"]


def test_a_broker_that_goes_on_loading_is_reported(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_at_once(monkeypatch)
    brokers.listed = {FIRST: [LOADING]}
    with pytest.raises(CommandFailed, match=f"^groups of {FIRST}: .*COORDINATOR_LOAD_IN_PROGRESS") as failed:
        names_of_groups(FIRST)
    assert failed.value.exit_code == FAILED


def test_an_empty_name_is_refused_in_a_sentence() -> None:
    with pytest.raises(CommandFailed, match="a group id must not be empty"):
        groups(FIRST, None, [""])  # type: ignore[arg-type]


MEMBER = {"member_id": "m-1", "client_id": "m", "client_host": "/10.0.0.3", "group_instance_id": None}


def test_a_group_with_assignments_of_its_own_is_shown_without_them(brokers: Brokers) -> None:
    row = {"group_state": "Stable", "protocol_type": "consumer", "protocol_data": "own"}
    brokers.described[FIRST, "g"] = [{**row, "members": [{**MEMBER, "member_assignment": b"mine"}]}]
    (group,) = groups(FIRST, None, ["g"])  # type: ignore[arg-type]
    assert (group.state, group.kind, group.assignor, group.coordinator) == ("Stable", "classic", "own", FIRST)
    assert [(each.member_id, each.host, each.places) for each in group.members] == [("m-1", "10.0.0.3", [])]


def test_a_group_that_is_not_there(brokers: Brokers) -> None:
    assert groups(FIRST, None, ["g"], known=True) == []  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="there is no group 'g'"):
        groups(FIRST, None, ["g"])  # type: ignore[arg-type]
    brokers.committed["g"] = {"error_code": ErrorCode.group_id_not_found}
    assert groups(FIRST, None, ["g"], known=True) == []  # type: ignore[arg-type]


def test_what_was_committed(brokers: Brokers) -> None:
    brokers.described[FIRST, "g"] = [{"group_state": "Empty"}]
    rows = [
        {"partition_index": number, "committed_offset": offset, "error_code": 0} for number, offset in ((0, 5), (1, -1))
    ]
    brokers.committed["g"] = {"topics": [{"name": "t", "partitions": rows}]}
    assert ask(FIRST, ["g"])["g"].committed == {("t", 0): 5}


def test_a_group_of_the_newer_protocol(brokers: Brokers) -> None:
    parts = {"topic_partitions": [{"topic_name": "t", "partitions": [1, 0]}]}
    member = {"member_id": "m-2", "client_id": "m", "client_host": "/h", "instance_id": "i", "assignment": parts}
    row = {"error_code": ErrorCode.none, "group_state": "Reconciling", "assignor_name": "uniform", "members": [member]}
    brokers.newer["g"] = row
    brokers.coordinators["other"] = [FIRST]
    brokers.described[FIRST, "other"] = [{"group_state": "Empty"}]
    found = ask(FIRST, ["g", "other"])
    assert (found["g"].kind, found["other"].kind) == ("consumer", "classic")
    assert found["g"].described == {"group_id": "g", **row}


@pytest.mark.parametrize("away", ["", "10.0.0.9:9092"])
def test_a_coordinator_that_moves_is_followed(brokers: Brokers, away: str) -> None:
    """There is none for a moment, or it does not listen any more; the next says that it moved, the last loads first."""
    brokers.coordinators = {"g": [away, FIRST, SECOND], "other": [FIRST]}
    moved, loading = ({"error_code": code} for code in (ErrorCode.not_coordinator, LOADING["error_code"]))
    brokers.described[FIRST, "g"] = [moved]
    brokers.described[SECOND, "g"] = [loading, {"group_state": "Empty"}]
    brokers.described[FIRST, "other"] = [{"group_state": "Empty"}]
    found = ask(FIRST, ["g", "other"])
    assert (found["g"].coordinator, found["other"].coordinator) == (SECOND, FIRST)


def test_a_coordinator_that_does_not_come_is_reported(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_at_once(monkeypatch)
    brokers.coordinators["g"] = ["10.0.0.9:9092"]
    with pytest.raises(CommandFailed, match=r"no broker answers \(10\.0\.0\.9:9092: Connection refused\)") as failed:
        ask(FIRST, ["g"])
    assert failed.value.exit_code == UNREACHABLE
    brokers.coordinators["g"] = [""]
    with pytest.raises(CommandFailed, match=r"^group 'g': .*COORDINATOR_NOT_AVAILABLE"):
        ask(FIRST, ["g"])


def test_what_does_not_pass_is_reported_at_once(brokers: Brokers) -> None:
    brokers.described[FIRST, "g"] = [{"error_code": ErrorCode.group_authorization_failed}]
    with pytest.raises(CommandFailed, match=r"^group 'g': .*GROUP_AUTHORIZATION_FAILED"):
        ask(FIRST, ["g"])
    brokers.described[FIRST, "g"] = [{"group_state": "Stable", "protocol_type": "connect"}]
    with pytest.raises(CommandFailed, match=r"^group 'g': GroupId g is not a consumer group \(connect\) \(INVALID_ARG"):
        ask(FIRST, ["g"])
