"""Share groups over the wire, on a node that is alone: members, assignments, offsets of operators, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ottla.coordinator.share.requests import InitializeState
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.unit.server.node import Client, batch, running

E = ErrorCode
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
}


class Session:
    """Members of the share group "g" that read "t", which has two partitions."""

    def __init__(self, node: Node, client: Client) -> None:
        self.node, self.client = node, client
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, list[int]] = {}

    async def heartbeat(self, member: str, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        values = {
            "group_id": "g",
            "member_id": member,
            "rack_id": None,
            "subscribed_topic_names": topics,
            "member_epoch": self.epochs.get(member, 0) if epoch is None else epoch,
        }
        answer = await self.client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, values)
        if not answer["error_code"]:
            self.epochs[member] = answer["member_epoch"]
            if answer["assignment"] is not None:
                rows = answer["assignment"]["topic_partitions"]
                self.assigned[member] = [number for row in rows for number in row["partitions"]]
        return answer

    async def until(self, member: str, *numbers: int) -> None:
        while self.assigned.get(member) != [*numbers]:
            answer = await self.heartbeat(member)
            assert answer["error_code"] == E.none, answer
            await asyncio.sleep(0.001)

    async def ready(self) -> None:
        """The coordinator is known and loaded."""
        asked = {"key_type": 0, "coordinator_keys": ["g"]}
        await self.client.ask(ApiKey.FIND_COORDINATOR, 6, asked)
        while (await self.heartbeat("nobody", 1))["error_code"] == E.coordinator_load_in_progress:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def describe(self) -> Any:
        answer = await self.client.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": ["g"]})
        return answer["groups"][0]

    async def alter(self, *offsets: int) -> ErrorCode:
        rows = [{"partition_index": number, "start_offset": offset} for number, offset in enumerate(offsets)]
        values = {"group_id": "g", "topics": [{"topic_name": "t", "partitions": rows}]}
        answer = await self.client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, values)
        for topic in answer["responses"]:
            assert not any(row["error_code"] for row in topic["partitions"])
        return ErrorCode(answer["error_code"])

    async def offsets(self) -> list[tuple[int, int]]:
        """(start offset, records still to be delivered) of each partition."""
        values = {"groups": [{"group_id": "g", "topics": None}]}
        (group,) = (await self.client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, values))["groups"]
        assert group["error_code"] == E.none
        return [(row["start_offset"], row["lag"]) for topic in group["topics"] for row in topic["partitions"]]

    async def delete_group(self) -> int:
        return int(
            (await self.client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}))["results"][0]["error_code"]
        )

    async def listed(self) -> list[tuple[str, str, str]]:
        values = {"states_filter": [], "types_filter": ["share"]}
        groups = (await self.client.ask(ApiKey.LIST_GROUPS, 5, values))["groups"]
        return [(each["group_id"], each["group_type"], each["group_state"]) for each in groups]


def play(path: Path, *scenes: Callable[[Session], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Each scene on a node that was started again."""

    async def run() -> None:
        for number, scene in enumerate(scenes, start=1):
            async with running(str(path), {**SETTINGS, **settings}, seed=number) as node:
                session = Session(node, await Client.connect(node))
                if number == 1:
                    await session.client.create("t", partitions=2)
                await session.ready()
                await asyncio.wait_for(scene(session), 20)
                session.client.close()

    asyncio.run(run())


def test_members_share_the_partitions(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.heartbeat("a", topics=["t"])
        await session.until("a", 0, 1)
        await session.heartbeat("b", topics=["t"])
        while len(session.assigned.get("b", [])) != 1 or len(session.assigned["a"]) != 1:
            await session.heartbeat("a")
            await session.heartbeat("b")
        assert sorted(session.assigned["a"] + session.assigned["b"]) == [0, 1]
        await session.heartbeat("c", topics=["t"])
        assert len(session.assigned["c"]) == 1, "more members than partitions: some have the same"
        described = await session.describe()
        assert described["group_state"] == "Stable" and len(described["members"]) == 3
        assert await session.listed() == [("g", "share", "Stable")]
        for member in ("b", "c"):
            assert (await session.heartbeat(member, -1))["error_code"] == E.none
        await session.until("a", 0, 1)
        assert (await session.heartbeat("b"))["error_code"] == E.unknown_member_id

    play(tmp_path, scene)


def test_a_new_coordinator_knows_the_group(tmp_path: Path) -> None:
    epochs: dict[str, int] = {}

    async def before(session: Session) -> None:
        await session.heartbeat("a", topics=["t"])
        await session.until("a", 0, 1)
        epochs.update(session.epochs)

    async def after(session: Session) -> None:
        session.epochs = dict(epochs)
        answer = await session.heartbeat("a")
        assert (answer["error_code"], answer["member_epoch"], answer["assignment"]) == (E.none, epochs["a"], None)
        (member,) = (await session.describe())["members"]
        assert member["subscribed_topic_names"] == ["t"]
        assert [row["partitions"] for row in member["assignment"]["topic_partitions"]] == [[0, 1]]

    play(tmp_path, before, after)


def test_who_is_not_heard_of_is_removed(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.heartbeat("a", topics=["t"])
        await session.heartbeat("b", topics=["t"])
        while len((await session.describe())["members"]) > 1:
            await session.heartbeat("a")
            await asyncio.sleep(0.005)
        await session.until("a", 0, 1)

    play(
        tmp_path,
        scene,
        **{
            "group.share.session.timeout.ms": "300",
            "group.share.min.session.timeout.ms": "1",
            "group.share.heartbeat.interval.ms": "100",
            "group.share.min.heartbeat.interval.ms": "1",
        },
    )


def test_older_and_newer_epochs_are_fenced(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.heartbeat("a", topics=["t"])
        await session.until("a", 0, 1)
        now = session.epochs["a"]
        assert (await session.heartbeat("a", now + 1))["error_code"] == E.fenced_member_epoch
        assert (await session.heartbeat("a", now - 1))["error_code"] == E.none, "the answer with the new one was lost"
        assert (await session.heartbeat("a", 0, ["t"]))["error_code"] == E.none
        full = await session.heartbeat("b", topics=["t"])
        assert full["error_code"] == E.group_max_size_reached
        assert (await session.heartbeat("b", 3))["error_code"] == E.group_max_size_reached, "as Kafka 4.4"
        await session.heartbeat("a", -1)
        empty = await session.describe()
        assert empty["group_state"] == "Empty"
        assert empty["group_epoch"] == empty["assignment_epoch"], "KAFKA-20442"

    play(tmp_path, scene, **{"group.share.max.size": "1"})


def test_an_operator_moves_and_deletes_an_empty_group(tmp_path: Path) -> None:
    async def move(session: Session) -> None:
        for _ in range(5):
            await session.client.produce("t", batch())
        assert await session.alter(2, 0) is E.none
        assert await session.offsets() == [(2, 3), (0, 0)]
        assert await session.listed() == [("g", "share", "Empty")]

    async def delete(session: Session) -> None:
        while (await session.offsets())[0][0] != 2:  # noqa: ASYNC110  the share coordinator is loading
            await asyncio.sleep(0.01)
        await session.heartbeat("a", topics=["t"])
        assert await session.alter(1, 1) is E.non_empty_group
        assert await session.delete_group() == E.non_empty_group
        await session.until("a", 0, 1)
        await session.heartbeat("a", -1)
        values = {"group_id": "g", "topics": [{"topic_name": "t"}]}
        answer = await session.client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, values)
        assert [row["error_code"] for row in answer["responses"]] == [E.none]
        assert await session.offsets() == []
        answer = await session.client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, values)
        assert [row["error_code"] for row in answer["responses"]] == [E.unknown_topic_or_partition]
        assert await session.alter(3, 0) is E.none
        assert await session.delete_group() == E.none
        assert await session.delete_group() == E.group_id_not_found
        assert session.node.share_coordinator.known() == 0

    async def nothing(session: Session) -> None:
        assert await session.listed() == []

    play(tmp_path, move, delete, nothing)


def test_a_topic_that_grows_is_read_whole(tmp_path: Path) -> None:
    async def scene(session: Session) -> None:
        await session.heartbeat("a", topics=["t", "later"])
        await session.until("a", 0, 1)
        more = {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout": 1000, "validate_only": False}
        await session.client.ask(ApiKey.CREATE_PARTITIONS, 3, more)
        await session.until("a", 0, 1, 2)
        await session.client.create("later")
        while sorted(session.assigned["a"]) != [0, 0, 1, 2]:
            await session.heartbeat("a")
            await asyncio.sleep(0.001)

    play(tmp_path, scene)


def test_state_that_is_being_initialized_is_not_asked_for_again(tmp_path: Path) -> None:
    """However long it takes: members read what is initialized, and a second request would undo what they did. Found by
    the simulation (`ottla sim --kind groups --seed 9548`, November 2026)."""

    async def scene(session: Session) -> None:
        coordinator, asked = session.node.share_coordinator, []
        real, held = coordinator.ask, []

        def ask(waiter: Any, request: Any) -> None:
            if isinstance(request, InitializeState):
                asked.append((request.key.partition, request.state_epoch))
                if request.key.partition == 1 and len(asked) == 2:
                    held.append((waiter, request))
                    return
            real(waiter, request)

        coordinator.ask = ask  # type: ignore[method-assign]
        await session.heartbeat("a", topics=["t"])
        while not held:
            await session.heartbeat("a")
        for member in ("b", "c"):  # each is a later epoch of the group
            await session.heartbeat(member, topics=["t"])
            for _ in range(3):
                await asyncio.sleep(0.002)
                await session.heartbeat("a")
        assert sorted(number for number, _ in asked) == [0, 1] and len(held) == 1
        real(*held[0])
        for member in ("b", "c"):
            await session.heartbeat(member, -1)
        await session.until("a", 0, 1)
        assert len(asked) == 2
        # A partition that is new is asked for.
        values = {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout": 1000, "validate_only": False}
        await session.client.ask(ApiKey.CREATE_PARTITIONS, 3, values)
        await session.until("a", 0, 1, 2)
        assert [number for number, _ in asked[2:]] == [2]

    play(tmp_path, scene, **{"group.share.initialize.retry.interval.ms": "1"})
