"""Attacks by amount: valid or nearly valid requests that are large, many, half, unread or dear to answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from tests.fuzz.batches import TIME, lie_in_header
from tests.fuzz.clients import read_frame
from tests.fuzz.values import TOPICS

Flood = Callable[[int, Random], Awaitable[None]]
"""(port, dice)"""
HOST = "127.0.0.1"
ROWS = 20_000


def request(key: ApiKey, version: int, values: dict[str, Any], number: int = 1) -> bytes:
    frame = messages.encode_request(key, version, number, "flood", values)
    return struct.pack(">i", len(frame)) + frame


async def ask(port: int, *frames: bytes) -> None:
    """Send all of them and read an answer to each; a closed connection will do, too."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 26)
    try:
        writer.write(b"".join(frames))
        for _ in frames:
            await read_frame(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def produce(records: bytes) -> bytes:
    data = [{"name": TOPICS[0], "partition_data": [{"index": 0, "records": records}]}]
    return request(ApiKey.PRODUCE, 9, {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": data})


async def many_records(port: int, dice: Random) -> None:
    """A small batch that unpacks to many records, true or not."""
    batch = build_batch([SimpleRecord(TIME, None, None)] * 50_000, codec=dice.randint(1, 4))
    await ask(port, produce(bytes(batch)), *(produce(bytes(lie_in_header(batch[:], dice))) for _ in range(3)))


async def many_rows(port: int, dice: Random) -> None:
    """One request about many partitions."""
    numbers = [dice.choice((0, each)) for each in range(ROWS)]
    rows = [{"partition_index": each, "timestamp": TIME, "offset": 0} for each in numbers]
    topics = [{"name": TOPICS[1], "partitions": rows}]
    await ask(port, request(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics}))
    await ask(port, request(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1000}))
    fetched = [
        {
            "topic": TOPICS[1],
            "partitions": [{"partition": each, "fetch_offset": 0, "partition_max_bytes": 1000} for each in range(ROWS)],
        }
    ]
    values = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0, "session_epoch": 0}
    await ask(port, request(ApiKey.FETCH, 12, {**values, "topics": fetched}))


async def many_commits(port: int, dice: Random) -> None:
    rows = [{"partition_index": each, "committed_offset": each, "committed_metadata": "m"} for each in range(ROWS)]
    values = {
        "group_id": "flood",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": TOPICS[0], "partitions": rows}],
    }
    await ask(port, request(ApiKey.OFFSET_COMMIT, 8, values))


async def many_names(port: int, dice: Random) -> None:
    """Thousands of topics that are not there, and some that are created by asking for them."""
    missing = [{"name": f"fuzz missing {each}", "topic_id": None} for each in range(ROWS)]
    await ask(port, request(ApiKey.METADATA, 12, {"topics": missing, "allow_auto_topic_creation": True}))
    made = [{"name": f"fuzz-made-{dice.randrange(200)}", "topic_id": None} for _ in range(40)]
    await ask(port, request(ApiKey.METADATA, 12, {"topics": made, "allow_auto_topic_creation": True}))


async def pipelined_and_unread(port: int, dice: Random) -> None:
    frames = request(ApiKey.METADATA, 12, {"topics": None}) * 3000
    writers = [(await asyncio.open_connection(HOST, port, limit=1000))[1] for _ in range(5)]
    for writer in writers:
        writer.write(frames)
    await asyncio.sleep(0.2)
    for writer in writers:
        writer.transport.abort()


async def late_reader(port: int, dice: Random) -> None:
    """Thousands of requests of many sizes of answers; nothing is read for a while, then each answer, in order."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1000)
    asked = [{"name": name, "topic_id": None} for name in TOPICS]
    kinds = [
        (ApiKey.METADATA, 12, {"topics": None}),
        (ApiKey.METADATA, 9, {"topics": asked}),
        (ApiKey.API_VERSIONS, 0, {}),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "flood", "topics": None}]}),
        (ApiKey.DESCRIBE_CLUSTER, 0, {}),
    ]
    for number in range(2000):
        writer.write(request(*dice.choice(kinds), number))
    await asyncio.sleep(0.1)
    for number in range(2000):
        answer = await read_frame(reader)
        assert int.from_bytes(answer[:4], "big") == number
    writer.close()


async def half_frames(port: int, dice: Random) -> None:
    head = struct.pack(">i", 100_000_000) + bytes(dice.choice((1, 10_000, 200_000)))
    writers = [(await asyncio.open_connection(HOST, port))[1] for _ in range(100)]
    for writer in writers:
        writer.write(head)
    await asyncio.sleep(0.1)
    for writer in writers:
        writer.transport.abort()


async def members(port: int, dice: Random) -> None:
    """A rush of members of one group, who leave without a word."""
    values = {
        "group_id": "flood-members",
        "session_timeout": 6000,
        "rebalance_timeout": 100,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(1000)}],
    }
    writers = []
    for number in range(100):
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(request(ApiKey.JOIN_GROUP, dice.choice((2, 5, 7)), values, number))
        writers.append(writer)
    await asyncio.sleep(0.1)
    for writer in writers:
        writer.close()


async def sessions(port: int, dice: Random) -> None:
    """Fetch sessions, each of which is left."""
    asked = [
        {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]}
        for name in TOPICS
    ]
    values = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0, "session_epoch": 0, "topics": asked}
    await ask(port, *(request(ApiKey.FETCH, 12, values, number) for number in range(1200)))


async def create_and_delete(port: int, dice: Random) -> None:
    names = [f"fuzz-many-{number}" for number in range(60)]
    topic = {"num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    made = [{"name": name, **topic} for name in names]
    await ask(port, request(ApiKey.CREATE_TOPICS, 7, {"topics": made, "timeout": 1000, "validate_only": False}))
    gone = [{"name": name, "topic_id": ZERO_UUID} for name in names]
    await ask(port, request(ApiKey.DELETE_TOPICS, 6, {"topics": gone, "timeout": 1000}))


FLOODS: tuple[Flood, ...] = (
    many_records, many_rows, many_commits, many_names, pipelined_and_unread, late_reader, half_frames, members,
    sessions, create_and_delete,
)  # fmt: skip
