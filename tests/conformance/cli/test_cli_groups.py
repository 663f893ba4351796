"""`ottla group ...` end to end: what a person sees of a group, and what a reset does to a consumer."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask, until
from tests.conformance.cli.test_cli import ottla

HOUR_MS = 3_600_000


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def describe(bootstrap: str, group: str) -> dict[str, Any]:
    (described,) = json.loads(ottla(bootstrap, "group", "describe", group, "--json"))
    assert isinstance(described, dict)
    return described


@contextlib.contextmanager
def follower(bootstrap: str, topic: str, group: str) -> Iterator[subprocess.Popen[str]]:
    """A consumer that is a member, once one line of it was read."""
    command = ["consume", topic, "--group", group, "--follow", "--bootstrap", bootstrap]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *command], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.terminate()


def test_lag_in_records_and_in_time_without_members(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "2")
    now_ms = time.time_ns() // 1_000_000
    lines = [{"value": str(n), "timestamp": now_ms - (10 - n) * HOUR_MS, "partition": 0} for n in range(5)]
    ottla(bootstrap, "produce", topic, "--from-json", text="".join(json.dumps(line) + "\n" for line in lines))
    ottla(bootstrap, "produce", topic, "x", "-p", "1")
    ottla(bootstrap, "group", "reset", group, "--topic", f"{topic}:0", "--to", "3")
    ottla(bootstrap, "group", "reset", group, "--topic", f"{topic}:1", "--to", "end")

    described = describe(bootstrap, group)
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 2)
    first, second = described["partitions"]
    assert (first["committed_offset"], first["end_offset"], first["lag"]) == (3, 5, 2)
    assert 7 * 3600 <= first["lag_seconds"] < 7 * 3600 + 1800, "the record at offset 3 is seven hours old"
    assert (second["lag"], second["lag_seconds"]) == (0, 0)
    assert described["lag_seconds"] == first["lag_seconds"]
    text = ottla(bootstrap, "group", "describe", group)
    assert "7h" in text and "0 members" in text

    listed = json.loads(ottla(bootstrap, "group", "list", "--json"))
    assert {"group": group, "state": "Empty", "type": "classic", "members": 0, "topics": 1, "lag": 2} in listed
    assert group in ottla(bootstrap, "group", "list")


def test_lag_in_time_counts_from_the_oldest_record_left(bootstrap: str, topic: str, group: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    ottla(bootstrap, "topic", "create", topic)
    now_ms = time.time_ns() // 1_000_000
    lines = [{"value": str(n), "timestamp": now_ms - (10 - n) * HOUR_MS} for n in range(5)]
    for line in lines:
        ottla(bootstrap, "produce", topic, "--from-json", text=json.dumps(line))
    ottla(bootstrap, "group", "reset", group, "--topic", topic, "--to", "beginning")
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(300)
    (partition,) = describe(bootstrap, group)["partitions"]
    assert (partition["committed_offset"], partition["start_offset"], partition["lag"]) == (0, 4, 5)
    assert 6 * 3600 <= partition["lag_seconds"] < 6 * 3600 + 1800


def test_members_and_what_they_read(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "2")
    ottla(bootstrap, "produce", topic, "a", "b", "-p", "0")
    with follower(bootstrap, topic, group):
        described = describe(bootstrap, group)
        (member,) = described["members"]
        assert (described["state"], member["client_id"], member["host"]) == ("Stable", "ottla-cli", "127.0.0.1")
        assert member["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        assert [each["member_id"] for each in described["partitions"]] == [member["member_id"]] * 2

        error = ottla(bootstrap, "group", "reset", group, "--to", "beginning", code=1)
        assert "is Stable with 1 member" in error and "ottla group describe" in error
        assert "this fails: stop its consumers" in ottla(
            bootstrap, "group", "reset", group, "--topic", topic, "--to", "beginning", "--dry-run"
        )
        assert "NON_EMPTY_GROUP" in ottla(bootstrap, "group", "delete", group, code=1)
    assert describe(bootstrap, group)["members"] == []


def test_a_reset_decides_where_the_group_goes_on(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    lines = "".join(json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000}) + "\n" for n in range(10))
    ottla(bootstrap, "produce", topic, "--from-json", text=lines)
    everything = ottla(bootstrap, "consume", topic, "--group", group)
    assert everything.split() == [str(n) for n in range(10)]

    def after(*arguments: str) -> str:
        ottla(bootstrap, "group", "reset", group, *arguments)
        return ottla(bootstrap, "consume", topic, "--group", group, "--values-only").replace("\n", "")

    assert after("--to", "beginning", "--dry-run") == ""
    assert after("--to", "beginning") == "0123456789"
    assert after("--to", "earliest", "--topic", f"{topic}:0") == "0123456789"
    assert after("--to", "7") == "789"
    assert after("--to", "-2") == "89"
    assert after("--to", "2023-11-14T22:13:26+00:00") == "6789"
    assert after("--to", "1h") == "", "no record is so young"
    assert after("--to", "latest") == ""
    moved = json.loads(ottla(bootstrap, "group", "reset", group, "--to", "4", "--dry-run", "--json"))
    assert moved == {
        "group": group,
        "dry_run": True,
        "partitions": [{"topic": topic, "partition": 0, "old_offset": 10, "new_offset": 4}],
    }
    assert "reads 6 records again" in ottla(bootstrap, "group", "reset", group, "--to", "4")


def test_watching_from_a_pipe(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "produce", topic, "a", "b")
    ottla(bootstrap, "group", "reset", group, "--topic", topic, "--to", "1")
    lines = ottla(bootstrap, "group", "watch", group, "--count", "2", "--interval", "0.1").splitlines()
    assert len(lines) == 2
    assert all("lag=1" in line and f"topic={topic}" in line for line in lines)
    assert "reads/s=0" in lines[1]
    looks = ottla(bootstrap, "group", "watch", "--json", "--count", "1").splitlines()
    assert group in {json.loads(line)["group"] for line in looks}


def test_deleting_groups(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "group", "reset", group, "--topic", topic, "--to", "beginning")
    assert ottla(bootstrap, "group", "delete", group) == f"{group} deleted\n"
    assert "ottla group list" in ottla(bootstrap, "group", "describe", group, code=1)
    assert "GROUP_ID_NOT_FOUND" in ottla(bootstrap, "group", "delete", group, code=1)
    assert json.loads(ottla(bootstrap, "group", "delete", group, "--if-exists", "--json"))[0]["error"] is None
    assert "ottla group list" in ottla(bootstrap, "group", "reset", group, "--to", "end", code=1)


def join_as(bootstrap: str, group: str, assignment: bytes) -> None:
    """Become the only member of a group of consumers, which tells itself what it is assigned."""
    find = {"key_type": 0, "coordinator_keys": [group]}
    until(
        lambda: ask(bootstrap, ApiKey.FIND_COORDINATOR, 4, find)["coordinators"][0], lambda row: not row["error_code"]
    )
    join = {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "own", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
    }
    joined = until(lambda: ask(bootstrap, ApiKey.JOIN_GROUP, 3, join), lambda answer: not answer["error_code"])
    rows = [{"member_id": joined["member_id"], "assignment": assignment}]
    sync = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "assignments": rows,
    }
    assert not ask(bootstrap, ApiKey.SYNC_GROUP, 2, sync)["error_code"]


def test_members_that_are_assigned_something_of_their_own(bootstrap: str, topic: str, group: str) -> None:
    """Their groups are shown, and others beside them: librdkafka fails over most, and aborts over a single byte."""
    ottla(bootstrap, "topic", "create", topic)
    ottla(bootstrap, "group", "reset", group, "--topic", topic, "--to", "beginning")
    place = struct.pack(f">h{len(topic)}sii", len(topic), topic.encode(), 1, 0)
    own = [b"m", b"m 1", b"\0\0\0\0\0\1", b"\0\0\x7f\xff\xff\xff", b"\0\1" + b"own" * 20, b"\0\0\0\0\0\2" + place]
    names = [f"{group}-{number}" for number in range(len(own))]
    for name, assignment in zip(names, own, strict=True):
        join_as(bootstrap, name, assignment)
    for described in json.loads(ottla(bootstrap, "group", "describe", *names, "--json")):
        (member,) = described["members"]
        assert (described["state"], described["assignor"], member["partitions"]) == ("Stable", "own", [])
        assert described["partitions"] == []
    shown = {
        each["group"]: (each["state"], each["members"])
        for each in json.loads(ottla(bootstrap, "group", "list", "--json"))
    }
    assert {name: shown[name] for name in (group, *names)} == {
        group: ("Empty", 0),
        **dict.fromkeys(names, ("Stable", 1)),
    }
    looks = ottla(bootstrap, "group", "watch", *names, "--count", "1").splitlines()
    assert len(looks) == len(names) and all("members=1" in line for line in looks)
    join_as(bootstrap, f"{group}-whole", b"\0\0\0\0\0\1" + place)
    assert describe(bootstrap, f"{group}-whole")["members"][0]["partitions"] == [{"topic": topic, "partition": 0}]


def test_mistakes(bootstrap: str, topic: str, group: str) -> None:
    ottla(bootstrap, "topic", "create", topic)
    reset = ("group", "reset", group, "--topic")
    assert "an age such as 10m" in ottla(bootstrap, *reset, topic, "--to", "yesterday", code=2)
    assert "no partition 7" in ottla(bootstrap, *reset, f"{topic}:7", "--to", "end", code=2)
    assert "TOPIC:0,1" in ottla(bootstrap, *reset, f"{topic}:x", "--to", "end", code=2)
    assert "ottla topic list" in ottla(bootstrap, *reset, "no-such-topic", "--to", "end", code=1)
    assert "--interval" in ottla(bootstrap, "group", "watch", "--interval", "0", code=2)
