"""Files that Apache Kafka 4.3.0 wrote, read and written again byte for byte.

`kafka-4.3.log` has batches of a node's metadata log (most of its NoOpRecords left out): format, topics created, a clean
restart, a kill and restart with eligible leader replicas, partitions added, settings changed, a topic deleted.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, Endpoint, LeaderRecoveryState
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.writer import encode
from ottla.protocol.internal.metadata_records import decode_record, encode_record
from ottla.protocol.internal.quorum_records import QuorumStateFile, decode_quorum_state, encode_quorum_state
from ottla.protocol.records.record_batch import iterate_batches
from ottla.protocol.schemas.records import LeaderChangeMessage, SnapshotHeaderRecord
from ottla.quorum.snapshot import control_batch, data_batch, read_batches, read_snapshot, write_snapshot

HERE = Path(__file__).parent
LOG = (HERE / "kafka-4.3.log").read_bytes()
BOOTSTRAP = (HERE / "kafka-4.3-bootstrap.checkpoint").read_bytes()


def test_every_batch_is_written_again_byte_for_byte() -> None:
    out = bytearray()
    for header, items in read_batches(LOG):
        if header.is_control:
            out += control_batch(items, header.base_offset, header.leader_epoch, header.max_timestamp)
            continue
        values = []
        for item in items:
            record, version = decode_record(item)
            values.append(encode_record(record, version))
        out += data_batch(values, header.base_offset, header.leader_epoch, header.max_timestamp)
    assert len(list(iterate_batches(LOG))) > 20
    assert bytes(out) == LOG


def test_the_version_of_a_record_follows_from_the_metadata_version() -> None:
    for header, items in read_batches(LOG):
        for item in () if header.is_control else items:
            record, version = decode_record(item)
            again = encode(record, 30)
            assert again[2] == version
            assert again == item


def test_the_bootstrap_checkpoint_is_written_again_byte_for_byte() -> None:
    batches = list(read_snapshot(BOOTSTRAP))
    (head, [header]), (_, values), _ = batches
    assert header == SnapshotHeaderRecord(0, 0)
    footer_time = batches[-1][0].max_timestamp
    written = list(write_snapshot(values, epoch=0, last_timestamp=0, now=footer_time))
    # Kafka takes the time again for each batch.
    written[0] = control_batch([header], 0, 0, head.max_timestamp)
    written[1] = data_batch(values, 1, 0, batches[1][0].max_timestamp)
    assert b"".join(written) == BOOTSTRAP


def test_the_image_is_what_kafka_had() -> None:
    loader = MetadataLoader(MetadataDelta(EMPTY_IMAGE))
    for header, items in read_batches(LOG):
        loader.add(header, items, None)
    image = loader.image()
    assert (image.offset, image.epoch) == (385, 3)
    assert image.features["metadata.version"] == 30
    assert image.features["transaction.version"] == 2
    broker = image.brokers[1]
    assert broker.active
    assert broker.epoch == 352
    assert broker.endpoints == {"PLAINTEXT": Endpoint("127.0.0.1", 29192, 0)}
    assert broker.log_dirs == (UUID("c422e965-f538-719e-24e6-7b9c30a4b094"),)
    topic = image.topic("a")
    assert topic is not None
    assert image.topic("b") is None
    assert image.topic_config("b") == {}
    assert image.config(4, "") == {"min.insync.replicas": "1"}
    assert image.config(4, "1") == {"log.cleaner.threads": "2"}
    partition = topic.partitions[1]
    # Stopped (1), started (2), killed (3), elected as the last known leader (4), which needs recovery.
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 4, (1,))
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.recovery_state == LeaderRecoveryState.RECOVERING


def test_an_election_is_the_first_record() -> None:
    _, [change] = next(read_batches(LOG))
    assert isinstance(change, LeaderChangeMessage)
    assert (change.leader_id, [voter.voter_id for voter in change.voters]) == (1, [1])


def test_quorum_state_in_both_versions() -> None:
    static = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    dynamic = (
        b'{"leaderId":1,"leaderEpoch":8,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    for text, state in (
        (static, QuorumStateFile(1, 3, voters=(1,), data_version=0)),
        (dynamic, QuorumStateFile(1, 8, data_version=1)),
    ):
        assert decode_quorum_state(text) == state
        assert encode_quorum_state(state) == text
