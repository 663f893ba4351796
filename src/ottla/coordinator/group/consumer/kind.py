"""What consumer groups do with records, timers and the requests of others."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.consumer import fence, heartbeat, offsets, replay
from ottla.coordinator.group.kind import Kind

CONSUMER_KIND: Final = Kind(
    heartbeat.heartbeat,
    replay.replay,
    replay.saved,
    fence.on_loaded,
    fence.expired,
    offsets.check_fetch,
    offsets.check_commit,
    offsets.check_commit_in_transaction,
)
