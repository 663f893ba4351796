"""Settings of logins that change while a node runs (`kafka-configs --alter`, KIP-226).

Kafka accepts them, and existing listeners go on with what they began with. Here a change is tried first, refused in the
answer if nobody could log in by it, and counts for every login from then on: users of PLAIN, mechanisms, the length of
sessions, the name and password by which this node logs in at others. What only the node's own file may say, and what is
read at the start alone, is refused as well: nothing is accepted that has no effect.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.config import definitions
from ottla.config.listener_settings import PREFIX
from ottla.config.listeners import HTTP
from ottla.controller.configs import changed_by
from ottla.drivers.nodes.sasl_client import LoginNetwork
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.metadata.image import ConfigResource, ConfigResourceType
from ottla.security.sasl import OAUTHBEARER
from ottla.server.listeners import sasl_listeners

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.ports import Settled
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.server.listeners.listener import Listener
    from ottla.server.ports import LoginNode

_LOG = logging.getLogger("ottla.authentication")

LIVE: Final = frozenset({
    "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.server.max.receive.size", "connections.max.reauth.ms",
})  # fmt: skip
"""Settings of a SASL listener that count from the next login on."""
AT_START: Final = frozenset({
    "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol",
})  # fmt: skip
"""Settings that are read when a node starts."""

BUILDER: Final = "principal."
"""The prefix of Kafka's class that names users, which Ottla does not load."""
JAAS: Final = "sasl.jaas.config"
CHECKED: Final = LIVE | AT_START


def refusals(
    node: LoginNode, image: MetadataImage, asked: Mapping[str, Any], *, incremental: bool
) -> dict[int, KafkaError]:
    """Changes of this broker's settings by which nobody could log in, or which would have no effect, by place in the
    request (INVALID_REQUEST)."""
    refused = {}
    for place, each in enumerate(asked["resources"]):
        resource = ConfigResource(each["resource_type"], each["resource_name"])
        if resource.type != ConfigResourceType.BROKER or resource.name not in ("", str(node.node_id)):
            continue
        try:
            changes = changed_by(image, each, incremental=incremental)
        except KafkaError:
            continue  # the request is malformed, and refused for that
        try:
            _check(node, image, resource, changes)
        except OttlaError as error:
            refused[place] = KafkaError(ErrorCode.invalid_request, str(error))
    return refused


def _check(node: LoginNode, image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
    """Raises OttlaError."""
    names = {each.name.lower() for each in node.listeners if each.authentication is not None}
    about = [
        name
        for name in changes
        for _, setting in [_setting(name)]
        if setting.startswith(("sasl.", BUILDER)) or setting in CHECKED
    ]
    for name in about:
        _check_name(name, names)
    if not about:
        return
    trial = copy.copy(node.config)
    configs = {
        each: dict(image.config(ConfigResourceType.BROKER, each.name))
        if each != resource
        else _merged(image, each, changes)
        for each in (ConfigResource(ConfigResourceType.BROKER, ""), _own(node))
    }
    trial.apply_dynamic(configs[ConfigResource(ConfigResourceType.BROKER, "")], configs[_own(node)])
    for listener in node.listeners:
        if listener.authentication is not None:
            sasl_listeners.check_mechanisms(trial, listener.name, sasl_listeners.enabled(trial, listener.name))
    _check_own_login(node, trial)


def _own(node: Settled) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(node.node_id))


def _merged(image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]) -> dict[str, str]:
    whole = {**image.config(ConfigResourceType.BROKER, resource.name), **changes}
    return {name: text for name, text in whole.items() if text is not None}


def _setting(name: str) -> tuple[str, str]:
    """The listener and the setting that a name is about; the listener is empty for all of them."""
    if not name.startswith(PREFIX):
        return "", name
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    behind = rest.partition(".")[2]  # behind the name of a mechanism
    return listener, rest if rest in definitions.BROKER or behind not in definitions.BROKER else behind


def _check_name(name: str, listeners: set[str]) -> None:
    """Raises OttlaError for a setting that would have no effect."""
    listener, setting = _setting(name)
    if setting in AT_START or setting.startswith(BUILDER) or listener == HTTP.lower():
        raise OttlaError(f"Ottla reads these configs at start only; change the configuration file: [{name}]")
    if setting == JAAS and not listener:
        raise OttlaError(f"{JAAS} counts with the names of a listener and a mechanism: {PREFIX}NAME.MECHANISM.{JAAS}")
    if setting not in LIVE:
        raise OttlaError(f"only the node's own file sets {name}")
    if listener and listener not in listeners:
        known = ", ".join(sorted(listeners))
        raise OttlaError(f"this broker has no listener {listener.upper()} with SASL, but {known}: {name}")


def _check_own_login(node: LoginNode, trial: ServerConfig) -> None:
    """Raises OttlaError where this node could not log in at others any more."""
    if not isinstance(node.network, LoginNetwork):
        return
    login, name = node.network.login, node.inter_broker_listener
    login.check(trial)
    offered = {each.name: sasl_listeners.enabled(trial, each.name) for each in trial.listeners if each.name == name}
    if login.mechanism not in offered.get(name, (login.mechanism,)):
        raise OttlaError(f"brokers log in at each other by {login.mechanism} (sasl.mechanism.inter.broker.protocol)")


def follow(listener: Listener) -> None:
    """Have the logins of a listener follow its settings."""

    def changed(delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs):
            _refresh(listener)
        return iter(())

    listener.node.metadata.publisher.after_each(changed)


def _refresh(listener: Listener) -> None:
    """The mechanisms and limits for the logins that begin from now on."""
    authentication, config = listener.authentication, listener.node.config
    if authentication is None:
        return
    try:
        names = sasl_listeners.enabled(config, listener.name)
        sasl_listeners.check_mechanisms(config, listener.name, names)
        settings = sasl_listeners.login_settings(listener)
        known = authentication.mechanisms
        # OAUTHBEARER has its settings from the node's file alone, and keys that it has fetched.
        found = {
            each: sasl_listeners.mechanism_of(listener, each, known.get(each) if each == OAUTHBEARER else None)
            for each in names
        }
    except OttlaError as error:  # a record that another software has written: what was there before stays
        _LOG.error("changed settings cannot be used", extra=fields(listener=listener.name, error=str(error)))
        return
    authentication.mechanisms, authentication.settings = found, settings
