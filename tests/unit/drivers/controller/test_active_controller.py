"""The active controller: decisions pipeline, answers wait for their commit, brokers live and die by heartbeats."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.controller import requests
from ottla.controller.decision import Decision
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages import ApiKey
from tests.unit.drivers.parts import LOG, HeldFsyncs, Parts, new_disk, parts, run, run_virtual, silent, turns


def asked(*names: str, **fields: Any) -> dict[str, Any]:
    """A CreateTopics request."""
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []} for name in names]
    return {"topics": topics, **fields}


def test_a_slow_subscriber_holds_back_no_decision() -> None:
    """What a broker does for a change, its logs say, is not the controller's to wait for."""

    async def work(node: Parts) -> None:
        gate = False
        steps = 0

        def slow(delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
            nonlocal steps
            while not gate:
                steps += 1
                yield

        heard: list[str] = []
        node.publisher.subscribe(
            lambda delta, image: heard.extend(topic.name for topic in delta.created_topics()), before=slow
        )
        local = asyncio.ensure_future(node.channel.send(ApiKey.CREATE_TOPICS, asked("a")))
        await turns(1)
        remote = [await node.controller.request(ApiKey.CREATE_TOPICS, asked(name)) for name in ("b", "a", "c")]
        assert [answer.response["topics"][0]["error_code"] for answer in remote] == [
            0,
            ErrorCode.topic_already_exists,
            0,
        ]
        assert set(node.controller.image.topics_by_name) == {"a", "b", "c"}
        assert not heard and not node.image.topics_by_name and not local.done()
        assert steps > 0
        gate = True
        await local
        await node.publisher.wait_published(remote[-1].offset)
        assert heard == ["a", "b", "c"]

    run(new_disk(), work)


def test_decisions_go_on_while_an_fsync_is_under_way_and_are_answered_after_it() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        fs.close_gate()
        first = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("a")))
        await turns()
        again = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("a")))
        await turns()
        assert "a" in node.controller.image.topics_by_name
        assert not first.done() and not again.done(), "the refusal rests on what may still be lost"
        assert node.image.topic("a") is None
        fs.open_gate()
        assert (await first).response["topics"][0]["error_code"] == 0
        assert (await again).response["topics"][0]["error_code"] == ErrorCode.topic_already_exists
        assert (await again).offset == (await first).offset

    run(fs, work)
    assert fs.held >= 1


def test_blocks_of_producer_ids_that_are_asked_for_at_once_are_different() -> None:
    """Though the first one is not committed when the next is decided: an image behind it would give it twice."""
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        fs.close_gate()
        request = {"broker_id": 1, "broker_epoch": node.lifecycle.broker_epoch}
        waiting = []
        for _ in range(3):
            waiting.append(asyncio.ensure_future(node.controller.request(ApiKey.ALLOCATE_PRODUCER_IDS, request)))
            await turns()
        assert not any(each.done() for each in waiting)
        fs.open_gate()
        blocks = [(await each).response for each in waiting]
        assert [each["producer_id_start"] for each in blocks] == [0, 1000, 2000]

    run(fs, work)
    assert fs.held >= 1


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_between_append_and_commit_takes_nothing_that_was_said(power_loss: bool) -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        await node.create("kept")
        fs.close_gate()
        waiting = asyncio.ensure_future(node.channel.send(ApiKey.CREATE_TOPICS, asked("open")))
        await turns()
        assert node.quorum.end_offset > node.quorum.high_watermark
        assert not waiting.done() and node.image.topic("open") is None

    run(fs, work, stop=False)
    fs.gate = None
    fs.restart(power_loss=power_loss)

    async def names(node: Parts) -> list[str]:
        return sorted(node.image.topics_by_name)

    found = run(fs, names)
    assert "kept" in found
    assert found == run(fs, names), "what a restart finds is decided, one way or the other"


def test_a_request_that_does_not_fit_on_the_disk_is_refused_alone() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        fs.close_gate()
        first = asyncio.ensure_future(node.create("a"))
        await turns()
        full = fs.fail("write", errno.ENOSPC, path=LOG, times=1)
        with pytest.raises(KafkaError) as caught:
            await node.create("b")
        assert caught.value.code == ErrorCode.kafka_storage_error
        assert full.fired == 1
        third = asyncio.ensure_future(node.create("c"))
        await turns()
        fs.open_gate()
        assert await first == await third == [0]
        assert set(node.image.topics_by_name) == {"a", "c"}

    run(fs, work)


def test_a_failed_fsync_fails_all_that_wait() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        asyncio.get_running_loop().set_exception_handler(silent)
        before = node.image
        fs.close_gate()
        waiting = [
            asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked(n))) for n in ("a", "a", "b")
        ]
        await turns()
        fs.fail("fsync", errno.EIO, path=LOG)
        fs.open_gate()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [each.code for each in outcomes if isinstance(each, KafkaError)] == [ErrorCode.kafka_storage_error] * 3
        assert node.image is before
        await node.stop()

    run(fs, work, stop=False)


def test_what_no_controller_serves_is_refused() -> None:
    async def work(node: Parts) -> None:
        for key in (ApiKey.PRODUCE, ApiKey.HEARTBEAT):
            with pytest.raises(KafkaError) as caught:
                await node.channel.send(key, {})
            assert caught.value.code == ErrorCode.unsupported_version

    run(new_disk(), work)


def test_defaults_follow_the_newest_dynamic_settings() -> None:
    """Also those that were decided a moment ago and that nobody has published yet."""

    async def work(node: Parts) -> None:
        entry = {"name": "num.partitions", "config_operation": 0, "value": "1"}
        resource = {
            "resource_type": 4,
            "resource_name": "",
            "configs": [{**entry, "name": "log.retention.ms", "value": "7"}],
        }
        changed = asyncio.ensure_future(
            node.controller.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
        )
        created = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("t")))
        assert (await changed).response["responses"][0].get("error_code", 0) == 0
        (row,) = (await created).response["topics"]
        assert {each["name"]: each["value"] for each in row["configs"]}["retention.ms"] == "7"
        assert node.config["log.retention.ms"] != 7, "the node itself has not applied it: nobody told it here"

    run(new_disk(), work)


# The life of brokers.

OTHER_DIRECTORY = UUID(int=0xD2)


def registration(node: Parts, incarnation: int = 5, **fields: Any) -> dict[str, Any]:
    """A registration of broker 2 in another process."""
    from ottla.metadata import features

    return {
        "broker_id": 2,
        "cluster_id": node.cluster_id,
        "incarnation_id": UUID(int=incarnation),
        "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 2, "security_protocol": 0}],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in features.SUPPORTED.items()
        ],
        "rack": None,
        "log_dirs": (OTHER_DIRECTORY,),
        **fields,
    }


async def join(node: Parts, incarnation: int = 5) -> int:
    """Broker 2 registers and is unfenced; its epoch."""
    answer = await node.controller.request(ApiKey.BROKER_REGISTRATION, registration(node, incarnation))
    epoch: int = answer.response["broker_epoch"]
    assert not (await beat(node, epoch))["is_fenced"]
    return epoch


async def beat(node: Parts, epoch: int, **fields: Any) -> dict[str, Any]:
    request = {
        "broker_id": 2,
        "broker_epoch": epoch,
        "current_metadata_offset": node.controller.image.offset,
        "want_fence": False,
        "want_shut_down": False,
        **fields,
    }
    return (await node.controller.request(ApiKey.BROKER_HEARTBEAT, request)).response


def test_heartbeats_that_change_nothing_write_nothing() -> None:
    async def work(node: Parts) -> None:
        epoch = await join(node)
        end = node.quorum.end_offset
        for _ in range(50):
            assert await beat(node, epoch) == {
                "error_code": 0,
                "is_caught_up": True,
                "is_fenced": False,
                "should_shut_down": False,
            }
        assert node.quorum.end_offset == end

    run(new_disk(), work)


async def started() -> Parts:
    node = parts(new_disk())
    await node.start()
    await node.register_broker()
    return node


def test_a_broker_that_is_not_heard_of_for_a_session_is_fenced() -> None:
    async def main() -> None:
        node = await started()
        loop = asyncio.get_running_loop()
        epoch = await join(node)
        for _ in range(4):
            await asyncio.sleep(8)
            await beat(node, epoch)
        assert not node.image.brokers[2].fenced
        quiet_since = loop.time()
        fenced_s = loop.create_future()
        node.publisher.subscribe(
            lambda delta, image: (
                fenced_s.set_result(loop.time()) if image.brokers[2].fenced and not fenced_s.done() else None
            )
        )
        assert await fenced_s == quiet_since + 9
        assert not node.controller.image.brokers[1].fenced, "its own broker is this process"
        assert not (await beat(node, epoch))["is_fenced"], "it is back"
        await node.stop()

    run_virtual(main())


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_controller_that_stood_still_until_a_session_was_over_listens_before_it_fences(is_heard: bool) -> None:
    async def main() -> None:
        node = await started()
        loop: Any = asyncio.get_running_loop()
        epoch = await join(node)
        loop.now_s += 9.2
        await asyncio.sleep(0.1)
        assert not node.controller.image.brokers[2].fenced
        if is_heard:
            assert not (await beat(node, epoch))["is_fenced"]
        await asyncio.sleep(9 / 4)
        assert node.controller.image.brokers[2].fenced is not is_heard
        await node.stop()

    run_virtual(main())


def test_a_controller_that_hears_nobody_of_several_listens_before_it_fences() -> None:
    """Its timer may be on time: it stood still until a moment ago."""

    async def main() -> None:
        node = await started()
        epoch = await join(node)
        other = {**registration(node, 6), "broker_id": 3, "log_dirs": (UUID(int=0xD3),)}
        other_epoch = (await node.controller.request(ApiKey.BROKER_REGISTRATION, other)).response["broker_epoch"]
        await beat(node, other_epoch, broker_id=3)
        await asyncio.sleep(9.1)
        assert not any(node.controller.image.brokers[each].fenced for each in (2, 3))
        await beat(node, epoch)
        await asyncio.sleep(9 / 4)
        assert [node.controller.image.brokers[each].fenced for each in (2, 3)] == [False, True]
        await node.stop()

    run_virtual(main())


def test_after_its_process_stood_still_a_controller_gives_every_broker_a_session() -> None:
    async def main() -> None:
        node = await started()
        loop: Any = asyncio.get_running_loop()
        epoch = await join(node)
        loop.now_s += 3600  # SIGSTOP: timers are late, and heartbeats wait in the sockets
        await asyncio.sleep(0.1)
        assert not node.controller.image.brokers[2].fenced
        assert not (await beat(node, epoch))["is_fenced"]
        await node.stop()

    run_virtual(main())


def test_a_second_process_with_the_same_id_waits_for_the_session_of_the_first() -> None:
    async def main() -> None:
        node = await started()
        first = await join(node)
        with pytest.raises(KafkaError) as caught:
            await node.controller.request(ApiKey.BROKER_REGISTRATION, registration(node, 6))
        assert caught.value.code == ErrorCode.duplicate_broker_registration
        await asyncio.sleep(10)
        second = await join(node, 6)
        assert second > first
        with pytest.raises(KafkaError) as caught:
            await beat(node, first)
        assert caught.value.code == ErrorCode.stale_broker_epoch
        await node.stop()

    run_virtual(main())


def test_one_that_was_let_go_is_followed_at_once_by_the_next() -> None:
    async def main() -> None:
        node = await started()
        epoch = await join(node)
        answer = await beat(node, epoch, want_shut_down=True)
        assert answer["should_shut_down"] and answer["is_fenced"]
        assert await join(node, 6) > epoch
        await node.stop()

    run_virtual(main())


def test_before_it_is_active_and_after_it_resigned_a_controller_refuses() -> None:
    async def work(node: Parts) -> None:
        node.controller.resign()
        for key, request in ((ApiKey.CREATE_TOPICS, asked("t")), (ApiKey.BROKER_HEARTBEAT, {"broker_id": 1})):
            with pytest.raises(KafkaError) as caught:
                await node.controller.request(key, request)
            assert caught.value.code == ErrorCode.not_controller

    run(new_disk(), work)


def test_who_resigns_answers_what_is_not_committed() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        fs.close_gate()
        waiting = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("a")))
        await turns()
        node.controller.resign()
        with pytest.raises(KafkaError) as caught:
            await waiting
        assert caught.value.code == ErrorCode.not_controller
        fs.open_gate()
        await turns()
        assert node.image.topic("a") is not None, "committed all the same, and read from the log"

    run(fs, work, stop=False)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_a_decision_that_was_under_way_when_it_resigned_is_not_carried_out(writes: bool, again: bool) -> None:
    """Not even where it leads again by then: the image that it was taken on may never have been committed."""

    async def work(node: Parts) -> None:
        controller = node.controller
        before, end = controller.image, node.quorum.end_offset

        def slowly(image: MetadataImage, now: int) -> Any:
            while not gate:
                yield None
            decided = requests.decide(ApiKey.CREATE_TOPICS, image, asked("a"), controller._inputs(image))
            decision = yield from decided
            return decision if writes else Decision(decision.response)

        gate = False
        under_way = asyncio.ensure_future(controller.submit(slowly))
        await turns()
        assert not under_way.done()
        controller.resign()
        if again:
            controller.activate()
        gate = True
        with pytest.raises(KafkaError) as refused:
            await under_way
        assert refused.value.code is ErrorCode.not_controller
        assert controller.image is before and node.quorum.end_offset == end
        if not again:
            controller.activate()
        await controller.request(ApiKey.CREATE_TOPICS, asked("c"))  # it goes on

    run(new_disk(), work)
