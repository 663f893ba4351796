"""Versions that Kafka 4.0 removed, on a whole node: which are served, and what each answers.

What the answers are compared with was asked of Apache Kafka 3.9.2 by raw requests.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages, schemas
from ottla.protocol.layout import of_defaults
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.message_set import Message
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.server.handlers import TABLE
from ottla.server.legacy import fetch as legacy_fetch
from ottla.server.legacy import produce as legacy_produce
from ottla.server.legacy import refusals
from ottla.server.legacy.apis import legacy_apis, removed_versions
from tests.old_messages import TIME, message
from tests.unit.protocol.test_old_formats import packed, read
from tests.unit.server import stub
from tests.unit.server.clients.test_quotas import CLIENT, alter
from tests.unit.server.node import Client, batch, running

ON = {refusals.SETTING: "true", "group.initial.rebalance.delay.ms": "0"}
WALK = [(ApiKey(key), version) for key, (low, high) in removed_versions().items() for version in range(low, high + 1)]
GROUP = "g"


def producing(topic: str, records: bytes | None, acks: int = 1, partition: int = 0) -> dict[str, Any]:
    rows = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout": 1000, "topic_data": [{"name": topic, "partition_data": rows}]}


def fetching(topic: str, offset: int, *, wait_ms: int = 0, max_bytes: int = 1 << 20, min_bytes: int = 1) -> Any:
    rows = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": min_bytes,
        "topics": [{"topic": topic, "partitions": rows}],
    }


async def produce(client: Client, version: int, topic: str, records: bytes | None) -> tuple[int, int]:
    answer = await client.ask(ApiKey.PRODUCE, version, producing(topic, records))
    row = answer["responses"][0]["partition_responses"][0]
    return int(row["error_code"]), row["base_offset"]


async def fetch(client: Client, version: int, topic: str, offset: int, **more: Any) -> tuple[int, list[Message]]:
    answer = await client.ask(ApiKey.FETCH, version, fetching(topic, offset, **more))
    row = answer["responses"][0]["partitions"][0]
    return int(row["error_code"]), read(bytes(row["records"]))


async def mark(client: Client, topic: str, producer_id: int = 5) -> None:
    """A control batch, as a coordinator writes it."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    marker = {"producer_id": producer_id, "producer_epoch": 0, "transaction_result": True, "topics": topics}
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [{**marker, "coordinator_epoch": 0}]})
    assert not answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]


def test_the_walk_has_every_removed_version_of_a_served_api() -> None:
    assert len(WALK) == 27 and (ApiKey.FETCH, 3) in WALK and (ApiKey.OFFSET_COMMIT, 0) in WALK
    for key, version in WALK:
        assert not TABLE[key].min_version <= version or key is ApiKey.PRODUCE
        served = legacy_apis().advertised[key]
        assert served.min_version <= version <= served.max_version == TABLE[key].max_version


@pytest.mark.shared_values
def test_every_removed_version_is_advertised_and_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            answer = await client.ask(ApiKey.API_VERSIONS, 0, {})
            ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}
            for key, version in WALK:
                assert ranges[key][0] <= version <= ranges[key][1]
                request = messages.plain(of_defaults(messages.request_layout(key, version)))
                if key is ApiKey.PRODUCE:
                    request["acks"] = 1
                answer = await client.ask(key, version, request)
                wanted = schemas.schema(schemas.api_message("response", key) + schemas.REMOVED)
                assert set(answer) == {field.name for field in wanted.fields}, key
            assert {key: low for key, (low, _) in ranges.items() if key not in removed_versions()} == {
                key: TABLE[key].min_version for key in ranges if key not in removed_versions()
            }
            client.close()

    stub.run(test())


def test_without_the_setting_the_connection_is_closed_and_the_log_names_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            answer = await client.ask(ApiKey.API_VERSIONS, 0, {})
            ranges = {row["api_key"]: row["min_version"] for row in answer["api_keys"]}
            assert ranges == {key: TABLE[key].min_version for key in ranges}
            client.close()
            for key, version in WALK:
                client = await Client.connect(node)
                client.send(key, version, messages.plain(of_defaults(messages.request_layout(key, version))))
                assert await client.reader.read() == b""
                client.close()

    with caplog.at_level(logging.INFO):
        stub.run(test())
    errors = [str(getattr(record, "fields", record.__dict__)) for record in caplog.records]
    assert sum(refusals.SETTING in each for each in errors) == 1


def test_messages_of_all_versions_and_codecs_come_back_in_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            values = []
            await client.create("t")
            for version in (0, 1, 2):
                magic = 1 if version == 2 else 0
                for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY):
                    inner = b"".join(message(n, b"%d-%d-%d" % (version, codec, n), magic=magic) for n in range(3))
                    sent = packed(inner, codec, magic=magic) if codec else inner
                    assert await produce(client, version, "t", sent) == (0, len(values))
                    values += [b"%d-%d-%d" % (version, codec, n) for n in range(3)]
            new = build_batch([SimpleRecord(TIME, b"k", b"new", (("h", b"x"),))])
            assert (await client.produce("t", bytes(new)))["base_offset"] == len(values)
            values.append(b"new")
            for version in (0, 1, 2, 3):
                error, found = await fetch(client, version, "t", 4)
                assert not error and [each.offset for each in found] == list(range(4, len(values)))
                assert [each.value for each in found] == values[4:]
                assert found[-1].timestamp == (TIME if version >= 2 else -1)
            client.close()

    stub.run(test())


def test_errors_of_messages_come_after_those_of_partitions(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), {**ON, "auto.create.topics.enable": "false"}) as node:
            client = await Client.connect(node)
            await client.create("t")
            bad = message(0, b"v")[:-1] + b"?"
            assert await produce(client, 2, "nope", bad) == (ErrorCode.unknown_topic_or_partition, -1)
            assert await produce(client, 2, "t", bad) == (ErrorCode.corrupt_message, -1)
            assert await produce(client, 2, "t", b"") == (0, -1)
            assert await produce(client, 2, "t", None) == (ErrorCode.invalid_record, -1)
            assert await produce(client, 2, "t", batch()) == (0, 0), "Kafka takes a batch of format 2 here too"
            assert await produce(client, 2, "t", message(0, bytes(1_100_000))) == (ErrorCode.message_too_large, -1)
            topics = [("t", 0, message(0, b"a")), ("t", 1, message(0, b"a")), ("t", 0, bad)]
            data = [{"name": n, "partition_data": [{"index": i, "records": r}]} for n, i, r in topics[:2]]
            answer = await client.ask(ApiKey.PRODUCE, 2, {"acks": -1, "timeout": 1000, "topic_data": data})
            rows = [topic["partition_responses"][0] for topic in answer["responses"]]
            assert [row["error_code"] for row in rows] == [0, ErrorCode.unknown_topic_or_partition]
            client.send(ApiKey.PRODUCE, 2, producing("t", message(0, b"a"), acks=0))
            client.send(ApiKey.PRODUCE, 2, producing("t", b"", acks=0))
            assert await produce(client, 2, "t", message(0, b"b")) == (0, 3)
            client.send(ApiKey.PRODUCE, 0, producing("t", bad, acks=0))
            assert await client.reader.read() == b""
            client.close()

    stub.run(test())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_producer_hears_how_long_it_is_held_back(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t")
            await alter(client, CLIENT, {"producer_byte_rate": 1000.0})
            answer = await client.ask(ApiKey.PRODUCE, version, producing("t", message(0, bytes(30_000))))
            row = answer["responses"][0]["partition_responses"][0]
            assert (row["error_code"], row["base_offset"]) == (0, 0)
            assert (answer["throttle_time"] > 0) == (version > 0)
            client.close()

    stub.run(test())


def test_log_append_time_is_the_topics(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t", {"message.timestamp.type": "LogAppendTime"})
            for sent in (message(0, b"v"), message(0, b"v", magic=0), packed(message(0, b"v"), offset=0)):
                answer = await client.ask(ApiKey.PRODUCE, 2, producing("t", sent))
                assert answer["responses"][0]["partition_responses"][0]["log_append_time"] > TIME
            refused = message(0, b"v", attributes=8)
            assert await produce(client, 2, "t", refused) == (ErrorCode.invalid_timestamp, -1)
            _, found = await fetch(client, 2, "t", 0)
            assert [each.timestamp_type for each in found] == [1, 1, 1] and min(each.timestamp for each in found) > TIME
            client.close()

    stub.run(test())


def test_what_takes_long_goes_to_a_thread_and_stays_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            threads = 0
            long_work = node.long_work

            async def counted(work: Any) -> Any:
                nonlocal threads
                threads += 1
                return await long_work(work)

            monkeypatch.setattr(node, "long_work", counted)
            client = await Client.connect(node)
            await client.create("t")
            bomb = packed(message(0, bytes(legacy_produce.INLINE_BYTES_MAX + 1)), offset=0)
            assert len(bomb) < 1000
            large = b"".join(message(n, bytes(100)) for n in range(200))
            for n, sent in enumerate((large, message(0, b"small"), bomb, message(0, b"last"))):
                client.send(ApiKey.PRODUCE, 2, producing("t", sent), correlation_id=n)
            offsets = [await client.receive(ApiKey.PRODUCE, 2) for _ in range(4)]
            assert [each["responses"][0]["partition_responses"][0]["base_offset"] for each in offsets] == [
                0,
                200,
                201,
                202,
            ]
            assert threads == 2
            client.close()

    stub.run(test())


def test_no_client_is_stuck_at_a_control_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client, other = await Client.connect(node), await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch())
            for _ in range(3):
                await mark(client, "t")
            assert [each.offset for each in (await fetch(client, 2, "t", 0))[1]] == [0]
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            assert await fetch(client, 2, "t", 1, wait_ms=50) == (0, []), "nothing follows"
            assert loop.time() - began_s >= 0.045, "it waits, as for any end of a log"
            client.send(ApiKey.FETCH, 3, fetching("t", 1, wait_ms=60_000))
            await client.writer.drain()
            assert (await other.produce("t", batch()))["base_offset"] == 4
            answer = await client.receive(ApiKey.FETCH, 3)
            assert [each.offset for each in read(answer["responses"][0]["partitions"][0]["records"])] == [4]
            for offset in (1, 2, 3, 4):
                assert [each.offset for each in (await fetch(client, 0, "t", offset))[1]] == [4]
            client.close()
            other.close()

    stub.run(test())


def test_a_client_that_is_gone_leaves_no_fetch_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client, other = await Client.connect(node), await Client.connect(node)
            await client.create("t")
            tasks = len(node._tasks)
            client.send(ApiKey.FETCH, 3, fetching("t", 0, wait_ms=2**31 - 1))
            await client.writer.drain()
            while len(node._tasks) == tasks:
                await other.ask(ApiKey.API_VERSIONS, 0, {})
            client.close()
            while len(node._tasks) > tasks:
                await other.ask(ApiKey.API_VERSIONS, 0, {})
            other.close()

    stub.run(test())


def test_an_answer_is_as_large_as_asked_and_always_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_fetch, "READ_BYTES", 300)

    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=3)
            for partition in range(3):
                for _ in range(5):
                    await client.produce("t", batch(1000, count=3), partition=partition)
            for max_bytes in (1, 1100, 2200, 100_000):
                offset = 0
                while offset < 15:
                    answer = await client.ask(ApiKey.FETCH, 2, fetching("t", offset, max_bytes=max_bytes))
                    data = answer["responses"][0]["partitions"][0]["records"]
                    found = read(data)
                    assert found[0].offset == offset and (len(data) <= max_bytes or len(found) == 1)
                    offset = found[-1].offset + 1
            monkeypatch.setattr(legacy_fetch, "CONVERTED_BYTES_MAX", 2000)
            rows = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for n in range(3)]
            values = {**fetching("t", 0), "topics": [{"topic": "t", "partitions": rows}]}
            first = set()
            for number in range(3):
                client.send(ApiKey.FETCH, 2, values, correlation_id=number)
                answer = await client.receive(ApiKey.FETCH, 2)
                parts = {row["partition_index"]: row["records"] for row in answer["responses"][0]["partitions"]}
                assert len(parts) == 3 and sum(map(len, parts.values())) <= 3000
                first |= {number for number, data in parts.items() if data}
            assert first == {0, 1, 2}, "every partition has its turn"
            client.close()

    stub.run(test())


def test_fetch_refuses_zstd_and_old_followers(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.produce("t", batch())
            await client.produce("t", batch(codec=Codec.ZSTD))
            assert [each.offset for each in (await fetch(client, 3, "t", 0))[1]] == [0]
            assert (await fetch(client, 3, "t", 1))[0] == ErrorCode.unsupported_compression_type
            assert (await fetch(client, 3, "t", 9))[0] == ErrorCode.offset_out_of_range
            assert (await fetch(client, 3, "nope", 0))[0] == ErrorCode.unknown_topic_or_partition
            answer = await client.ask(ApiKey.FETCH, 3, {**fetching("t", 0), "replica_id": 7})
            assert answer["responses"][0]["partitions"][0]["error_code"] == ErrorCode.unsupported_version
            client.close()

    stub.run(test())


@pytest.mark.shared_values
def test_offsets_of_zookeepers_time_are_the_groups(tmp_path: Path) -> None:
    """Without FindCoordinator before: these clients ask any broker."""

    async def test() -> None:
        settings = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
        async with running(str(tmp_path), {**ON, **settings}) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            asked = {"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0, 1, 9]}]}
            unknown = ErrorCode.unknown_topic_or_partition

            async def fetched(version: int) -> list[tuple[int, int]]:
                answer = await client.ask(ApiKey.OFFSET_FETCH, version, asked)
                return [(row["committed_offset"], int(row["error_code"])) for row in answer["topics"][0]["partitions"]]

            assert await fetched(0) == [(-1, unknown)] * 3
            for version in (0, 1):
                row = {"partition_index": 0, "committed_offset": 40 + version, "committed_metadata": "m"}
                rows = [row, {**row, "partition_index": 9}]
                values = {
                    "group_id": GROUP,
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "topics": [{"name": "t", "partitions": rows}],
                }
                answer = await client.ask(ApiKey.OFFSET_COMMIT, version, values)
                codes = {row["partition_index"]: row["error_code"] for row in answer["topics"][0]["partitions"]}
                assert codes == {0: 0, 9: unknown}
                assert await fetched(0) == [(40 + version, 0), (-1, unknown), (-1, unknown)]
                assert await fetched(1) == [(40 + version, 0), (-1, 0), (-1, 0)]
            client.close()

    stub.run(test())


def test_list_offsets_gives_where_segments_begin(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t", {"segment.bytes": "1048576"}, partitions=2)
            for _ in range(5):
                await client.produce("t", batch(500_000))

            async def listed(timestamp: int, count: int, partition: int = 0) -> Any:
                rows = [{"partition_index": partition, "timestamp": timestamp, "max_num_offsets": count}]
                values = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]}
                answer = await client.ask(ApiKey.LIST_OFFSETS, 0, values)
                row = answer["topics"][0]["partitions"][0]
                return [*row["old_style_offsets"]] if not row["error_code"] else row["error_code"]

            assert await listed(-1, 10) == [5, 4, 2, 0]
            assert await listed(-1, 2) == [5, 4] and await listed(-1, 0) == []
            assert await listed(-2, 10) == [0] and await listed(-1, 10, partition=1) == [0]
            assert await listed(TIME - 1, 10) == [] and await listed(TIME, 10) == [4, 2, 0]
            assert await listed(2**62, 10) == [5, 4, 2, 0]
            assert await listed(-3, 1) == ErrorCode.unsupported_version
            assert await listed(-1, 1, partition=7) == ErrorCode.unknown_topic_or_partition
            client.close()

    stub.run(test())


@pytest.mark.shared_values
def test_describe_configs_marks_defaults(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), ON) as node:
            client = await Client.connect(node)
            await client.create("t", {"retention.ms": "-1"})
            names = ["retention.ms", "cleanup.policy"]
            resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": names}
            answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 0, {"resources": [resource]})
            marked = {row["name"]: row["is_default"] for row in answer["results"][0]["configs"]}
            assert marked == {"retention.ms": False, "cleanup.policy": True}
            client.close()

    stub.run(test())
