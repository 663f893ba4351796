"""The files of a log as Apache Kafka's DumpLogSegments reads them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.filesystem import OsFileSystem
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.storage.config import LogConfig
from ottla.storage.log.log_loader import load_log
from ottla.storage.segments.transaction_index import AbortedTransaction
from peers.kafka import tool

NOW = 1_700_000_000_000
COMPLAINTS = ("mismatch", "exception", "isvalid: false", "out of order", "found invalid", "largest timestamp")


def dump(*files: Path) -> str:
    names = ",".join(str(file) for file in files)
    return str(tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names).stdout)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments, all codecs, idempotent producers, times out of order, one aborted transaction."""
    path = tmp_path_factory.mktemp("log") / "t-0"
    config = LogConfig(segment_bytes=10_000, index_interval_bytes=500)
    log = load_log(OsFileSystem(), str(path), TopicPartition("t", 0), None, config, now_ms=NOW, random=random.Random(1))
    shuffled = random.Random(2)
    for number in range(200):
        records = [
            SimpleRecord(NOW + number + shuffled.randrange(50), b"k%d" % i, b"v" * 100, (("h", b"1"), ("n", None)))
            for i in range(3)
        ]
        data = build_batch(records, codec=number % 5, producer_id=7, producer_epoch=1, base_sequence=number * 3)
        log.append_as_leader(data, number // 60, now_ms=NOW + number)
    log.active_segment.transaction_index.append(AbortedTransaction(7, 3, 9, 10))
    log.close()
    return path


def test_batches_indexes_and_snapshots(directory: Path) -> None:
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    files = [*segments, *sorted(directory.glob("*.*index")), *sorted(directory.glob("*.snapshot"))]
    output = dump(*files)
    assert [line for line in output.splitlines() if any(word in line.lower() for word in COMPLAINTS)] == []
    assert output.count("isvalid: true") == 200
    assert sum(line.startswith("| offset: ") for line in output.splitlines()) == 600
    assert "producerId: 7 producerEpoch: 1" in output
    assert "firstOffset: 3 lastOffset: 9" in output
    for name in ("gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {name}" in output


def test_every_index_entry_is_dumped(directory: Path) -> None:
    for file in directory.glob("*.index"):
        assert dump(file).count("offset: ") == file.stat().st_size // 8
    for file in directory.glob("*.timeindex"):
        assert dump(file).count("timestamp: ") == file.stat().st_size // 12
