"""The messages that the tables of the codec measure: what heartbeats, rebalances and a full cluster send, and the few
that have a codec of their own beside the one by schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from ottla.protocol import fetch, fetch_plain, fetch_responses, messages, share_fetch
from ottla.protocol.internal.codec import decode, encode
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas import records as metadata_records
from ottla.server.api import load

Values = dict[str, Any]

MEMBERS = 1000
SNAPSHOT_BYTES = 1 << 16
TOPICS, PARTITIONS = 100, 100
REPLICAS = (1, 2, 3)
RECORDS = bytes(100)
"""So few that their copy, which is the engine's alone, costs next to nothing."""
TOPIC_ID = UUID(int=9)


@dataclass(frozen=True)
class Measured:
    """A message in one version."""

    name: str
    java_class: str
    """One of Kafka's generated classes."""
    version: int
    key: ApiKey | None
    """None for a record of the metadata log."""
    is_request: bool
    values: Callable[[], Any]
    """The values as a handler gives them; a record as it is."""

    def encoder(self) -> Callable[[], bytes]:
        """Encodes the message as Ottla does, from the values to the frame."""
        values, version, key = self.values(), self.version, self.key
        if key is None:
            return lambda: encode(values, version)
        if self.is_request:
            return lambda: messages.encode_request(key, version, 1, "client", values)
        return lambda: messages.encode_response(key, version, 1, values)

    def decoder(self) -> Callable[[], Any]:
        """Decodes the message as Ottla does, from a frame."""
        frame, version, key = bytearray(self.encoder()()), self.version, self.key
        if key is None:
            return lambda: decode(metadata_records.PartitionChangeRecord, version, frame)
        if self.is_request:
            start = len(frame) - len(self.body())
            return lambda: messages.decode_request(key, version, frame, start)
        return lambda: messages.decode_response(key, version, frame)

    def body(self) -> bytes:
        """The encoded message without the header of a request or response."""
        frame = self.encoder()()
        if self.key is None:
            return frame
        if self.is_request:
            return frame[len(messages.request_header(self.key, self.version, 1, "client")) :]
        return frame[len(messages.response_header(self.key, self.version, 1)) :]


def _join_group() -> Values:
    members = [
        {"member_id": f"consumer-{n}-{UUID(int=n)}", "group_instance_id": None, "metadata": b"subscription" * 4}
        for n in range(MEMBERS)
    ]
    return {
        "throttle_time": 0,
        "error_code": 0,
        "generation_id": 7,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": members[0]["member_id"],
        "skip_assignment": False,
        "member_id": members[0]["member_id"],
        "members": members,
    }


def _sync_group() -> Values:
    rows = [{"member_id": f"consumer-{n}-{UUID(int=n)}", "assignment": b"partitions" * 5} for n in range(MEMBERS)]
    return {
        "group_id": "group",
        "generation_id": 7,
        "member_id": rows[0]["member_id"],
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": rows,
    }


def _metadata() -> Values:
    partitions = [
        {
            "error_code": 0,
            "partition_index": n,
            "leader_id": 1 + n % 3,
            "leader_epoch": 5,
            "replica_nodes": REPLICAS,
            "isr_nodes": REPLICAS,
            "offline_replicas": (),
        }
        for n in range(PARTITIONS)
    ]
    topics = [
        {
            "error_code": 0,
            "name": f"topic-{n}",
            "topic_id": UUID(int=n + 1),
            "is_internal": False,
            "partitions": partitions,
            "topic_authorized_operations": -(2**31),
        }
        for n in range(TOPICS)
    ]
    brokers = [{"node_id": n, "host": f"broker-{n}.example", "port": 9092, "rack": f"rack-{n}"} for n in REPLICAS]
    return {"brokers": brokers, "cluster_id": "a cluster's id in base64", "controller_id": 1, "topics": topics}


def _commits(rows: int) -> list[Values]:
    partitions = [
        {
            "partition_index": n,
            "committed_offset": 10_000_000 + n,
            "committed_leader_epoch": 4,
            "committed_metadata": "",
        }
        for n in range(rows // 10)
    ]
    return [{"name": f"topic-{n}", "partitions": partitions} for n in range(10)]


def _member(group_id: str = "group") -> Values:
    return {
        "group_id": group_id,
        "generation_id": 7,
        "member_id": f"consumer-1-{UUID(int=1)}",
        "group_instance_id": None,
    }


def _offset_commit() -> Values:
    return {**_member(), "generation_id_or_member_epoch": 7, "topics": _commits(100)}


def _txn_offset_commit() -> Values:
    ids = {"transactional_id": "transactional-1", "producer_id": 4711, "producer_epoch": 3}
    return {**_member(), **ids, "topics": _commits(10)}


def _fetch_snapshot() -> Values:
    row = {
        "index": 0,
        "error_code": 0,
        "snapshot_id": {"end_offset": 100_000, "epoch": 5},
        "current_leader": {"leader_id": 1, "leader_epoch": 5},
        "size": 1 << 20,
        "position": 0,
        "unaligned_records": bytes(SNAPSHOT_BYTES),
    }
    endpoint = {"node_id": 1, "host": "controller-1.example", "port": 9093}
    return {"topics": [{"name": "__cluster_metadata", "partitions": [row]}], "node_endpoints": [endpoint]}


def _alter_partition() -> Values:
    isr = [{"broker_id": n, "broker_epoch": 100 + n} for n in REPLICAS]
    rows = [
        {
            "partition_index": n,
            "leader_epoch": 5,
            "new_isr_with_epochs": isr,
            "leader_recovery_state": 0,
            "partition_epoch": 9,
        }
        for n in range(100)
    ]
    topics = [{"topic_id": UUID(int=n + 1), "partitions": rows} for n in range(10)]
    return {"broker_id": 1, "broker_epoch": 101, "topics": topics}


def _consumer_heartbeat() -> Values:
    owned = [{"topic_id": UUID(int=n + 1), "partitions": [*range(5)]} for n in range(2)]
    return {
        "group_id": "group",
        "member_id": str(UUID(int=1)),
        "member_epoch": 7,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 300_000,
        "subscribed_topic_names": ["topic-1", "topic-2"],
        "server_assignor": "uniform",
        "subscribed_topic_regex": None,
        "topic_partitions": owned,
    }


def _partition_change() -> Any:
    return metadata_records.PartitionChangeRecord(partition_id=7, topic_id=UUID(int=9), isr=(1, 2), leader=1)


def _request(name: str, api: str, key: ApiKey, version: int, values: Callable[[], Values]) -> Measured:
    return Measured(name, f"org.apache.kafka.common.message.{api}RequestData", version, key, True, values)


def _response(name: str, api: str, key: ApiKey, version: int, values: Callable[[], Values]) -> Measured:
    return Measured(name, f"org.apache.kafka.common.message.{api}ResponseData", version, key, False, values)


MESSAGES = (
    _request("Heartbeat", "Heartbeat", ApiKey.HEARTBEAT, 4, _member),
    _response("JoinGroup answer, 1,000 members", "JoinGroup", ApiKey.JOIN_GROUP, 9, _join_group),
    _request("SyncGroup, 1,000 assignments", "SyncGroup", ApiKey.SYNC_GROUP, 5, _sync_group),
    _response("Metadata answer, 10,000 partitions", "Metadata", ApiKey.METADATA, 13, _metadata),
    _request("OffsetCommit, 100 partitions", "OffsetCommit", ApiKey.OFFSET_COMMIT, 9, _offset_commit),
    _response("FetchSnapshot answer, 64 KiB", "FetchSnapshot", ApiKey.FETCH_SNAPSHOT, 1, _fetch_snapshot),
    _request("AlterPartition, 1,000 partitions", "AlterPartition", ApiKey.ALTER_PARTITION, 3, _alter_partition),
    _request(
        "ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _consumer_heartbeat
    ),
    _request("TxnOffsetCommit, 10 partitions", "TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, 5, _txn_offset_commit),
    Measured(
        "PartitionChangeRecord", "org.apache.kafka.common.metadata.PartitionChangeRecord", 2, None, False,
        _partition_change,
    ),
)  # fmt: skip
BY_NAME: Mapping[str, Measured] = {each.name: each for each in MESSAGES}


@dataclass(frozen=True)
class ByHand:
    """A message that has a codec of its own, in the newest version."""

    name: str
    action: str
    """`decode` or `encode`."""
    by_hand: Callable[[], Callable[[], Any]]
    """Makes the operation as the node does it."""
    by_schema: Callable[[], Callable[[], Any]]
    """Makes the same operation by the engine that other messages go by (`protocol/reader.py`, `writer.py`)."""


def _decoder(by_schema: bool, key: ApiKey, version: int, values: Values) -> Callable[[], Any]:
    header = messages.request_header(key, version, 1, "client")
    frame = memoryview(bytearray(messages.encode_request(key, version, 1, "client", values)))
    if by_schema:
        return lambda: messages.decode_request(key, version, frame, len(header))
    decode = load(key).decode
    return lambda: decode(version, frame, len(header))


def _encoder(key: ApiKey, version: int, values: Values) -> Callable[[], Any]:
    return lambda: messages.encode_response(key, version, 1, values)


def _fetch(partitions: int) -> Values:
    rows = [
        {"partition": n, "current_leader_epoch": 5, "fetch_offset": 10_000_000 + n, "partition_max_bytes": 1 << 20}
        for n in range(partitions)
    ]
    return {
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "topics": [{"topic_id": TOPIC_ID, "partitions": rows}],
    }


def _fetched(partitions: int) -> Values:
    rows = [
        {
            "partition_index": n,
            "error_code": 0,
            "high_watermark": 10_000_001,
            "last_stable_offset": 10_000_001,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": RECORDS,
        }
        for n in range(partitions)
    ]
    return {"session_id": 7, "responses": [{"topic_id": TOPIC_ID, "partitions": rows}]}


def _fetched_by_hand(partitions: int) -> Callable[[], Any]:
    rows = []
    for n in range(partitions):
        row = fetch_plain.Row()
        row.high_watermark = row.last_stable_offset = 10_000_001
        row.log_start_offset, row.records = 0, RECORDS
        rows.append(((TOPIC_ID, n), row))
    return lambda: fetch_plain.encode_plain(fetch.VERSION_MAX, 1, 7, rows)


def _fetched_of_any_kind() -> Callable[[], Any]:
    """Encodes a Fetch answer by the codec that answers take which are not plain."""
    rows = [
        fetch.FetchedPartition(n, 0, 10_000_001, 10_000_001, 0, aborted_transactions=None, records=RECORDS)
        for n in range(20)
    ]
    response = fetch.FetchResponse([fetch.FetchedTopic(None, TOPIC_ID, rows)], session_id=7)
    return lambda: fetch_responses.encode_response(fetch.VERSION_MAX, 1, response)


ACQUIRED = tuple((n * 50, n * 50 + 49, 1) for n in range(10))


def _shared_by_hand() -> Callable[[], Any]:
    topics = {TOPIC_ID: ((0, RECORDS, ACQUIRED),)}
    return lambda: share_fetch.encode_response(1, 30_000, topics)


def _shared() -> Values:
    acquired = [dict(zip(("first_offset", "last_offset", "delivery_count"), each, strict=True)) for each in ACQUIRED]
    row = {"partition_index": 0, "records": RECORDS, "acquired_records": acquired}
    return {"acquisition_lock_timeout": 30_000, "responses": [{"topic_id": TOPIC_ID, "partitions": [row]}]}


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number} partitions"


FETCH_VERSION, SHARE_FETCH_VERSION = fetch.VERSION_MAX, 2
HAND_WRITTEN = (
    *(
        ByHand(
            f"Fetch, {_partitions(number)}", "decode",
            partial(_decoder, False, ApiKey.FETCH, FETCH_VERSION, _fetch(number)),
            partial(_decoder, True, ApiKey.FETCH, FETCH_VERSION, _fetch(number)),
        )
        for number in (1, 20)
    ),
    *(
        ByHand(
            f"Fetch answer, {_partitions(number)}", "encode", partial(_fetched_by_hand, number),
            partial(_encoder, ApiKey.FETCH, FETCH_VERSION, _fetched(number)),
        )
        for number in (1, 20)
    ),
    ByHand(
        "Fetch answer, 20 partitions, not plain", "encode", _fetched_of_any_kind,
        partial(_encoder, ApiKey.FETCH, FETCH_VERSION, _fetched(20)),
    ),
    ByHand(
        "ShareFetch answer, 500 records in 10 batches", "encode", _shared_by_hand,
        partial(_encoder, ApiKey.SHARE_FETCH, SHARE_FETCH_VERSION, _shared()),
    ),
)  # fmt: skip
BY_HAND: Mapping[str, ByHand] = {each.name: each for each in HAND_WRITTEN}
