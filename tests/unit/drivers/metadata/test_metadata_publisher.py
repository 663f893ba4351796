"""The publisher: only what is committed, in order, wherever the leader is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.quorum.quorum_requests import fetch
from ottla.metadata import loader
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.loader import RECORDS_PER_STEP
from ottla.metadata.replay import replay
from ottla.metadata.writer import encode, image_records
from ottla.protocol.schemas import records as r
from ottla.quorum.snapshot import SnapshotId, data_batch, write_snapshot
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.drivers.parts import new_disk, silent, turns
from tests.unit.drivers.quorum.test_quorum_node import ME, OTHER, copy, lead_two, quorum_node
from tests.unit.metadata.images import one_broker, topic_records


def values(records: Sequence[Any]) -> list[bytes]:
    return [encode(record, 30) for record in records]


def publisher_of(quorum: QuorumNode) -> MetadataPublisher:
    publisher = MetadataPublisher(quorum)
    publisher.preview("cluster")
    publisher.load()
    return publisher


def heard_by(publisher: MetadataPublisher) -> list[list[str]]:
    """Names of the topics that each change created."""
    heard: list[list[str]] = []

    def apply(delta: MetadataDelta, image: MetadataImage) -> None:
        assert publisher.image is image
        heard.append([topic.name for topic in delta.created_topics()])

    publisher.subscribe(apply)
    return heard


def test_an_uncommitted_tail_is_not_published() -> None:
    """Neither live nor by a restart: a majority may go on without it."""
    fs = new_disk()

    async def main() -> None:
        quorum = lead_two(fs)
        publisher = publisher_of(quorum)
        heard = heard_by(publisher)
        first = quorum.append(values(topic_records("a", 7)), 1)
        quorum.append(values(topic_records("b", 8)), 2)
        await turns()
        assert quorum.log.log.durable_offset == quorum.end_offset
        assert heard == [] and publisher.image.offset == -1
        fetch(quorum, OTHER, quorum.epoch, first, quorum.epoch, 1000)
        await turns()
        assert heard == [["a"]]
        assert publisher.image.offset == first - 1
        await quorum.stop()

    async def again() -> None:
        quorum = quorum_node(fs, ME, OTHER)
        assert quorum.end_offset == 5
        publisher = publisher_of(quorum)
        assert publisher.image.offset == -1 and not publisher.image.topics_by_name
        quorum.start()
        quorum.heard(2, quorum.epoch + 1, {})
        quorum.advance(3)
        await turns()
        assert list(publisher.image.topics_by_name) == ["a"]

    asyncio.run(main())
    asyncio.run(again())


def follower_of(leader: QuorumNode, fs: SimulatedFileSystem) -> QuorumNode:
    follower = quorum_node(fs, ME, OTHER, me=OTHER)
    follower.start()
    follower.heard(1, leader.epoch, {})
    return follower


def test_a_follower_publishes_what_the_leader_has_committed() -> None:
    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        quorum = follower_of(leader, new_disk(2))
        publisher = publisher_of(quorum)
        heard = heard_by(publisher)
        for number in range(3):
            leader.append(values(topic_records(f"t{number}", 7 + number)), number)
            await turns()
            await copy(leader, quorum)
            await publisher.wait_published(leader.high_watermark - 1)
            assert publisher.image.offset == leader.high_watermark - 1
        assert heard == [["t0"], ["t1"], ["t2"]]
        assert publisher.image.cluster_id == "cluster"
        assert publisher.image.epoch == leader.epoch

    asyncio.run(main())


def test_what_comes_together_is_published_together() -> None:
    """A follower that was away gets one change, not thousands."""

    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        for number in range(40):
            leader.append(values(topic_records(f"t{number}", 7 + number)), number)
        await turns()
        quorum = follower_of(leader, new_disk(2))
        publisher = publisher_of(quorum)
        heard = heard_by(publisher)
        await copy(leader, quorum)
        await turns()
        assert [len(each) for each in heard] == [40]

    asyncio.run(main())


def test_a_transaction_is_published_when_it_ends() -> None:
    """KIP-868: of one that is aborted nothing counts."""

    async def main() -> None:
        leader = quorum_node(new_disk())
        leader.start()
        quorum = follower_of(leader, new_disk(2))
        publisher = publisher_of(quorum)
        heard = heard_by(publisher)

        async def send(*records: Any) -> None:
            leader.append(values(records), 1)
            await turns()
            await copy(leader, quorum)
            await turns()

        await send(r.BeginTransactionRecord("x"), *topic_records("a", 7))
        assert heard == [] and publisher.open_transaction
        await send(*topic_records("b", 8), r.EndTransactionRecord())
        assert heard == [["a", "b"]] and not publisher.open_transaction
        await send(r.BeginTransactionRecord("y"), *topic_records("c", 9))
        await send(r.AbortTransactionRecord("no"), *topic_records("d", 10))
        assert heard == [["a", "b"], ["d"]]

    asyncio.run(main())


def test_a_snapshot_in_place_of_the_log_is_one_change() -> None:
    async def main() -> None:
        quorum = quorum_node(new_disk(), ME, OTHER)
        quorum.start()
        quorum.heard(2, 3, {})
        publisher = publisher_of(quorum)
        quorum.append_fetched(data_batch(values([*topic_records("a", 7), *topic_records("b", 8)]), 0, 3, 1))
        quorum.advance(4)
        await turns()
        deltas: list[MetadataDelta] = []
        publisher.subscribe(lambda delta, image: deltas.append(delta))
        image = one_broker(
            *topic_records("b", 8, 2), *topic_records("c", 9), r.ConfigRecord(2, "c", "retention.ms", "5")
        )
        stored = b"".join(write_snapshot(values(list(image_records(image))), epoch=4, last_timestamp=3, now=4))
        quorum.heard(2, 4, {})
        part = await quorum.begin_snapshot(SnapshotId(100, 4))
        await quorum.write_piece(part, stored)
        await quorum.install_snapshot(part)
        await publisher.wait_published(99)
        _, delta = deltas
        assert (publisher.image.offset, publisher.image.epoch) == (99, 4)
        assert publisher.image.topics_by_name == image.topics_by_name
        assert publisher.image.configs == image.configs
        assert [topic.name for topic in delta.created_topics()] == ["c"]
        assert [topic.name for topic in delta.deleted_topics.values()] == ["a"]
        assert [(topic.name, number) for topic, number, _ in delta.changed_partitions()] == [("b", 1), ("c", 0)]
        quorum.append_fetched(data_batch(values(topic_records("d", 10)), 100, 4, 1))
        quorum.advance(102)
        await publisher.wait_published(101)
        assert set(publisher.image.topics_by_name) == {"b", "c", "d"}

    asyncio.run(main())


def test_what_a_start_replays_of_its_snapshot_is_no_reason_for_another() -> None:
    fs = new_disk()

    async def main() -> MetadataPublisher:
        quorum = quorum_node(fs)
        quorum.start()
        publisher = publisher_of(quorum)
        if quorum.log.newest_snapshot is None:
            end = quorum.append(values([*topic_records("a", 7), *topic_records("b", 8)]), 5)
            await turns()
            stored = write_snapshot(values(topic_records("a", 7)), epoch=quorum.epoch, last_timestamp=3, now=4)
            await quorum.write_snapshot(SnapshotId(end, quorum.epoch), stored)
            quorum.append(values(topic_records("c", 9)), 6)
            await turns()
        await quorum.stop()
        return publisher

    asyncio.run(main())
    again = asyncio.run(main())
    assert set(again.image.topics_by_name) == {"a", "c"}
    assert again.replayed == len(topic_records("c", 9))


def test_the_delta_between_two_images_leads_from_one_to_the_other() -> None:
    before = one_broker(
        *topic_records("a", 7),
        *topic_records("b", 8),
        r.ConfigRecord(2, "a", "x", "1"),
        r.ConfigRecord(4, "", "y", "1"),
        r.FeatureLevelRecord("group.version", 0),
        r.ProducerIdsRecord(1, 1, 1000),
    )
    after = one_broker(
        *topic_records("b", 8, 3),
        *topic_records("a", 70),
        r.ConfigRecord(4, "", "y", "2"),
        r.ConfigRecord(4, "", "z", "3"),
    )
    for base, target in ((before, after), (EMPTY_IMAGE, after), (before, EMPTY_IMAGE), (before, before)):
        delta = MetadataDelta.between(base, target)
        assert bool(delta) == (base is not target)
        found = delta.apply(target.offset, target.epoch, target.timestamp_ms)
        assert replace(found, cluster_id="") == replace(target, cluster_id="")


def test_a_waiting_caller_is_let_go_when_nothing_is_published_any_more() -> None:
    async def main() -> None:
        quorum = quorum_node(new_disk())
        quorum.start()
        publisher = publisher_of(quorum)
        later = asyncio.ensure_future(publisher.wait_published(1000))
        sooner = asyncio.ensure_future(publisher.wait_published(quorum.end_offset + 1))
        await turns()
        quorum.append(values(topic_records("a", 7)), 1)
        await sooner
        assert not later.done(), "though it came first"
        await publisher.stop()
        await later

    asyncio.run(main())


def test_records_that_contradict_the_image_end_it() -> None:
    async def main() -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
        quorum = quorum_node(new_disk(), ME, OTHER)
        quorum.start()
        quorum.heard(2, 3, {})
        publisher = publisher_of(quorum)
        quorum.append_fetched(data_batch(values([r.RemoveTopicRecord(UUID(int=7))]), 0, 3, 1))
        waiting = asyncio.ensure_future(publisher.wait_published(0))
        quorum.advance(1)
        await waiting
        assert reported == ["the metadata cannot be followed any further"]
        assert publisher.image.offset == -1

    asyncio.run(main())


@pytest.mark.parametrize("steps", ["before", "after"])
def test_a_subscriber_whose_steps_fail_stops_nobody(steps: str) -> None:
    def failing(delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        yield
        raise ValueError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(silent)
        quorum = quorum_node(new_disk())
        quorum.start()
        publisher = publisher_of(quorum)
        heard: list[int] = []
        publisher.subscribe(lambda delta, image: heard.append(image.offset), **{steps: failing})
        end = quorum.append(values(topic_records("a", 7)), 1)
        await publisher.wait_published(end - 1)
        assert heard == [0, end - 1]

    asyncio.run(main())


@pytest.mark.parametrize("around", [(), (r.BeginTransactionRecord("x"), r.EndTransactionRecord())])
def test_a_batch_of_thousands_of_records_is_replayed_in_steps(
    around: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 10,000 quotas took 50 ms on every node."""
    count = 3 * RECORDS_PER_STEP + 1
    quotas = [r.ClientQuotaRecord((r.QuotaEntityData("user", f"u{n}"),), "k", 1.0) for n in range(count)]
    records = [*around[:1], *quotas, *around[1:]]
    replayed = 0

    def replaying(record: Any, delta: MetadataDelta) -> None:
        nonlocal replayed
        replayed += 1
        replay(record, delta)

    async def main() -> list[int]:
        quorum = quorum_node(new_disk(), ME, OTHER)
        quorum.start()
        quorum.heard(2, 3, {})
        publisher = publisher_of(quorum)
        monkeypatch.setattr(loader, "replay", replaying)
        quorum.append_fetched(data_batch(values(records), 0, 3, 1))
        quorum.advance(len(records))
        seen = [0]
        while publisher.image.offset < len(records) - 1:
            await asyncio.sleep(0)
            seen.append(replayed)
        assert len(publisher.image.client_quotas) == count == replayed
        return [after - before for before, after in itertools.pairwise(seen)]

    assert max(asyncio.run(main())) <= RECORDS_PER_STEP
