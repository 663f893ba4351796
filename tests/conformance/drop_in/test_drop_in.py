"""A directory goes from one broker to the other and back: everything is there, clients go on.

Both sides have the same settings file, several log directories, and take many snapshots of their metadata.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages import ApiKey
from tests.conformance.drop_in.drop_in import Place, seen
from tests.conformance.drop_in.drop_in_work import PARTITIONS, TOPIC, Numbers, Reader, Resender, one_row
from tests.conformance.operations.operations import Client, eventually

GROUP, CLIENT_METRICS = 32, 16
ROUNDS = [("ottla", "kafka", "ottla"), pytest.param(("kafka", "ottla", "kafka", "ottla"), marks=pytest.mark.matrix)]
"""The first one makes the directory."""
OUT_OF_ORDER = "out_of_order_sequence_number"
NUMBERS = 300
"""Numbers sent in each stage."""


@pytest.mark.parametrize("brokers", ROUNDS, ids="-".join)
def test_round_trip(tmp_path: Path, brokers: tuple[str, ...]) -> None:
    place = Place(
        tmp_path / "place",
        {
            "log.dirs": f"{tmp_path}/place/data,{tmp_path}/place/more",
            "log.cleaner.backoff.ms": "50",
        },
        formatted=brokers[0] == "kafka",
    )
    numbers, stays = Numbers(place.bootstrap), Reader(place.bootstrap, "stays")
    comes = Reader(place.bootstrap, "comes-and-goes")
    before: dict[str, Any] = {}
    resender: Resender | None = None
    for stage, broker in enumerate(brokers):
        snapshots = place.snapshots()
        with place.running(broker) as client:
            if resender is None:
                _fill(client)
                resender = Resender(client, "resent")
            else:
                # Kafka's snapshots of producers keep one batch each; Ottla reads the end of the log again.
                resender.send_again(client, 5 if broker == "ottla" else 1)
                assert resender.send_older_again(client) == ("none" if broker == "ottla" else OUT_OF_ORDER)
                _compare(before, seen_at_rest(client))
            _change(client, stage)
            numbers.send(NUMBERS)
            numbers.flush()  # with those that were handed over while no broker ran
            resender.send(client, 6)
            for reader in (stays, comes):
                reader.read_until(numbers.sent)
            comes.leave()
            resender.send_again(client, 5)
            before = seen_at_rest(client)
            _await_snapshot(place, snapshots)
            for partition in range(PARTITIONS):
                assert one_row(client, TOPIC, partition)[1:] == (0, numbers.sent // PARTITIONS)
            assert one_row(client, "resent") == (resender.producer_id, 0, 2 * len(resender.answers))
        numbers.send(NUMBERS)
    stays.leave()
    for reader in (stays, comes):
        assert all(read == list(range(at, at + 3 * len(read), 3)) for at, read in reader.read.items())


def seen_at_rest(client: Client) -> dict[str, Any]:
    """What must be the same after a change. The producer of numbers writes at once; its topic is looked at last."""
    found = seen(client)
    for part in ("logs", "producers"):
        found[part] = {where: each for where, each in found[part].items() if where[0] != TOPIC}
    return found


def _compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    for part, expected in before.items():
        assert after[part] == expected, part


def _make(client: Client, topic: str, partitions: int = 1, **settings: Any) -> None:
    """Create a topic and wait until it has leaders."""
    assert client.create(topic, partitions, **settings) == "none"
    for number in range(partitions):
        eventually(functools.partial(_has_leader, client, topic, number))


def _has_leader(client: Client, topic: str, partition: int) -> bool:
    return bool(client.fetch(topic, partition=partition)["error"] == "none")


def _await_snapshot(place: Place, before: list[str]) -> None:
    eventually(lambda: place.snapshots()[-1:] != before[-1:], "no snapshot of the metadata")


def _fill(client: Client) -> None:
    """Write some of everything that a directory can hold for clients."""
    _make(client, TOPIC, PARTITIONS, compression_type="zstd")
    _make(client, "resent", internal_segment_bytes=600)
    _make(client, "codecs", internal_segment_bytes=2000, retention_ms=-1, max_message_bytes=99999)
    _make(client, "empty", 4, message_timestamp_type="LogAppendTime")
    _make(client, "gone", 2)
    for codec in range(5):
        for number in range(20):
            records = [b"%d-%d-%d" % (codec, number, each) * 9 for each in range(3)]
            assert client.produce("codecs", *records, codec=codec)["error"] == "none"
    assert client.delete_records("codecs", 64)["error_code"] == 0
    _fill_compacted(client)
    assert client.alter("codecs", min_insync_replicas=1, segment_ms=123456789) == "none"
    assert client.alter("", kind=4, message_max_bytes=1_500_000, log_retention_ms=86_400_000) == "none"
    assert client.alter("1", kind=4, log_flush_interval_messages=77) == "none"
    assert client.alter("some-group", kind=GROUP, consumer_session_timeout_ms=50_000) == "none"
    assert client.alter("subscription", kind=CLIENT_METRICS, interval_ms=12_345) == "none"
    assert client.delete("gone") == ["none"]


def _fill_compacted(client: Client) -> None:
    """Keys that come again, until the cleaner has been there: its log has gaps."""
    settings: dict[str, Any] = {
        "internal_segment_bytes": 400,
        "min_cleanable_dirty_ratio": 0.01,
        "cleanup_policy": "compact",
    }
    _make(client, "compacted", max_compaction_lag_ms=1000, **settings)
    for number in range(40):
        assert client.produce("compacted", b"%d" % number * 20, key=b"k%d" % (number % 4))["error"] == "none"
    eventually(lambda: 0 < len(client.read("compacted")) < 30, "the cleaner does not come")


def _commit(client: Client, group: str, offset: int, metadata: str | None) -> None:
    """As a consumer without a membership does."""
    part = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": 0,
        "committed_metadata": metadata,
    }
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "codecs", "partitions": [part]}],
    }
    answer = client.ask(ApiKey.OFFSET_COMMIT, 8, request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def _change(client: Client, stage: int) -> None:
    """What an administrator does at each broker in turn: the next one has to know of it."""
    for each in range(4):
        _make(client, f"made-{stage}-{each}", 2, retention_ms=100_000_000 + stage)
    assert client.delete(f"made-{stage}-0") == ["none"]
    assert client.produce(f"made-{stage}-1", b"first", b"second")["error"] == "none"
    assert client.alter("codecs", retention_bytes=10_000_000 + stage) == "none"
    assert client.alter("", kind=4, log_retention_ms=86_400_000 + stage) == "none"
    assert client.alter("some-group", kind=GROUP, consumer_session_timeout_ms=50_000 + stage) == "none"
    assert client.delete_records("codecs", 64 + 7 * stage)["error_code"] == 0
    _commit(client, "by-hand", 70 + stage, f"stage {stage} é")
    _commit(client, f"of-stage-{stage}", stage, None)
