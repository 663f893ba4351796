"""What consumer groups do with records, timers and the requests of others."""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.coordinator.group.consumer import classic_members, heartbeat, offsets
from ottla.coordinator.group.consumer import member_removal as fence
from ottla.coordinator.group.consumer.describe import describe
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.kind import ClassicRequests, Kind
from ottla.coordinator.group.modern_group import replay, saved
from ottla.coordinator.group.modern_offsets import check_commit, check_fetch

CONSUMER_KIND: Final = Kind(
    describe=describe,
    replay=partial(replay, ConsumerGroup),
    saved=partial(saved, ConsumerGroup),
    counts_at_once=True,
    on_loaded=fence.on_loaded,
    expired=fence.expired,
    check_commit=partial(check_commit, offsets.check_owned),
    check_commit_in_transaction=offsets.check_commit_in_transaction,
    check_fetch=check_fetch,
    heartbeat=heartbeat.heartbeat,
    classic=ClassicRequests(
        classic_members.join, classic_members.sync, classic_members.heartbeat, classic_members.leave
    ),
)
