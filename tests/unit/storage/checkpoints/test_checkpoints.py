from __future__ import annotations

import random
from uuid import UUID

import pytest

from ottla.errors import OttlaError
from ottla.model import METADATA_TOPIC_ID, TopicPartition, random_uuid, uuid_from_base64, uuid_to_base64
from ottla.storage.checkpoints.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    random_directory_id,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.checkpoints.offset_checkpoint import (
    CorruptFile,
    read_clean_shutdown,
    read_offset_checkpoint,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_offset_checkpoint,
)
from ottla.storage.checkpoints.partition_metadata import read_partition_metadata, write_partition_metadata
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem

PATH = "/data/recovery-point-offset-checkpoint"


def make_fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs("/data")
    fs.fsync_all()
    return fs


def test_offsets_go_out_and_come_back() -> None:
    fs = make_fs()
    assert read_offset_checkpoint(fs, PATH) == {}
    offsets = {TopicPartition("a", 0): 12, TopicPartition("b.c-d", 7): 2**62}
    write_offset_checkpoint(fs, PATH, offsets)
    assert fs.read_bytes(PATH) == b"0\n2\na 0 12\nb.c-d 7 4611686018427387904\n"
    assert read_offset_checkpoint(fs, PATH) == offsets


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n0\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"\xff"]
)
def test_a_checkpoint_that_is_none_is_refused_with_its_name(content: bytes) -> None:
    fs = make_fs()
    fs.write_atomic(PATH, content)
    with pytest.raises(CorruptFile, match="recovery-point"):
        read_offset_checkpoint(fs, PATH)


def test_an_empty_checkpoint_is_one_without_entries() -> None:
    fs = make_fs()
    fs.write_atomic(PATH, b"")
    assert read_offset_checkpoint(fs, PATH) == {}


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_leaves_the_old_checkpoint_or_the_new_one(power_loss: bool) -> None:
    old, new = {TopicPartition("t", 0): 1}, {TopicPartition("t", 0): 2, TopicPartition("u", 0): 3}
    for seed in range(20):
        for step in range(6):
            fs = SimulatedFileSystem(random.Random(seed))
            fs.makedirs("/data")
            fs.fsync_all()
            write_offset_checkpoint(fs, PATH, old)
            fs.crash_after(step)
            with pytest.raises(SimulatedCrash):
                write_offset_checkpoint(fs, PATH, new)
            fs.restart(power_loss=power_loss)
            assert read_offset_checkpoint(fs, PATH) in (old, new)


def test_the_clean_shutdown_marker() -> None:
    fs = make_fs()
    assert read_clean_shutdown(fs, "/data") is None
    write_clean_shutdown(fs, "/data", 42)
    assert fs.read_bytes("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(fs, "/data") == 42
    remove_clean_shutdown(fs, "/data")
    remove_clean_shutdown(fs, "/data")
    fs.restart(power_loss=True)
    assert read_clean_shutdown(fs, "/data") is None
    for content in (b"", b"{}", b"[1]", b'{"version":0,"brokerEpoch":null}'):
        fs.write_atomic("/data/.kafka_cleanshutdown", content)
        assert read_clean_shutdown(fs, "/data") == -1


def test_uuids_in_kafkas_base64() -> None:
    assert uuid_to_base64(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_base64("VWVcd_FE0JsMK97wHNT1PA") == UUID("55655c77-f144-d09b-0c2b-def01cd4f53c")
    source = random.Random(3)
    for _ in range(200):
        uuid = random_uuid(source)
        assert uuid_from_base64(uuid_to_base64(uuid)) == uuid
        assert not uuid_to_base64(uuid).startswith("-")
    for text in ("", "AAAA", "A" * 21, "A" * 23, "A" * 40, "AAAAAAAAAAAAAAAAAAAA!!", "ÄAAAAAAAAAAAAAAAAAAAAQ"):
        with pytest.raises(ValueError, match="base64"):
            uuid_from_base64(text)


def test_partition_metadata() -> None:
    fs = make_fs()
    assert read_partition_metadata(fs, "/data") is None
    write_partition_metadata(fs, "/data", METADATA_TOPIC_ID)
    assert fs.read_bytes("/data/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_partition_metadata(fs, "/data") == METADATA_TOPIC_ID
    for content in (
        b"",
        b"version: 0",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: x\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"\xff\xff",
    ):
        fs.write_atomic("/data/partition.metadata", content)
        with pytest.raises(CorruptFile, match=r"partition\.metadata"):
            read_partition_metadata(fs, "/data")


def test_meta_properties_of_a_jvm_broker() -> None:
    text = (
        b"#\n#Sat Nov 21 08:01:39 UTC 2026\nnode.id=1\ndirectory.id=VWVcd_FE0JsMK97wHNT1PA\nversion=1\n"
        b"cluster.id=CtEnLQ7FTsKp-RFR70MkYw\n"
    )
    meta = decode_meta_properties("meta.properties", text)
    assert meta == MetaProperties("CtEnLQ7FTsKp-RFR70MkYw", 1, "VWVcd_FE0JsMK97wHNT1PA")
    fs = make_fs()
    assert read_meta_properties(fs, "/data") is None
    write_meta_properties(fs, "/data", meta)
    assert read_meta_properties(fs, "/data") == meta
    assert decode_meta_properties("m", b"version=0\nbroker.id=3\n") == MetaProperties(None, 3, None, 0)
    assert decode_meta_properties("m", rb"version: 1" b"\ncluster.id = a\\:b\n node.id=2\n").cluster_id == "a:b"


@pytest.mark.parametrize(
    "content",
    [
        b"version=2\n",
        b"version=x\n",
        b"version=1\nnode.id=1\n",
        b"version=1\ncluster.id=c\n",
        b"version=1\nnode.id=x\n",
    ],
)
def test_meta_properties_that_cannot_be_trusted(content: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_meta_properties("meta.properties", content)


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    meta = MetaProperties("mine", 1, random_directory_id(random.Random(1)))
    meta.check("/data", cluster_id="mine", node_id=1)
    meta.check("/data", cluster_id=None, node_id=1)
    with pytest.raises(OttlaError, match="belongs to cluster mine"):
        meta.check("/data", cluster_id="other", node_id=1)
    with pytest.raises(OttlaError, match=r"node\.id=1"):
        meta.check("/data", cluster_id="mine", node_id=2)
