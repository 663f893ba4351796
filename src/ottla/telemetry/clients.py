"""What a node knows of each client that asks for its subscription and pushes metrics, and what it answers (Kafka's
`ClientMetricsManager` and `ClientMetricsInstance`).

Everything is bounded: INSTANCES_MAX clients as in Kafka, and PUSHED_BYTES_MAX of metrics; who was heard of longest ago
goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import uuid_to_base64
from ottla.telemetry.otlp import Attributes, Metrics, Point
from ottla.telemetry.subscriptions import Subscription, Wanted, subscription, wanted

INSTANCES_MAX: Final = 16_384
EXPIRY_SECONDS_MIN: Final = 60.0
"""How long a client that is not heard of is remembered, or three of its intervals if they are longer."""
INTERVALS_REMEMBERED: Final = 3

PUSHED_BYTES_MAX: Final = 16 << 20
"""Memory of what clients pushed: of 50,000 numbers or so. All of it is read by whoever asks for /metrics."""
POINT_BYTES: Final = 300
"""Memory of a number beside its characters."""

RESERVED: Final = frozenset((UUID(int=0), UUID(int=1)))
"""Kafka's `Uuid.RESERVED`."""
COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: the order in which clients should choose, Kafka's."""

Key = tuple[str, Attributes]


class Pushed:
    """The metrics of one client, as of its last push."""

    __slots__ = ("client", "client_id", "counters", "expires_s", "id", "left_out", "points", "size")

    def __init__(self, instance: Instance) -> None:
        self.id = instance.id
        self.client_id = instance.attributes.get("client_id") or ""
        self.client: Mapping[str, str] = {}
        """What the client and its connection say of it."""
        self.points: list[Point] = []
        self.counters: dict[Key, float] = {}
        """Sums of what was pushed as deltas."""
        self.left_out = 0
        self.size = 0
        """Bytes of memory."""
        self.expires_s = 0.0

    def take(self, metrics: Metrics, instance: Instance) -> None:
        about = ("client_software_name", "client_software_version", "client_source_address")
        known = {name: instance.attributes.get(name) or "" for name in about}
        self.client = {**dict(metrics.client), **known}
        points: dict[Key, Point] = {}
        for point in metrics.points:
            key = point.name, point.attributes
            if point.is_delta and point.is_counter:
                point = point._replace(value=self.counters.get(key, 0.0) + point.value)
            points[key] = point
        self.counters = {key: point.value for key, point in points.items() if point.is_delta and point.is_counter}
        self.points = [*points.values()]
        self.left_out = metrics.left_out
        self.size = sum(
            POINT_BYTES + len(name) + sum(len(each) + len(value) for each, value in attributes)
            for name, attributes in points
        ) + sum(len(name) + len(value) for name, value in self.client.items())


class Instance:
    """One client: a producer, a consumer or an admin client, for as long as it lives."""

    __slots__ = (
        "attributes", "expires_s", "id", "last_error", "last_get_s", "last_push_s", "terminating", "version", "wanted",
    )  # fmt: skip

    def __init__(self, instance: UUID, attributes: Mapping[str, str | None], wants: Wanted, version: int) -> None:
        self.id = instance
        self.attributes = attributes
        self.wanted = wants
        self.version = version
        """Version of the subscriptions that it was made from."""
        self.last_get_s = self.last_push_s = -inf
        self.terminating = False
        self.last_error = ErrorCode.none
        self.expires_s = inf

    @property
    def interval_s(self) -> float:
        return self.wanted.interval_ms / 1000

    def may_get(self, now_s: float) -> bool:
        if now_s - max(self.last_get_s, self.last_push_s) < self.interval_s:
            return False
        self.last_get_s = now_s
        return True

    def may_push(self, now_s: float) -> bool:
        """The first push after a subscription comes at any time: clients begin after 0.5 to 1.5 intervals."""
        if self.last_get_s <= self.last_push_s and now_s - self.last_push_s < self.interval_s:
            return False
        self.last_push_s = now_s
        return True


class Clients:
    """All of a node."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: `telemetry.max.bytes`."""
        self.bytes_max = bytes_max
        self.subscriptions: dict[str, Subscription] = {}
        self.version = 0
        """Counts changes of the subscriptions."""
        self.instances: OrderedDict[UUID, Instance] = OrderedDict()
        """Least recently heard of first."""
        self.pushed: OrderedDict[UUID, Pushed] = OrderedDict()
        """Least recently pushed first."""
        self.pushed_bytes = 0
        self.pushes = self.failures = self.throttles = self.unknown_subscriptions = self.evicted = 0
        """Since the start."""

    # Subscriptions.

    def subscribe(self, name: str, configs: Mapping[str, str]) -> None:
        """The settings of a subscription changed. Without settings it is no more."""
        if configs:
            self.subscriptions[name] = subscription(configs)
        elif self.subscriptions.pop(name, None) is None:
            return
        self.version += 1

    def instance(self, instance_id: UUID, attributes: Callable[[], Mapping[str, str | None]], now_s: float) -> Instance:
        """The state of a client, new if it is not known, or if the subscriptions have changed."""
        found = self.instances.get(instance_id)
        if found is None or found.version != self.version:
            own = attributes() if found is None else found.attributes
            found = Instance(instance_id, own, wanted(self.subscriptions, own, instance_id), self.version)
            self.instances[instance_id] = found
            while len(self.instances) > INSTANCES_MAX:
                self.instances.popitem(last=False)
                self.evicted += 1
        self.instances.move_to_end(instance_id)
        found.expires_s = now_s + max(EXPIRY_SECONDS_MIN, INTERVALS_REMEMBERED * found.interval_s)
        return found

    def disconnected(self, instance_id: UUID) -> None:
        """The connection of a client is closed. Its last metrics are kept for as long as those of any other."""
        self.instances.pop(instance_id, None)

    def expiring(self, now_s: float) -> Generator[int, None, None]:
        """Forget clients that were not heard of; yields the cost of each look."""
        for each in [*self.instances.values()]:
            if each.expires_s <= now_s:
                self.instances.pop(each.id, None)
            yield 1
        for pushed in [*self.pushed.values()]:
            if pushed.expires_s <= now_s:
                self._drop(pushed.id)
            yield 1

    # Requests.

    def get(self, instance: Instance, now_s: float) -> None:
        """A client asks for its subscription. Raises THROTTLING_QUOTA_EXCEEDED where it asks too often, unless it was
        told to ask again."""
        asked = instance.last_error in (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
        if not instance.may_get(now_s) and not asked:
            self.throttles += 1
            raise self._too_soon(instance)
        instance.last_error = ErrorCode.none

    def push(
        self, instance: Instance, subscription_id: int, compression: int, size: int, now_s: float, *, terminating: bool
    ) -> None:
        """A client pushes `size` bytes of metrics. Raises the KafkaError with which they are refused."""
        try:
            self._check(instance, subscription_id, compression, size, now_s, terminating)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.last_error = ErrorCode.none

    def _check(
        self, instance: Instance, subscription_id: int, compression: int, size: int, now_s: float, terminating: bool
    ) -> None:
        name = uuid_to_base64(instance.id)
        if instance.terminating:
            raise KafkaError(ErrorCode.invalid_request, f"Client [{name}] has said before that it is terminating")
        if not instance.may_push(now_s) and not terminating:
            self.throttles += 1
            raise self._too_soon(instance)
        if subscription_id != instance.wanted.id:
            self.unknown_subscriptions += 1
            raise KafkaError(
                ErrorCode.unknown_subscription_id, f"Unknown client subscription id for the client [{name}]"
            )
        if compression not in (0, *COMPRESSION_TYPES):
            raise KafkaError(ErrorCode.unsupported_compression_type, f"Unknown compression type [{compression}]")
        if size > self.bytes_max:
            raise KafkaError(ErrorCode.telemetry_too_large, f"more than telemetry.max.bytes={self.bytes_max}")

    def _too_soon(self, instance: Instance) -> KafkaError:
        name = uuid_to_base64(instance.id)
        text = f"Request from the client [{name}] arrived before the next push interval time"
        return KafkaError(ErrorCode.throttling_quota_exceeded, text)

    def failed(self, instance: Instance, code: ErrorCode) -> KafkaError:
        """What a client pushed could not be read."""
        self.failures += 1
        instance.last_error = code
        return KafkaError(code)

    def take(self, instance: Instance, metrics: Metrics, now_s: float) -> None:
        """Keep what a client pushed until it pushes again, or is not heard of for long."""
        self.pushes += 1
        found = self.pushed.get(instance.id)
        if found is None:
            found = self.pushed[instance.id] = Pushed(instance)
        self.pushed_bytes -= found.size
        found.take(metrics, instance)
        self.pushed_bytes += found.size
        found.expires_s = now_s + max(EXPIRY_SECONDS_MIN, INTERVALS_REMEMBERED * instance.interval_s)
        self.pushed.move_to_end(instance.id)
        while self.pushed_bytes > PUSHED_BYTES_MAX:
            self._drop(next(iter(self.pushed)))
            self.evicted += 1

    def _drop(self, instance_id: UUID) -> None:
        found = self.pushed.pop(instance_id, None)
        if found is not None:
            self.pushed_bytes -= found.size
