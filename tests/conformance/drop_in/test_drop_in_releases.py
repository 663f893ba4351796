"""Directories that were formatted for older releases, with other features, and with a quorum of either kind."""

from __future__ import annotations

from pathlib import Path

import pytest

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
