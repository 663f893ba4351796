"""The table of settings put together: find a setting by resource and name, and a topic setting's broker synonyms.

The rows are in `tables/`. They agree with Apache Kafka 4.4's own definitions; tests compare them with a running one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.config.setting import Setting
from ottla.config.tables import groups, logs, node, ottla, resources, security, services, topics


class Section(NamedTuple):
    """A part of the table under one heading of the documentation."""

    title: str
    settings: tuple[Setting, ...]


BROKER_SECTIONS = (
    Section("Node", node.NODE),
    Section("Network", node.NETWORK),
    Section("Metadata quorum", node.METADATA),
    Section("Logs", logs.LOG),
    Section("Log cleaner", logs.CLEANER),
    Section("Replication and fetching", logs.REPLICATION),
    Section("Groups and their offsets", groups.GROUPS),
    Section("Consumer groups", groups.CONSUMER_GROUPS),
    Section("Share groups", groups.SHARE_GROUPS),
    Section("Streams groups", groups.STREAMS_GROUPS),
    Section("Transactions and idempotence", services.TRANSACTIONS),
    Section("Metrics and quotas", services.METRICS_AND_QUOTAS),
    Section("Tiered storage", services.TIERED_STORAGE),
    Section("Security", security.SECURITY),
    Section("TLS", security.TLS),
    Section("SASL", security.SASL),
    Section("ZooKeeper", node.ZOOKEEPER),
    Section("What Kafka does not have", ottla.OTTLA),
)


def _by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


BROKER: Mapping[str, Setting] = _by_name(setting for section in BROKER_SECTIONS for setting in section.settings)
TOPIC: Mapping[str, Setting] = _by_name(topics.TOPIC)
THROTTLES: Mapping[str, Setting] = _by_name(services.THROTTLES)
"""Broker settings that can only be set at run time; DescribeConfigs lists them where they are set
(`DynamicConfig.Broker`)."""
GROUP: Mapping[str, Setting] = _by_name(resources.GROUP)
CLIENT_METRICS: Mapping[str, Setting] = _by_name(resources.CLIENT_METRICS)


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default."""

    name: str
    millis: int | None = None
    """Milliseconds in one unit of the broker setting where that differs from the topic's."""


MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


TOPIC_SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    "segment.bytes": _same("log.segment.bytes"),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    "segment.index.bytes": _same("log.index.size.max.bytes"),
    "flush.messages": _same("log.flush.interval.messages"),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.bytes": _same("log.retention.bytes"),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "max.message.bytes": _same("message.max.bytes"),
    "max.decompressed.message.bytes": _same("max.decompressed.message.bytes"),
    "index.interval.bytes": _same("log.index.interval.bytes"),
    "delete.retention.ms": _same("log.cleaner.delete.retention.ms"),
    "min.compaction.lag.ms": _same("log.cleaner.min.compaction.lag.ms"),
    "max.compaction.lag.ms": _same("log.cleaner.max.compaction.lag.ms"),
    "file.delete.delay.ms": _same("log.segment.delete.delay.ms"),
    "min.cleanable.dirty.ratio": _same("log.cleaner.min.cleanable.ratio"),
    "cleanup.policy": _same("log.cleanup.policy"),
    "unclean.leader.election.enable": _same("unclean.leader.election.enable"),
    "min.insync.replicas": _same("min.insync.replicas"),
    "compression.type": _same("compression.type"),
    "compression.gzip.level": _same("compression.gzip.level"),
    "compression.lz4.level": _same("compression.lz4.level"),
    "compression.zstd.level": _same("compression.zstd.level"),
    "preallocate": _same("log.preallocate"),
    "message.timestamp.type": _same("log.message.timestamp.type"),
    "message.timestamp.before.max.ms": _same("log.message.timestamp.before.max.ms"),
    "message.timestamp.after.max.ms": _same("log.message.timestamp.after.max.ms"),
    "remote.copy.lag.ms": _same("log.remote.copy.lag.ms"),
    "remote.copy.lag.bytes": _same("log.remote.copy.lag.bytes"),
    "local.retention.ms": _same("log.local.retention.ms"),
    "local.retention.bytes": _same("log.local.retention.bytes"),
}
"""In the order in which they are consulted: the first one with a value decides (`ServerTopicConfigSynonyms`)."""


def is_sensitive(name: str) -> bool:
    """Whether a setting of a broker has a password for its value, also as one of a listener or a mechanism."""
    return name in _PASSWORDS or name.endswith(_BEHIND_A_PREFIX)


_PASSWORDS = frozenset(name for name, setting in BROKER.items() if setting.sensitive)
_BEHIND_A_PREFIX = tuple(f".{name}" for name in _PASSWORDS)


def may_be_secret(kind: int, name: str) -> bool:
    """Whether the value of a dynamic setting of a resource of this type is not to be shown: a broker's passwords, and
    what no table knows, which may be one of a plugin (as Kafka's DescribeConfigs)."""
    if kind != BROKER_RESOURCE:
        return not any(name in table for table in (TOPIC, THROTTLES, GROUP, CLIENT_METRICS))
    known = (*BROKER, *THROTTLES)
    return is_sensitive(name) or not any(name == each or name.endswith(f".{each}") for each in known)


BROKER_RESOURCE = 4
"""The type of brokers among resources that have settings, as numbered on the wire."""
