"""A directory with committed, aborted and open transactions goes from Kafka to Ottla and back, as it is: what is open
ends at the other broker, and offsets that it commits count then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.partitioning import partition_for
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from tests.conformance.drop_in.drop_in import SETTINGS, Place, fetch, log
from tests.conformance.operations.operations import Client

TIME = 1_700_000_000_000
OFFSETS_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"] or 0)


def produce(client: Client, producer_id: int, sequence: int, epoch: int = 0, count: int = 1) -> None:
    records = [SimpleRecord(TIME + each, b"k%d" % each, b"v" * 100_000) for each in range(count)]
    data = build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    row = {"index": 0, "records": bytes(data)}
    request = {
        "transactional_id": f"x{producer_id}",
        "acks": -1,
        "timeout": 9000,
        "topic_data": [{"name": "t", "partition_data": [row]}],
    }
    answer = client.ask(ApiKey.PRODUCE, 11, request)["responses"][0]["partition_responses"][0]
    assert answer["error_code"] == 0, answer


def commit(client: Client, producer_id: int, offset: int, epoch: int = 0) -> None:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    request = {
        "transactional_id": f"x{producer_id}",
        "group_id": "g",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [row]}],
    }
    answer = client.ask(ApiKey.TXN_OFFSET_COMMIT, 4, request)["topics"][0]["partitions"][0]
    assert answer["error_code"] == 0, answer


def end(client: Client, producer_id: int, epoch: int, *, committed: bool, offsets: bool = False) -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    if offsets:
        number = partition_for("g", OFFSETS_PARTITIONS)
        topics.append({"name": "__consumer_offsets", "partition_indexes": [number]})
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": committed,
        "topics": topics,
        "coordinator_epoch": 0,
        "transaction_version": 2,
    }
    found = client.ask(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})["markers"][0]["topics"]
    assert not any(row["error_code"] for topic in found for row in topic["partitions"]), found


def offset_of(client: Client, stable: bool) -> Any:
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}], "require_stable": stable}
    (row,) = client.ask(ApiKey.OFFSET_FETCH, 7, asked)["topics"][0]["partitions"]
    return ErrorCode(row["error_code"]).name if row["error_code"] else row["committed_offset"]


def seen(client: Client) -> dict[str, Any]:
    topics = [{"name": "t", "partition_indexes": [0]}]
    producers = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})["topics"][0]["partitions"][0]
    names = ("producer_id", "producer_epoch", "last_sequence", "coordinator_epoch", "current_txn_start_offset")
    return {
        "log": log(client, "t", 0),
        "producers": sorted(tuple(each[name] for name in names) for each in producers["active_producers"]),
        "offsets": (offset_of(client, stable=False), offset_of(client, stable=True)),
        "aborted": sorted(
            (each["producer_id"], each["first_offset"]) for each in fetch(client, "t", 0)["aborted_transactions"]
        ),
    }


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_round_trip(tmp_path: Path, kill: bool) -> None:
    place = Place(tmp_path, {"transaction.partition.verification.enable": "false", "log.segment.bytes": str(1 << 20)})
    with place.running("kafka", kill=kill) as client:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 9000})
        client.await_leader("t")
        for number in range(6):  # over several segments
            produce(client, 100, 0, epoch=number)
            produce(client, 101, 0, epoch=number, count=3)
            commit(client, 100, number, epoch=number)
            end(client, 100, number + 1, committed=True, offsets=True)
            end(client, 101, number + 1, committed=False)
        produce(client, 102, 0)
        commit(client, 102, 77)
        produce(client, 103, 0)
        before = seen(client)
    assert before["offsets"] == (5, "unstable_offset_commit")
    assert len(before["log"]["aborted"]) == 6
    with place.running("ottla", kill=kill) as client:
        assert seen(client) == before
        produce(client, 102, 1)
        end(client, 102, 1, committed=True, offsets=True)
        end(client, 103, 1, committed=False)
        assert offset_of(client, stable=True) == 77
        produce(client, 100, 0, epoch=6)
        commit(client, 100, 99, epoch=6)
        between = seen(client)
    assert between["log"]["stable"] > before["log"]["stable"]
    assert between["log"]["stable"] < between["log"]["end"]
    with place.running("kafka", kill=kill) as client:
        assert seen(client) == between
        end(client, 100, 7, committed=True, offsets=True)
        after = seen(client)
    assert after["offsets"] == (99, 99)
    with place.running("ottla") as client:
        assert seen(client) == after
