"""Replication throttles (KIP-73; Kafka's `ReplicationQuotaManager`): how fast replicas are copied.

A rate of the broker holds for those replicas that the topics name. A replica in sync is never held back, but its bytes
count: so moves get what regular replication leaves of the rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ottla.metrics.instruments import TopicTraffic
from ottla.model import Millis, NodeId, TopicPartition

ALL: Final = "*"
UNLIMITED: Final = (1 << 63) - 1


class Rate:
    """Bytes per second over the latest windows (Kafka's `SimpleRate`)."""

    def __init__(self, window_ms: Millis = 1000, windows: int = 11) -> None:
        self._window_ms = window_ms
        self._windows = windows
        self._samples: deque[list[int]] = deque()
        """(start, bytes) of each window, oldest first."""

    def record(self, size_bytes: int, now_ms: Millis) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size_bytes

    def bytes_per_second(self, now_ms: Millis) -> float:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._window_ms * self._windows:
            samples.popleft()
        if not samples:
            return 0.0
        passed_ms = max(now_ms - samples[0][0], self._window_ms)
        return sum(size for _, size in samples) * 1000 / passed_ms


class _HasIsr(Protocol):
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def isr(self) -> tuple[NodeId, ...]: ...


class _Read(Protocol):
    records: object
    traffic: TopicTraffic | None


class Throttle:
    """One side of a broker: what it sends as a leader, or what it fetches as a follower."""

    def __init__(
        self,
        side: str,
        node_id: NodeId,
        settings: Callable[[str], str | None],
        topic_config: Callable[[str], Mapping[str, str]],
        now_ms: Callable[[], Millis],
        total: TopicTraffic,
        rate: Rate,
    ) -> None:
        """`side` is "leader" or "follower"; `settings` gives the text of a dynamic setting of this broker.

        `total` is where all replication is counted.
        """
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._node_id = node_id
        self._settings = settings
        self._topic_config = topic_config
        self._now_ms = now_ms
        self._total = total
        self._rate = rate
        self._named: dict[str, frozenset[int]] = {}
        """Partitions of this broker in a topic's list, by its text."""
        self.traffic = TopicTraffic()
        """Counts what is sent of throttled partitions."""

    @property
    def limit(self) -> int:
        """Bytes per second; without the setting, or with one that is no number, there is none."""
        text = self._settings(self._rate_name)
        try:
            return UNLIMITED if text is None else int(text)
        except ValueError:
            return UNLIMITED

    def covers(self, partition: TopicPartition) -> bool:
        """Whether the topic names this broker's replica."""
        config = self._topic_config(partition.topic)
        if not config:
            return False
        text = config.get(self._replicas_name, "").strip()
        if not text or text == ALL:
            return bool(text)
        named = self._named.get(text)
        if named is None:
            if len(self._named) > 1000:  # lists of moves that are over
                self._named.clear()
            named = self._named[text] = self._parse(text)
        return partition.partition in named

    def _parse(self, text: str) -> frozenset[int]:
        pairs = (each.strip().partition(":") for each in text.split(","))
        return frozenset(int(number) for number, _, broker in pairs if broker == str(self._node_id))

    def record(self, size_bytes: int) -> None:
        """So many bytes of a throttled partition came."""
        self._rate.record(size_bytes, self._now_ms())

    def bytes_per_second(self) -> float:
        self._take_sent()
        return self._rate.bytes_per_second(self._now_ms())

    def is_used_up(self) -> bool:
        limit = self.limit
        return limit < UNLIMITED and self.bytes_per_second() > limit

    def hold_back(self, partition: _HasIsr, follower_id: NodeId, read: _Read) -> None:
        """For a leader: `read` is what a follower would get; it gets nothing while the quota is used up, unless it is
        in sync. What is sent counts."""
        if not self.covers(partition.topic_partition):
            return
        read.traffic = self.traffic
        if follower_id not in partition.isr and self.is_used_up():
            read.records = None

    def _take_sent(self) -> None:
        sent, self.traffic.bytes_out = self.traffic.bytes_out, 0
        if sent:
            self._total.bytes_out += sent
            self._rate.record(sent, self._now_ms())
