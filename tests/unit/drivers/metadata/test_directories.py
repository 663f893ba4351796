"""The owner of a directory whose `meta.properties` has version 0.

Brokers with ZooKeeper wrote it, and Kafka keeps it in those that it takes to KRaft.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.drivers.metadata.directories import METADATA_DIRECTORY, identify
from ottla.errors import OttlaError
from ottla.model import uuid_to_base64
from ottla.storage.checkpoints.meta_properties import (
    BEFORE_IMPORT_FILE,
    MetaProperties,
    encode_meta_properties,
    random_directory_id,
)
from ottla.testing.disk import SimulatedFileSystem

ID = random_directory_id(Random(5))
OLD = encode_meta_properties(MetaProperties("a cluster", 1, ID, version=0))


def _disk(*, migrated: bool) -> SimulatedFileSystem:
    disk = SimulatedFileSystem(Random(1))
    for path in ("/a", "/b"):
        disk.makedirs(path)
        disk.write_atomic(f"{path}/meta.properties", OLD)
        disk.makedirs(f"{path}/orders-0")
    if migrated:
        disk.makedirs(f"/a/{METADATA_DIRECTORY}")
    return disk


def test_a_broker_that_kafka_took_to_kraft() -> None:
    """KIP-866: the metadata log is there, the version stays."""
    disk = _disk(migrated=True)
    found = identify(disk, ["/a", "/b"], "/a", 1, Random(2), 0)
    assert found.cluster_id == "a cluster"
    assert {uuid_to_base64(each) for each in found.directory_ids.values()} == {ID}
    assert disk.read_bytes("/a/meta.properties") == OLD
    with pytest.raises(OttlaError, match="belongs to node 1"):
        identify(disk, ["/a", "/b"], "/a", 2, Random(2), 0)


@pytest.mark.parametrize("migrated", [False, True], ids=["with ZooKeeper", "import not finished"])
def test_a_broker_with_zookeeper_is_refused(migrated: bool) -> None:
    disk = _disk(migrated=migrated)
    if migrated:
        disk.write_atomic(f"/b/{BEFORE_IMPORT_FILE}", OLD)
    with pytest.raises(OttlaError, match="import the cluster with `ottla migrate zookeeper`"):
        identify(disk, ["/a", "/b"], "/a", 1, Random(2), 0)
