"""What a node runs with: its settings from file, command line and environment, checked, with dynamic ones laid over.

Precedence, highest first: the node's own dynamic setting, the cluster-wide dynamic one, `--set`, environment, file, the
embedded node's settings, the table's default (KIP-226 for the dynamic part).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config import definitions, foreign
from ottla.config.checks import InvalidValue, parse_address
from ottla.config.effective import EffectiveConfig, setting_of
from ottla.config.listeners import HTTP, OVER_TLS, Listener, parse_listener, parse_protocol_map
from ottla.config.roles import BROKER, CONTROLLER, check_roles, parse_servers, parse_voters
from ottla.config.typed import TypedSettings
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.config.properties import Entry
    from ottla.config.providers import Outside

EMBEDDED: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "ottla-data",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""What a node is when nobody says otherwise: alone, on loopback, with internal topics of one replica.

They stand in for what a configuration leaves out, unless it sets `process.roles`: then it is a whole Kafka
configuration and Kafka's own defaults fill its gaps."""

ENVIRONMENT_PREFIX = "OTTLA_"
OWN_PREFIX = "ottla."
"""Prefix of the settings that Kafka does not have; their variables are written without it."""
_EVERYWHERE = ("", "0.0.0.0", "::")
"""The hosts that mean all interfaces."""

_NOT_SETTINGS = re.compile(
    r"OTTLA_(BOOTSTRAP|REGISTRY|PIPELINES|MIRROR_FROM(_.*)?|CLIENT_(?!QUOTA_CALLBACK_).*|DEBUG|INTERPRETED|ORACLE|TEST_.*"
    r"|SERVICE_.*|PORT(_.*)?)"
)
"""Variables with the prefix that are no settings: the command line's, the tests', and those that Kubernetes injects
into pods beside a service called ottla."""

HostName = Callable[[], str]
"""Looks up the name of this host, under which clients find it."""


class SettingsFile(NamedTuple):
    """A properties file that the caller has read."""

    name: str
    data: bytes


class ServerConfig(TypedSettings):
    """The effective settings of one node."""

    def __init__(self, static: Mapping[str, str], host_name: HostName | None = None) -> None:
        """`static` maps names to texts. Raises OttlaError for a name or a value that cannot be."""
        for name, text in static.items():
            _check(name, text)
        for name, setting in definitions.BROKER.items():
            if setting.required and name not in static:
                raise OttlaError(f"setting {name} is missing; it must be {setting.allowed}")
        self._read: list[str] = []
        """Attributes that were read since the last change; each is in `__dict__`, which costs a reader no call."""
        self.static = _hiding({"broker.id": static["node.id"], **static})
        self.effective = EffectiveConfig(self.static, {}, {})
        """The settings in effect now, as an immutable value."""
        self.without_effect: tuple[str, ...] = ()
        """Settings in the file that have no effect in this version, in the file's order."""
        self.roles: tuple[str, ...] = self.process_roles
        self.log_dirs: tuple[str, ...] = self["log.dirs"] or self.log_dir
        self.metadata_log_dir: str = self["metadata.log.dir"] or self.log_dirs[0]
        self.is_broker = BROKER in self.roles
        self.is_controller = CONTROLLER in self.roles
        self.quorum_voters = parse_voters(self.controller_quorum_voters)
        """Controllers that vote, by node id, where the settings name them."""
        self.quorum_servers = parse_servers(self.controller_quorum_bootstrap_servers)
        self._read_listeners(host_name)
        self._check_together()

    @classmethod
    def load(
        cls,
        file: SettingsFile | None = None,
        overrides: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        host_name: HostName | None = None,
        outside: Callable[[], Outside] | None = None,
    ) -> ServerConfig:
        """Settings of a properties file, over it the environment's, over these `overrides`. Raises OttlaError.

        `host_name` is asked where all interfaces are listened at and no name is advertised; `outside` gives what
        `config.providers` of the file read.
        """
        entries = {} if file is None else _entries(file, outside)
        above = {**from_environment(environ or {}), **(overrides or {})}
        for name, text in above.items():
            if name.startswith("config.providers") and text:
                raise OttlaError(f"{name} belongs into the settings file, whose values it replaces")
        given = {**{name: entry.value for name, entry in entries.items()}, **above}
        if "process.roles" not in given:
            if "zookeeper.connect" in given:
                from ottla.config import zookeeper  # few clusters live there

                given = zookeeper.completed(given, environ or {})
            else:
                given = {**_embedded(given), **given}
        config = cls(given, host_name)
        config.without_effect = tuple(
            name for name in entries if name not in above and not foreign.has_effect(name, config)
        )
        return config

    def __getitem__(self, name: str) -> Any:
        """The typed value, None where there is neither value nor default. Raises KeyError for an unknown name."""
        return self.effective[name]

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, attribute: str) -> Any:
            value = setting_of(self, attribute)
            self.__dict__[attribute] = value
            self._read.append(attribute)
            return value

    def __iter__(self) -> Iterator[str]:
        return iter(definitions.BROKER)

    def __len__(self) -> int:
        return len(definitions.BROKER)

    @property
    def cluster_wide(self) -> Mapping[str, str]:
        return self.effective.cluster_wide

    @property
    def per_broker(self) -> Mapping[str, str]:
        return self.effective.per_broker

    def text(self, name: str) -> str | None:
        """The effective value as DescribeConfigs shows it."""
        return self.effective.text(name)

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The `log_dirs` that get no new partitions (KIP-1066)."""
        named = self["cordoned.log.dirs"]
        return tuple(each for each in self.log_dirs if "*" in named or each in named)

    def apply_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> frozenset[str]:
        """Lay the dynamic settings of the metadata image over the static ones; returns the names that changed value."""
        before = self.effective
        if cluster_wide == before.cluster_wide and per_broker == before.per_broker:
            return frozenset()
        self.effective = EffectiveConfig(self.static, dict(cluster_wide), dict(per_broker))
        for attribute in self._read:
            self.__dict__.pop(attribute, None)
        self._read = []  # a new one: a copy of this has the same
        given = {*before.cluster_wide, *before.per_broker, *cluster_wide, *per_broker}
        return frozenset(name for name in given & definitions.BROKER.keys() if self[name] != before[name])

    def dynamic_text(self, name: str) -> str | None:
        """A dynamic setting of this broker that is none of the table: `leader.replication.throttled.rate` and such."""
        found = self.effective.per_broker.get(name)
        return self.effective.cluster_wide.get(name) if found is None else found

    def topic_defaults(self) -> Mapping[str, str | None]:
        """Every topic setting's default on this node, as text: from its broker synonyms, else from the table."""
        return self.effective.topic_defaults()

    def log_config_properties(self, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
        """All settings of a topic's logs as text: the topic's own, else this node's defaults. For `LogConfig`."""
        properties = {name: text for name, text in self.topic_defaults().items() if text is not None}
        properties.update(overrides or {})
        if "internal.segment.bytes" in properties:
            properties["segment.bytes"] = properties["internal.segment.bytes"]
        return properties

    def _read_listeners(self, host_name: HostName | None) -> None:
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        controllers = tuple(name.upper() for name in self.controller_listener_names or ())
        if "listener.security.protocol.map" not in self.static:
            for name in controllers:
                protocols.setdefault(name, "PLAINTEXT")
        self.controller_protocol = (controllers[0], protocols.get(controllers[0])) if controllers else ("", None)
        """The first of the controllers' listeners, which brokers connect to, and its security protocol."""
        everywhere = [parse_listener("listeners", text, protocols) for text in self["listeners"]]
        _distinct("listeners", everywhere)
        self.listeners: tuple[Listener, ...] = tuple(each for each in everywhere if each.name not in controllers)
        self.controller_listeners = tuple(each for each in everywhere if each.name in controllers)
        advertised = self["advertised.listeners"]
        texts = [str(each) for each in self.listeners] if advertised is None else advertised
        routable = [_routable(parse_listener("advertised.listeners", text, protocols), host_name) for text in texts]
        # Those of controllers may stand among them since KIP-853, as in Kafka's own example; clients never see them.
        self.advertised_listeners: tuple[Listener, ...] = tuple(
            each for each in routable if each.name not in controllers
        )
        said = {each.name: each for each in routable}
        self.advertised_controller_listeners: tuple[Listener, ...] = tuple(
            said.get(each.name)
            or _routable(
                each._replace(host="" if each.host in _EVERYWHERE else each.host), host_name or (lambda: "localhost")
            )
            for each in self.controller_listeners
        )
        given = self["inter.broker.listener.name"] or self.static.get("security.inter.broker.protocol", "")
        between: str = (given or self.security_inter_broker_protocol).upper()
        names = [each.name for each in self.listeners]
        if not given and names and between not in names:
            between = names[0]
        self.inter_broker_listener = (between, protocols.get(between))
        """The listener by which brokers reach each other, and its security protocol."""
        self.inter_broker_listener_name: str = between
        reached = {self.inter_broker_listener[1], self.controller_protocol[1]}
        if self.ottla_http_listener:
            reached.add(self.ottla_http_security_protocol)
        self.uses_tls = not reached.isdisjoint(OVER_TLS) or any(each.protocol in OVER_TLS for each in everywhere)
        """Whether this node listens over TLS or reaches other nodes over it."""

    def _check_together(self) -> None:
        """Checks over several settings (`KafkaConfig.validateValues`). Raises OttlaError."""
        broker_id = self.broker_id
        if broker_id not in (-1, self.node_id):
            raise OttlaError(f"broker.id is {broker_id} but node.id is {self.node_id}: remove broker.id")
        for refusal in foreign.refusals(self):
            raise OttlaError(refusal)
        if self[foreign.AUTHORIZER] or self.early_start_listeners:
            self._check_authorizer()
        if any(name.startswith("listener.name.") for name in self.static):
            from ottla.config import listener_settings  # few nodes have any

            listener_settings.checked(self.static)
        check_roles(self)
        if self["cordoned.log.dirs"]:
            from ottla.config.validation import cordon_refusal  # few nodes ever need it

            why = cordon_refusal(self["cordoned.log.dirs"], self.log_dirs)
            if why is not None:
                raise OttlaError(why)
        self._check_http_port()
        if self.ottla_audit_topic and not self.ottla_audit_directory:
            raise OttlaError("ottla.audit.topic needs ottla.audit.directory: lines are shipped from its files")
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise OttlaError("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
        for name, least in (("log.roll.ms", 1), ("log.retention.ms", None), ("log.retention.minutes", None)):
            value = self[name]
            if value is not None and value < 1 and not (least is None and value == -1):
                allowed = "at least 1" if least else "-1 (no limit) or at least 1"
                raise OttlaError(f"{name} is {value}: it must be {allowed}")

    def _check_authorizer(self) -> None:
        """Raises OttlaError."""
        from ottla.config import authorizer  # a node that everyone may use does without

        listeners, controllers = (
            frozenset(each.name for each in some) for some in (self.listeners, self.controller_listeners)
        )
        for mistake in authorizer.mistakes(self, self.static, listeners, controllers):
            raise OttlaError(mistake)

    def _check_http_port(self) -> None:
        """Raises OttlaError where a listener has the port of `ottla.http.listener`."""
        host, port = parse_address(self.ottla_http_listener) or ("", 0)
        listeners = (*self.listeners, *self.controller_listeners)
        if self.ottla_http_security_protocol != "PLAINTEXT" and any(each.name == HTTP for each in listeners):
            raise OttlaError(
                "a listener is named HTTP, and the HTTP port's settings begin with listener.name.http. as well: rename "
                "the listener"
            )
        for each in listeners if port else ():
            if each.port == port and (each.host == host or not {each.host, host}.isdisjoint(_EVERYWHERE)):
                raise OttlaError(
                    f"ottla.http.listener and the listener {each} have the same port: give a different one for "
                    f"clients (--listen) or for HTTP (--http)"
                )


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings from variables such as OTTLA_LOG_DIRS. Raises OttlaError for a variable that names no setting, and for
    two that name the same one."""
    found: dict[str, str] = {}
    said: dict[str, str] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or _NOT_SETTINGS.fullmatch(variable):
            continue
        name = _setting_of(variable)
        if not foreign.is_known(name):
            if name == "bootstrap.servers":
                raise OttlaError(
                    f"environment variable {variable} is not a node's setting: rename it to OTTLA_BOOTSTRAP, which "
                    f"the commands read, or unset it"
                )
            raise OttlaError(f"environment variable {variable}: {_unknown(name)}")
        if name in said:
            raise OttlaError(f"environment variables {said[name]} and {variable} both set {name}: unset one of them")
        found[name], said[name] = text, variable
    return found


def variable_of(name: str) -> str:
    """The environment variable that sets this setting: OTTLA_LOG_DIRS for `log.dirs`, say."""
    text = name.removeprefix(OWN_PREFIX).upper()
    return ENVIRONMENT_PREFIX + text.replace("_", "__").replace("-", "___").replace(".", "_")


def _setting_of(variable: str) -> str:
    """As Kafka's images read theirs: `_` is a dot, `__` an underscore, `___` a dash."""
    text = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("___", "-")
    name = "_".join(part.replace("_", ".") for part in text.split("__"))
    name = _CAPITALS.get(name, name)
    return OWN_PREFIX + name if OWN_PREFIX + name in definitions.BROKER else name


_CAPITALS = {name.lower(): name for name in definitions.BROKER if not name.islower()}
"""Names that a variable cannot show as they are."""


def _embedded(given: Mapping[str, str]) -> dict[str, str]:
    """EMBEDDED without what a given setting already says by another name."""
    embedded = dict(EMBEDDED)
    if "log.dir" in given:
        del embedded["log.dirs"]
    if "broker.id" in given:
        embedded["node.id"] = given["broker.id"]
    return embedded


def _entries(file: SettingsFile, outside: Callable[[], Outside] | None) -> dict[str, Entry]:
    """The settings of a file. Raises OttlaError for those that cannot be, each with its line."""
    from ottla.config.properties import decode_properties, parse_entries  # a node may have no file

    entries = parse_entries(decode_properties(file.data))
    mistakes = []
    replaced = _replacing(file, entries, outside)
    for name, entry in entries.items():
        try:
            entries[name] = entry = entry._replace(value=replaced(name, entry.value))
            _check(name, entry.value)
        except OttlaError as error:
            mistakes.append(f"{file.name} line {entry.line}: {error}")
    if mistakes:
        raise OttlaError("\n  ".join(mistakes))
    return entries


def _replacing(
    file: SettingsFile, entries: Mapping[str, Entry], outside: Callable[[], Outside] | None
) -> Callable[[str, str], str]:
    """Replaces variables in the values of a file that has `config.providers`."""
    if not any(name.startswith("config.providers") for name in entries):
        return lambda name, text: text
    from ottla.config.providers import Providers  # few nodes have any

    try:
        values = {name: entry.value for name, entry in entries.items()}
        return Providers(values, None if outside is None else outside()).replaced
    except OttlaError as error:
        raise OttlaError(f"{file.name}: {error}") from None


def _hiding(static: Mapping[str, str]) -> Mapping[str, str]:
    """The texts of settings with those of passwords as secrets."""
    secrets = [name for name in static if definitions.is_sensitive(name)]
    if not secrets:
        return static
    from ottla.config.secret import Secret  # few nodes have one

    return {**static, **{name: Secret(static[name]) for name in secrets}}


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, definitions.BROKER, n=3)
    if name in definitions.TOPIC:
        broker_names = " or ".join(synonym.name for synonym in definitions.TOPIC_SYNONYMS.get(name, ()))
        return f"{name} is a setting of a topic" + (f"; a broker's is {broker_names}" if broker_names else "")
    return f"{name} is not a setting of Kafka 4.3" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _check(name: str, text: str) -> None:
    setting = definitions.BROKER.get(name)
    if setting is None:
        if not foreign.is_known(name):
            # Without its value, as in DescribeConfigs: it may be a password, behind a name with a letter too few.
            raise OttlaError(f"unknown setting {name}: {_unknown(name)}")
        return
    try:
        setting.parse(text)
    except InvalidValue as error:
        kind = "; the given value is not a number" if "Not a number" in str(error) else ""
        is_hidden = setting.sensitive or type(text) is not str
        shown = "[hidden]" if is_hidden else text
        refusal = f"setting {name}={shown} is refused: allowed is {setting.allowed}{kind}"
        raise OttlaError(refusal) from (None if is_hidden else error)  # which has the value


def _distinct(setting: str, listeners: list[Listener]) -> None:
    """Raises OttlaError where two listeners share a name, or a port on the same host."""
    names = [each.name for each in listeners]
    ends = [(each.host, each.port) for each in listeners if each.port]
    for label, seen in (("name", names), ("port", ends)):
        if len(set(seen)) != len(seen):
            raise OttlaError(f"{setting}: each listener needs its own {label}: {', '.join(map(str, listeners))}")


def _routable(listener: Listener, host_name: HostName | None) -> Listener:
    """A listener that clients can reach: all interfaces become this host's name; 0.0.0.0 is refused as in Kafka."""
    if listener.host in _EVERYWHERE[1:] or (not listener.host and host_name is None):
        raise OttlaError(
            f"advertised.listeners: clients cannot connect to {listener.host or 'all interfaces'}; "
            f"set advertised.listeners={listener.name}://HOST:{listener.port} with a host that they can reach"
        )
    if listener.host or host_name is None:
        return listener
    return listener._replace(host=host_name())
