"""Validation on append. What is refused, and with which code, is what Apache Kafka 4.3 answered to the same bytes.

The table of refusals is asked of a running Apache Kafka again.

It finds holes such as CVE-2023-34455.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from typing import Any, NamedTuple

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey, decode_response, encode_request
from ottla.protocol.records import _records
from ottla.protocol.records.compression import Codec, compress
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    LongWork,
    SimpleRecord,
    assemble,
    build_batch,
    compute_crc,
    crc_is_valid,
    iterate_records,
    read_batch_header,
)
from ottla.storage.log.validation import (
    COORDINATOR,
    REPLICATION,
    InvalidRecords,
    ValidationPolicy,
    check_produce_version,
    validate,
)

NOW = int(time.time() * 1000)
HOUR = 3_600_000


def some(count: int = 3, timestamp: int = NOW, key: bytes | None = b"k") -> list[SimpleRecord]:
    return [SimpleRecord(timestamp + index, key, b"v%d" % index) for index in range(count)]


def patched(batch: bytes | bytearray, format_: str, position: int, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(format_, changed, position, value)
    struct.pack_into(">I", changed, 17, compute_crc(changed, 0, len(changed)))
    return bytes(changed)


def unsealed(format_: str, position: int, value: int) -> bytes:
    """A good batch with a field changed and its CRC left as it was."""
    changed = bytearray(GOOD)
    struct.pack_into(format_, changed, position, value)
    return bytes(changed)


def misnumbered(codec: Codec) -> bytes:
    """Three records whose offset deltas are 0, 5, 3."""
    section = bytearray()
    for delta in (0, 5, 3):
        body = bytes([0, 0, 2 * delta, 2]) + b"k" + bytes([2]) + b"v" + b"\0"
        section += bytes([2 * len(body)]) + body
    return bytes(assemble(read_batch_header(GOOD)._replace(attributes=codec), compress(codec, section)))


GOOD = bytes(build_batch(some()))


class Refusal(NamedTuple):
    records: bytes
    code: ErrorCode
    policy: dict[str, Any] = {}
    kafka: ErrorCode | None = None
    """Where Kafka answers UNKNOWN_SERVER_ERROR, which tells a client nothing."""


E = ErrorCode
FUTURE = {"message.timestamp.after.max.ms": HOUR}
REFUSALS = {
    "empty": Refusal(b"", E.invalid_record),
    "ten zeros": Refusal(bytes(10), E.invalid_record),
    "cut in the header": Refusal(GOOD[:40], E.invalid_record),
    "cut at the magic": Refusal(GOOD[:17], E.invalid_record),
    "cut in the records": Refusal(GOOD[:-3], E.invalid_record),
    "two batches": Refusal(GOOD + GOOD, E.invalid_record),
    "zeros behind": Refusal(GOOD + bytes(30), E.corrupt_message),
    "wrong crc": Refusal(GOOD[:-1] + b"x", E.corrupt_message),
    "magic 0": Refusal(unsealed(">b", 16, 0), E.invalid_record),
    "magic 1": Refusal(unsealed(">b", 16, 1), E.invalid_record),
    "magic 3": Refusal(unsealed(">b", 16, 3), E.corrupt_message),
    "length 20": Refusal(unsealed(">i", 8, 20), E.corrupt_message),
    "length 5": Refusal(unsealed(">i", 8, 5), E.corrupt_message),
    "length -5": Refusal(unsealed(">i", 8, -5), E.corrupt_message),
    "length huge": Refusal(unsealed(">i", 8, 2**31 - 1), E.invalid_record, kafka=E.unknown_server_error),
    "base offset": Refusal(patched(GOOD, ">q", 0, 7), E.invalid_record),
    "base offset and crc": Refusal(unsealed(">q", 0, 7)[:-1] + b"x", E.invalid_record),
    "count too high": Refusal(patched(GOOD, ">i", 57, 4), E.invalid_record),
    "count 0": Refusal(patched(GOOD, ">i", 57, 0), E.invalid_record),
    "count -1": Refusal(patched(GOOD, ">i", 57, -1), E.invalid_record),
    "a record too few": Refusal(patched(patched(GOOD, ">i", 57, 4), ">i", 23, 3), E.invalid_record),
    "a record too many": Refusal(patched(patched(GOOD, ">i", 57, 2), ">i", 23, 1), E.invalid_record),
    "last offset delta": Refusal(patched(GOOD, ">i", 23, 5), E.invalid_record),
    "last offset delta -1": Refusal(patched(GOOD, ">i", 23, -1), E.invalid_record),
    "bytes left over": Refusal(patched(GOOD + b"\0\0", ">i", 8, len(GOOD) - 10), E.invalid_record),
    "record length": Refusal(patched(GOOD, ">b", HEADER_SIZE, 1), E.invalid_record),
    "control": Refusal(patched(GOOD, ">h", 21, 0x20), E.invalid_record),
    "no sequence": Refusal(patched(GOOD, ">q", 43, 1234), E.invalid_record),
    "codec 5": Refusal(patched(GOOD, ">h", 21, 5), E.unsupported_compression_type, kafka=E.unknown_server_error),
    "no gzip": Refusal(patched(GOOD, ">h", 21, 1), E.invalid_record, kafka=E.unknown_server_error),
    "no snappy": Refusal(patched(GOOD, ">h", 21, 2), E.invalid_record, kafka=E.unknown_server_error),
    "no lz4": Refusal(patched(GOOD, ">h", 21, 3), E.invalid_record, kafka=E.unknown_server_error),
    "no zstd": Refusal(patched(GOOD, ">h", 21, 4), E.invalid_record, kafka=E.unknown_server_error),
    "too large": Refusal(bytes(build_batch([SimpleRecord(NOW, b"k", b"v" * 1_100_000)])), E.message_too_large),
    "future": Refusal(bytes(build_batch(some(timestamp=NOW + 2 * HOUR))), E.invalid_timestamp, FUTURE),
    "past": Refusal(
        bytes(build_batch(some(timestamp=NOW - 2 * HOUR))),
        E.invalid_timestamp,
        {"message.timestamp.before.max.ms": HOUR},
    ),
    "timestamp overflow": Refusal(patched(GOOD, ">q", 27, 2**63 - 1), E.invalid_timestamp),
    "append time claimed": Refusal(
        patched(GOOD, ">h", 21, 8), E.invalid_timestamp, {"message.timestamp.type": "LogAppendTime"}
    ),
    "no key": Refusal(bytes(build_batch(some(key=None))), E.invalid_record, {"cleanup.policy": "compact"}),
    "no key and future": Refusal(
        bytes(build_batch([*some(1, key=None), *some(1, NOW + 2 * HOUR)])),
        E.invalid_timestamp,
        {"cleanup.policy": "compact"},
    ),
}  # fmt: skip


def policy_of(configs: dict[str, Any]) -> ValidationPolicy:
    return ValidationPolicy(
        compacted=configs.get("cleanup.policy") == "compact",
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=configs.get("message.timestamp.before.max.ms", 2**63 - 1),
        timestamp_after_max_ms=configs.get("message.timestamp.after.max.ms", HOUR),
    )


def append(records: Any, policy: ValidationPolicy | None = None, **options: Any) -> Any:
    policy = policy or ValidationPolicy()
    try:
        return validate(records, policy, now_ms=NOW, next_offset=100, leader_epoch=7, **options)
    except LongWork as long:
        return validate(long.do(), policy, now_ms=NOW, next_offset=100, leader_epoch=7, **options)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name: str) -> None:
    refusal = REFUSALS[name]
    buffer = bytearray(refusal.records)
    with pytest.raises(KafkaError) as raised:
        append(memoryview(buffer), policy_of(refusal.policy))
    assert raised.value.code is refusal.code
    assert buffer == refusal.records, "refused records are left alone"


def test_an_uncompressed_batch_is_changed_in_place_and_only_where_the_leader_writes() -> None:
    buffer = bytearray(GOOD)
    found = append(memoryview(buffer))
    assert bytes(found.buffer) == buffer
    assert (found.first_offset, found.last_offset, found.max_timestamp) == (100, 102, NOW + 2)
    assert (found.offset_of_max_timestamp, found.log_append_time_ms) == (102, -1)
    header = read_batch_header(buffer)
    assert found.headers == [header]
    assert (header.base_offset, header.leader_epoch) == (100, 7)
    assert crc_is_valid(buffer, 0, header)
    assert buffer[16:] == GOOD[16:] and buffer[8:12] == GOOD[8:12]


def test_bytes_that_cannot_be_changed_are_copied() -> None:
    assert append(GOOD).headers[0].base_offset == 100
    assert read_batch_header(GOOD).base_offset == 0


def test_a_torn_batch_behind_the_first_is_cut_off() -> None:
    assert bytes(append(GOOD + GOOD[:50]).buffer)[16:] == GOOD[16:]
    assert len(append(GOOD + b"xxxxx").buffer) == len(GOOD)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("target", Codec)
def test_a_topics_codec_replaces_the_producers(codec: Codec, target: Codec) -> None:
    records = some(300)
    batch = build_batch(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    found = append(batch, ValidationPolicy(codec=target))
    (header,) = found.headers
    assert header == read_batch_header(found.buffer)
    assert (header.codec, header.base_offset, header.last_offset) == (target, 100, 399)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert crc_is_valid(found.buffer, 0, header)
    assert [record[1:4] for record in iterate_records(found.buffer)] == [record[:3] for record in records]


def test_recompressed_batches_must_fit_too() -> None:
    records = [SimpleRecord(NOW, b"k", b"v" * 4000)]
    packed = build_batch(records, codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as raised:
        append(packed, ValidationPolicy(codec=Codec.NONE, max_message_bytes=4000))
    assert raised.value.code is E.message_too_large


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time(codec: Codec) -> None:
    found = append(build_batch(some(timestamp=5), codec=codec), ValidationPolicy(log_append_time=True))
    (header,) = found.headers
    assert header == read_batch_header(found.buffer)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW)
    assert crc_is_valid(found.buffer, 0, header)
    assert found.log_append_time_ms == found.max_timestamp == NOW
    assert {record.timestamp for record in iterate_records(found.buffer)} == {NOW}


def test_wrong_greatest_timestamps_and_claims_of_append_time_are_set_right() -> None:
    found = append(patched(GOOD, ">q", 35, 5))
    assert found.headers[0].max_timestamp == NOW + 2
    assert crc_is_valid(found.buffer, 0, found.headers[0])
    found = append(patched(GOOD, ">h", 21, 8))
    assert (found.headers[0].timestamp_type, found.headers[0].max_timestamp) == (0, NOW + 2)
    assert crc_is_valid(found.buffer, 0, found.headers[0])


@pytest.mark.parametrize("codec", Codec)
def test_misnumbered_records_are_renumbered(codec: Codec) -> None:
    found = append(misnumbered(codec))
    assert found.headers[0].codec == codec
    assert [record.offset for record in iterate_records(found.buffer)] == [100, 101, 102]


def test_errors_name_the_records_at_fault() -> None:
    records = [*some(2), *some(1, NOW + 2 * HOUR), *some(1)]
    with pytest.raises(InvalidRecords) as raised:
        append(build_batch(records))
    assert [error.batch_index for error in raised.value.record_errors] == [2]
    with pytest.raises(InvalidRecords) as raised:
        append(build_batch(some(500, key=None)), ValidationPolicy(compacted=True))
    assert [error.batch_index for error in raised.value.record_errors] == list(range(100))


def test_records_without_a_timestamp_are_of_any_time() -> None:
    found = append(build_batch([SimpleRecord(-1, b"k", b"v")]), ValidationPolicy(timestamp_before_max_ms=HOUR))
    assert found.max_timestamp == -1


def test_coordinators_may_write_control_records_and_several_batches() -> None:
    control = build_batch(some(1), control=True, producer_id=3, producer_epoch=0, transactional=True)
    found = append(control + GOOD, ValidationPolicy(codec=Codec.ZSTD), origin=COORDINATOR)
    assert [(header.base_offset, header.is_control, header.codec) for header in found.headers] == [
        (100, True, Codec.NONE),
        (101, False, Codec.ZSTD),
    ]
    assert (found.first_offset, found.last_offset) == (100, 103)


def test_replicated_batches_are_taken_as_they_are() -> None:
    first, second = build_batch(some(), base_offset=5, leader_epoch=2), build_batch(some(1), base_offset=9)
    found = append(bytes(first + second + GOOD[:20]), origin=REPLICATION)
    assert bytes(found.buffer) == first + second
    assert (found.first_offset, found.last_offset) == (5, 9)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (NOW + 2, 7)
    for wrong in (first + first, second + first, first[:-1] + b"x"):
        with pytest.raises(KafkaError) as raised:
            append(bytes(wrong), origin=REPLICATION)
        assert raised.value.code is E.corrupt_message


def test_a_bomb_is_refused_without_being_unpacked() -> None:
    header = read_batch_header(GOOD)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        bomb = compress(codec, bytes(110 * 1024 * 1024))
        with pytest.raises(KafkaError) as raised:
            append(assemble(header._replace(attributes=codec), bomb), ValidationPolicy(max_message_bytes=2**31))
        assert raised.value.code is E.invalid_record


def test_zstd_needs_produce_version_7() -> None:
    batch = build_batch(some(), codec=Codec.ZSTD)
    check_produce_version(batch, 7)
    check_produce_version(GOOD, 3)
    with pytest.raises(KafkaError) as raised:
        check_produce_version(batch, 6)
    assert raised.value.code is E.unsupported_compression_type


def test_scan_results_do_not_depend_on_the_buffer() -> None:
    kinds = (bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)))
    assert len({_records.scan(kind(GOOD), HEADER_SIZE, len(GOOD), 3, NOW) for kind in kinds}) == 1


def test_apache_kafka_refuses_the_same(oracle: str) -> None:
    host, _, port = oracle.rpartition(":")

    def call(frame: bytes | bytearray) -> bytes:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)

    answers, expected = {}, {}
    for name, refusal in REFUSALS.items():
        topic = f"validation-{uuid.uuid4()}"
        configs = [{"name": key, "value": str(value)} for key, value in refusal.policy.items()]
        values = {
            "topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": configs}],
            "timeout": 9000,
        }
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            decode_response(ApiKey.CREATE_TOPICS, 7, call(encode_request(ApiKey.CREATE_TOPICS, 7, 1, None, values)))
            topic_data = {"name": topic, "partition_data": [{"index": 0, "records": refusal.records}]}
            request = {"transactional_id": None, "acks": -1, "timeout": 9000, "topic_data": [topic_data]}
            code = E.not_leader_or_follower.value
            while code in (E.not_leader_or_follower.value, E.unknown_topic_or_partition.value):
                frame = encode_request(ApiKey.PRODUCE, 9, 2, None, request)
                _, answer = decode_response(ApiKey.PRODUCE, 9, call(frame))
                code = answer.responses[0].partition_responses[0].error_code
            delete = {"topic_names": [topic], "timeout": 9000}
            call(encode_request(ApiKey.DELETE_TOPICS, 5, 3, None, delete))
        answers[name] = ErrorCode(code)
        expected[name] = refusal.kafka or refusal.code
    assert answers == expected
