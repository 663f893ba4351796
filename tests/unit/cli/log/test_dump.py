"""`ottla log dump`: it shows what is there, and finds every damage that a reader could stumble over."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.exits import FAILED, OK
from ottla.cli.main import main
from ottla.protocol.internal.group_records import encode_key, encode_value
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.internal.transaction_records import TransactionRecord
from ottla.protocol.internal.transaction_records import encode_record as encode_transaction
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, marker_batch
from ottla.protocol.schemas.records import (
    ConfigRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    TopicRecord,
    TransactionLogValue,
    UserScramCredentialRecord,
)

LOG = "00000000000000000010.log"
INDEX = "00000000000000000010.index"
TIME_INDEX = "00000000000000000010.timeindex"

Dump = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    """Run `ottla log dump --json` and parse what it prints."""

    def run(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
        code = main(["log", "dump", "--json", *map(str, arguments)])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def _batches() -> list[bytes]:
    first = build_batch(
        [SimpleRecord(1000, b"k", b"a"), SimpleRecord(1005, None, b"b")], base_offset=10, leader_epoch=0
    )
    second = build_batch(
        [SimpleRecord(1003, None, None, (("h", b"v"),))],
        base_offset=12,
        leader_epoch=1,
        codec=4,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    third = build_batch([SimpleRecord(1010, None, b"\xff")], base_offset=20, leader_epoch=1)
    return [bytes(batch) for batch in (first, second, third)]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """events-0: three batches at offsets 10-11, 12 and 20, with both indexes as Kafka would write them."""
    directory = tmp_path / "events-0"
    directory.mkdir()
    first, second, third = _batches()
    (directory / LOG).write_bytes(first + second + third)
    positions = [len(first), len(first) + len(second)]
    (directory / INDEX).write_bytes(struct.pack(">iiii", 2, positions[0], 10, positions[1]) + bytes(800))
    (directory / TIME_INDEX).write_bytes(struct.pack(">qiqi", 1005, 2, 1010, 10))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 10\n1 12\n")
    return directory


def _problems(lines: list[dict[str, Any]]) -> str:
    return " | ".join(problem["problem"] for problem in lines[-1]["problems"])


def test_a_sound_segment(partition: Path, dump: Dump) -> None:
    code, lines = dump(partition / LOG, "--records")
    assert code == OK
    batches = [line for line in lines if line["kind"] == "batch"]
    assert [(b["base_offset"], b["last_offset"], b["records"], b["codec"]) for b in batches] == [
        (10, 11, 2, "none"),
        (12, 12, 1, "zstd"),
        (20, 20, 1, "none"),
    ]
    records = [line for line in lines if line["kind"] == "record"]
    assert records[0] == {"kind": "record", "offset": 10, "timestamp": 1000, "key": "k", "value": "a"}
    assert records[2]["headers"] == [{"name": "h", "value": "v"}]
    assert records[3]["value_base64"] == "/w=="
    assert lines[-1]["index_entries"] == lines[-1]["timeindex_entries"] == 2
    assert lines[-1]["next_offset"] == 21


def test_a_partition_and_its_indexes(partition: Path, dump: Dump) -> None:
    code, lines = dump(partition)
    assert code == OK, lines
    assert [line["epoch"] for line in lines if line["kind"] == "leader_epoch"] == [0, 1]
    for name in (INDEX, TIME_INDEX):
        code, lines = dump(partition / name)
        assert code == OK
        assert [line["offset"] for line in lines if line["kind"] == "index_entry"] == [12, 20]


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (struct.pack(">ii", 2, 5), "middle of a batch"),
        (struct.pack(">ii", 1, len(_batches()[0])), "whose batch starts at 12"),
        (struct.pack(">ii", 12, 100_000), "past the last batch"),
        (
            struct.pack(">iiii", 10, len(_batches()[0]) + len(_batches()[1]), 2, len(_batches()[0])),
            "does not come after",
        ),
        (b"\1\2\3", "not a multiple"),
    ],
)
def test_an_offset_index_that_misleads(partition: Path, dump: Dump, entries: bytes, complaint: str) -> None:
    (partition / INDEX).write_bytes(entries)
    code, lines = dump(partition)
    assert code == FAILED
    assert complaint in _problems(lines)


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (struct.pack(">qi", 1001, 2), "misses a record with the later timestamp 1005"),
        (struct.pack(">qi", 2000, 2), "no record up to its offset"),
        (struct.pack(">qi", 1010, 99), "past the last record"),
        (struct.pack(">qiqi", 1010, 10, 1005, 2), "goes back"),
    ],
)
def test_a_time_index_that_misleads(partition: Path, dump: Dump, entries: bytes, complaint: str) -> None:
    (partition / TIME_INDEX).write_bytes(entries)
    code, lines = dump(partition)
    assert code == FAILED
    assert complaint in _problems(lines)


def test_a_torn_tail_and_a_preallocated_one(partition: Path, dump: Dump) -> None:
    log = partition / LOG
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(4096))
    code, lines = dump(log)
    assert (code, lines[-1]["preallocated_bytes"]) == (OK, 4096)
    log.write_bytes(whole[:-3])
    code, lines = dump(log)
    assert code == FAILED
    assert "cut short" in _problems(lines)
    assert lines[-1]["sound_bytes"] == len(whole) - len(_batches()[2])


def test_offsets_and_epochs_that_go_back(partition: Path, dump: Dump) -> None:
    first, second, third = _batches()
    (partition / LOG).write_bytes(first + third + second)
    _, lines = dump(partition / LOG)
    assert "starts at offset 12, where 21 or more should follow" in _problems(lines)
    (partition / LOG).write_bytes(first[:12] + struct.pack(">i", 5) + first[16:] + second + third)
    _, lines = dump(partition / LOG)
    assert "leader epoch 1 comes after epoch 5" in _problems(lines)


@given(position=st.integers(16, sum(map(len, _batches())) - 1), bit=st.integers(0, 7))
@settings(max_examples=200)
def test_no_flipped_bit_goes_unnoticed(position: int, bit: int) -> None:
    data = bytearray(b"".join(_batches()))
    starts = [0, len(_batches()[0]), len(_batches()[0]) + len(_batches()[1])]
    if any(start <= position < start + 16 for start in starts):
        return  # base offset, length and epoch lie outside the checksum
    data[position] ^= 1 << bit
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / LOG
        path.write_bytes(data)
        assert main(["log", "dump", "--json", str(path)]) == FAILED


def test_metadata_and_offsets_are_decoded_by_directory(tmp_path: Path, dump: Dump) -> None:
    topic = encode_record(TopicRecord(name="orders"), 0)
    commit = encode_key(OffsetCommitKey("billing", "orders", 3))
    value = encode_value(OffsetCommitValue(offset=42, metadata="", commit_timestamp=5))
    for name, record in (
        ("__cluster_metadata-0", SimpleRecord(0, None, topic)),
        ("__consumer_offsets-7", SimpleRecord(0, commit, value)),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOG).write_bytes(build_batch([record], base_offset=10, leader_epoch=0))
    _, lines = dump(tmp_path / "__cluster_metadata-0" / LOG, "--records")
    assert lines[1]["type"] == "TopicRecord"
    assert lines[1]["content"]["name"] == "orders"
    _, lines = dump(tmp_path / "__consumer_offsets-7" / LOG, "--records")
    assert lines[1]["group"] == {"group": "billing", "topic": "orders", "partition": 3}
    assert lines[1]["content"]["offset"] == 42


def test_secrets_of_the_metadata_are_hidden(tmp_path: Path, dump: Dump) -> None:
    """CVE-2026-33558: neither what proves a password, nor passwords among the settings of brokers."""
    name = "listener.name.a.plain.sasl.jaas.config"
    records = [
        UserScramCredentialRecord("alice", 1, b"canary", b"canary", b"canary", 4096),
        ConfigRecord(4, "1", name, "canary"),
        ConfigRecord(4, "1", "ssl.keystore.password", "canary"),
        ConfigRecord(4, "1", "confluent.something", "canary"),  # whose value nobody knows
        ConfigRecord(4, "1", "log.cleaner.threads", "7"),
        ConfigRecord(2, "t", "retention.ms", "8"),
    ]
    assert "canary" not in repr(records[0]) and "alice" in repr(records[0])
    (tmp_path / "__cluster_metadata-0").mkdir()
    path = tmp_path / "__cluster_metadata-0" / LOG
    values = [SimpleRecord(0, None, encode_record(each, 0)) for each in records]
    path.write_bytes(build_batch(values, base_offset=0, leader_epoch=0))
    _, lines = dump(path, "--records")
    assert "canary" not in str(lines)
    contents = [each["content"] for each in lines if "content" in each]
    assert contents[0]["name"] == "alice" and contents[0]["iterations"] == 4096
    assert [each["value"] for each in contents[1:]] == ["[hidden]"] * 3 + ["7", "8"]


def test_transactions_and_their_markers_are_decoded(
    tmp_path: Path, dump: Dump, capsys: pytest.CaptureFixture[str]
) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=1_000,
        transaction_status=1,
        transaction_partitions=(PartitionsSchema("orders", (0, 3)),),
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
    )
    records = [TransactionRecord("copier", value), TransactionRecord("gone", None)]
    path = tmp_path / "__transaction_state-11"
    path.mkdir()
    found = [SimpleRecord(0, *encode_transaction(each, 1)) for each in records]
    batch = build_batch(found, base_offset=10, leader_epoch=0)
    (path / LOG).write_bytes(batch)
    _, lines = dump(path, "--records")
    first, second = (line for line in lines if line["kind"] == "record")
    assert (first["type"], first["transactional_id"]) == ("Transaction", "copier")
    assert (first["content"]["state"], first["content"]["producer_id"]) == ("Ongoing", 7)
    assert first["content"]["transaction_partitions"] == [{"topic": "orders", "partition_ids": [0, 3]}]
    assert (second["transactional_id"], second["content"]) == ("gone", None)
    assert main(["log", "dump", "--records", str(path)]) == OK
    text = capsys.readouterr().out
    assert 'Transaction  "copier"  {"state": "Ongoing"' in text and 'Transaction  "gone"  deleted' in text
    # A file elsewhere says nothing by its directory's name.
    (tmp_path / LOG).write_bytes(batch)
    _, lines = dump(tmp_path / LOG, "--records", "--decode", "transactions")
    assert [line["transactional_id"] for line in lines if line["kind"] == "record"] == ["copier", "gone"]

    ended = [marker_batch(7, 2, committed=each, coordinator_epoch=9, timestamp=0) for each in (True, False)]
    for offset, marker in enumerate(ended):
        marker[:8] = (10 + offset).to_bytes(8, "big")
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / LOG).write_bytes(b"".join(ended))
    _, lines = dump(tmp_path / "orders-0" / LOG, "--records")
    markers = [(line["type"], line["coordinator_epoch"]) for line in lines if line["kind"] == "record"]
    assert markers == [("COMMIT", 9), ("ABORT", 9)]
    assert [line["control"] for line in lines if line["kind"] == "batch"] == [True, True]


def test_a_log_directory_in_one_table(partition: Path, dump: Dump, capsys: pytest.CaptureFixture[str]) -> None:
    root = partition.parent
    (root / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=VWVcd_FE0JsMK97wHNT1PA\n")
    (root / "log-start-offset-checkpoint").write_text("0\n1\nevents 0 12\n")
    code, lines = dump(root)
    assert code == OK
    assert lines[0]["cluster"] == "abc"
    (row,) = [line for line in lines if line["kind"] == "partition"]
    assert (row["partition"], row["start"], row["end"], row["records"]) == ("events-0", 12, 21, 4)
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 0 99\n")
    code, lines = dump(root)
    assert code == FAILED
    assert "flushed up to 99" in _problems(lines)
    assert main(["log", "dump", str(root)]) == FAILED
    text = capsys.readouterr().out
    assert "damaged" in text and "events-0" in text


@pytest.mark.parametrize("text", ["nonsense\n", "0\n5\n0 1\n"])
def test_a_broken_checkpoint_is_reported(partition: Path, dump: Dump, text: str) -> None:
    (partition / "leader-epoch-checkpoint").write_text(text)
    code, lines = dump(partition)
    assert code == FAILED
    assert "leader-epoch-checkpoint" in _problems(lines)
    assert main(["log", "dump", str(partition / "leader-epoch-checkpoint")]) == FAILED
