"""Counters that the hot path touches: plain objects with slots, changed by the event loop's thread only.

Whoever counts holds the object itself, so that counting is an addition and never a look-up by labels.
"""

from __future__ import annotations

from collections import Counter

REQUEST_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of request times: from a produced batch to a member that waits for a rebalance."""

FLUSH_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LOOP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """How many values fell at or below each bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Counts by bucket, not cumulative; the last counts values above all bounds."""
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        bounds = self.bounds
        index, count = 0, len(bounds)
        # Not `bisect`: most values are small, and compiled this takes a quarter of the instructions of that call.
        while index < count:
            bound = bounds[index]
            if bound >= value:
                break
            index += 1
        self.counts[index] += times
        self.sum += value * times


class ApiStats:
    """The requests of one API."""

    __slots__ = ("errors", "seconds", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        """Requests by version."""
        self.errors: dict[str, int] = {}
        """Errors in answers, by Kafka's name."""
        self.seconds = Histogram(REQUEST_SECONDS)
        """Time from receiving a request to handing its answer to the socket."""

    def answered(self, version: int, seconds: float, times: int = 1) -> None:
        self.versions[version] = self.versions.get(version, 0) + times
        self.seconds.add(seconds, times)

    def failed(self, error: str, times: int = 1) -> None:
        self.errors[error] = self.errors.get(error, 0) + times


class TopicTraffic:
    """Traffic of one topic on this node since its start (Kafka's `BrokerTopicMetrics`)."""

    __slots__ = ("bytes_in", "bytes_out", "bytes_rejected", "failed_fetches", "failed_produces",
                 "failed_share_acknowledges", "failed_share_fetches", "fetches", "messages_in", "produces",
                 "share_acknowledges", "share_fetches")  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        """Bytes of batches that were too large."""
        self.produces = 0
        """Appends to single partitions."""
        self.fetches = 0
        """Reads of single partitions, repeated ones of a waiting fetch included."""
        self.failed_produces = 0
        self.failed_fetches = 0
        self.share_fetches = 0
        """Share fetches and acknowledgements (KIP-932) count once for each topic in a request."""
        self.share_acknowledges = 0
        self.failed_share_fetches = 0
        self.failed_share_acknowledges = 0

    def count_append(self, size_bytes: int, first: int, last: int) -> None:
        """A batch was appended."""
        self.bytes_in += size_bytes
        self.messages_in += last - first + 1
        self.produces += 1

    def add(self, other: TopicTraffic) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class OffsetCounts:
    """Counters of committed offsets on this node since its start."""

    __slots__ = ("commits", "deletions", "expirations")

    def __init__(self) -> None:
        self.commits = 0
        self.deletions = 0
        self.expirations = 0


class NodeMetrics:
    """Everything that one node counts by itself; the rest is read from its state when somebody asks."""

    __slots__ = ("_apis", "deleted_topics", "failed_isr_updates", "flush_seconds", "isr_expands", "isr_shrinks",
                 "loop_lag_seconds", "offsets", "rebalances", "rebalances_of", "replication", "topics")  # fmt: skip

    def __init__(self) -> None:
        self._apis: dict[int, ApiStats] = {}
        self.topics: dict[str, TopicTraffic] = {}
        self.deleted_topics = TopicTraffic()
        """The sum of topics that are gone, so that the totals of all topics never go down."""
        self.flush_seconds = Histogram(FLUSH_SECONDS)
        self.loop_lag_seconds = Histogram(LOOP_SECONDS)
        self.offsets = OffsetCounts()
        self.rebalances = 0
        """Rebalances of classic groups that were completed."""
        self.rebalances_of: Counter[str] = Counter()
        """Group epochs of consumer, share and streams groups that members or topics made grow, by the type of group."""
        self.replication = TopicTraffic()
        """Bytes of other replicas, in and out, which do not count as the topics' own."""
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def api(self, key: int) -> ApiStats:
        """The counters of an API, made on first use."""
        found = self._apis.get(key)
        if found is None:
            found = self._apis[key] = ApiStats()
        return found

    def apis(self) -> list[tuple[int, ApiStats]]:
        """Statistics by API key."""
        return sorted(self._apis.items())

    def topic(self, name: str) -> TopicTraffic:
        """The counters of a topic, made on first use."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicTraffic()
        return found

    def remove_topic(self, name: str) -> None:
        """The topic was deleted: its series end."""
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.deleted_topics.add(gone)
