"""When a snapshot of the metadata is due, and what is in it (Kafka's `SnapshotGenerator`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.clock import Clock
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.writer import encode, image_records
from ottla.model import Millis
from ottla.quorum.snapshot import SnapshotId, write_snapshot

SNAPSHOT_CHECK_SECONDS = 60.0
"""How often to look whether a snapshot is due by time."""

REPLAY_RATIO_MAX = 2
"""A start that replays more records than this times the partitions (and a few thousand) writes a snapshot, so that
starting costs what the cluster has, not what ever happened to it."""
REPLAY_RECORDS_FREE = 20_000


class SnapshotSettings(NamedTuple):
    bytes_between: int
    """`metadata.log.max.record.bytes.between.snapshots`"""
    interval_ms: Millis
    """`metadata.log.max.snapshot.interval.ms`; 0 for none by time."""


class SnapshotGenerator:
    """Follows the published images of one node."""

    def __init__(
        self, quorum: QuorumNode, publisher: MetadataPublisher, clock: Clock, settings: SnapshotSettings
    ) -> None:
        self._quorum = quorum
        self._publisher = publisher
        self._clock = clock
        self._settings = settings
        self._last_ms: Millis = clock.now_ms()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._stopped = False

    def start(self) -> None:
        self._publisher.subscribe(self._on_image)
        replayed_max = REPLAY_RECORDS_FREE + REPLAY_RATIO_MAX * self._publisher.image.partition_count
        if self._publisher.replayed > replayed_max or self._quorum.log.is_foreign:
            self.begin()
        self._arm()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_CHECK_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._begin_if_due()
        self._arm()

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._begin_if_due()

    def _begin_if_due(self) -> None:
        written, interval = self._quorum.log.bytes_since_snapshot, self._settings.interval_ms
        by_time = 0 < interval <= self._clock.now_ms() - self._last_ms and written > 0
        if written >= self._settings.bytes_between or by_time:
            self.begin()

    def begin(self) -> None:
        """Write the current image as a snapshot in a disk thread; an image never changes, so that is safe."""
        if (self._task is not None and not self._task.done()) or self._stopped or self._quorum.failure:
            return
        image = self._publisher.image
        if image.offset < 0 or self._publisher.open_transaction:
            return
        newest = self._quorum.log.newest_snapshot
        if newest is not None and newest.end_offset > image.offset:
            return  # it has all that the image has
        self._quorum.log.bytes_since_snapshot = 0
        self._last_ms = self._clock.now_ms()
        self._task = asyncio.get_running_loop().create_task(self._write(image))

    async def _write(self, image: MetadataImage) -> None:
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        voters = self._quorum.core.configurations.at(image.offset)  # `committed` is old until the first fetch
        batches = _snapshot_batches(image, voters.records(), self._clock.now_ms())
        await self._quorum.write_snapshot(snapshot, batches)


def _snapshot_batches(image: MetadataImage, voters: Sequence[Any], now: Millis) -> Iterator[bytearray]:
    level = features.metadata_version(image.features)
    values = (encode(record, level) for record in image_records(image))
    return write_snapshot(values, epoch=image.epoch, last_timestamp=image.timestamp_ms, now=now, voters=voters)
