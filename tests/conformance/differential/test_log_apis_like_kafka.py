"""Produce, Fetch and their relatives: the same requests, good and bad, to Ottla and to Kafka, answers compared."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches
from tests.conformance.pair import Pair, comparable

TIME = 1_700_000_000_000
CREATED = {"num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}


class Topic:
    """A topic that both have, with what its requests need."""

    def __init__(self, pair: Pair, name: str, configs: dict[str, str] | None = None) -> None:
        self.pair, self.name = pair, name
        entries = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        for wire in (pair.ottla, pair.kafka):
            wire.ask(
                ApiKey.CREATE_TOPICS,
                7,
                {"topics": [{"name": name, **CREATED, "configs": entries}], "timeout": 9000, "validate_only": False},
            )
        for wire in (pair.ottla, pair.kafka):
            while any(each["error_code"] for each in self.list_offsets(wire)["topics"][0]["partitions"]):
                pass
        self.ids = [self._id(wire) for wire in (pair.ottla, pair.kafka)]

    def _id(self, wire: Any) -> UUID:
        answer = wire.ask(ApiKey.METADATA, 12, {"topics": [{"topic_id": None, "name": self.name}]})
        topic_id: UUID = answer["topics"][0]["topic_id"]
        return topic_id

    def list_offsets(self, wire: Any) -> Any:
        wanted = [{"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in (0, 1)]
        topics = [{"name": self.name, "partitions": wanted}]
        return wire.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})

    def produce(self, version: int, records: bytes | None, *, acks: int = -1, partition: int = 0, **more: Any) -> Any:
        """Both answers, which must be equal."""
        answers = []
        for wire, topic_id in zip((self.pair.ottla, self.pair.kafka), self.ids, strict=True):
            data = {
                "name": self.name,
                "topic_id": topic_id,
                "partition_data": [{"index": partition, "records": records}],
            }
            values = {"transactional_id": None, "acks": acks, "timeout": 9000, "topic_data": [{**data, **more}]}
            answers.append(comparable(wire.ask(ApiKey.PRODUCE, version, values)))
        assert differences(*map(without_words, answers)) == []
        return answers[0]

    def fetch(self, version: int, *offsets: int, **more: Any) -> Any:
        """Both answers, which must be equal; session ids apart, which `sessions` then has."""
        answers = []
        sessions = more.pop("sessions", (0, 0))
        partition = more.pop("of_partition", {})
        self.sessions = []
        wires = zip((self.pair.ottla, self.pair.kafka), self.ids, sessions, strict=True)
        for wire, topic_id, session in wires:
            topic = {"topic": self.name, "topic_id": topic_id}
            asked = [
                {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **partition}
                for index, offset in enumerate(offsets)
            ]
            values = {
                "max_wait": 50,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "session_id": session,
                "session_epoch": -1,
                "topics": [{**topic, **more.get("topic", {}), "partitions": asked}] if asked else (),
            }
            values |= {name: value for name, value in more.items() if name not in ("topic", "forget")}
            values["forgotten_topics_data"] = [{**topic, "partitions": more["forget"]}] if "forget" in more else ()
            answer = comparable(wire.ask(ApiKey.FETCH, version, values))
            whole_batches_only(answer)
            if answer is not None and "session_id" in answer:
                self.sessions.append(answer["session_id"])
                answer["session_id"] = answer["session_id"] != 0
            answers.append(answer)
        assert differences(*answers) == []
        return answers[0]


def differences(mine: Any, theirs: Any, path: str = "") -> list[str]:
    """Differences, one per line: a diff of two large answers says nothing."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        names = [*mine, *(name for name in theirs if name not in mine)]
        return [line for name in names for line in differences(mine.get(name), theirs.get(name), f"{path}.{name}")]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        pairs = enumerate(zip(mine, theirs, strict=True))
        return [line for n, (own, other) in pairs for line in differences(own, other, f"{path}[{n}]")]
    return [] if mine == theirs else [f"{path}: {mine!r}, Kafka {theirs!r}"]


def whole_batches_only(answer: Any) -> None:
    """Kafka fills an answer up with a part of the next batch, which clients throw away; Ottla does not send it."""
    for topic in answer["responses"] if answer else ():
        for partition in topic["partitions"]:
            records = partition["records"] or b""
            end = 0
            for position, header in iterate_batches(records):
                end = position + header.size
            partition["records"] = records[:end]


def without_words(answer: Any) -> Any:
    """An answer without its sentences: Ottla's are its own, but are there where Kafka's are.

    Kafka adds one to CORRUPT_MESSAGE where the batch's frame is at fault and not its CRC, and leaves the log start out
    of an INVALID_RECORD that it finds before it looks at the log.
    """
    if isinstance(answer, dict):
        if answer.get("error_code") == ErrorCode.corrupt_message:
            answer = {**answer, "error_message": None}
        if answer.get("error_code") == ErrorCode.invalid_record:
            answer = {**answer, "log_start_offset": None}
        return {
            name: value is not None if name in ("error_message", "batch_index_error_message") else without_words(value)
            for name, value in answer.items()
        }
    return [without_words(each) for each in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="module")
def pair(bootstrap: str, oracle: str) -> Pair:
    return Pair(bootstrap, oracle)


@pytest.fixture
def log(pair: Pair, topic: str, request: pytest.FixtureRequest) -> Topic:
    return Topic(pair, topic, getattr(request, "param", None))


def batch(count: int = 3, **options: Any) -> bytes:
    return bytes(build_batch([SimpleRecord(TIME + n, b"k", b"v%d" % n) for n in range(count)], **options))


def patched(data: bytes, position: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    """A batch with one field changed and, with `crc`, a CRC that is right for it."""
    from crc32c import crc32c

    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    if crc:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_and_fetch_in_every_version(log: Topic, version: int) -> None:
    for acks in (-1, 1):
        log.produce(version, batch(), acks=acks)
    for fetch_version in range(4, 19):
        log.fetch(fetch_version, 0, 0)
        log.fetch(fetch_version, 4, 0, isolation_level=1)


def test_versions_of_produce_that_only_look_served(log: Topic) -> None:
    for wire in (log.pair.ottla, log.pair.kafka):
        for version in (0, 1, 2):
            head = struct.pack(">hhih", ApiKey.PRODUCE, version, 1, -1) + struct.pack(">hii", 1, 1000, 0)
            wire.socket.sendall(struct.pack(">i", len(head)) + head)
            assert wire.socket.recv(4) == b""
            wire.__init__(":".join(map(str, wire.address)))


BAD = {
    "empty": b"",
    "short": batch()[:40],
    "cut": batch()[:-1],
    "two": batch() + batch(),
    "crc": patched(batch(), 17, ">I", 7, crc=False),
    "magic 1": patched(batch(), 16, ">b", 1, crc=False),
    "magic 3": patched(batch(), 16, ">b", 3, crc=False),
    "length 10": patched(batch(), 8, ">i", 10, crc=False),
    "count more": patched(batch(), 57, ">i", 4),
    "count less": patched(batch(), 57, ">i", 2),
    "count negative": patched(batch(), 57, ">i", -1),
    "delta": patched(batch(), 23, ">i", 5),
    "base offset": patched(batch(), 0, ">q", 5),
    "control": batch(control=True),
    "transactional": batch(transactional=True),
    "append time": patched(batch(), 21, ">h", 8),
    "sequence without epoch": batch(producer_id=5),
    "garbage": b"x" * 100,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_batches(log: Topic, name: str) -> None:
    for version in (3, 8, 11):
        log.produce(version, BAD[name])
    log.fetch(12, 0)


def test_produce_to_what_is_not_there(log: Topic) -> None:
    for wire in (log.pair.ottla, log.pair.kafka):
        internal = {"key_type": 0, "coordinator_keys": ("some-group",)}
        while wire.ask(ApiKey.FIND_COORDINATOR, 4, internal)["coordinators"][0]["error_code"]:
            pass
    for version in (3, 9, 12):
        log.produce(version, batch(), name=log.name + "-none")
        log.produce(version, batch(), partition=7)
        log.produce(version, batch(), name="__consumer_offsets")
        log.produce(version, batch(), name="bad name!")
    log.produce(13, batch(), topic_id=UUID(int=77))
    log.produce(13, batch(), partition=7)
    for acks in (2, -2):
        log.produce(9, batch(), acks=acks)
    assert log.produce(9, batch(), acks=0, partition=7) is None


@pytest.mark.parametrize("log", [{"message.timestamp.after.max.ms": "1000", "max.message.bytes": "400"}], indirect=True)
def test_limits_of_a_topic(log: Topic) -> None:
    ahead = bytes(build_batch([SimpleRecord(TIME, b"k", b"v"), SimpleRecord(1 << 42, b"k", b"v")]))
    log.produce(11, ahead)
    log.produce(11, batch(40))
    log.produce(11, batch(2))


@pytest.mark.parametrize("log", [{"min.insync.replicas": "2"}], indirect=True)
def test_no_more_replicas_are_required_than_there_are(log: Topic) -> None:
    answer = log.produce(11, batch(), acks=-1)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.none


@pytest.mark.parametrize("log", [{"cleanup.policy": "compact"}], indirect=True)
def test_a_compacted_topic_wants_keys(log: Topic) -> None:
    log.produce(11, bytes(build_batch([SimpleRecord(TIME, b"k", b"v"), SimpleRecord(TIME, None, b"v")])))
    log.produce(11, batch())


def test_idempotent_producers(log: Topic) -> None:
    def send(sequence: int, epoch: int = 0, count: int = 2) -> Any:
        return log.produce(9, batch(count, producer_id=4000, producer_epoch=epoch, base_sequence=sequence))

    for sequence in (0, 2, 4, 6, 8, 10):
        send(sequence)
    for sequence in (10, 4, 0, 3, 20):
        send(sequence)
    send(12, count=1)
    send(5, epoch=1)
    send(0, epoch=1)
    send(13, epoch=0)


def test_fetch_outside_the_log_and_of_what_is_not_there(log: Topic) -> None:
    log.produce(9, batch())
    for version in (4, 11, 12, 16):
        log.fetch(version, 4)
        log.fetch(version, -1)
        log.fetch(version, 3)
        log.fetch(version, 0, 0, 0)
        log.fetch(version, 0, of_partition={"current_leader_epoch": 9})
    log.fetch(12, 0, topic={"topic": "not-there"})
    log.fetch(13, 0, topic={"topic_id": UUID(int=88)})
    log.fetch(12, 0, of_partition={"last_fetched_epoch": 0})
    log.fetch(12, 0, of_partition={"last_fetched_epoch": 5})
    log.fetch(12, 2, of_partition={"last_fetched_epoch": 0})


def test_fetch_within_limits_of_size(log: Topic) -> None:
    for partition in (0, 1):
        for _ in range(4):
            log.produce(9, batch(), partition=partition)
    size = len(batch())
    for bytes_max in (0, 1, size - 1, size, size + 1, 3 * size, 5 * size):
        first = log.fetch(12, 0, 0, max_bytes=bytes_max)
        assert first["responses"]
        log.fetch(12, 0, 0, of_partition={"partition_max_bytes": bytes_max})
    for offset in range(12):
        log.fetch(12, offset)


def test_incremental_fetch_sessions(log: Topic) -> None:
    def fetch(*offsets: int, epoch: int, **more: Any) -> Any:
        return log.fetch(12, *offsets, session_epoch=epoch, **more)

    log.produce(9, batch())
    fetch(0, 0, epoch=0)
    sessions = tuple(log.sessions)
    assert all(sessions)
    fetch(epoch=1, sessions=sessions)
    fetch(3, epoch=2, sessions=sessions)
    fetch(epoch=3, sessions=sessions)
    log.produce(9, batch(), partition=1)
    log.produce(9, batch(), partition=0)
    fetch(epoch=4, sessions=sessions)
    fetch(6, 3, epoch=5, sessions=sessions)
    fetch(9, epoch=6, sessions=sessions)
    fetch(epoch=7, sessions=sessions)
    fetch(6, epoch=8, sessions=sessions, forget=[1])
    log.produce(9, batch(), partition=1)
    fetch(epoch=9, sessions=sessions)
    fetch(epoch=3, sessions=sessions)
    fetch(epoch=10, sessions=(1, 1))
    log.fetch(13, session_epoch=10, sessions=sessions)
    fetch(epoch=10, sessions=sessions, forget=[0])
    fetch(epoch=11, sessions=sessions)
    fetch(0, 0, epoch=0)
    fetch(0, 0, epoch=-1, sessions=tuple(log.sessions))
    fetch(epoch=1, sessions=sessions)


def test_offsets_by_time_and_epoch(log: Topic) -> None:
    log.produce(9, batch(5))
    log.produce(9, batch(5))
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, TIME, TIME + 3, TIME + 4, TIME + 5, 1 << 60):
            for isolation in (0, 1):
                asked = [{"partition_index": p, "timestamp": timestamp, "current_leader_epoch": -1} for p in (0, 9)]
                topics = [{"name": log.name, "partitions": asked}]
                values = {"replica_id": -1, "isolation_level": isolation, "topics": topics, "timeout": 100}
                log.pair.same(ApiKey.LIST_OFFSETS, version, values)
    for version in (2, 3, 4):
        for current, epoch in ((-1, 0), (-1, 7), (9, 0)):
            asked = [{"partition": p, "current_leader_epoch": current, "leader_epoch": epoch} for p in (0, 9)]
            topics = [{"topic": log.name, "partitions": asked}]
            log.pair.same(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": -1, "topics": topics})
    for version in (0, 1, 2):
        for offset in (2, 99, -1, -2, 1):
            asked = [{"partition_index": p, "offset": offset} for p in (0, 9)]
            topics = [{"name": log.name, "partitions": asked}]
            log.pair.same(ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout": 1000})
    log.fetch(12, 0)
    for name, index in ((log.name, 0), (log.name, 9), ("not-there", 0), ("bad name!", 0)):
        log.pair.same(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": name, "partition_indexes": [index]}]})


def test_api_versions_differ_only_in_what_is_not_served_yet(pair: Pair) -> None:
    for version in range(5):
        values = {"client_software_name": "test", "client_software_version": "1"}
        mine, theirs = pair.both(ApiKey.API_VERSIONS, version, values)
        known = [each for each in theirs["api_keys"] if each["api_key"] in {own["api_key"] for own in mine["api_keys"]}]
        assert sorted(mine["api_keys"], key=lambda each: each["api_key"]) == known
        for field in ("supported_features", "finalized_features"):
            of_theirs = {each["name"]: each for each in theirs.get(field, ())}
            assert {each["name"]: each for each in mine.get(field, ())} == of_theirs, version
    assert messages.plain(mine)["error_code"] == 0
    for name in ("", "!", "a b"):
        mine, theirs = pair.both(ApiKey.API_VERSIONS, 3, {"client_software_name": name, "client_software_version": "1"})
        assert mine["error_code"] == theirs["error_code"], name
