"""An incremental fetch answers all that has changed since the last one, and nothing else: against full fetches."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.fetch.fetch_entries import STRANGERS_MAX
from tests.unit.server import stub
from tests.unit.server.node import Client, batch, fetch_values, running

TURNS = 150


def asked(partition: int, offset: int) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}


@pytest.mark.parametrize("partitions", [5, 130])
def test_an_incremental_fetch_answers_what_has_changed(tmp_path: Path, partitions: int) -> None:
    """Records come, are read or not, are deleted; offsets jump, also to where nothing is. 130 are read in steps."""

    async def test() -> None:
        rng = Random(partitions)
        answers = left_out = errors = 0
        async with running(str(tmp_path)) as node:
            client, other = await Client.connect(node), await Client.connect(node)
            await client.create("t", partitions=partitions)
            offsets = dict.fromkeys(range(partitions), 0)
            ends = dict.fromkeys(range(partitions), 0)

            async def full(number: int) -> tuple[int, int, int, bytes]:
                topics = [{"topic": "t", "partitions": [asked(number, offsets[number])]}]
                answer = await other.ask(ApiKey.FETCH, 12, {**fetch_values("t", 0), "topics": topics})
                return seen(answer["responses"][0]["partitions"][0])

            def seen(found: Any) -> tuple[int, int, int, bytes]:
                return (
                    found["error_code"],
                    found["high_watermark"],
                    found["log_start_offset"],
                    bytes(found["records"] or b""),
                )

            def session(session_id: int, epoch: int, rows: list[dict[str, int]]) -> dict[str, Any]:
                topics = [{"topic": "t", "partitions": rows}] if rows else []
                more = {"session_id": session_id, "session_epoch": epoch, "topics": topics}
                return {**fetch_values("t", 0), **more}

            first = await client.ask(ApiKey.FETCH, 12, session(0, 0, [asked(n, 0) for n in range(partitions)]))
            session_id = first["session_id"]
            assert session_id and len(first["responses"][0]["partitions"]) == partitions
            last = {row["partition_index"]: seen(row)[:3] for row in first["responses"][0]["partitions"]}
            for epoch in range(1, TURNS):
                changed = []
                for number in rng.sample(range(partitions), 3):
                    happens = rng.random()
                    if happens < 0.4:
                        ends[number] = (await other.produce("t", batch(), partition=number))["base_offset"] + 1
                    elif happens < 0.5:
                        rows = [{"partition_index": number, "offset": -1}]
                        topics = [{"name": "t", "partitions": rows}]
                        await other.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1000})
                    elif happens < 0.9:
                        offsets[number] = ends[number] + (1 if rng.random() < 0.05 else 0)
                        changed.append(asked(number, offsets[number]))
                answer = await client.ask(ApiKey.FETCH, 12, session(session_id, epoch, changed))
                assert (answer["error_code"], answer["session_id"]) == (ErrorCode.none, session_id)
                rows = [row for topic in answer["responses"] for row in topic["partitions"]]
                answered = {row["partition_index"]: seen(row) for row in rows}
                for number in range(partitions):
                    expected = await full(number)
                    if number in answered:
                        assert answered[number] == expected
                        assert expected[0] or expected[3] or expected[:3] != last[number], "nothing new"
                        last[number] = expected[:3] if not expected[0] else (0, -1, expected[2])
                        errors += bool(expected[0])
                        answers += 1
                    else:
                        assert not expected[0] and not expected[3] and expected[:3] == last[number], "something new"
                        left_out += 1
            client.close()
            other.close()
        assert answers >= 100 and left_out >= 100 and errors >= 3

    stub.run(test())


def test_a_session_has_few_partitions_that_are_not_here(tmp_path: Path) -> None:
    """It lasts, and one request could name hundreds of thousands."""

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=4)

            def session(session_id: int, epoch: int, numbers: range) -> dict[str, Any]:
                topics = [{"topic": "t", "partitions": [asked(number, 0) for number in numbers]}]
                return {**fetch_values("t", 0), "session_id": session_id, "session_epoch": epoch, "topics": topics}

            many = await client.ask(ApiKey.FETCH, 12, session(0, 0, range(STRANGERS_MAX + 5)))
            assert (many["session_id"], len(many["responses"][0]["partitions"])) == (0, STRANGERS_MAX + 5)
            some = await client.ask(ApiKey.FETCH, 12, session(0, 0, range(STRANGERS_MAX + 4)))
            assert some["session_id"] and len(node.sessions) == 1
            more = session(some["session_id"], 1, range(STRANGERS_MAX, STRANGERS_MAX + 5))
            answer = await client.ask(ApiKey.FETCH, 12, more)
            assert answer["error_code"] == 0 and not len(node.sessions)
            again = await client.ask(ApiKey.FETCH, 12, session(some["session_id"], 2, range(1)))
            assert again["error_code"] == ErrorCode.fetch_session_id_not_found
            client.close()

    stub.run(test())
