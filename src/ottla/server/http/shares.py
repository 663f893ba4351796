"""Reads what a node knows of share groups into metrics: as their coordinator, as the share coordinator, and as the
leader of partitions that they read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.metrics.shared import ACKNOWLEDGE_TYPES
from ottla.metrics.text import Exposition, labels
from ottla.model import SHARE_STATE_TOPIC
from ottla.server.http.lag import LagTimes

if TYPE_CHECKING:
    from ottla.drivers.coordinators.share_coordinator import ShareCoordinatorDriver
    from ottla.drivers.replication.share_partitions import LedSharePartition, SharePartitions
    from ottla.replication.share.share_partition import SharePartition

PARTITIONS_AT_ONCE = 16
"""Share-partitions handled before other clients are served."""


def add_share_coordinator(page: Exposition, driver: ShareCoordinatorDriver, now_s: float) -> None:
    prefix = "kafka_server_share_coordinator_metrics_"
    page.add(f"{prefix}write_total", driver.writes)
    page.add(f"{prefix}write_latency_avg", round(driver.write_ms.average(now_s), 3))
    page.add(f"{prefix}write_latency_max", round(driver.write_ms.maximum(now_s), 3))
    for number, offset in sorted(driver.pruned.items()):
        where = labels(topic=SHARE_STATE_TOPIC, partition=number)
        page.add(f"{prefix}last_pruned_offset", offset, where)


class SharePartitionsCollector:
    """Keeps from one scrape to the next what records it has read the timestamps of."""

    def __init__(self, lag_times: LagTimes, breathe: Callable[[], Awaitable[None]], *, per_partition: bool) -> None:
        self._lag_times = lag_times
        self._breathe = breathe
        self._per_partition = per_partition

    async def add(self, page: Exposition, shares: SharePartitions, now_ms: int) -> None:
        metrics, sessions = shares.metrics, shares.sessions
        page.add("kafka_server_sharesessioncache_sharesessionscount", len(sessions))
        page.add("kafka_server_sharesessioncache_sharepartitionscount", sessions.partition_count())
        prefix = "kafka_server_sharegroupmetrics_"
        for number, name in ACKNOWLEDGE_TYPES.items():
            page.add(f"{prefix}recordacknowledgements_total", metrics.acknowledged[number], labels(ackType=name))
        page.add_histogram(f"{prefix}partitionloadtime_seconds", metrics.load_seconds)
        for group_id, ratio, seconds in metrics.groups():
            page.add_histogram(f"{prefix}requesttopicpartitionsfetchratio", ratio, group=group_id)
            page.add_histogram(f"{prefix}topicpartitionsacquiretime_seconds", seconds, group=group_id)
        for group_id, letters in metrics.letters.items():
            where = labels(group=group_id)
            page.add(f"{prefix}deadletterqueuerecordcount_total", letters.records, where)
            page.add(f"{prefix}deadletterqueuetotalproducerequests_total", letters.requests, where)
            page.add(f"{prefix}deadletterqueuefailedproducerequests_total", letters.failed, where)
        for position, led in enumerate([*shares] if self._per_partition else ()):
            if led.core is not None:
                await self._add_partition(page, led, led.core, now_ms)
            if position % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await self._breathe()

    async def _add_partition(self, page: Exposition, led: LedSharePartition, core: SharePartition, now_ms: int) -> None:
        topic, number = led.partition.topic_partition
        names: dict[str, str | int] = {"group": led.key.group_id, "topic": topic, "partition": number}
        where, metrics = labels(**names), led.metrics
        prefix = "kafka_server_sharepartitionmetrics_"
        page.add(f"{prefix}inflightmessagecount", core.window.count, where)
        page.add(f"{prefix}inflightbatchcount", len(core.window.batches), where)
        page.add(f"{prefix}acquisitionlocktimeout_total", metrics.locks_ended, where)
        page.add_histogram(f"{prefix}inflightbatchmessagecount", metrics.batch_records, **names)
        page.add_histogram(f"{prefix}fetchlocktime_seconds", metrics.lock_seconds, **names)
        page.add_histogram(f"{prefix}fetchlockratio", metrics.lock_ratio, **names)
        held, redelivered = core.window.held()
        page.add("ottla_share_partition_acquired_records", held, where)
        page.add("ottla_share_partition_redelivered_records", redelivered, where)
        waiting = 0 if core.selection is None else core.selection.waiting()
        page.add("ottla_share_partition_waiting_records", waiting, where)
        page.add("ottla_share_partition_bad_delivery_times_total", metrics.bad_delivery_times, where)
        start = core.window.start_offset
        page.add("ottla_share_partition_start_offset", start, where)
        backlog = max(0, led.partition.log.high_watermark - start - core.window.complete_count())
        page.add("ottla_share_partition_backlog_records", backlog, where)
        seconds = 0.0
        if backlog:
            found = await self._lag_times.seconds(f"\0{led.key.group_id}", led.partition, start, now_ms)
            if found is None:
                return
            seconds = found
        page.add("ottla_share_partition_backlog_seconds", seconds, where)
