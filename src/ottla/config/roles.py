"""What the roles of a node ask of its other settings (`KafkaConfig.validateValues`), and where its controllers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.config.checks import parse_address
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.config.listeners import Listener

BROKER, CONTROLLER = "broker", "controller"


class Host(NamedTuple):
    """Where a controller is reached."""

    host: str
    port: int


class RoleSettings(Protocol):
    """The settings that roles ask for: `ServerConfig`, while it is checked."""

    static: Mapping[str, str]
    node_id: int
    roles: tuple[str, ...]
    quorum_voters: dict[int, Host]
    quorum_servers: tuple[Host, ...]
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    controller_listeners: tuple[Listener, ...]
    controller_protocol: tuple[str, str | None]
    inter_broker_listener: tuple[str, str | None]

    @property
    def controller_quorum_voters(self) -> tuple[str, ...]: ...
    def __getitem__(self, name: str, /) -> Any: ...


def parse_voters(texts: Sequence[str]) -> dict[int, Host]:
    """`controller.quorum.voters`: id@host:port each. Raises OttlaError."""
    voters: dict[int, Host] = {}
    for text in texts:
        number, at, place = text.partition("@")
        address = parse_address(place)
        if not at or not number.strip().isdecimal() or address is None or not address[0]:
            raise OttlaError(f"controller.quorum.voters: {text!r} is not of the form id@host:port")
        if int(number) in voters:
            raise OttlaError(f"controller.quorum.voters names node {int(number)} twice")
        voters[int(number)] = Host(*address)
    return voters


def parse_servers(texts: Sequence[str]) -> tuple[Host, ...]:
    """`controller.quorum.bootstrap.servers`: host:port each. Raises OttlaError."""
    servers = []
    for text in texts:
        address = parse_address(text)
        if address is None or not address[0]:
            raise OttlaError(f"controller.quorum.bootstrap.servers: {text!r} is not of the form host:port")
        servers.append(Host(*address))
    return tuple(servers)


def check_roles(config: RoleSettings) -> None:
    """Raises OttlaError where the settings do not fit the roles, or ask for what this version does not do."""
    if config.roles == (BROKER,):
        _check_broker_only(config)
    else:
        _check_controller(config)
    if BROKER in config.roles:
        if not config.listeners:
            raise OttlaError("listeners: a broker needs a listener beside the controller's; add PLAINTEXT://host:port")
        if not config.advertised_listeners:
            raise OttlaError("advertised.listeners: name a listener for clients beside the controller's")
        known = {each.name for each in config.listeners}
        for each in config.advertised_listeners:
            if each.name not in known:
                raise OttlaError(f"advertised.listeners: {each.name} is not among the broker's listeners")
        _check_inter_broker_listener(config)


def _check_inter_broker_listener(config: RoleSettings) -> None:
    """Without either setting it is PLAINTEXT, or the first listener where there is none of this name."""
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if config[by_name] and by_protocol in config.static:
        raise OttlaError(f"{by_name} and {by_protocol} are both given: remove {by_protocol}")
    name = config.inter_broker_listener[0]
    advertised = [each.name for each in config.advertised_listeners]
    if name not in advertised:
        setting = by_name if config[by_name] else by_protocol
        raise OttlaError(
            f"{setting} is {name}, but advertised.listeners has {', '.join(advertised)}: brokers reach each other by "
            f"one of these; set {by_name} to it"
        )


def _check_broker_only(config: RoleSettings) -> None:
    if not config.quorum_voters and not config.quorum_servers:
        raise OttlaError(
            "process.roles is broker: give the controllers' addresses with "
            "controller.quorum.bootstrap.servers=host:port or controller.quorum.voters=id@host:port"
        )
    if config.node_id in config.quorum_voters:
        raise OttlaError(
            f"process.roles is broker, but node.id {config.node_id} is among controller.quorum.voters: "
            "give the broker another node.id, or also the role controller"
        )
    if config.controller_listeners:
        raise OttlaError(
            f"process.roles is broker, but the listener {config.controller_listeners[0]} is among "
            f"controller.listener.names: remove it from listeners, as it belongs to the controllers"
        )
    _check_way_to_controllers(config)


def _check_way_to_controllers(config: RoleSettings) -> None:
    """The first name in controller.listener.names is where a node connects to the controllers of others."""
    name, protocol = config.controller_protocol
    if protocol is None:
        raise OttlaError(
            f"controller.listener.names: {name} has no security protocol; see listener.security.protocol.map"
        )
    others = (host for node_id, host in config.quorum_voters.items() if node_id != config.node_id)
    for each in (*others, *config.quorum_servers):
        if each.port == 0:
            raise OttlaError(f"a controller at {each.host}:0 has no fixed port: give the port that it listens on")


def _check_controller(config: RoleSettings) -> None:
    voters: Mapping[int, Host] = config.quorum_voters
    if voters and config.node_id not in voters:
        texts = ",".join(config.controller_quorum_voters)
        raise OttlaError(
            f"controller.quorum.voters is {texts}: node.id {config.node_id}, which has the role controller, must "
            "be among them"
        )
    if set(voters) - {config.node_id}:
        if not config.controller_listeners:
            raise OttlaError(
                "listeners: the other controllers must reach this one; add a listener of controller.listener.names, "
                "as CONTROLLER://host:port"
            )
        _check_way_to_controllers(config)
    if BROKER in config.roles:
        return
    if not voters and not config.quorum_servers:
        raise OttlaError(
            "process.roles is controller: give the voters with controller.quorum.voters="
            f"{config.node_id}@host:port, or controller.quorum.bootstrap.servers=host:port"
        )
    if config.listeners:
        raise OttlaError(
            f"process.roles is controller, but the listener {config.listeners[0]} is for clients: name only listeners "
            "of controller.listener.names in listeners"
        )
    if not config.controller_listeners:
        raise OttlaError("listeners: a controller needs one of controller.listener.names; add CONTROLLER://host:port")
    if config["advertised.listeners"] is not None and config.advertised_listeners:
        raise OttlaError(
            f"process.roles is controller, but advertised.listeners has {config.advertised_listeners[0]}, which is "
            f"for clients: remove it"
        )
