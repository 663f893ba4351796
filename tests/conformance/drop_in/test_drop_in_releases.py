"""Directories that were formatted for older releases, with other features, and with a quorum of either kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.internal.metadata_records import decode_record
from ottla.protocol.schemas.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.quorum.snapshot import read_batches
from tests.conformance.drop_in.drop_in import Place, seen
from tests.conformance.operations.operations import eventually

FORMATS = {
    "4.3, of Kafka 4.3": (),
    "3.3, the oldest": ("--release-version", "3.3-IV3"),
    "3.9, static": ("--release-version", "3.9-IV0"),
    "4.0, dynamic": ("--release-version", "4.0-IV3", "--standalone"),
    "4.3 without new features, dynamic": (
        "--standalone", "--feature", "eligible.leader.replicas.version=0", "--feature", "transaction.version=0",
        "--feature", "share.version=0",
    ),
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path: Path, name: str) -> None:
    """A directory stays one that its release opens: nothing here raises a level by itself."""
    release = "4.3" if name.endswith("of Kafka 4.3") else "4.4"
    place = Place(tmp_path / "place", None, *FORMATS[name], release=release)
    with place.running("kafka", kill=True) as client:
        eventually(lambda: client.create("t", 2, retention_ms=-1) == "none")
        eventually(lambda: client.produce("t", b"0")["error"] == "none")
        assert client.create("u") == "none"
        assert client.delete("u") == ["none"]
        eventually(lambda: "u" not in client.topics())
        before = seen(client)
    snapshots = place.snapshots()
    with place.running("ottla", kill=True) as client:
        assert seen(client) == before
        for number in range(8):
            assert client.create(f"another-{number}", 3) == "none"
        client.produce_all("t", b"1")
        eventually(lambda: place.snapshots()[-1:] != snapshots[-1:])
        before = seen(client)
    with place.running("kafka") as client:
        assert seen(client) == before
        client.produce_all("another-0", b"0")
    with place.running("ottla") as client:
        assert client.read("another-0") == {0: b"0"}
        assert client.read("t") == {0: b"0", 1: b"1"}


FIRST_RECORDS = [
    *(
        FeatureLevelRecord(name, level)
        for name, level in (
            ("metadata.version", 33), ("eligible.leader.replicas.version", 1), ("group.version", 1),
            ("share.version", 2), ("streams.version", 1), ("transaction.version", 2),
        )
    ),
    ConfigRecord(4, "", "min.insync.replicas", "1"),
]  # fmt: skip
"""What a node of Kafka 4.4.0 appends in its first transaction (asked on 2026-11-28)."""


@pytest.mark.parametrize("how", [(), ("--standalone",)], ids=["static", "dynamic"])
def test_a_directory_that_kafka_has_only_formatted(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Kafka 4.4 leaves the levels in a snapshot that ends before the log begins. They are not metadata yet: the first
    active controller writes them into the log, where followers read them."""
    place = Place(tmp_path / "place", None, *how)
    assert [name.lstrip("0") for name in place.snapshots()] == ["-0000000000.checkpoint"]
    with place.running("ottla"):
        pass
    log = next(place.kafka.data.glob("__cluster_metadata-0/*.log")).read_bytes()
    records = [decode_record(item)[0] for header, items in read_batches(log) if not header.is_control for item in items]
    begin = records.index(BeginTransactionRecord("Bootstrap records"))
    assert records[begin + 1 : records.index(EndTransactionRecord())] == FIRST_RECORDS
    assert begin == 0
