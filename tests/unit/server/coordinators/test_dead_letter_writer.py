"""Dead letters of a leader that has just been elected, or is one no more. The rest is in `tests/conformance/groups`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.drivers.replication.dead_letters import Letters
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from ottla.replication.partition import Partition
from ottla.replication.share.dead_letters import COPY, ENABLE, TOPIC, DeadRecords, Reason
from ottla.server.node import Node
from tests.unit.server.coordinators.test_share_fetch import Member, play

LETTERS = "dlq.t"
DEAD = DeadRecords(1, 2, 5, Reason.REJECTED)
TOPIC_TYPE, GROUP_TYPE = 2, 32


async def alter(member: Member, type_: int, name: str, settings: dict[str, str]) -> None:
    configs = [{"name": each, "value": value, "config_operation": 0} for each, value in settings.items()]
    resource = {"resource_type": type_, "resource_name": name, "configs": configs}
    asked = {"resources": [resource], "validate_only": False}
    answer = await member.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    assert not answer["responses"][0]["error_code"], answer


async def buried(node: Node, member: Member, **log: Any) -> tuple[list[bytes | None], int]:
    """Have letters of two records written whose log is as it is, but for what is given; the values of the letters, and
    how often they were said to be done."""
    await member.client.create(LETTERS)
    await alter(member, TOPIC_TYPE, LETTERS, {ENABLE: "true"})
    await alter(member, GROUP_TYPE, "g", {TOPIC: LETTERS, COPY: "true"})
    (partition,) = [each for each in node.replicas if each.topic_partition.topic == "t"]
    real = partition.log
    seen: dict[str, Any] = {
        "read": real.read,
        "log_end_offset": real.log_end_offset,
        "high_watermark": real.high_watermark,
        **log,
    }
    where = SimpleNamespace(topic_partition=partition.topic_partition, log=SimpleNamespace(**seen))
    done: list[None] = []
    writer = node.share.partitions.dead_letters()
    writer.write(Letters("g", cast(Partition, where), DEAD, lambda: done.append(None)))
    await writer._tasks["g"]
    (written,) = [each for each in node.replicas if each.topic_partition.topic == LETTERS]
    end = written.log.log_end_offset
    part = written.log.read(0, 1 << 20, up_to=end)
    data = b"" if part is None else part.read()
    return [each.value for at, _ in iterate_batches(data) for each in iterate_records(data, at)], len(done)


def test_a_new_leader_copies_what_is_committed_before_its_high_watermark_says_so(tmp_path: Path) -> None:
    async def scene(node: Node, member: Member) -> None:
        values, done = await buried(node, member, high_watermark=0)
        assert len(values) == 2 and None not in values and done == 1

    play(tmp_path, scene)


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error])
def test_a_leader_of_before_leaves_its_letters_to_the_next(tmp_path: Path, code: ErrorCode) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise KafkaError(code, "the log is being truncated")

    async def scene(node: Node, member: Member) -> None:
        assert await buried(node, member, read=read) == ([], 0)

    play(tmp_path, scene)


def test_records_that_retention_has_deleted_have_letters_without_a_payload(tmp_path: Path) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise KafkaError(ErrorCode.offset_out_of_range, "the log begins later")

    async def scene(node: Node, member: Member) -> None:
        assert await buried(node, member, read=read) == ([None, None], 1)

    play(tmp_path, scene)
