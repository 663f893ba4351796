"""The options of a sink: those of Spark's Kafka connector, of Kafka's producer (`kafka.*`), and Ottla's own.

A wrong value is a `ValueError` whose text begins with the option's name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import Security
from ottla.model import Millis
from ottla.spark.security_options import security_option

logger = logging.getLogger("ottla.spark")

DEFAULT_STATE_TOPIC: Final = "__ottla_sinks"
"""Compacted; the decisions about batches written exactly once."""
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""What Kafka's brokers allow at most, unless `transaction.max.timeout.ms` says more."""
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

SINK_OPTIONS: Final = ("topic", "delivery", "write.id", "state.topic", "includeTimestamp", "client.config")
"""What a sink reads besides `kafka.*` and those of `ottla.formats` and `ottla.schemas` (`key.format`, `value.schema`,
`schema.registry.url`, ...)."""

_REFUSED: Final = {
    "key.serializer": "keys are bytes or text; encode them in the DataFrame or with key.format",
    "value.serializer": "values are bytes or text; encode them in the DataFrame or with value.format",
    "transactional.id": "it is derived from the query and the task; for exactly-once writes set delivery",
    "partitioner.class": "records are partitioned like Kafka's default; use a column `partition` to choose the "
    "partition",
    "interceptor.classes": "interceptors between Spark and the broker are not supported",
}
_FORMATS: Final = ("key.", "value.", "schema.registry.", "auto.register.schemas", "use.latest.version")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class SinkOptions:
    """Picklable: it travels to the tasks. Sizes in bytes."""

    client: ClientConfig
    topic: str | None = None
    """For rows without a topic column."""
    acks: str = "all"
    is_idempotent: bool = True
    codec: str = "none"
    batch_bytes_max: int = 1_000_000
    buffer_bytes_max: int = 32 * 1024 * 1024
    delivery_timeout_ms: Millis = 120_000
    transaction_timeout_ms: Millis = DEFAULT_TRANSACTION_TIMEOUT_MS
    is_exactly_once: bool = False
    write_id: str | None = None
    """Id of a batch write: once done, repeating it does nothing."""
    state_topic: str = DEFAULT_STATE_TOPIC
    has_timestamps: bool = False
    """Records get the DataFrame's `timestamp`, instead of the time at which they are written."""
    formats: Mapping[str, str] = field(default_factory=dict)


def sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Raises `ValueError`, which names the option."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    _check_refused(kafka)
    delivery = given.get("delivery", AT_LEAST_ONCE).lower()
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ValueError(f"delivery: expected {AT_LEAST_ONCE} or {EXACTLY_ONCE}, got {delivery}")
    exactly_once = delivery == EXACTLY_ONCE
    write_id = given.get("write.id")
    if write_id is not None:
        if is_stream:
            raise ValueError("write.id: is for batch writes; a stream is known by its checkpoint")
        if not exactly_once:
            raise ValueError("write.id: needs delivery=exactly-once")
        if not _NAME.fullmatch(write_id):
            raise ValueError(f"write.id: expected letters, digits, '.', '_' and '-', got '{write_id}'")
    acks = {"-1": "all"}.get(kafka.get("acks", "all"), kafka.get("acks", "all")).lower()
    if acks not in ("all", "1", "0"):
        raise ValueError(f"kafka.acks: expected all, 1 or 0, got {acks}")
    idempotent = _flag("kafka.enable.idempotence", kafka.get("enable.idempotence"), acks == "all")
    if (exactly_once or idempotent) and acks != "all":
        raise ValueError(f"kafka.acks: {'delivery=exactly-once' if exactly_once else 'idempotence'} needs acks=all")
    if exactly_once and not idempotent:
        raise ValueError("kafka.enable.idempotence: delivery=exactly-once needs it")
    codec = kafka.get("compression.type", "none").lower()
    if codec not in CODECS:
        raise ValueError(f"kafka.compression.type: expected one of {', '.join(CODECS)}, got {codec}")
    state_topic = given.get("state.topic", DEFAULT_STATE_TOPIC)
    for name, topic in (("topic", given.get("topic")), ("state.topic", state_topic)):
        if topic is not None and not _NAME.fullmatch(topic):
            raise ValueError(f"{name}: '{topic}' is not a valid topic name")
    return SinkOptions(
        client=_client(kafka, security_option({name.lower(): str(value) for name, value in options.items()})),
        topic=given.get("topic"),
        acks=acks,
        is_idempotent=idempotent,
        codec=codec,
        batch_bytes_max=_number(kafka, "batch.size", SinkOptions.batch_bytes_max, 1),
        buffer_bytes_max=_number(kafka, "buffer.memory", SinkOptions.buffer_bytes_max, 1),
        delivery_timeout_ms=_number(kafka, "delivery.timeout.ms", SinkOptions.delivery_timeout_ms, 1),
        transaction_timeout_ms=_number(kafka, "transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS, 1000),
        is_exactly_once=exactly_once,
        write_id=write_id,
        state_topic=state_topic,
        has_timestamps=_flag("includeTimestamp", given.get("includetimestamp"), False),
        formats={name: value for name, value in given.items() if name.startswith(_FORMATS)},
    )


def _client(kafka: Mapping[str, str], security: Security) -> ClientConfig:
    try:
        bootstrap = parse_addresses(kafka.get("bootstrap.servers", ""))
    except ValueError as error:
        raise ValueError(f"kafka.bootstrap.servers: {error}") from None
    return ClientConfig(
        bootstrap,
        kafka.get("client.id") or "ottla-spark",
        request_timeout_s=_number(kafka, "request.timeout.ms", 30_000, 1) / 1000,
        connect_timeout_s=_number(kafka, "socket.connection.setup.timeout.ms", 10_000, 1) / 1000,
        metadata_max_age_s=_number(kafka, "metadata.max.age.ms", 300_000, 0) / 1000,
        security=security,
    )


def _check_refused(kafka: Mapping[str, str]) -> None:
    for name in kafka:
        if name in _REFUSED:
            raise ValueError(f"kafka.{name}: is not supported: {_REFUSED[name]}")


def _flag(name: str, text: str | None, default: bool) -> bool:
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name}: expected true or false, got {text}")
    return text.lower() == "true"


def _number(kafka: Mapping[str, str], name: str, default: int, minimum: int) -> int:
    text = kafka.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text) or not minimum <= int(text) <= 2**31 - 1:
        raise ValueError(f"kafka.{name}: expected a whole number from {minimum} to 2147483647, got {text}")
    return int(text)
