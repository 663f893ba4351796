"""Reads what clients used of their quotas, and how long they were held back, into metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from ottla.metrics.text import Exposition, labels

if TYPE_CHECKING:
    from ottla.server.clients.quotas import NodeQuotas
    from ottla.server.ports import ConnectionRates

CLIENTS_MAX: Final = 1_000
"""Clients shown of one kind of quota. Anybody can make up client ids, and Prometheus keeps every series that it has
seen."""
CLIENTS_AT_ONCE: Final = 64
"""Between two looks at other clients."""


async def add_quotas(page: Exposition, quotas: NodeQuotas, breathe: Callable[[], Awaitable[None]]) -> None:
    clients, now_ms = quotas.clients, quotas.now_ms()
    for resource, used, quota in (
        ("Produce", "byte_rate", clients.produce),
        ("Fetch", "byte_rate", clients.fetch),
        ("Request", "request_time", clients.request),
        ("ControllerMutation", "mutation_rate", clients.mutation),
    ):
        page.add("ottla_quota_throttles_total", quota.throttles, labels(resource=resource))
        page.add("ottla_quota_throttled_seconds_total", quota.throttled_ms / 1000, labels(resource=resource))
        if not quota:
            continue
        # No quota holds for a client without an id, and as a label that would be the same as an empty one.
        named = (usage for usage in quota if usage.tags.client_id is not None)
        heard_last = nlargest(CLIENTS_MAX, named, key=lambda usage: usage.last_ms)
        for position, usage in enumerate(heard_last):
            where = labels(resource=resource, user=usage.tags.user, clientId=usage.tags.client_id or "")
            page.add(f"kafka_server_quota_{used}", round(usage.rate.measure(now_ms), 3), where)
            page.add("kafka_server_quota_throttle_time", round(usage.throttle.measure(now_ms), 3), where)
            if position % CLIENTS_AT_ONCE == CLIENTS_AT_ONCE - 1:
                await breathe()


def add_connection_rates(page: Exposition, rates: ConnectionRates, listeners: Iterable[str]) -> None:
    prefix = "kafka_server_socket_server_metrics_"
    for name in listeners:
        waited_ms, held_ms = rates.throttle_times(name)
        page.add(f"{prefix}connection_accept_throttle_time", round(waited_ms, 3), labels(listener=name))
        page.add(f"{prefix}ip_connection_accept_throttle_time", round(held_ms, 3), labels(listener=name))
