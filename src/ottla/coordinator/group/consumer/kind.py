"""What consumer groups do with records, timers and the requests of others."""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.coordinator.group.consumer import heartbeat, offsets
from ottla.coordinator.group.consumer import member_removal as fence
from ottla.coordinator.group.consumer.describe import describe
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.kind import Kind
from ottla.coordinator.group.modern_group import replay, saved

CONSUMER_KIND: Final = Kind(
    heartbeat.heartbeat,
    describe,
    partial(replay, ConsumerGroup),
    partial(saved, ConsumerGroup),
    fence.on_loaded,
    fence.expired,
    offsets.check_fetch,
    offsets.check_commit,
    offsets.check_commit_in_transaction,
)
