"""What streams groups do with records, timers and the requests of others."""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.coordinator.group.kind import Kind
from ottla.coordinator.group.modern_group import replay, saved
from ottla.coordinator.group.modern_offsets import check_commit, check_commit_in_transaction, check_fetch
from ottla.coordinator.group.streams import heartbeat, offsets
from ottla.coordinator.group.streams import member_removal as fence
from ottla.coordinator.group.streams.describe import describe
from ottla.coordinator.group.streams.group import StreamsGroup

STREAMS_KIND: Final = Kind(
    describe=describe,
    replay=partial(replay, StreamsGroup),
    saved=partial(saved, StreamsGroup),
    counts_at_once=True,
    on_loaded=fence.on_loaded,
    expired=fence.expired,
    check_commit=partial(check_commit, offsets.check_owned),
    check_commit_in_transaction=partial(check_commit_in_transaction, offsets.check_owned),
    check_fetch=check_fetch,
    heartbeat=heartbeat.heartbeat,
)
