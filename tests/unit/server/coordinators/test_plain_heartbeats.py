"""Heartbeats of consumer groups that repeat, over a socket: the answers of the shortcut are those of the handler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.features import GROUP_VERSION
from ottla.protocol.messages import ApiKey
from ottla.server.coordinators.known_requests import KNOWN_MAX
from ottla.server.handlers.groups import consumer_group_heartbeat
from ottla.server.node import Node
from tests.unit.server.coordinators.test_repeated_commits import play
from tests.unit.server.node import Client

NOTHING_NEW = {
    "group_id": "g", "member_id": "m", "instance_id": None, "rack_id": None, "rebalance_timeout": -1,
    "subscribed_topic_names": None, "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": None,
}  # fmt: skip
JOINS = {**NOTHING_NEW, "member_epoch": 0, "rebalance_timeout": 60_000, "subscribed_topic_names": ["t"],
         "topic_partitions": []}  # fmt: skip


@pytest.fixture
def taken(monkeypatch: Any) -> list[bool]:
    """For each heartbeat that the shortcut saw: whether it answered."""
    found: list[bool] = []

    class Counted:
        def __init__(self, shortcut: Any) -> None:
            self.shortcut, self.learn, self.known = shortcut, shortcut.learn, shortcut.known

        def __call__(self, frame: memoryview, correlation_id: int) -> Any:
            answer = self.shortcut(frame, correlation_id)
            found.append(answer is not None)
            return answer

    made = consumer_group_heartbeat.shortcut_for  # a compiled class takes no other `__call__`
    monkeypatch.setattr(
        consumer_group_heartbeat,
        "shortcut_for",
        lambda context, frame, make: made(context, frame, lambda: Counted(make())),
    )
    return found


async def ask(client: Client, values: dict[str, Any], version: int = 1) -> Any:
    if version == 0:
        values = {name: value for name, value in values.items() if name != "subscribed_topic_regex"}
    return await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, values)


@pytest.mark.parametrize("instance_id", [None, "i"])
@pytest.mark.parametrize("version", [0, 1])
def test_repeated_beats_are_answered_as_the_first(
    tmp_path: Path, taken: list[bool], version: int, instance_id: str | None
) -> None:
    """The first of a member is known from its joining."""

    async def scene(node: Node, client: Client) -> None:
        joined = await ask(client, {**JOINS, "instance_id": instance_id}, version)
        assert [len(each["partitions"]) for each in joined["assignment"]["topic_partitions"]] == [3]
        values = {**NOTHING_NEW, "instance_id": instance_id, "member_epoch": joined["member_epoch"]}
        answers = [await ask(client, values, version) for _ in range(4)]
        assert answers[0]["error_code"] == 0 and answers[0]["assignment"] is None
        assert answers == [answers[0]] * 4
        assert taken == [True] * 4
        nothing = await ask(client, {**values, "member_epoch": 0}, version)
        assert nothing["error_code"] == ErrorCode.invalid_request and taken[-1] is False
        await ask(client, {**values, "member_epoch": -1}, version)
        gone = await ask(client, values, version)
        assert gone["error_code"] == ErrorCode.unknown_member_id
        assert taken[-1] is False

    play(tmp_path, scene)


def test_errors_are_the_handlers(tmp_path: Path, taken: list[bool]) -> None:
    async def scene(node: Node, client: Client) -> None:
        values = {**NOTHING_NEW, "member_epoch": (await ask(client, JOINS))["member_epoch"]}
        good = [await ask(client, values) for _ in range(2)]
        shards = node.groups._by_number
        for shard in shards.values():
            shard.error = ErrorCode.not_coordinator
        assert (await ask(client, values))["error_code"] == ErrorCode.not_coordinator
        for shard in shards.values():
            shard.error = None
        assert await ask(client, values) == good[0] == good[1]
        assert taken == [True, True, False, True]

    play(tmp_path, scene)


def test_groups_that_are_switched_off_are_refused(tmp_path: Path, taken: list[bool]) -> None:
    """A connection that has sent heartbeats before notices, too."""

    async def scene(node: Node, client: Client) -> None:
        values = {**NOTHING_NEW, "member_epoch": (await ask(client, JOINS))["member_epoch"]}
        assert [(await ask(client, values))["error_code"] for _ in range(2)] == [0, 0]
        publisher = node.metadata.publisher
        before = publisher.image
        publisher.image = replace(before, features={**before.features, GROUP_VERSION: 0})
        assert (await ask(client, values))["error_code"] == ErrorCode.unsupported_version
        publisher.image = before
        assert (await ask(client, values))["error_code"] == 0
        assert taken == [True, True, False, True]

    play(tmp_path, scene)


def test_members_give_up_and_get_partitions_by_the_shortcut(tmp_path: Path, taken: list[bool]) -> None:
    async def scene(node: Node, client: Client) -> None:
        for shard in node.groups._by_number.values():
            shard.core.configure(replace(shard.core.state.config, consumer_assignment_interval_ms=0))
        for name in "mn":
            await ask(client, {**JOINS, "member_id": name})
        taken.clear()
        told = await ask(client, {**NOTHING_NEW, "member_epoch": 2})
        (left,) = told["assignment"]["topic_partitions"]
        assert len(left["partitions"]) == 2 and told["member_epoch"] == 2 and taken == [True]
        given_up = await ask(client, {**NOTHING_NEW, "member_epoch": 2, "topic_partitions": [left]})
        assert given_up["member_epoch"] == 3 and taken == [True, False]
        got = await ask(client, {**NOTHING_NEW, "member_id": "n", "member_epoch": 3})
        (mine,) = got["assignment"]["topic_partitions"]
        assert {*mine["partitions"], *left["partitions"]} == {0, 1, 2} and taken == [True, False, True]
        assert mine["topic_id"] == left["topic_id"] and got["error_code"] == 0 and got["error_message"] is None

    play(tmp_path, scene)


def test_many_beats_do_not_grow_what_is_kept(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        for number in range(3 * KNOWN_MAX):
            await ask(client, {**JOINS, "member_id": f"m{number}"})
            epoch = (await ask(client, {**JOINS, "member_id": f"m{number}"}))["member_epoch"]
            await ask(client, {**NOTHING_NEW, "member_id": f"m{number}", "member_epoch": epoch})
        key = ApiKey.CONSUMER_GROUP_HEARTBEAT << 16 | 1
        (kept,) = [each.shortcuts[key] for each in node.listeners[0].connections if key in each.shortcuts]
        assert isinstance(kept, consumer_group_heartbeat._Beats)
        assert 0 < len(kept.known) <= KNOWN_MAX

    play(tmp_path, scene)
