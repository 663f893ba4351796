"""A controller of Ottla and one of Apache Kafka are asked the same over the wire, and answer the same."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.metadata import features
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.principal import encode_principal
from tests.cluster.admin import ask
from tests.cluster.processes import CONTROLLER_ID, identity, kafka_controller, ottla_controller

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")


class Controller:
    """One of the two, in the epoch that it leads since its start."""

    def __init__(self, address: str, data: Path) -> None:
        self.address = address
        self.cluster_id = str(identity(data).cluster_id)
        self.epoch = self.row(self.fetch(epoch=0))["current_leader"]["leader_epoch"]

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        return ask(self.address, key, version, values)

    def fetch(self, *, epoch: int, offset: int = 0, last_epoch: int = 0, **more: Any) -> Any:
        asked = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "partition_max_bytes": 1 << 20,
        }
        values = {
            "cluster_id": self.cluster_id,
            "replica_state": {"replica_id": 9},
            "max_wait": 0,
            "min_bytes": 0,
            "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [asked]}],
            **more,
        }
        return self.ask(ApiKey.FETCH, 17, values)

    @staticmethod
    def row(answer: Any) -> Any:
        return answer["responses"][0]["partitions"][0]

    def voting(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Vote, BeginQuorumEpoch or EndQuorumEpoch."""
        more = {name: fields.pop(name) for name in ("cluster_id", "voter_id") if name in fields}
        partition = {"partition_index": 0, **fields}
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
        return self.ask(
            key, version, {"cluster_id": self.cluster_id, "voter_id": CONTROLLER_ID, "topics": topics, **more}
        )

    def registration(self, **fields: Any) -> dict[str, Any]:
        return {
            "broker_id": 7,
            "cluster_id": self.cluster_id,
            "incarnation_id": UUID(int=99),
            "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 1, "security_protocol": 0}],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in features.SUPPORTED.items()
            ],
            "rack": None,
            "is_migrating_zk_broker": False,
            "log_dirs": [UUID(int=0xABC)],
            "previous_broker_epoch": -1,
            **fields,
        }

    def envelope(self, inner: bytes, principal: bytes | None = None, host: bytes = b"\x7f\0\0\1") -> Any:
        principal = encode_principal("User:a") if principal is None else principal
        values = {"request_data": inner, "request_principal": principal, "client_host_address": host}
        return self.ask(ApiKey.ENVELOPE, 0, values)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Controller, Controller]]:
    directory = tmp_path_factory.mktemp("controllers")
    peer = kafka_controller(directory / "kafka")
    try:
        peer.start()
        with ottla_controller(directory / "ottla") as node:
            yield Controller(node.bootstrap, node.data), Controller(peer.controllers, peer.data)
    finally:
        peer.kill()


def test_what_is_served(both: tuple[Controller, Controller]) -> None:
    """No version that Kafka's controller does not have; what is missing is said in docs/reference/compatibility.md."""
    ours, kafkas = (
        {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
        for answer in (each.ask(ApiKey.API_VERSIONS, 3, SOFTWARE) for each in both)
    )
    assert len(ours) >= 23
    assert {key: kafkas.get(key) for key in ours} == ours
    missing = {ApiKey(key).name for key in kafkas.keys() - ours.keys() if key in ApiKey._value2member_map_}
    assert missing == set()


SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}

FETCHES: list[dict[str, Any]] = [
    {},
    {"epoch": 0},
    {"ahead": 3},
    {"offset": 3, "last_epoch": 0},
    {"offset": -1},
    {"last_epoch": 7},
    {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"},
    {"cluster_id": None},
    {"topics": []},
    {
        "topics": [
            {"topic_id": UUID(int=77), "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}
        ]
    },
]


@pytest.mark.parametrize("asked", FETCHES, ids=str)
def test_fetch(both: tuple[Controller, Controller], asked: Mapping[str, Any]) -> None:
    found = []
    for each in both:
        more = dict(asked)
        epoch = more.pop("epoch", each.epoch) + more.pop("ahead", 0)
        answer = each.fetch(epoch=epoch, **more)
        rows = [row for topic in answer["responses"] for row in topic["partitions"]]
        found.append(
            (
                answer["error_code"],
                [(row["error_code"], row["diverging_epoch"], row["snapshot_id"], bool(row["records"])) for row in rows],
                [row["current_leader"]["leader_id"] for row in rows],
                [node["node_id"] for node in answer["node_endpoints"]],
            )
        )
    assert found[0] == found[1]


def test_a_fetch_waits_no_longer_than_it_may(both: tuple[Controller, Controller]) -> None:
    for each in both:
        first = each.row(each.fetch(epoch=each.epoch))
        end = first["high_watermark"]
        row = each.row(each.fetch(epoch=each.epoch, offset=end, last_epoch=each.epoch, max_wait=50))
        assert (row["error_code"], row["records"] or b"", row["high_watermark"] >= end) == (0, b"", True) or row[
            "records"
        ]


VOTES: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.VOTE, 1, {"replica_id": 7, "replica_epoch": 0, "last_offset_epoch": 0, "last_offset": 0}),
    (ApiKey.VOTE, 1, {"replica_id": 7, "replica_epoch": "now", "last_offset_epoch": 0, "last_offset": 0}),
    (ApiKey.VOTE, 1, {"replica_id": 7, "replica_epoch": "now", "last_offset_epoch": 0, "last_offset": -1}),
    (ApiKey.VOTE, 1, {"replica_id": 7, "replica_epoch": 1, "last_offset_epoch": 5, "last_offset": 1}),
    (ApiKey.VOTE, 1, {"replica_id": 7, "replica_epoch": 1, "cluster_id": "A" * 22}),
    (ApiKey.VOTE, 1, {"partition_index": 3, "replica_id": 7, "replica_epoch": 1}),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, {"leader_id": 7, "leader_epoch": 0}),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, {"leader_id": 7, "leader_epoch": 0, "cluster_id": "A" * 22}),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, {"partition_index": 3, "leader_id": 7, "leader_epoch": 0}),
    (ApiKey.END_QUORUM_EPOCH, 1, {"leader_id": 7, "leader_epoch": 0, "preferred_candidates": []}),
]


@pytest.mark.parametrize(("key", "version", "fields"), VOTES, ids=str)
def test_votes_and_claims_that_change_nothing(
    both: tuple[Controller, Controller], key: ApiKey, version: int, fields: Mapping[str, Any]
) -> None:
    found = []
    for each in both:
        now = {name: each.epoch if value == "now" else value for name, value in fields.items()}
        answer = each.voting(key, version, **now)
        rows = [
            {**row, "leader_epoch": row["leader_epoch"] - each.epoch}
            for topic in answer["topics"]
            for row in topic["partitions"]
        ]
        found.append((answer["error_code"], rows))
    assert found[0] == found[1]


def test_a_candidate_of_a_newer_epoch_does_not_interrupt_a_quorum_of_one(both: tuple[Controller, Controller]) -> None:
    """Kafka's would go to that epoch and be without a leader until it is elected again."""
    ours, _ = both
    later = ours.epoch + 10
    vote = {"replica_id": 7, "replica_epoch": later, "last_offset_epoch": ours.epoch, "last_offset": 1 << 40}
    row = ours.voting(ApiKey.VOTE, 1, **vote)["topics"][0]["partitions"][0]
    assert (row["vote_granted"], row["leader_id"], row["leader_epoch"]) == (False, CONTROLLER_ID, ours.epoch)
    for key in (ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH):
        row = ours.voting(key, 1, leader_id=7, leader_epoch=later)["topics"][0]["partitions"][0]
        assert (row["error_code"], row["leader_id"]) == (ErrorCode.inconsistent_voter_set, CONTROLLER_ID)
    assert ours.row(ours.fetch(epoch=ours.epoch))["error_code"] == 0


ASKED: list[tuple[ApiKey, int, dict[str, Any]]] = [
    (ApiKey.BROKER_HEARTBEAT, 1, {"broker_id": 5, "broker_epoch": 1, "current_metadata_offset": 0}),
    (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 5}),
    (ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": 5}),
    (ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": CONTROLLER_ID}),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 5, "broker_epoch": 1}),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, {"broker_id": 5, "broker_epoch": 1, "directories": []}),
    (ApiKey.ALTER_PARTITION, 3, {"broker_id": 5, "broker_epoch": 1, "topics": []}),
    (ApiKey.DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
    (ApiKey.DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": True, "endpoint_type": 3}),
    (ApiKey.DESCRIBE_QUORUM, 2, {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]}),
    (
        ApiKey.CREATE_TOPICS, 7,
        {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}],
         "timeout": 1000, "validate_only": False},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "version", "values"), ASKED, ids=str)
def test_other_requests(
    both: tuple[Controller, Controller], key: ApiKey, version: int, values: Mapping[str, Any]
) -> None:
    found = [each.ask(key, version, values) for each in both]
    assert found[0] == found[1]


def test_registrations(both: tuple[Controller, Controller]) -> None:
    """One after the other: refused ones, one that is taken, and what its broker says then."""
    found: list[list[Any]] = []
    for each in both:
        said: list[Any] = []
        for fields in (
            {"cluster_id": "A" * 22},
            {"features": []},
            {"log_dirs": [UUID(int=0xABC), UUID(int=0xABC)]},
            {"log_dirs": [UUID(int=1)]},
            {},
            {"incarnation_id": UUID(int=100)},
        ):
            answer = each.ask(ApiKey.BROKER_REGISTRATION, 4, each.registration(**fields))
            said.append(answer["error_code"])
            if not answer["error_code"]:
                epoch = answer["broker_epoch"]
        beat = {"broker_id": 7, "want_fence": True, "want_shut_down": False, "broker_epoch": epoch}
        for fields in (
            {"broker_epoch": epoch - 1, "current_metadata_offset": 0},
            {"current_metadata_offset": 0},
            {"current_metadata_offset": 1 << 40},
            {"current_metadata_offset": 0, "want_fence": False},
            {"current_metadata_offset": 1 << 40, "want_fence": False},
            {"current_metadata_offset": 1 << 40, "want_fence": False},
            {"current_metadata_offset": 1 << 40},
        ):
            answer = each.ask(ApiKey.BROKER_HEARTBEAT, 1, {**beat, **fields})
            said.append([answer[name] for name in ("error_code", "is_caught_up", "is_fenced", "should_shut_down")])
        block = each.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 7, "broker_epoch": epoch})
        said.append((block["error_code"], block["producer_id_len"]))
        said.append(each.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 7})["error_code"])
        found.append(said)
    assert found[0] == found[1]


def test_envelopes(both: tuple[Controller, Controller]) -> None:
    """The frame inside is answered with a frame; what cannot be forwarded is refused."""
    topic = {"name": "t", "num_partitions": -7, "replication_factor": 1, "assignments": (), "configs": ()}
    create = {"topics": [topic], "timeout": 1000, "validate_only": True}
    inner = messages.encode_request(ApiKey.CREATE_TOPICS, 7, 123, "client", create)
    beat = {"broker_id": 5, "broker_epoch": 1, "current_metadata_offset": 0}
    own = messages.encode_request(ApiKey.BROKER_HEARTBEAT, 1, 1, None, beat)
    found = []
    for each in both:
        answer = each.envelope(inner)
        assert answer["error_code"] == 0
        assert struct.unpack(">i", answer["response_data"][:4]) == (123,)
        decoded = messages.plain(messages.decode_response(ApiKey.CREATE_TOPICS, 7, answer["response_data"])[1])
        row = decoded["topics"][0]
        found.append((row["name"], row["error_code"], row["error_message"]))
    assert found[0] == found[1]
    ours, _ = both  # Kafka's closes the connection of a broker that forwards what it may not
    assert ours.envelope(own)["error_code"] == ErrorCode.invalid_request
    assert ours.envelope(b"\0")["error_code"] == ErrorCode.invalid_request
    assert ours.envelope(inner, principal=b"\0\0")["error_code"] == ErrorCode.invalid_request
    assert ours.envelope(inner, host=b"\1")["error_code"] == ErrorCode.invalid_request
    assert ours.envelope(inner)["error_code"] == 0
