"""The options `kafka.*`: settings of a Kafka consumer, as far as they mean something here.

What the connector refuses is refused (it manages offsets and bytes itself). Settings of security have the names of
Kafka or of librdkafka (`security_options.py`); an unknown one is refused, for nobody's password is to be ignored.
Other settings of consumers tune what is not there (heartbeats, polls, socket buffers) and are accepted without effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.security import PLAINTEXT, Security
from ottla.client.security_settings import SECURITY_SETTINGS
from ottla.model import Millis
from ottla.spark.security_options import security_option

_PREFIX = "kafka."
MIB = 1024 * 1024


@dataclass(frozen=True)
class ClientOptions:
    """What the connections of a source are told. Sizes in bytes; the defaults are those of Kafka's consumer, but for
    `fetch_bytes_max` of a partition, which
    is larger: a task reads one partition."""

    bootstrap: tuple[str, ...]
    client_id: str = "ottla-spark"
    rack: str | None = None
    read_committed: bool = False
    fetch_bytes_max: int = 8 * MIB
    fetch_bytes_min: int = 1
    fetch_wait_ms_max: Millis = 500
    request_timeout_ms: Millis = 30_000
    connect_timeout_ms: Millis = 10_000
    metadata_age_ms_max: Millis = 300_000
    security: Security = PLAINTEXT


_NUMBERS = {
    "fetch.min.bytes": "fetch_bytes_min",
    "fetch.max.wait.ms": "fetch_wait_ms_max",
    "request.timeout.ms": "request_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "metadata.max.age.ms": "metadata_age_ms_max",
}
_FETCH_BYTES = ("max.partition.fetch.bytes", "fetch.max.bytes")

_REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest or latest; a stream resumes from its checkpoint",
    "enable.auto.commit": "Spark keeps the offsets; use commit.group NAME to show progress in a consumer group",
    "interceptor.classes": "interceptors between the broker and Spark are not supported",
    "key.deserializer": "keys are bytes; cast them in the DataFrame",
    "value.deserializer": "values are bytes; cast them in the DataFrame",
}
_WITHOUT_EFFECT = (
    "group.id",
    "group.instance.id",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.records",
    "max.poll.interval.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "check.crcs",
    "partition.assignment.strategy",
    "allow.auto.create.topics",
    "exclude.internal.topics",
    "client.dns.lookup",
)

KAFKA_OPTIONS = (
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "isolation.level",
    *_FETCH_BYTES,
    *_NUMBERS,
    *_WITHOUT_EFFECT,
    *SECURITY_SETTINGS,
)
"""Names behind `kafka.` that a source knows."""


def parse_client_options(options: Mapping[str, str]) -> ClientOptions:
    """The options `kafka.*`, whose names are in lower case. Raises `ValueError` that names the option."""
    given = {name.removeprefix(_PREFIX): value.strip() for name, value in options.items() if name.startswith(_PREFIX)}
    _check_refused(given)
    bootstrap = tuple(address.strip() for address in given.get("bootstrap.servers", "").split(",") if address.strip())
    if not bootstrap:
        raise ValueError("kafka.bootstrap.servers: must be given, such as localhost:9092")
    for address in bootstrap:
        if not re.fullmatch(r"(?:[A-Za-z0-9_]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):\d{1,5}", address):
            raise ValueError(f"kafka.bootstrap.servers: expected host:port, got {address}")
    isolation = given.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"kafka.isolation.level: expected read_committed or read_uncommitted, got {isolation}")
    numbers = {field: _number(name, given[name]) for name, field in _NUMBERS.items() if name in given}
    sizes = [_number(name, given[name]) for name in _FETCH_BYTES if name in given]
    if sizes:
        numbers["fetch_bytes_max"] = max(1, min(sizes))
    return ClientOptions(
        bootstrap=bootstrap,
        client_id=given.get("client.id") or "ottla-spark",
        rack=given.get("client.rack") or None,
        read_committed=isolation == "read_committed",
        security=security_option(options),
        **numbers,
    )


def _check_refused(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _REFUSED:
            raise ValueError(f"kafka.{name}: is not supported: {_REFUSED[name]}")


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > 2**31 - 1:
        raise ValueError(f"kafka.{name}: expected a whole number from 0 to 2147483647, got {text}")
    return int(text)
