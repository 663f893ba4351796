"""The options of a source, as Spark's Kafka connector has them (`KafkaSourceProvider`), and those that only Ottla has.

Spark hands options over with names in lower case. A wrong value is a `ValueError` whose text begins with the option's
name as the documents write it.
Unknown options are ignored, as the connector does, and logged once: another reader or a later version may know them.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ottla.model import Millis, TopicPartition
from ottla.schemas.access import NAMES as REGISTRY_ACCESS
from ottla.spark.client_options import KAFKA_OPTIONS, ClientOptions, parse_client_options
from ottla.spark.offsets import EARLIEST, LATEST, Offsets, parse_offsets, parse_partitions

logger = logging.getLogger("ottla.spark")

STRATEGIES = ("assign", "subscribe", "subscribePattern")
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_EXAMPLE = '{"topicA":{"0":123456789,"1":123456789}}'
DEFAULT_TRIGGER_DELAY_MS_MAX = 15 * 60 * 1000

SOURCE_OPTIONS = (
    *STRATEGIES,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "commit.group",
    "columns",
    *(f"{part}.{name}" for part in ("key", "value") for name in ("format", "schema", "writer.schema")),
    *(f"{part}.{name}" for part in ("key", "value") for name in ("subject", "schema.version", "message")),
    "schema.registry.url",
    *REGISTRY_ACCESS,
    "bad.records",
    "dead.letter.topic",
    "client.config",
)
"""What a source reads. `groupIdPrefix`, `kafkaConsumer.pollTimeoutMs` and `fetchOffset.*` are the connector's and
change nothing here: no consumer
group is needed for reading, and requests have `kafka.request.timeout.ms`."""

SPARK_OPTIONS = ("path", "header", "inferSchema", "mode")
"""What Spark itself, or code for any format, may set."""


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: one offset (`EARLIEST`, `LATEST`) or timestamp for all partitions, or one for
    each."""

    offset: int | None = None
    offsets: Offsets | None = None
    timestamp_ms: Millis | None = None
    timestamps_ms: dict[TopicPartition, Millis] | None = None


@dataclass(frozen=True)
class Subscription:
    """The partitions to read; one of the three is set. The pattern must match the whole name."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """The topics to look up: of those there are, where a pattern chooses."""
        if self.pattern is None:
            return sorted(self.topics or {partition.topic for partition in self.partitions})
        matches = re.compile(self.pattern).fullmatch
        return sorted(topic for topic in topics if matches(topic))


@dataclass(frozen=True)
class SourceOptions:
    """All that a batch or a stream is told. Picklable: it travels to the tasks."""

    subscription: Subscription
    client: ClientOptions
    starting: Bound
    ending: Bound
    no_match: Literal["error", "latest"] = "error"
    """What to do where no record is as young as a starting timestamp."""
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_records_max: int | None = None
    trigger_offsets_max: int | None = None
    trigger_offsets_min: int | None = None
    trigger_delay_ms_max: Millis = DEFAULT_TRIGGER_DELAY_MS_MAX
    headers: bool = False
    commit_group: str | None = None
    unknown: tuple[str, ...] = field(default=(), compare=False)


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a batch read. Raises `ValueError`, which names the option."""
    given = _Given(options)
    starting = given.bound("starting", EARLIEST)
    ending = given.bound("ending", LATEST)
    if starting.offset == LATEST or (starting.offsets and LATEST in starting.offsets.values()):
        raise ValueError("startingOffsets: a batch cannot begin at latest; choose earliest, offsets or a timestamp")
    if ending.offset == EARLIEST or (ending.offsets and EARLIEST in ending.offsets.values()):
        raise ValueError("endingOffsets: a batch cannot end at earliest; choose latest, offsets or a timestamp")
    _check_order("Offsets", starting.offsets, ending.offsets)
    _check_order("OffsetsByTimestamp", starting.timestamps_ms, ending.timestamps_ms)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commit.group"):
        if given.text(name) is not None:
            logger.warning("%s is ignored in a batch: it is for streams", name)
    return given.source(starting, ending)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a stream. Raises `ValueError`, which names the option."""
    given = _Given(options)
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if given.text(name) is not None:
            raise ValueError(f"{name}: a stream has no end; read it as a batch, or leave the option out")
    return given.source(given.bound("starting", LATEST), Bound(offset=LATEST))


class _Given:
    """Options as they were given, looked up by the names of the documents."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        value = self.options.get(name.lower())
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false, got {text}")
        return text.lower() == "true"

    def number(self, name: str, minimum: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?\d{1,19}", text):
            raise ValueError(f"{name}: expected a whole number, got {text}")
        if int(text) < minimum:
            raise ValueError(f"{name}: must be {'positive' if minimum == 1 else f'at least {minimum}'}, got {text}")
        return int(text)

    def bound(self, which: Literal["starting", "ending"], default: int) -> Bound:
        """A timestamp for all goes before timestamps by partition, and these before offsets, as in the connector."""
        if self.text(f"{which}Timestamp") is not None:
            return Bound(timestamp_ms=self.number(f"{which}Timestamp", minimum=0))
        by_timestamp, offsets = f"{which}OffsetsByTimestamp", f"{which}Offsets"
        text = self.text(by_timestamp)
        if text is not None:
            return Bound(timestamps_ms=parse_offsets(by_timestamp, text, _TIMESTAMPS_EXAMPLE))
        text = self.text(offsets)
        if text is None:
            return Bound(offset=default)
        for word, offset in (("latest", LATEST), ("earliest", EARLIEST)):
            if text.lower() == word:
                return Bound(offset=offset)
        return Bound(offsets=parse_offsets(offsets, text, _OFFSETS_EXAMPLE))

    def subscription(self) -> Subscription:
        named = {name: text for name in STRATEGIES if (text := self.text(name)) is not None}
        if len(named) != 1:
            raise ValueError(f"exactly one of the options {', '.join(STRATEGIES)} must be given, not {len(named)}")
        ((name, text),) = named.items()
        if name == "subscribe":
            topics = tuple(sorted({topic.strip() for topic in text.split(",")} - {""}))
            if not topics:
                raise ValueError(f"subscribe: no topics to subscribe to, got '{text}'")
            return Subscription(topics=topics)
        if name == "assign":
            partitions = parse_partitions(name, text)
            if not partitions:
                raise ValueError(f"assign: no partitions to assign, got '{text}'")
            return Subscription(partitions=partitions)
        return Subscription(pattern=_pattern(name, text))

    def source(self, starting: Bound, ending: Bound) -> SourceOptions:
        no_match = (self.text("startingOffsetsByTimestampStrategy") or "error").lower()
        if no_match not in ("error", "latest"):
            raise ValueError(f"startingOffsetsByTimestampStrategy: expected error or latest, got {no_match}")
        trigger_min, trigger_max = self.number("minOffsetsPerTrigger"), self.number("maxOffsetsPerTrigger")
        if trigger_min is not None and trigger_max is not None and trigger_min > trigger_max:
            raise ValueError(f"minOffsetsPerTrigger: {trigger_min} is above maxOffsetsPerTrigger, {trigger_max}")
        group = self.text("commit.group")
        if group == "":
            raise ValueError("commit.group: the name of a consumer group is empty")
        delay = self.text("maxTriggerDelay")
        return SourceOptions(
            subscription=self.subscription(),
            client=parse_client_options(self.options),
            starting=starting,
            ending=ending,
            no_match="latest" if no_match == "latest" else "error",
            fail_on_data_loss=self.flag("failOnDataLoss", True),
            partitions_min=self.number("minPartitions"),
            partition_records_max=self.number("maxRecordsPerPartition"),
            trigger_offsets_max=trigger_max,
            trigger_offsets_min=trigger_min,
            trigger_delay_ms_max=DEFAULT_TRIGGER_DELAY_MS_MAX if delay is None else _duration("maxTriggerDelay", delay),
            headers=self.flag("includeHeaders", False),
            commit_group=group,
            unknown=self.unknown(),
        )

    def unknown(self) -> tuple[str, ...]:
        """What nobody reads, logged; with the name that was perhaps meant."""
        known = {name.lower(): name for name in (*SOURCE_OPTIONS, *SPARK_OPTIONS)}
        known |= {f"kafka.{name}": f"kafka.{name}" for name in KAFKA_OPTIONS}
        others = []
        for name in sorted(self.options):
            if name in known or name.startswith("kafka."):
                continue
            near = difflib.get_close_matches(name, known, 1)
            logger.warning(
                "option %s is not known and ignored%s", name, f"; did you mean {known[near[0]]}?" if near else ""
            )
            others.append(name)
        return tuple(others)


def _pattern(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"{name}: the pattern is empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{name}: '{text}' is not a valid regular expression: {error}") from None
    return text


def _check_order(what: str, starting: Offsets | None, ending: Offsets | None) -> None:
    """Like `checkOffsetLimitValidity`: both name the same partitions, and no start is behind its end."""
    if starting is None or ending is None:
        return
    if starting.keys() != ending.keys():
        others = ", ".join(sorted(map(str, starting.keys() ^ ending.keys())))
        raise ValueError(f"starting{what} and ending{what}: must name the same partitions; in one only: {others}")
    for partition, start in starting.items():
        if start > ending[partition] >= 0:
            raise ValueError(f"starting{what}: {start} is above ending{what}, {ending[partition]}, for {partition}")


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "us": 0.001}


def _duration(name: str, text: str) -> Millis:
    """A duration as Spark writes it, `15m`; a number alone counts milliseconds."""
    found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text.lower())
    if found is None or (found[2] and found[2] not in _UNITS_MS):
        raise ValueError(f"{name}: expected a duration such as 15m, 30s or 500ms, got {text}")
    return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])
