"""A controller becomes the active one and resigns as its node leads and does not, any number of times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.controller.decision import Decision
from ottla.drivers.controller.controller_channel import LocalControllerChannel
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.metadata.writer import encode
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import BeginTransactionRecord, ConfigRecord, LeaderChangeMessage
from ottla.quorum.snapshot import control_batch
from tests.unit.drivers.parts import HeldFsyncs, Parts, new_disk, run, turns


def tell(node: Parts, leader_id: int, epoch: int) -> None:
    """As the quorum does when another leads, or this node again."""
    for callback in list(node.quorum.on_leader_change):
        callback(leader_id, epoch)


def asked(name: str) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout": 1000, "validate_only": False}


def test_who_loses_the_lead_refuses_and_who_leads_again_goes_on() -> None:
    async def work(node: Parts) -> None:
        assert node.controller is not None and node.controller.active
        for epoch in (10, 20, 30):
            assert await node.create(f"t{epoch}") == [0]
            tell(node, 2, epoch)
            assert not node.controller.active
            with pytest.raises(KafkaError) as refused:
                await node.controller.request(ApiKey.CREATE_TOPICS, asked("x"))
            assert refused.value.code is ErrorCode.not_controller
            tell(node, -1, epoch + 1)
            tell(node, node.node_id, epoch + 2)
            await turns()
            assert node.controller.active
        assert await node.create("t10", "t20", "t30", "new") == [ErrorCode.topic_already_exists] * 3 + [0]

    run(new_disk(), work)


def test_who_asked_a_controller_that_resigned_hears_that_it_is_none_and_may_find_it_done() -> None:
    """What it decided was in the log: another leader may commit it, and so may this node when it leads again."""
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        assert node.controller is not None
        fs.close_gate()
        waiting = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("a")))
        await turns()
        tell(node, -1, 10)
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.not_controller
        assert node.image.topic("a") is None
        tell(node, node.node_id, 11)
        await turns()
        assert not node.controller.active, "what its log has is not committed yet"
        fs.open_gate()
        await turns()
        assert node.controller.active
        assert await node.create("a") == [ErrorCode.topic_already_exists]

    run(fs, work)


def test_leadership_that_ends_before_the_log_is_published_activates_nobody() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        assert node.controller is not None
        fs.close_gate()
        waiting = asyncio.ensure_future(node.controller.request(ApiKey.CREATE_TOPICS, asked("a")))
        await turns()
        tell(node, 2, 10)
        tell(node, node.node_id, 11)
        tell(node, 2, 12)
        fs.open_gate()
        with pytest.raises(KafkaError):
            await waiting
        await turns()
        assert node.image.topic("a") is not None and not node.controller.active
        tell(node, node.node_id, 13)
        await turns()
        assert node.controller.active

    run(fs, work)


def test_a_transaction_that_the_last_leader_left_open_is_aborted_and_holds_up_nobody() -> None:
    async def work(node: Parts) -> None:
        assert node.controller is not None

        def half(image: MetadataImage, now: int) -> Decision[None]:
            return Decision(None, [BeginTransactionRecord("x"), ConfigRecord(4, "", "log.retention.ms", "5")])

        tell(node, 2, 10)
        decision = half(node.image, 0)
        node.quorum.append([encode(each, 30) for each in decision.records], 1)
        await turns()
        assert node.publisher.open_transaction
        tell(node, node.node_id, 11)
        await turns()
        assert node.controller.active and not node.publisher.open_transaction
        assert "log.retention.ms" not in node.image.config(4, "")
        assert await node.create("t") == [0]

    run(new_disk(), work)


def test_records_of_the_quorum_may_come_between_those_of_the_controller() -> None:
    """Voters records are written by the quorum itself, also while the controller decides."""

    async def work(node: Parts) -> None:
        for number in range(3):
            assert await node.create(f"a{number}") == [0]
            empty_batch(node)
            await turns()
            assert node.image.offset == node.quorum.end_offset - 1
            assert await node.create(f"b{number}") == [0]
        assert node.image.topic("b2") is not None and node.image.topic("a0") is not None

    run(new_disk(), work)


def empty_batch(node: Parts) -> None:
    quorum = node.quorum
    change = LeaderChangeMessage(0, node.node_id, (), ())
    quorum.log.append(control_batch([change], quorum.end_offset, quorum.epoch, 1), 1)
    quorum.core.on_appended(quorum.log.log.log_end_offset, quorum.epoch)
    quorum._appended()


class Elsewhere:
    def __init__(self) -> None:
        self.asked: list[ApiKey] = []

    async def send(self, api_key: ApiKey, request: Any, **more: Any) -> dict[str, Any]:
        self.asked.append(api_key)
        return {"topics": [{"error_code": 0}]}


def test_a_request_is_a_call_while_this_node_leads_and_goes_elsewhere_while_another_does() -> None:
    fs = HeldFsyncs()

    async def work(node: Parts) -> None:
        assert node.controller is not None
        others = Elsewhere()
        channel = LocalControllerChannel(node.controller, node.publisher, lambda: others)
        await channel.send(ApiKey.CREATE_TOPICS, asked("a"))
        assert others.asked == [] and node.image.topic("a") is not None
        fs.close_gate()
        waiting = asyncio.ensure_future(channel.send(ApiKey.CREATE_TOPICS, asked("b")))
        await turns()
        assert others.asked == []
        tell(node, 2, 10)
        await waiting
        assert others.asked == [ApiKey.CREATE_TOPICS], "asked again where the next one is"
        await channel.send(ApiKey.CREATE_TOPICS, asked("c"))
        assert len(others.asked) == 2
        fs.open_gate()

    run(fs, work)
