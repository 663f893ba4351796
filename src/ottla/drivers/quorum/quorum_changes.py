"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and upgrades of `kraft.version` at the leader: append the change, wait
until it is committed."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import ErrorCode, KafkaError
from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.schemas.records import Voter
from ottla.quorum import changes
from ottla.quorum.state import Ready
from ottla.quorum.voters import ReplicaKey

TIMEOUT_MS = 30_000
"""For requests that name none."""


async def add(node: QuorumNode, new: Voter, timeout_ms: Millis, *, wait: bool = True) -> None:
    """Make an observer a voter; it reports itself which versions it supports. Without `wait` the change is only
    appended. Raises KafkaError."""
    from ottla.drivers.quorum.quorum_membership import supported_levels  # a quorum of one has no use for it

    changes.check_new(node.core, new)
    new = new.replaced(kraft_version_feature=await supported_levels(node, new))
    await node.persisted()
    await _change(node, (changes.added(node.core, new, node.now_ms()),), timeout_ms if wait else 0)


async def remove(node: QuorumNode, key: ReplicaKey, timeout_ms: Millis = TIMEOUT_MS) -> None:
    """Remove a voter; a leader that removes itself leads until that is committed. Raises KafkaError."""
    await node.persisted()
    await _change(node, (changes.removed(node.core, key, node.now_ms()),), timeout_ms)


async def update(node: QuorumNode, epoch: LeaderEpoch, new: Voter) -> None:
    """Note where a voter is reached. Raises KafkaError."""
    await node.persisted()
    record = changes.updated(node.core, epoch, new, node.settings.listener)
    if record is not None:
        await _change(node, (record,), 0)


def check_upgrade(node: QuorumNode, version: int) -> None:
    """Raises KafkaError where `upgrade` would now."""
    changes.upgraded(node.core, version)


async def upgrade(node: QuorumNode, version: int) -> None:
    """Make a static quorum one whose voters can be changed (`kraft.version` 1). Raises KafkaError."""
    await node.persisted()
    if records := changes.upgraded(node.core, version):
        await _change(node, records, TIMEOUT_MS)


async def _change(node: QuorumNode, records: tuple[Any, ...], timeout_ms: Millis) -> None:
    """What was decided on this moment's voters; `persisted` was waited for before."""
    if not node.serves:
        raise KafkaError(ErrorCode.not_leader_or_follower)
    before = node.end_offset
    node.take(Ready(control_records=records))
    epoch, end = node.epoch, node.end_offset
    if end == before:
        raise node.failure or KafkaError(ErrorCode.kafka_storage_error, "the change does not fit into the metadata log")
    if timeout_ms > 0:
        await _committed(node, epoch, end, timeout_ms)


async def _committed(node: QuorumNode, epoch: LeaderEpoch, end: Offset, timeout_ms: Millis) -> None:
    moved = asyncio.Event()
    node.on_append.append(moved.set)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while node.high_watermark < end:
                if node.epoch != epoch:
                    raise KafkaError(ErrorCode.not_leader_or_follower, "another node is the leader now")
                await moved.wait()
                moved.clear()
    except TimeoutError:
        raise KafkaError(ErrorCode.request_timed_out, "the change is not committed yet") from None
    finally:
        node.on_append.remove(moved.set)
