"""What is in a snapshot of the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.clock import SystemClock
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.metadata.snapshot_generator import SnapshotGenerator, SnapshotSettings
from ottla.drivers.quorum.metadata_log import control_items
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.schemas.records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from ottla.quorum.snapshot import SnapshotId, control_batch, data_batch
from ottla.quorum.voters import Configuration, Configurations, ReplicaKey, VoterSet
from tests.unit.drivers.parts import new_disk
from tests.unit.drivers.quorum.test_quorum_node import VALUE, quorum_node


def voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(ReplicaKey(each, UUID(int=each)) for each in node_ids)


def test_who_votes_is_in_a_snapshot_that_a_start_writes_before_it_hears_of_a_high_watermark() -> None:
    """No record of the log is known to be committed then, but those in the image are: without its voters and
    `kraft.version` this snapshot took the place of the one with them."""
    configurations = Configurations(Configuration(-2, 0, voters()))
    configurations.entries += [Configuration(117, 1, voters(1, 2, 3)), Configuration(130, 1, voters(1, 2))]
    written: list[Any] = []

    async def write_snapshot(snapshot: SnapshotId, batches: Iterable[bytearray]) -> None:
        assert snapshot == SnapshotId(118, 1)
        written.extend(record for batch in batches for _, record in control_items(batch))

    quorum: Any = SimpleNamespace(
        core=SimpleNamespace(configurations=configurations),
        log=SimpleNamespace(bytes_since_snapshot=1000, newest_snapshot=None),
        failure=None,
        write_snapshot=write_snapshot,
    )
    publisher: Any = SimpleNamespace(image=replace(EMPTY_IMAGE, offset=117, epoch=1), open_transaction=False)

    async def body() -> None:
        generator = SnapshotGenerator(quorum, publisher, SystemClock(), SnapshotSettings(100, 0))
        generator.begin()
        await generator.stop()

    asyncio.run(body())
    assert [each.kraft_version for each in written if isinstance(each, KRaftVersionRecord)] == [1]
    assert [VoterSet(each.voters) for each in written if isinstance(each, VotersRecord)] == [voters(1, 2, 3)]
    assert configurations.at(200).voters == voters(1, 2) and configurations.at(-5).kraft_version == 0


def test_a_snapshot_that_has_all_is_not_written_again() -> None:
    written: list[SnapshotId] = []

    async def write_snapshot(snapshot: SnapshotId, batches: Iterable[bytearray]) -> None:
        written.append(snapshot)
        log.newest_snapshot = snapshot

    log = SimpleNamespace(bytes_since_snapshot=1000, newest_snapshot=SnapshotId(118, 1))
    configurations = Configurations(Configuration(-2, 0, voters(1)))
    quorum: Any = SimpleNamespace(
        core=SimpleNamespace(configurations=configurations), log=log, failure=None, write_snapshot=write_snapshot
    )
    publisher: Any = SimpleNamespace(image=replace(EMPTY_IMAGE, offset=117, epoch=1), open_transaction=False)

    async def body() -> None:
        generator = SnapshotGenerator(quorum, publisher, SystemClock(), SnapshotSettings(100, 0))
        for offset in (117, 118, 118):
            publisher.image = replace(publisher.image, offset=offset)
            generator.begin()
            await generator.stop()
            generator._stopped = False

    asyncio.run(body())
    assert written == [SnapshotId(119, 1)]


def test_a_snapshot_is_written_at_once_before_records_that_kafka_does_not_read() -> None:
    """An earlier Ottla wrote the first record of an epoch in version 1 where `kraft.version` was 1: Apache Kafka reads
    what is behind its newest snapshot, and ended over it."""
    fs, epoch = new_disk(), 3
    change = LeaderChangeMessage(1, 1, (), ())

    async def main() -> int:
        quorum = quorum_node(fs)
        if quorum.end_offset == 0:
            quorum.log.append(control_batch((change,), 0, epoch, 5), 5)
            quorum.log.append(data_batch([VALUE], 1, epoch, 5), 5)
            quorum.log.log.flush()
            return -1
        quorum.start()
        publisher = MetadataPublisher(quorum)
        publisher.preview("cluster")
        publisher.load()
        generator = SnapshotGenerator(quorum, publisher, SystemClock(), SnapshotSettings(1 << 20, 0))
        generator.start()
        await generator.stop()
        await quorum.stop()
        return len(quorum.log.snapshots)

    assert [asyncio.run(main()) for _ in range(3)] == [-1, 1, 1]
