"""What streams groups do with records, timers and the requests of others."""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.coordinator.group.kind import Kind
from ottla.coordinator.group.modern_group import replay, saved
from ottla.coordinator.group.streams import heartbeat, offsets
from ottla.coordinator.group.streams import member_removal as fence
from ottla.coordinator.group.streams.describe import describe
from ottla.coordinator.group.streams.group import StreamsGroup

STREAMS_KIND: Final = Kind(
    heartbeat.heartbeat,
    describe,
    partial(replay, StreamsGroup),
    partial(saved, StreamsGroup),
    fence.on_loaded,
    fence.expired,
    offsets.check_fetch,
    offsets.check_commit,
    lambda group, request, _: offsets.check_commit_in_transaction(group, request),
)
