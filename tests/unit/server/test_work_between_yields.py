"""No request holds the loop: what is done between two looks at the sockets is counted, in calls, not in time.

The requests are found, not listed: every array in the schema of every API that is served is made long, once with names
that the node knows and once with others. So an API that is added is asked too.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records import _records
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import INLINE_RECORDS_MAX, MAGIC, BatchHeader, assemble, build_batch, compress
from ottla.server import api
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.unit.server.counting import (
    CALLS_MAX,
    PARTITIONS,
    ROWS,
    TOPIC,
    Client,
    arrays,
    counted,
    filled,
    framed,
    request,
)


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: ApiKey(key).name.lower())
def test_long_arrays_of_every_api(tmp_path: Path, key: int) -> None:
    version = TABLE[key].max_version
    cls = kio_oracle.request_class(key, version)
    api.load(key)  # imports are once, and not counted
    kio_oracle.response_class(key, version)
    asked = 0
    frames = [
        (path, known, request(key, version, filled(cls, path, known)))
        for path in arrays(cls)
        for known in (True, False)
    ]

    async def test(node: Any, client: Client) -> None:
        nonlocal asked
        loop = client.loop
        for path, known, frame in frames:
            try:
                worst, rounds = await client.ask(frame)
            except ConnectionError:  # refused as a whole, which was decoded all the same
                worst, rounds = loop.worst, loop.rounds
                (port,) = node.ports.values()
                client = Client(loop, port)
            assert worst <= CALLS_MAX, (path, known, worst)
            asked += rounds > 1
        client.socket.close()

    counted(tmp_path, test, **{"auto.create.topics.enable": "false"})
    assert asked == len(frames)


def now_batch(count: int, codec: Codec, timestamp: int) -> bytearray:
    """Equal records, whose offsets a log would set right; few bytes on the wire."""
    section = bytearray()
    _records.write(section, [(timestamp, None, None, ())] * min(count, 1000), timestamp)
    data = bytes(section) * (count // min(count, 1000))
    header = BatchHeader(0, 0, -1, MAGIC, 0, codec, count - 1, timestamp, timestamp, -1, -1, -1, count)
    return assemble(header, compress(codec, data))


def produced(batches: list[Any]) -> bytes:
    rows = [{"index": number % PARTITIONS, "records": data} for number, data in enumerate(batches)]
    values = {"acks": 1, "timeout": 30_000, "topic_data": [{"name": TOPIC, "partition_data": rows}]}
    return framed(messages.encode_request(ApiKey.PRODUCE, 9, 1, "c", {"transactional_id": None, **values}))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_of_a_bomb_are_gone_through_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """Refused ones, for their timestamps, and good ones, in which a timestamp is looked up."""
    main = threading.get_ident()
    own_records_max = 100  # the node reads its metadata on the loop, and that is seen where it runs interpreted
    seen: dict[bool, int] = {True: 0, False: 0}

    def noted(name: str, count_at: int) -> None:
        real = getattr(_records, name)

        def call(*arguments: Any) -> Any:
            on_loop = threading.get_ident() == main
            if arguments[count_at] > own_records_max:
                seen[on_loop] = max(seen[on_loop], arguments[count_at])
            return real(*arguments)

        monkeypatch.setattr(_records, name, call)

    for name in ("scan", "scan_unlocked", "refused", "first_at"):
        noted(name, 3)
    noted("renumber", 4)
    count = 300_000
    now = SystemClock().now_ms()
    bad, good = now_batch(count, codec, 1 << 42), now_batch(count, codec, now)
    looked_up = {"partition_index": 0, "timestamp": now, "current_leader_epoch": -1}
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [looked_up]}]}

    async def test(node: Any, client: Client) -> None:
        await client.ask(produced([bad]))
        assert node.replicas.find(TOPIC, 0).log.log_end_offset == 0
        assert seen == {True: 0, False: count}
        await client.ask(produced([good]))
        assert node.replicas.find(TOPIC, 0).log.log_end_offset == count
        seen[False] = 0
        await client.ask(request(ApiKey.LIST_OFFSETS, 7, asked))
        assert seen == {True: 0, False: count}

    counted(tmp_path, test, **{"message.max.bytes": "10000000"})


def test_what_is_inline_is_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side: a batch of ordinary size is not worth a thread."""
    inline = 0
    real = _records.scan

    def scan(*arguments: Any) -> Any:
        nonlocal inline
        inline = max(inline, arguments[3])
        return real(*arguments)

    monkeypatch.setattr(_records, "scan", scan)
    now = SystemClock().now_ms()

    async def test(node: Any, client: Client) -> None:
        await client.ask(produced([now_batch(1000, Codec.ZSTD, now)]))
        assert inline == 1000 <= INLINE_RECORDS_MAX

    counted(tmp_path, test)


def test_many_batches_in_one_produce(tmp_path: Path) -> None:
    data = build_batch([(SystemClock().now_ms(), None, b"v", ())])

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(produced([data] * ROWS))
        assert worst <= CALLS_MAX and rounds > 10
        ends = [node.replicas.find(TOPIC, number).log.log_end_offset for number in range(PARTITIONS)]
        assert sum(ends) == ROWS

    counted(tmp_path, test)


def test_a_large_change_of_the_metadata(tmp_path: Path) -> None:
    """A topic of thousands of partitions is decided, recorded, published, and deleted again."""
    create = [{"name": "large", "num_partitions": ROWS, "replication_factor": 1}]
    delete = [{"name": "large"}]

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout": 60_000}))
        assert len(node.replicas.by_name["large"]) == ROWS
        assert worst <= CALLS_MAX and rounds > 10, worst
        worst, rounds = await client.ask(request(ApiKey.DELETE_TOPICS, 6, {"topics": delete, "timeout": 60_000}))
        assert "large" not in node.replicas.by_name
        assert worst <= CALLS_MAX and rounds > 10, worst

    counted(tmp_path, test)


def test_many_client_quotas(tmp_path: Path) -> None:
    """They are decided, recorded, published, described, and taken away again."""

    def altered(*, remove: bool) -> bytes:
        ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": remove}]
        entities = [[{"entity_type": "client-id", "entity_name": f"client{n}"}] for n in range(ROWS)]
        entries = [{"entity": entity, "ops": ops} for entity in entities]
        return request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})

    async def test(node: Any, client: Client) -> None:
        for remove in (False, True):
            worst, rounds = await client.ask(altered(remove=remove))
            assert len(node.image.client_quotas) == (0 if remove else ROWS)
            assert worst <= CALLS_MAX and rounds > 10, (worst, client.loop.where)
            described = request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
            worst, _ = await client.ask(described)
            assert worst <= CALLS_MAX, (worst, client.loop.where)

    counted(tmp_path, test)


def test_many_acls(tmp_path: Path) -> None:
    """They are decided, recorded, taken over by the authorizer, described, and deleted again."""
    rights = {"resource_type": 2, "resource_pattern_type": 4, "host": "*", "operation": 3, "permission_type": 3}
    created = [{**rights, "resource_name": f"t{n}", "principal": f"User:u{n % 50}"} for n in range(ROWS)]
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(request(ApiKey.CREATE_ACLS, 3, {"creations": created}))
        assert len(node.image.acls) == node.authorizer.acl_count == ROWS
        assert worst <= CALLS_MAX and rounds > 10, (worst, client.loop.where)
        worst, rounds = await client.ask(request(ApiKey.DESCRIBE_ACLS, 3, everything))
        assert worst <= CALLS_MAX and rounds > 2, (worst, client.loop.where)
        worst, rounds = await client.ask(request(ApiKey.DELETE_ACLS, 3, {"filters": [everything]}))
        assert len(node.image.acls) == node.authorizer.acl_count == 0
        assert worst <= CALLS_MAX and rounds > 10, (worst, client.loop.where)

    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    everyone = {"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true"}
    counted(tmp_path, test, **{"authorizer.class.name": standard, **everyone})


def test_a_transaction_of_many_partitions(tmp_path: Path) -> None:
    """All of them in one request, then the markers of its end."""
    create = [{"name": "large", "num_partitions": ROWS, "replication_factor": 1}]
    added = {"transactional_id": "x", "producer_id": 0, "producer_epoch": 0}
    added["topics"] = [{"name": "large", "partitions": list(range(ROWS))}]

    async def test(node: Any, client: Client) -> None:
        await client.ask(request(ApiKey.CREATE_TOPICS, 5, {"topics": create, "timeout": 60_000}))
        begin = {"transactional_id": "x", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        await client.ask(request(ApiKey.INIT_PRODUCER_ID, 4, begin))
        coordinator = node.transactions._shards.by_number
        (entry,) = (found for each in coordinator.values() for found in each.core.state.entries.values())
        added["producer_id"] = entry.transaction.producer_id
        values = {f"v3_and_below_{name}": value for name, value in added.items()}
        worst, rounds = await client.ask(request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values))
        assert len(entry.transaction.partitions) == ROWS
        assert worst <= CALLS_MAX and rounds > 5, (worst, client.loop.where)
        end = {**added, "committed": True}
        del end["topics"]
        worst, _ = await client.ask(request(ApiKey.END_TXN, 3, end))
        rounds = 0
        while entry.transaction.partitions:
            worst = max(worst, client.loop.worst)
            await asyncio.sleep(0)
            rounds += 1
        assert node.replicas.by_name["large"][ROWS - 1].log.log_end_offset == 1
        assert worst <= CALLS_MAX and rounds > ROWS / 50, (worst, client.loop.where)

    counted(tmp_path, test)


def test_pipelined_requests_of_one_client(tmp_path: Path) -> None:
    frame = request(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})

    async def test(node: Any, client: Client) -> None:
        worst, rounds = await client.ask(frame * 2000, answers=2000)
        assert worst <= CALLS_MAX and rounds > 10

    counted(tmp_path, test)


def test_a_bystander_beside_many_who_pipeline(tmp_path: Path) -> None:
    """Its single request is answered before the backlog of the others."""
    frame = request(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
    probe = request(ApiKey.API_VERSIONS, 3, {"client_software_name": "b", "client_software_version": "1"})

    async def test(node: Any, client: Client) -> None:
        (port,) = node.ports.values()
        crowd = [Client(client.loop, port) for _ in range(100)]
        await asyncio.sleep(0)
        for each in crowd:
            each.socket.sendall(frame * 50)
        await client.ask(probe)  # waits for what all of them began with at most
        stats = node.metrics.api(ApiKey.METADATA)
        worst, _ = await client.ask(probe)
        assert worst <= CALLS_MAX
        assert sum(stats.versions.values()) < 100 * 50
        for each in crowd:
            each.socket.close()

    counted(tmp_path, test)
