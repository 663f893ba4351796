"""Settings of a Kafka file that have no place in the table, and those that must not be passed over in silence.

Kafka hands names that it does not know to its plugins, and warns. Here names are known or refused: those of plugins and
of distributions and those of older releases are known, so that a file that works for Kafka works as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.config import definitions
from ottla.config.tables.node import ZOOKEEPER, ZOOKEEPER_MODE

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

PLUGIN_NAMES = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Settings of Kafka's own authorizer. They have an effect where it is set."""

OF_LISTENERS = ("connections.max.reauth.ms", "max.connection.creation.rate")
"""Settings that a listener may have for itself, beside those of TLS and SASL."""


def is_known(name: str) -> bool:
    """Whether a setting of a broker may be given, be it with effect or not."""
    if name in definitions.BROKER or name in PLUGIN_NAMES or name.startswith(("listener.name.", "config.providers.")):
        return True
    from ottla.config.tables.without_effect import why  # few files have any

    return name not in definitions.TOPIC and why(name) is not None


def has_effect(name: str, values: Mapping[str, Any]) -> bool:
    """Whether the setting does anything beside the others in `values`."""
    from ottla.config.tables.without_effect import why

    if name in PLUGIN_NAMES:
        return bool(values[AUTHORIZER])
    if name in {each.name for each in ZOOKEEPER}:
        return bool(values.get(ZOOKEEPER_MODE))
    if name.startswith("config.providers."):
        return bool(values["config.providers"])
    if name.startswith("listener.name."):
        own = name.removeprefix("listener.name.").partition(".")[2]
        of_mechanism = own.partition(".")[2]
        name = of_mechanism if of_mechanism in definitions.BROKER else own
        return name in OF_LISTENERS or (name.startswith(("ssl.", "sasl.")) and why(name) is None)
    return why(name) is None


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
