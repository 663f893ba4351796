"""Shows the metrics that clients push (KIP-714), each name as a family of its own.

All names begin with `kafka_client_`: what a client makes up can never pass for a metric of the node.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.metrics.table import COUNTER, GAUGE, Metric
from ottla.metrics.text import Exposition, labels
from ottla.model import uuid_to_base64

if TYPE_CHECKING:
    from ottla.telemetry.clients import Clients, Pushed
    from ottla.telemetry.otlp import Point

CLIENTS_MAX: Final = 1_000
"""Clients shown, those that pushed last. Prometheus keeps every series that it has seen."""
FAMILIES_MAX: Final = 2_000
"""Names of metrics shown; Kafka's clients together have some 300."""
POINTS_AT_ONCE: Final = 32
"""Between two looks at other clients."""

PREFIX: Final = "kafka_client_"
KAFKA: Final = "org.apache.kafka."
INFO: Final = (
    "client_software_name", "client_software_version", "client_source_address", "client_rack", "group_id",
    "transactional_id",
)  # fmt: skip
"""What a client is, on a metric of its own: other series are joined with it by `client_instance_id`."""

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED: Final = frozenset(("client_id", "client_instance_id", "le", "quantile"))


async def add_clients(page: Exposition, clients: Clients, breathe: Callable[[], Awaitable[None]]) -> None:
    prefix = "kafka_server_client_metrics_"
    page.add(f"{prefix}instance_count", len(clients.instances))
    page.add(f"{prefix}plugin_export_total", clients.pushes)
    page.add(f"{prefix}plugin_error_total", clients.failures)
    page.add(f"{prefix}throttle_total", clients.throttles)
    page.add(f"{prefix}unknown_subscription_request_total", clients.unknown_subscriptions)
    page.add("ottla_client_metrics_evicted_total", clients.evicted)
    left_out = 0
    families: dict[str, Metric] = {}
    for position, pushed in enumerate([*islice(reversed(clients.pushed.values()), CLIENTS_MAX)]):
        left_out += pushed.left_out + _add_client(page, pushed, families)
        if position % max(1, POINTS_AT_ONCE // (len(pushed.points) + 1)) == 0:
            await breathe()
    page.add("ottla_client_metrics_left_out", left_out + max(0, len(clients.pushed) - CLIENTS_MAX))


def _add_client(page: Exposition, pushed: Pushed, families: dict[str, Metric]) -> int:
    """Add what one client pushed; returns how many of its metrics are left out."""
    own = {"client_instance_id": uuid_to_base64(pushed.id), "client_id": pushed.client_id}
    page.add("ottla_client_info", 1, labels(**own, **{name: pushed.client.get(name, "") for name in INFO}))
    seen: set[tuple[str, str]] = set()
    left_out = 0
    for point in pushed.points:
        name = family_name(point)
        if name not in families:
            if len(families) >= FAMILIES_MAX:
                left_out += 1
                continue
            kind = COUNTER if point.is_counter else GAUGE
            families[name] = Metric(name, kind, (), "", f"{point.name}, as clients measure it.")
            page.add_family(families[name])
        where = labels(**own, **dict(_labels(point.attributes)))
        if (name, where) in seen:  # names that differ only in characters that no name here may have
            left_out += 1
            continue
        seen.add((name, where))
        page.add(name, point.value, where)
    return left_out


def family_name(point: Point) -> str:
    """`kafka_client_producer_record_send_total` of `org.apache.kafka.producer.record.send.total`. What only grows, and
    nothing else, ends with `_total`."""
    name = PREFIX + _NO_NAME.sub("_", point.name.removeprefix(KAFKA))
    if point.is_counter:
        return name if name.endswith("_total") else f"{name}_total"
    return f"{name}_value" if name.endswith("_total") else name


def _labels(attributes: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for key, value in attributes:
        name = _NO_NAME.sub("_", key)
        if name[0].isdecimal() or name.startswith("__"):
            name = f"attribute_{name}"
        if name not in _RESERVED:
            yield name, value
