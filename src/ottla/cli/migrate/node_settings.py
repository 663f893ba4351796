"""What the settings of Kafka's nodes mean for Ottla: plug-ins, what a start refuses, what has no effect. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.cli.migrate.finding import FINE, LOOK, STOPS, Finding
from ottla.cli.migrate.survey import KAFKA, Node, Survey
from ottla.config import definitions, foreign
from ottla.config.checks import InvalidValue
from ottla.config.listeners import parse_listener, parse_protocol_map
from ottla.config.tables.without_effect import why
from ottla.errors import OttlaError
from ottla.security.sasl import SUPPORTED

_KAFKA: Final = "org.apache.kafka."

PLUGINS: Final[Mapping[str, tuple[str, str]]] = {
    "authorizer.class.name": (STOPS, "Ottla has Kafka's StandardAuthorizer only: move its rules to ACLs"),
    "principal.builder.class": (
        STOPS, "users get the names that Kafka's default gives them: check that ACLs and quotas name these, then "
        "--accept plug-ins",
    ),
    "create.topic.policy.class.name": (STOPS, "run without it: --set create.topic.policy.class.name="),
    "alter.config.policy.class.name": (STOPS, "run without it: --set alter.config.policy.class.name="),
    "sasl.server.callback.handler.class": (STOPS, "users have to be in SCRAM, in the JAAS text, or at a token server"),
    "sasl.oauthbearer.jwt.validator.class": (STOPS, "tokens are checked by Ottla's own rules"),
    "ssl.engine.factory.class": (STOPS, "give key store and trust store in the file"),
    "sasl.client.callback.handler.class": (LOOK, "name user and password of the node in sasl.jaas.config"),
    "sasl.login.callback.handler.class": (LOOK, "name user and password of the node in sasl.jaas.config"),
    "sasl.login.class": (LOOK, "name user and password of the node in sasl.jaas.config"),
    "client.quota.callback.class": (LOOK, "set quotas with: ottla quota set"),
    "metric.reporters": (LOOK, "scrape the node's own metrics: ottla.http.listener"),
    "kafka.metrics.reporters": (LOOK, "scrape the node's own metrics: ottla.http.listener"),
    "replica.selector.class": (LOOK, "Ottla knows Kafka's own RackAwareReplicaSelector"),
    "security.providers": (LOOK, "Ottla uses OpenSSL"),
    "group.share.persister.class.name": (LOOK, "share groups keep their state in __share_group_state"),
}  # fmt: skip
"""Settings that name a class, to the weight of one that is not Kafka's own, and what to do."""


def findings(survey: Survey) -> Iterator[Finding]:
    asked = [each for each in survey.nodes if each.kind == KAFKA and each.settings is not None]
    plugins: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    refused: dict[str, list[str]] = defaultdict(list)
    idle: dict[str, list[str]] = defaultdict(list)
    exposed: dict[str, list[str]] = defaultdict(list)
    for node in asked:
        where = f"node {node.id}"
        values = _values(node)
        for name, value in values.items():
            plugin = _plugin(name, value)
            if plugin is not None:
                plugins[name, value, plugin].append(where)
        for sentence in _refusals(node, values):
            refused[sentence].append(where)
        for name in node.settings or ():
            reason = why(name)
            if reason is not None and _plugin(name, values.get(name, "")) is None:
                idle[f"{name}: {reason}"].append(where)
        for listener in _open(values):
            exposed[listener].append(where)
    for (name, value, base), places in sorted(plugins.items()):
        weight, todo = PLUGINS[base]
        yield Finding("plug-ins", weight, f"{name} is {value}: Ottla loads no Java class", todo, tuple(places))
    for sentence, places in sorted(refused.items()):
        yield Finding(
            "settings-refused",
            STOPS,
            f"Ottla does not start with it: {sentence}",
            "correct it in the file that Ottla starts with, then --accept settings-refused",
            tuple(places),
        )
    for sentence, places in sorted(idle.items()):
        yield Finding("settings-idle", FINE, f"without effect: {sentence}", "", tuple(places))
    for listener, places in sorted(exposed.items()):
        yield Finding(
            "listeners-open",
            LOOK,
            f"the listener {listener} asks nobody for a login",
            "Ottla starts with it only if ottla.allow.open.listeners=true, unless it listens on loopback",
            tuple(places),
        )
    if asked and not refused:
        yield Finding("settings", FINE, "Ottla starts with the settings that the nodes show")


def _values(node: Node) -> dict[str, str]:
    """What the file of a node says, as far as the node shows it."""
    return {name: each.value for name, each in (node.settings or {}).items() if each.value is not None}


def _plugin(name: str, value: str) -> str | None:
    """The name of the setting in PLUGINS, without the prefix of a listener, if the value names others than Kafka's own
    classes."""
    base = next((each for each in PLUGINS if name == each or name.endswith(f".{each}")), None)
    classes = [each.strip() for each in value.split(",") if each.strip()]
    return None if base is None or all(each.startswith(_KAFKA) for each in classes) else base


def _refusals(node: Node, values: Mapping[str, str]) -> Iterator[str]:
    """Why a node of Ottla would not start with these settings."""
    for name, entry in (node.settings or {}).items():
        if entry.is_static and not foreign.is_known(name):
            yield f"{name} is an unknown setting"
        elif entry.is_static and name in definitions.BROKER and entry.value is not None:
            try:
                definitions.BROKER[name].parse(entry.value)
            except InvalidValue as error:
                yield str(error)
    for name in (
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.mechanism.controller.protocol",
    ):
        for full, value in values.items():
            if full == name or full.endswith(f".{name}"):
                for each in filter(None, (part.strip().upper() for part in value.split(","))):
                    if each not in SUPPORTED:
                        yield f"{full}: {each} is not a mechanism that Ottla has ({', '.join(SUPPORTED)})"
    if values.get("remote.log.storage.system.enable", "").lower() == "true":
        yield "remote.log.storage.system.enable is true, and there is no tiered storage"


def _open(values: Mapping[str, str]) -> Iterator[str]:
    """Listeners without a login that are not on loopback, by name."""
    from ottla.server.listeners.exposure import is_loopback

    if values.get("authorizer.class.name"):
        return  # anonymous users have the rights that ACLs give them
    try:
        protocols = parse_protocol_map(values.get("listener.security.protocol.map", _MAP))
        for text in filter(None, (part.strip() for part in values.get("listeners", "").split(","))):
            listener = parse_listener("listeners", text, {"CONTROLLER": "PLAINTEXT", **protocols})
            own = values.get(f"listener.name.{listener.name.lower()}.ssl.client.auth", values.get("ssl.client.auth"))
            certified = listener.protocol == "SSL" and own == "required"
            if not (listener.protocol.startswith("SASL") or certified or is_loopback(listener.host)):
                yield str(listener)
    except OttlaError:
        return  # `_refusals` has said it, or Kafka would not run


_MAP: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
