"""Large requests wait until there is room for their rows; small ones never do."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server.api import LARGE_REQUEST_BYTES
from ottla.server.connections import decoded_rows
from ottla.server.connections.decoded_rows import Claim, DecodedRows, lowering, rows_of
from tests.unit.server.node import Client, running

NAMES = 3_000
"""Topics of 30 bytes each that a request names: more than LARGE_REQUEST_BYTES."""


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_requests_wait_for_room_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_rows, "ROWS_MAX", 100)

    async def scene() -> None:
        rows, order = DecodedRows(), []

        async def request(name: str, count: int) -> None:
            await rows.take(count)
            order.append(name)

        tasks = [asyncio.ensure_future(request(*each)) for each in (("a", 60), ("b", 60), ("c", 10), ("d", 500))]
        await turns()
        assert (order, rows.rows, rows.waiting) == (["a"], 60, 3)  # c would fit, and does not overtake b
        rows.drop(60)
        await turns()
        assert (order, rows.rows) == (["a", "b", "c"], 70)
        rows.drop(70)
        await turns()
        assert (order, rows.rows) == (["a", "b", "c", "d"], 500)  # more than the limit: alone
        rows.drop(500)
        await asyncio.gather(*tasks)
        assert rows.rows == rows.waiting == 0

    asyncio.run(scene())


@pytest.mark.parametrize("has_its_turn", [False, True])
def test_a_request_that_is_cancelled_leaves_its_room_to_the_next(
    monkeypatch: pytest.MonkeyPatch, has_its_turn: bool
) -> None:
    monkeypatch.setattr(decoded_rows, "ROWS_MAX", 100)

    async def scene() -> None:
        rows = DecodedRows()
        await rows.take(100)
        gone, next_one = (asyncio.ensure_future(rows.take(80)) for _ in range(2))
        await turns()
        if has_its_turn:
            rows.drop(100)
        gone.cancel()
        if not has_its_turn:
            rows.drop(100)
        with suppress(asyncio.CancelledError):
            await gone
        await next_one
        assert (gone.cancelled(), rows.rows, rows.waiting) == (True, 80, 0)

    asyncio.run(scene())


def test_a_claim_is_lowered_to_the_rows_that_are_there() -> None:
    def decoding() -> Generator[int, None, str]:
        yield 50
        yield 25
        return "decoded"

    rows = DecodedRows()
    rows.rows = 1000
    claim = Claim(rows, 1000)
    steps = lowering(claim, decoding())
    assert list(steps) == [50, 25]
    assert (claim.rows, rows.rows) == (15, 15)


COMMIT = {
    "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
    "topics": [{"name": "t", "partitions": [
        {"partition_index": number, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        for number in range(2 * NAMES)
    ]}],
}  # fmt: skip
"""Decoded by a decoder of our own."""


@pytest.mark.parametrize("is_commit", [False, True])
def test_large_requests_of_many_clients_are_in_progress_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    """And a small request is answered meanwhile."""
    monkeypatch.setattr(decoded_rows, "ROWS_MAX", LARGE_REQUEST_BYTES)
    most: list[int] = []
    take = DecodedRows.take

    async def noted(rows: DecodedRows, count: int) -> None:
        await take(rows, count)
        most.append(rows.rows - count)

    monkeypatch.setattr(DecodedRows, "take", noted)
    names = {"topics": [{"name": f"{number:030}", "topic_id": None} for number in range(NAMES)]}
    request = {**names, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}

    async def scene() -> None:
        async with running(str(tmp_path)) as node:
            rows = rows_of(asyncio.get_running_loop())
            await rows.take(1)  # another one is in progress: all of them wait
            clients = [await Client.connect(node) for _ in range(4)]
            for client in clients:
                client.send(*((ApiKey.OFFSET_COMMIT, 8, COMMIT) if is_commit else (ApiKey.METADATA, 12, request)))
            quiet = await Client.connect(node)
            while rows.waiting < len(clients):
                await quiet.ask(ApiKey.METADATA, 12, {**request, "topics": names["topics"][:100]})
            rows.drop(1)
            for client in clients:
                if is_commit:
                    answer = await client.receive(ApiKey.OFFSET_COMMIT, 8)
                    assert len(answer["topics"][0]["partitions"]) == 2 * NAMES
                else:
                    assert len((await client.receive(ApiKey.METADATA, 12))["topics"]) == NAMES
            assert rows.rows == rows.waiting == 0
        assert most == [0] * 5  # each had all of the room

    asyncio.run(scene())
