"""What clients have used of their quotas (the sensors of Kafka's `ClientQuotaManager` and its subclasses)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ottla.model import Millis
from ottla.quotas.arithmetic import Average, Rate, TokenBucket, Windows, delay_ms, refill_ms
from ottla.quotas.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    UNLIMITED,
    Entity,
    Limits,
    Tags,
)

IDLE_MS_MAX: Final = 3_600_000
"""Usage of a client that was idle for longer is dropped, as in Kafka."""

USAGES_MAX: Final = 10_000
"""Above, who was silent for all windows is let go of at once: nothing that is counted is lost, only metrics are.
Anybody can make up client ids."""


class Usage:
    """Usage of the clients that share one quota."""

    __slots__ = ("bucket", "last_ms", "limit", "rate", "tags", "throttle")

    def __init__(self, tags: Tags, limit: float, windows: Windows, bucket: TokenBucket | None) -> None:
        self.tags = tags
        self.limit = limit
        self.rate = Rate(windows)
        self.bucket = bucket
        self.throttle = Average()
        self.last_ms: Millis = 0


class ClientQuota:
    """One kind of quota, and what was used of it."""

    def __init__(self, key: str, windows: Windows, *, delay_ms_max: Millis | None = None, tokens: bool = False) -> None:
        """`delay_ms_max` bounds the delays; with `tokens` the quota is a token bucket."""
        self.key = key
        self.limits = Limits()
        self._windows = windows
        self._delay_ms_max = delay_ms_max
        self._tokens = tokens
        self._usages: dict[Tags, Usage] = {}
        self._known: dict[tuple[str, str | None], Usage] = {}
        """Keyed by user and client id, until quotas change or usages go."""
        self._purged_ms: Millis = 0
        self.throttles = 0
        """How often a client was held back since the quotas were made, and for how long in all; of usages that are gone
        too."""
        self.throttled_ms: Millis = 0

    def __bool__(self) -> bool:
        """Whether there are any quotas: else nothing is counted."""
        return bool(self.limits)

    def __iter__(self) -> Iterator[Usage]:
        return iter(self._usages.values())

    def change(self, entity: Entity, value: float | None) -> None:
        self.limits.change(entity, value)
        self.limits_changed()

    def limits_changed(self) -> None:
        """Hold all clients to the limits as they are now."""
        self._known.clear()
        for usage in self._usages.values():
            usage.limit = self._limit(usage.tags)

    def _limit(self, tags: Tags) -> float:
        found = self.limits.of(tags)
        return UNLIMITED if found is None else found

    def usage(self, user: str, client_id: str | None, now_ms: Millis) -> Usage:
        found = self._known.get((user, client_id))
        if found is None:
            tags = self.limits.tags(user, client_id)
            found = self._usages.get(tags)
            if found is None:
                self._purge(now_ms)
                bucket = TokenBucket(self._windows, now_ms) if self._tokens else None
                found = self._usages[tags] = Usage(tags, self._limit(tags), self._windows, bucket)
            if len(self._known) >= USAGES_MAX:
                self._known.clear()
            self._known[user, client_id] = found
        found.last_ms = now_ms
        return found

    def _purge(self, now_ms: Millis) -> None:
        """Each second at most: who comes with new names all the time must not have all others looked at each time."""
        if now_ms - self._purged_ms < 1000:
            return
        self._purged_ms = now_ms
        spare_ms = IDLE_MS_MAX if len(self._usages) < USAGES_MAX else self._windows.samples * self._windows.size_ms
        gone = [tags for tags, usage in self._usages.items() if now_ms - usage.last_ms > spare_ms]
        for tags in gone:
            del self._usages[tags]
        if gone:
            self._known.clear()

    def record(self, user: str, client_id: str | None, value: float, now_ms: Millis) -> Millis:
        """Count a value; gives for how long nothing more is to come, 0 within the quota."""
        usage = self.usage(user, client_id, now_ms)
        usage.rate.record(value, now_ms)
        rate = usage.rate.measure(now_ms)
        if rate <= usage.limit:
            return 0
        delay = delay_ms(rate, usage.limit, usage.rate.span_ms(now_ms))
        return delay if self._delay_ms_max is None else min(delay, self._delay_ms_max)

    def record_only(self, user: str, client_id: str | None, value: float, now_ms: Millis) -> None:
        """Count what delays nobody now; a negative value subtracts."""
        self.usage(user, client_id, now_ms).rate.record(value, now_ms)

    def record_tokens(self, user: str, client_id: str | None, value: float, now_ms: Millis, *, strict: bool) -> Millis:
        """Take tokens; gives the delay until none are lacking. `strict`: while any are lacking, none are taken."""
        usage = self.usage(user, client_id, now_ms)
        bucket = usage.bucket
        assert bucket is not None
        if strict:
            tokens = bucket.measure(usage.limit, now_ms)
            if tokens < 0:
                return refill_ms(tokens, usage.limit)
        bucket.record(value, usage.limit, now_ms)
        usage.rate.record(value, now_ms)
        tokens = bucket.measure(usage.limit, now_ms)
        return refill_ms(tokens, usage.limit) if tokens < 0 and not strict else 0

    def throttled(self, user: str, client_id: str | None, delay: Millis, now_ms: Millis) -> None:
        """A client is held back; for the metrics."""
        self.usage(user, client_id, now_ms).throttle.record(delay, now_ms)
        self.throttles += 1
        self.throttled_ms += delay

    def bytes_max(self, user: str, client_id: str | None, now_ms: Millis) -> int:
        """The most that a fetch may return: more at once exceeds the quota whatever else was used."""
        limit = self.limits.of(self.usage(user, client_id, now_ms).tags)
        most = (1 << 31) - 1
        if limit is None:
            return most
        return min(int(limit * (self._windows.samples - 1) * (self._windows.size_ms // 1000)), most)


class ClientQuotas:
    """All kinds that limit users and client ids."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.produce = ClientQuota(PRODUCER_BYTE_RATE, windows)
        self.fetch = ClientQuota(CONSUMER_BYTE_RATE, windows)
        self.request = ClientQuota(REQUEST_PERCENTAGE, windows, delay_ms_max=windows.size_ms)
        self.mutation = ClientQuota(CONTROLLER_MUTATION_RATE, mutation_windows, tokens=True)
        self._by_key: Mapping[str, ClientQuota] = {
            each.key: each for each in (self.produce, self.fetch, self.request, self.mutation)
        }

    def __bool__(self) -> bool:
        return any(self._by_key.values())

    def change(self, entity: Entity, key: str, value: float | None) -> None:
        """Holds once `limits_changed` was called. Keys that no quota has are ignored, as Kafka ignores them."""
        quota = self._by_key.get(key)
        if quota is not None:
            quota.limits.change(entity, value)

    def limits_changed(self) -> None:
        for quota in self._by_key.values():
            quota.limits_changed()


Now = Callable[[], Millis]


class Permits:
    """The mutations of one request (KIP-599): how many partitions are created or deleted for it.

    `strict` for the versions whose clients understand THROTTLING_QUOTA_EXCEEDED: they are refused at once while tokens
    are lacking; what others ask for is done, and delays them.
    """

    def __init__(self, quota: ClientQuota, user: str, client_id: str | None, now: Now, *, strict: bool) -> None:
        self._quota = quota
        self._user = user
        self._client_id = client_id
        self._now = now
        self._strict = strict
        self._delay_ms: Millis = 0
        self._recorded_ms: Millis = 0

    def take(self, partitions: int) -> bool:
        """False where they are refused."""
        now_ms = self._now()
        delay = self._quota.record_tokens(self._user, self._client_id, partitions, now_ms, strict=self._strict)
        if delay > 0:
            self._delay_ms, self._recorded_ms = delay, now_ms
        return not (self._strict and delay > 0)

    def delay_ms(self) -> Millis:
        """The remaining delay of the last operation over the quota."""
        return max(0, self._delay_ms - (self._now() - self._recorded_ms)) if self._delay_ms else 0
