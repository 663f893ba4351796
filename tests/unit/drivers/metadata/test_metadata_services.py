"""Metadata on a simulated disk, all parts together: what is written, what a restart finds, what a crash leaves."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import (
    BeginTransactionRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.drivers.parts import ENDPOINTS, LOG, Parts, image_of, new_disk, parts, run


def test_a_fresh_directory_becomes_a_cluster_of_one() -> None:
    fs = new_disk()
    image = run(fs, image_of)
    assert image.features["metadata.version"] == 33
    assert image.brokers[1].active
    assert image.brokers[1].endpoints == ENDPOINTS
    assert image.controllers[1].id == 1
    assert image.config(4, "") == {"min.insync.replicas": "1"}
    assert len(image.cluster_id) == 22
    assert {"bootstrap.checkpoint", "meta.properties"} <= set(fs.listdir("/data"))
    assert {"quorum-state", "partition.metadata", "leader-epoch-checkpoint"} <= set(fs.listdir(LOG))


def test_a_restart_finds_what_was_written_in_a_new_epoch() -> None:
    fs = new_disk()

    async def first(node: Parts) -> MetadataImage:
        await node.create("t", partitions=3)
        return node.image

    before = run(fs, first)
    after = run(fs, image_of)
    assert (before.epoch, after.epoch) == (1, 2)
    assert after.cluster_id == before.cluster_id
    assert after.brokers[1].epoch > before.brokers[1].epoch
    assert after.topic("t").id == before.topic("t").id  # type: ignore[union-attr]
    assert [each.leader_epoch for each in after.topic("t").partitions.values()] == [2, 2, 2]  # type: ignore[union-attr]
    assert after.brokers[1].active


def test_subscribers_hear_of_changes_in_order_before_the_writer() -> None:
    heard: list[str] = []

    async def work(node: Parts) -> None:
        def apply(delta: MetadataDelta, image: MetadataImage) -> None:
            assert node.image is image
            heard.extend(topic.name for topic in delta.created_topics())

        await node.create("before")
        node.publisher.subscribe(apply)
        assert heard == ["before"]
        await node.create("a")
        assert heard == ["before", "a"]
        await asyncio.gather(node.create("b"), node.create("c"))
        assert heard == ["before", "a", "b", "c"]

    run(new_disk(), work)


def test_a_subscriber_that_fails_stops_nobody() -> None:
    async def work(node: Parts) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        node.publisher.subscribe(lambda delta, image: 1 / 0 if delta.topics else None)  # type: ignore[arg-type, return-value]
        assert await node.create("a") == [0]
        assert await node.create("b") == [0]

    run(new_disk(), work)


def test_decisions_that_wait_share_one_fsync() -> None:
    fs = new_disk()

    async def work(node: Parts) -> int:
        before = len(fsynced)
        codes = await asyncio.gather(*(node.create(f"t{number % 10}") for number in range(20)))
        assert sorted(code for (code,) in codes) == [0] * 10 + [ErrorCode.topic_already_exists] * 10
        return len(fsynced) - before

    fsynced: list[str] = []
    check = fs.check_fault

    def recorded(operation: str, path: str, *, change: bool = False) -> None:
        if operation == "fsync" and path.endswith(".log"):
            fsynced.append(path)
        check(operation, path, change=change)

    fs.check_fault = recorded  # type: ignore[method-assign]
    assert run(fs, work) == 1


def test_a_decision_without_records_writes_nothing() -> None:
    async def work(node: Parts) -> None:
        offset = node.image.offset
        assert await node.submit(lambda image, now: Decision(image.offset)) == offset
        assert node.image.offset == offset

    run(new_disk(), work)


@pytest.mark.parametrize(
    ("decide", "error"),
    [
        (lambda image, now: 1 / 0, ZeroDivisionError),
        (lambda image, now: Decision(None, [PartitionRecord()]), Exception),
        (lambda image, now: Decision(None, [TopicRecord(), PartitionRecord(leader=1 << 40)]), Exception),
        (lambda image, now: Decision(None, [NoOpRecord()] * 10_001), KafkaError),
    ],
)
def test_a_decision_that_cannot_be_done_fails_alone(decide: Any, error: type[Exception]) -> None:
    async def work(node: Parts) -> None:
        offset = node.image.offset
        with pytest.raises(error):
            await node.submit(decide)
        assert node.image.offset == offset
        assert await node.create("t") == [0]

    fs = new_disk()
    run(fs, work)
    assert run(fs, image_of).topic("t") is not None


def test_a_caller_that_gives_up_does_not_undo_what_was_begun() -> None:
    async def work(node: Parts) -> None:
        task = asyncio.get_running_loop().create_task(node.create("t"))
        await asyncio.sleep(0)
        task.cancel()
        await node.create("u")
        assert node.image.topic("t") is not None

    run(new_disk(), work)


def test_producer_ids_are_never_given_twice() -> None:
    fs = new_disk()

    async def work(node: Parts) -> list[int]:
        return list(await asyncio.gather(*(node.producer_ids.next() for _ in range(1500))))

    first, second = run(fs, work), run(fs, work)
    assert first == list(range(1500))
    assert second == list(range(2000, 3500))


def test_after_a_disk_error_nothing_more_is_accepted() -> None:
    fs = new_disk()

    async def work(node: Parts) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        before = node.image
        fs.fail("fsync", errno.EIO, path=LOG)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await node.create("t")
            assert caught.value.code == ErrorCode.kafka_storage_error
        assert node.image is before
        await node.stop()

    run(fs, work, stop=False)
    fs.restart(power_loss=True)
    assert run(fs, image_of).brokers[1].active


def test_a_stopped_controller_says_so() -> None:
    async def work(node: Parts) -> None:
        await node.stop()
        with pytest.raises(KafkaError) as caught:
            await node.create("t")
        assert caught.value.code == ErrorCode.not_controller

    run(new_disk(), work, stop=False)


def test_half_a_transaction_has_no_effect() -> None:
    fs = new_disk()

    async def work(node: Parts) -> None:
        records = [BeginTransactionRecord("x"), ConfigRecord(4, "", "a", "1")]
        await node.submit(lambda image, now: Decision(None, records))

    run(fs, work, stop=False)
    assert "a" not in run(fs, image_of).config(4, "")
    assert "a" not in run(fs, image_of).config(4, "")


def test_a_directory_of_several_controllers_is_refused() -> None:
    fs = new_disk()
    run(fs, image_of)

    async def start() -> None:
        node = parts(fs)
        node.quorum.log.write_quorum_state(QuorumStateFile(1, 9, voters=(1, 2, 3), data_version=0))
        await node.start()

    with pytest.raises(OttlaError, match="controllers 2, 3"):
        asyncio.run(start())


def test_a_directory_without_its_identity_is_refused() -> None:
    fs = new_disk()
    run(fs, image_of)
    fs.remove("/data/meta.properties")
    with pytest.raises(OttlaError, match=r"no meta\.properties"):
        run(fs, image_of)


def test_several_directories_share_the_cluster_and_differ_in_id() -> None:
    fs = new_disk()
    fs.makedirs("/more")

    async def ids(node: Parts) -> dict[str, Any]:
        return dict(node.directory_ids)

    found = run(fs, ids, log_dirs="/data,/more")
    assert list(found) == ["/data", "/more"]
    assert len(set(found.values())) == 2
    assert run(fs, ids, log_dirs="/data,/more") == found


# Snapshots


def snapshots(fs: SimulatedFileSystem) -> list[str]:
    return [name for name in fs.listdir(LOG) if name.endswith(".checkpoint")]


def test_a_snapshot_replaces_the_log_below_it() -> None:
    fs = new_disk()
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "1"}

    async def work(node: Parts) -> MetadataImage:
        for number in range(60):
            await node.create(f"t{number}", partitions=2)
            for _ in range(8):
                await asyncio.sleep(0)
        return node.image

    before = run(fs, work, **settings)
    assert len(snapshots(fs)) == 1
    after = run(fs, image_of, **settings)
    assert set(after.topics_by_name) == set(before.topics_by_name)
    assert after.configs == before.configs
    assert after.brokers[1].log_dirs == before.brokers[1].log_dirs


def test_without_a_log_the_snapshot_is_enough() -> None:
    fs = new_disk()

    async def work(node: Parts) -> None:
        await node.create("t", partitions=2)
        node.snapshots.begin()
        assert node.snapshots._task is not None
        await node.snapshots._task

    run(fs, work)
    assert len(snapshots(fs)) == 1
    for name in fs.listdir(LOG):
        if name.endswith((".log", ".index", ".timeindex")) or name in ("leader-epoch-checkpoint", "fsynced-end"):
            fs.remove(f"{LOG}/{name}")
    after = run(fs, image_of)
    assert len(after.topic("t").partitions) == 2  # type: ignore[union-attr]


def test_a_start_that_replays_much_history_writes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.drivers.metadata.snapshot_generator.REPLAY_RECORDS_FREE", 50)
    fs = new_disk()

    async def work(node: Parts) -> None:
        for number in range(100):
            record = ConfigRecord(4, "", "a", str(number))
            await node.submit(lambda image, now, record=record: Decision(None, [record]))  # type: ignore[misc]

    run(fs, work)
    assert not snapshots(fs)
    assert run(fs, image_of).config(4, "")["a"] == "99"
    assert len(snapshots(fs)) == 1
    assert run(fs, image_of).config(4, "")["a"] == "99"


# Crashes


async def _script(node: Parts, acknowledged: set[str]) -> None:
    await node.start()
    await node.register_broker()
    for number in range(4):
        name = f"t{number}"
        if node.image.topic(name) is None:
            await node.create(name, partitions=2)
        acknowledged.add(name)
        if number == 2:
            node.snapshots.begin()
    await node.stop()


def _crash(fs: SimulatedFileSystem, steps: int) -> tuple[bool, set[str]]:
    acknowledged: set[str] = set()
    fs.crash_after(steps)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        # A task that crashed is reported here, not when it is collected within any other test.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await _script(parts(fs), acknowledged)

    try:
        asyncio.run(main())
    except (SimulatedCrash, KafkaError):
        return True, acknowledged
    return False, acknowledged


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_step_loses_nothing_acknowledged(power_loss: bool) -> None:
    """Crash at every step of a first start and some work, start again, and find all that was acknowledged."""
    step = 0
    crashed = True
    while crashed:
        fs = new_disk(seed=step)
        crashed, acknowledged = _crash(fs, step)
        fs.restart(power_loss=power_loss)
        image = run(fs, image_of)
        assert acknowledged <= set(image.topics_by_name), f"lost at step {step}"
        assert image.features["metadata.version"] == 33
        for topic in image.topics_by_name.values():
            assert len(topic.partitions) == 2, f"half a decision at step {step}"
        again = run(fs, image_of)
        assert set(again.topics_by_name) == set(image.topics_by_name)
        assert again.epoch > image.epoch
        step += 1
    assert step > 20


def test_a_new_controller_hears_of_this_broker_at_once() -> None:
    """It notices a death by the connection of heartbeats. A broker that was killed before its next heartbeat in order
    kept its leaderships until its session had ended."""
    fs = new_disk()

    async def work(node: Parts) -> list[int]:
        beats: list[int] = []
        node.lifecycle.say_now = lambda: beats.append(1)  # type: ignore[method-assign]
        counts = []
        for leader in (1, -1, 2, -1, 3):
            for heard in node.quorum.on_leader_change:
                heard(leader, 9)
            counts.append(len(beats))
        return counts

    assert run(fs, work) == [0, 0, 1, 1, 2]
