"""Settings of a Kafka file that have no place in the table, and those that must not be passed over in silence.

Kafka hands names that it does not know to its plugins, and warns. Here names are known or refused: those of plugins and
of distributions and those of older releases are known, so that a file that works for Kafka works as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.config import definitions

PLUGIN_PREFIXES = (
    *definitions.PREFIXES,
    "config.providers.",
    "metrics.context.",
    "client.quota.callback.",
    "strimzi.",
    "confluent.",
)
"""Prefixes of settings of listeners, tiered storage, metrics reporters, quota callbacks and well-known
distributions."""

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

PLUGIN_NAMES = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Settings of Kafka's own authorizer. They have an effect where it is set."""

OLDER_NAMES = frozenset(
    {
        "advertised.host.name", "advertised.port", "broker.id.generation.enable", "control.plane.listener.name",
        "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "delegation.token.master.key",
        "eligible.leader.replicas.enable", "group.coordinator.new.enable",
        "host.name", "inter.broker.protocol.version", "log.message.downconversion.enable", "log.message.format.version",
        "log.message.timestamp.difference.max.ms", "offsets.commit.required.acks", "password.encoder.cipher.algorithm",
        "password.encoder.iterations", "password.encoder.key.length", "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret", "password.encoder.secret", "port", "quota.consumer.default",
        "quota.producer.default", "remote.log.manager.thread.pool.size", "reserved.broker.max.id",
    }
)  # fmt: skip
"""Names that Kafka 4.3 has no more."""

OLDER_PREFIXES = ("zookeeper.", "transaction.remove.expired.transaction.cleanup.")


def is_known(name: str) -> bool:
    """Whether a setting may be given, be it with effect or not."""
    return (
        name in definitions.BROKER
        or name in PLUGIN_NAMES
        or name in OLDER_NAMES
        or name.startswith(PLUGIN_PREFIXES)
        or name.startswith(OLDER_PREFIXES)
    )


def has_effect(name: str, values: Mapping[str, Any]) -> bool:
    """Whether the setting does anything beside the others in `values`."""
    if name in PLUGIN_NAMES:
        return bool(values[AUTHORIZER])
    if name.startswith("config.providers."):
        return bool(values["config.providers"])
    setting = definitions.BROKER.get(name)
    return setting is not None and setting.acts


_ADVICE = "to run without it, omit {name} or override it with --set {name}={off}"

MUST_BE_OFF: Mapping[str, tuple[str, str]] = {
    "create.topic.policy.class.name": ("", "this version does not support policies for creating topics"),
    "alter.config.policy.class.name": ("", "this version does not support policies for changing settings"),
    "remote.log.storage.system.enable": ("false", "this version cannot read tiered storage"),
}
"""What to set to run without it, and why the node does not start with it: it would open what the setting closes."""


def refusals(values: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each setting that asks for protection that this version does not give."""
    for name, (off, why) in MUST_BE_OFF.items():
        if values[name]:
            yield f"{name} is set, but {why}; {_ADVICE.format(name=name, off=off)}"
