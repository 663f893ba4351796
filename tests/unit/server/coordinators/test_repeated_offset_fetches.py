"""Offset fetches that repeat: the shortcut's answers are those of the handler, whatever happened meanwhile."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.coordinators import repeated_offset_fetches
from ottla.server.coordinators.repeated_offset_fetches import RepeatedOffsetFetches
from ottla.server.node import Node
from tests.unit.server.coordinators.test_repeated_commits import commit, play
from tests.unit.server.node import Client

VERSIONS = (5, 7, 8, 9)


def asked(version: int, group: str = "g", *, stable: bool = False, every: bool = False) -> dict[str, Any]:
    topics = None if every else [{"name": "t", "partition_indexes": [2, 0, 7]}]
    if version >= 8:
        each = {"group_id": group, "topics": topics}
        if version >= 9:
            each |= {"member_id": None, "member_epoch": -1}
        return {"groups": [each], "require_stable": stable}
    return {"group_id": group, "topics": topics, **({"require_stable": stable} if version >= 7 else {})}


def test_answers_are_those_of_the_handler(tmp_path: Path, monkeypatch: Any) -> None:
    """A walk of commits, deletions and fetches: one client repeats itself, for the other nothing is ever learned."""
    taken = []
    shortcut = RepeatedOffsetFetches.__call__

    def counted(self: RepeatedOffsetFetches, frame: memoryview, correlation_id: int) -> bytes | None:
        answer = shortcut(self, frame, correlation_id)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(RepeatedOffsetFetches, "__call__", counted)

    async def scene(node: Node, client: Client) -> None:
        rng = Random(5)
        fresh = await Client.connect(node)
        for turn in range(400):
            group = rng.choice("gh")
            happens = rng.random()
            if happens < 0.15:
                await client.ask(ApiKey.OFFSET_COMMIT, rng.choice([6, 8]), commit(turn, group=group))
            elif happens < 0.18:
                await client.ask(
                    ApiKey.OFFSET_DELETE,
                    0,
                    {"group_id": group, "topics": [{"name": "t", "partitions": [{"partition_index": 2}]}]},
                )
            elif happens < 0.20:
                await client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})
            version = rng.choice(VERSIONS)
            values = asked(version, group, stable=version >= 7 and rng.random() < 0.5, every=rng.random() < 0.3)
            repeated = await client.ask(ApiKey.OFFSET_FETCH, version, values)
            with monkeypatch.context() as patch:
                patch.setattr(repeated_offset_fetches, "KNOWN_MAX", 0)
                assert await fresh.ask(ApiKey.OFFSET_FETCH, version, values) == repeated
        fresh.close()

    play(tmp_path, scene)
    assert taken.count(True) >= 60 and taken.count(False) >= 60


def test_errors_are_not_repeated(tmp_path: Path, monkeypatch: Any) -> None:
    async def scene(node: Node, client: Client) -> None:
        values = asked(8)
        good = [await client.ask(ApiKey.OFFSET_FETCH, 8, values) for _ in range(3)]
        assert good[0] == good[1] == good[2]
        shards = node.groups._by_number
        for shard in shards.values():
            shard.error = ErrorCode.coordinator_load_in_progress
        for _ in range(2):
            answer = await client.ask(ApiKey.OFFSET_FETCH, 8, values)
            assert answer["groups"][0]["error_code"] == ErrorCode.coordinator_load_in_progress
        for shard in shards.values():
            shard.error = None
        assert await client.ask(ApiKey.OFFSET_FETCH, 8, values) == good[0]

    play(tmp_path, scene)


def test_many_requests_do_not_grow_what_is_kept(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        for number in range(3 * repeated_offset_fetches.KNOWN_MAX):
            await client.ask(ApiKey.OFFSET_FETCH, 8, asked(8, f"g{number}"))
        (connection,) = [
            each for each in node.listeners[0].connections if ApiKey.OFFSET_FETCH << 16 | 8 in each.shortcuts
        ]
        kept = connection.shortcuts[ApiKey.OFFSET_FETCH << 16 | 8]
        assert isinstance(kept, RepeatedOffsetFetches)
        assert len(kept._known) == repeated_offset_fetches.KNOWN_MAX

    play(tmp_path, scene)
