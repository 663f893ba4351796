"""`ottla cluster add`: a node that joins a running cluster, in a directory of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.claim import claim, one_at_a_time
from ottla.cli.cluster.members import members
from ottla.cli.cluster.up import (
    CONTROLLER_PORTS,
    NODES_MAX,
    PROPERTIES,
    REMOVED,
    address_of,
    check_settings,
    node_config,
    write_settings,
)
from ottla.cli.cluster.voters import make_dynamic, quorum_of
from ottla.cli.config.command import Resource
from ottla.cli.config.command import describe as describe_settings
from ottla.cli.exits import FAILED, MISUSED, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Flag, asked_at, parse_settings
from ottla.cli.security import secured
from ottla.cli.values import BrokerId, FilePath, Text
from ottla.config.explained import BROKER
from ottla.metadata.image import Endpoint, SecurityProtocol

PORT_MAX = 65_535
PORTS_TRIED = 1_000
IDS_TRIED = 100

LIKE_THE_OTHERS = (
    "default.replication.factor", "min.insync.replicas", "num.partitions", "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
    "group.initial.rebalance.delay.ms", "auto.create.topics.enable",
)  # fmt: skip
"""Settings that a new node takes from one that is there: they should not depend on which node is asked."""


def add(
    directory: FilePath,
    /,
    *,
    listen: Text | None = None,
    node_id: BrokerId | None = None,
    controller: Flag = False,
    set: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Add a node to a running cluster and run it until Ctrl-C. Run the same command to start it again.

    In the directory of a secured cluster (`ottla cluster up --secure`) the node gets a certificate of its authority.
    The node's settings are written to DIRECTORY/server.properties, its data is in DIRECTORY/data. It holds no
    partitions until some are created on it or moved to it with `ottla cluster balance --run`.

    Parameters
    ----------
    directory
        The node's directory, created if missing.
    listen
        HOST:PORT to accept clients and other nodes at. Default: the next free port on this machine. Only for a new
        node.
    node_id
        The node's id. Default: the next unused id. Only for a new node.
    controller
        The node also becomes a controller (quorum voter) once it has caught up; a quorum of three survives the loss of
        one. With --set process.roles=controller it is only a controller. Only for a new node.
    set
        A setting as name=value; may be repeated. Only for a new node.
    """
    directory = directory.absolute()
    path = directory / PROPERTIES
    if path.exists():
        if listen or node_id is not None or set or controller:
            raise CommandFailed(f"{path} exists already: change it, or omit the options", MISUSED)
        if (directory / REMOVED).exists():
            (directory / REMOVED).unlink()
            _say("the node was removed from the cluster and joins again")
        return _run(directory, Joined(), bootstrap)
    root, bootstrap = _secured(directory, bootstrap)
    given = parse_settings(set or (), "--set")
    roles = given.get("process.roles") or ("broker,controller" if controller else "broker")
    with one_at_a_time(_say) as release:
        joined = _join(directory, bootstrap, listen, node_id, roles, given, root)
        return _run(directory, joined, bootstrap, release)


def _secured(directory: Path, bootstrap: str) -> tuple[Path | None, str]:
    """The directory of the cluster's authority, None for a cluster without security, and where the cluster is: with the
    node's directory in the cluster's, no file of a client has to be given. Raises CommandFailed."""
    from ottla.client.security import PLAINTEXT

    given = client_security.typed() or (
        Path(os.environ[client_security.VARIABLE]) if os.environ.get(client_security.VARIABLE) else None
    )
    root = secured.root_of_cluster(directory, given)
    if root is not None and given is None and client_security.current() == PLAINTEXT:
        client_security.use(root / secured.CLIENT)
        if bootstrap == DEFAULT_BOOTSTRAP:
            bootstrap = client_security.bootstrap_of_file() or bootstrap
    if root is None and client_security.current() != PLAINTEXT:
        raise CommandFailed(
            "the cluster has security, and the key of its authority is not here: this command makes certificates with "
            "the one in a directory of `ottla cluster up --secure`\n"
            "  else give the node a certificate and settings like those of the others\n"
            "  start it with: ottla server start --config FILE"
        )
    return root, bootstrap


@dataclass(frozen=True)
class Joined:
    """The result of adding a node."""

    incarnation_id: UUID | None = None
    upgraded: bool = False
    """The voters of the cluster can be changed from now on."""


def _say(text: str) -> None:
    print(f"ottla: {text}", flush=True)


def _run(directory: Path, joined: Joined, bootstrap: str, release: Callable[[], None] = lambda: None) -> int:
    from ottla.server.listeners.exposure import open_ports, refuse_open_ports, warnings
    from ottla.server.supervisor import Supervised, Supervisor

    config = node_config(directory)
    refuse_open_ports(config)
    once = joined.incarnation_id and {"ottla.broker.incarnation.id": str(joined.incarnation_id)}

    def ready() -> None:
        release()
        place = f", listening on {address_of(config)}" if config.is_broker else ""
        print(f"ottla: node {config.node_id} has joined{place}", flush=True)
        for line in warnings(open_ports(config, {})):
            print(line, flush=True)
        if joined.upgraded:
            print("  the voters of this cluster can now be changed: kraft.version is 1", flush=True)
        if config.is_controller:
            see = asked_at("ottla quorum describe", bootstrap)
            print(f"  it becomes a voter once it has caught up; check with: {see}", flush=True)
        if config.is_broker:
            move = asked_at("ottla cluster balance --run", bootstrap)
            print(f"  move partitions to it with: {move}", flush=True)

    node = Supervised(config.node_id, config, str(directory / "pid"), str(directory / "output"))
    if once:
        node.first = node_config(directory, once)
    return Supervisor([node], restart=True, ready=ready, say=_say).run()


def _join(
    directory: Path,
    bootstrap: str,
    listen: str | None,
    node_id: int | None,
    roles: str,
    given: Mapping[str, str],
    root: Path | None,
) -> Joined:
    """Write the settings of a new node, whose id nobody else has; `root` is where the authority of a secured cluster
    is. Raises CommandFailed."""
    numbers, settings = _settings(bootstrap, listen, _wanted(directory) if node_id is None else node_id, roles)
    if node_id is not None and numbers[0] != node_id:
        raise _taken(node_id)
    number = numbers[0]
    new = None
    if root is not None:
        host, _, port = settings["listeners"].partition("://")[2].partition(",")[0].rpartition(":")
        new = secured.NewNode.of(root, host)
        settings |= secured.node_settings(root, directory / secured.NODE_FILE, settings, _brokers_port(host, int(port)))
    text = {**settings, "log.dirs": str(directory / "data"), **given}
    check_settings(directory, text)
    incarnation_id = None
    if "broker" in roles:
        number, incarnation_id = _claim(bootstrap, numbers if node_id is None else [node_id], text, new)
    upgraded = "controller" in roles and make_dynamic(bootstrap)
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}: name another directory") from error
    if new is not None:
        new.write(directory / secured.NODE_FILE)
    write_settings(directory, {**text, "node.id": str(number)})
    where = text["listeners"].partition(",")[0].partition("://")[2]
    _say(f"node {number} in {directory}, at {where}")
    return Joined(incarnation_id, upgraded)


def _wanted(directory: Path) -> int | None:
    """The id that the name of a directory stands for, as in `ottla cluster up`: node-4."""
    found = re.fullmatch(r"node-([1-9]\d{0,8})", directory.name, re.ASCII)
    return None if found is None else int(found[1])


def _claim(
    bootstrap: str, numbers: Sequence[int], text: Mapping[str, str], new: secured.NewNode | None
) -> tuple[int, UUID | None]:
    """The first of the ids that nobody has taken meanwhile. Raises CommandFailed."""
    cluster_id = members(bootstrap).cluster_id
    endpoints = _endpoints(text)
    for number in numbers:
        claimed = claim(bootstrap, cluster_id, number, endpoints, None if new is None else new.security)
        if claimed is not None:
            return number, claimed.incarnation_id
        if len(numbers) > 1:
            _say(f"id {number} was taken by another node meanwhile")
    raise _taken(numbers[0])


def _endpoints(text: Mapping[str, str]) -> dict[str, Endpoint]:
    """The addresses that the new node advertises, by listener."""
    protocols = dict(pair.split(":") for pair in text["listener.security.protocol.map"].split(","))
    found = {}
    for each in text["advertised.listeners"].split(","):
        name, _, place = each.partition("://")
        host, _, port = place.rpartition(":")
        found[name] = Endpoint(host.strip("[]"), int(port), SecurityProtocol[protocols[name]])
    return found


def _taken(number: int) -> CommandFailed:
    return CommandFailed(f"node {number} belongs to the cluster already: give another --node-id", MISUSED)


def _settings(bootstrap: str, listen: str | None, wanted: int | None, roles: str) -> tuple[list[int], dict[str, str]]:
    """The ids that a new node of the cluster at `bootstrap` may have, in order, and its settings with the first.
    Raises CommandFailed."""
    brokers, controllers = nodes(bootstrap)
    known = {*brokers, *controllers}
    following = max([*known, wanted or 0]) + 1
    numbers = [] if wanted is None or wanted in known else [wanted]
    numbers += range(following, following + IDS_TRIED)
    address = listen or _next_address(brokers)
    listeners = []
    own = {"process.roles": roles}
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://{address}")
        own["advertised.listeners"] = listeners[0]
    if "controller" in roles:
        listeners.append(f"CONTROLLER://{_controller_address(address)}")
        own["controller.quorum.auto.join.enable"] = "true"
    shared = {
        each.name: each.value for each in describe_settings(bootstrap, Resource(BROKER, str(_running(bootstrap))))
    }
    return numbers, {
        **own,
        "node.id": str(numbers[0]),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(controllers.values()),
        **{name: str(shared[name]) for name in LIKE_THE_OTHERS if shared.get(name) is not None},
    }


def _running(bootstrap: str) -> int:
    """A broker that can be asked. Raises CommandFailed."""
    running = members(bootstrap).running
    if not running:
        raise CommandFailed(f"{bootstrap} answers, but the controller has fenced every broker of its cluster")
    return running[0].id


def nodes(bootstrap: str) -> tuple[dict[int, str], dict[int, str]]:
    """Brokers (those that are away too, where the cluster tells), and controllers, with their addresses."""
    there = members(bootstrap)
    brokers = {each.id: each.address for each in (*there.running, *(there.fenced or ()))}
    quorum = quorum_of(bootstrap)
    controllers = {}
    for node in quorum["nodes"] or ():
        for place in node["listeners"][:1]:
            controllers[node["node_id"]] = f"{place['host']}:{place['port']}"
    if not controllers:
        raise CommandFailed(
            "the cluster does not say where its controllers are\n"
            "  start the node with: ottla server start --set process.roles=broker --set "
            "controller.quorum.bootstrap.servers=HOST:PORT"
        )
    return brokers, controllers


def _next_address(brokers: Mapping[int, str]) -> str:
    """A port of this machine behind those of the brokers. Raises CommandFailed where they are elsewhere."""
    hosts = {each.rpartition(":")[0] for each in brokers.values()}
    if hosts != {"127.0.0.1"}:
        raise CommandFailed(
            "the cluster's brokers are on other machines: give this node's address with --listen HOST:PORT",
            MISUSED,
        )
    return f"127.0.0.1:{_free_port(max(int(each.rpartition(':')[2]) for each in brokers.values()) + 1)}"


def _controller_address(address: str) -> str:
    """Where a node that clients reach at `address` is reached by other nodes."""
    host, _, port = address.rpartition(":")
    wanted = int(port) + CONTROLLER_PORTS if port.isdecimal() else 0
    if host == "127.0.0.1":
        return f"{host}:{_free_port(wanted)}"
    return f"{host}:{wanted if wanted <= PORT_MAX else int(port) + 1}"


def _brokers_port(host: str, port: int) -> int:
    """The port at which other brokers reach a node of a secured cluster."""
    wanted = port + CONTROLLER_PORTS + NODES_MAX
    if host == "127.0.0.1":
        return _free_port(wanted)
    return wanted if wanted <= PORT_MAX else port + 2


def _free_port(first: int) -> int:
    """One of this machine, from `first` on; any, where there is none. Raises CommandFailed."""
    import socket

    for port in [*range(first, min(first + PORTS_TRIED, PORT_MAX + 1)), 0]:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    raise CommandFailed("no free port found on this machine: give one with --listen HOST:PORT", FAILED)
