"""`ottla server start --nodes N`: a node for each core of a host, each a Kafka node of its own, supervised."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.exits import MISUSED, CommandFailed

if TYPE_CHECKING:
    from ottla.config.listeners import Listener
    from ottla.config.providers import Outside
    from ottla.config.server import ServerConfig, SettingsFile
    from ottla.server.local_cluster import Place

NODES_MAX = 100
CONTROLLER_PORTS = 10_000
"""Between a node's port for clients and its port for other nodes, where no listener says which."""
PORT_MAX = 65_535


def node_configs(
    nodes: int,
    file: SettingsFile | None,
    settings: Mapping[str, str],
    environ: Mapping[str, str],
    outside: Callable[[], Outside],
) -> list[ServerConfig]:
    """The settings of each node: what was given for one, with ids and ports that count up, and directories of its own.

    Nodes of `process.roles=broker` join the controllers that the settings name; otherwise they are a cluster of their
    own. Raises OttlaError, CommandFailed.
    """
    from ottla.config.server import ServerConfig
    from ottla.network import host_name
    from ottla.server.local_cluster import node_settings

    base = ServerConfig.load(file, settings, environ, host_name, outside)
    joins = base.roles == ("broker",)
    if not joins and (base.quorum_voters or base.quorum_servers):
        raise CommandFailed(
            "--nodes creates a quorum of its own nodes, but the settings name one already: omit "
            "controller.quorum.voters, or join that quorum with --set process.roles=broker",
            MISUSED,
        )
    places = _places(base, nodes)
    cluster = {} if joins else node_settings(places)
    given = _given(file, settings, environ)
    configs = []
    for index, place in enumerate(places):
        texts = cluster.get(place.node_id, {})
        defaults = {name: text for name, text in texts.items() if name not in given}
        own = _own(base, index, place, texts)
        together = {**defaults, **settings, **own}
        configs.append(ServerConfig.load(file, together, environ, host_name, outside))
    return configs


def _given(file: SettingsFile | None, settings: Mapping[str, str], environ: Mapping[str, str]) -> set[str]:
    """The names that somebody has set."""
    from ottla.config.properties import decode_properties, parse_entries
    from ottla.config.server import from_environment

    entries = {} if file is None else parse_entries(decode_properties(file.data))
    return {*entries, *from_environment(environ), *settings}


def _places(base: ServerConfig, nodes: int) -> list[Place]:
    """Where each node is reached by the others. Raises CommandFailed where ports run out."""
    from ottla.server.local_cluster import Place

    first = base.advertised_listeners[0]
    port = base.listeners[0].port
    named = base.controller_listeners[0].port if base.controller_listeners else 0
    if not port:
        raise CommandFailed("--nodes counts ports up from the listener's port, which must not be 0", MISUSED)
    controllers = named or (port + CONTROLLER_PORTS if port <= PORT_MAX - CONTROLLER_PORTS else port - CONTROLLER_PORTS)
    if max(port, controllers) + nodes - 1 > PORT_MAX:
        raise CommandFailed(f"--nodes {nodes}: too few ports from {max(port, controllers)} on", MISUSED)
    return [Place(base.node_id + n, port + n, controllers + n, first.host) for n in range(nodes)]


def _own(base: ServerConfig, index: int, place: Place, quorum: Mapping[str, str]) -> dict[str, str]:
    """Settings that differ from node to node, whatever was given for one. `quorum` is empty if they join another
    quorum."""
    listeners = _counted(base.listeners, index)
    own = {
        "node.id": str(place.node_id),
        "broker.rack": base.text("broker.rack") or socket.gethostname(),
        "advertised.listeners": ",".join(map(str, _counted(base.advertised_listeners, index))),
        "log.dirs": ",".join(os.path.join(each, f"node-{place.node_id}") for each in base.log_dirs),
    }
    if base.text("metadata.log.dir"):
        own["metadata.log.dir"] = os.path.join(base.metadata_log_dir, f"node-{place.node_id}")
    http = base.text("ottla.http.listener")
    if http:
        host, _, port = http.rpartition(":")
        own["ottla.http.listener"] = f"{host}:{int(port) + index if int(port) else 0}"
    if quorum:
        name = base["controller.listener.names"][0]
        own |= {each: quorum[each] for each in ("process.roles", "controller.quorum.voters")}
        own["controller.listener.names"] = name
        if "controller" in quorum["process.roles"]:
            listeners.append(base.listeners[0]._replace(name=name, port=place.controller_port))
    own["listeners"] = ",".join(map(str, listeners))
    return own


def _counted(listeners: Sequence[Listener], index: int) -> list[Listener]:
    return [each._replace(port=each.port + index if each.port else 0) for each in listeners]


def run_nodes(configs: Sequence[ServerConfig]) -> int:
    """Run all until one signal stops them. Raises CommandFailed for a directory of a node alone."""
    import random

    from ottla.clock import SystemClock
    from ottla.compiled import how
    from ottla.filesystem import OsFileSystem
    from ottla.server.listeners.exposure import open_ports, warnings
    from ottla.server.local_cluster import format_directory
    from ottla.server.service_manager import ServiceManager
    from ottla.server.supervisor import Supervised, Supervisor
    from ottla.storage.checkpoints.meta_properties import random_directory_id, read_meta_properties

    fs, dice, now = OsFileSystem(), random.Random(os.urandom(16)), SystemClock().now_ms()
    for path in configs[0].log_dirs:
        if read_meta_properties(fs, os.path.dirname(path)) is not None:
            raise CommandFailed(
                f"{os.path.dirname(path)} is the directory of a single node\n  start it without --nodes, and add "
                f"nodes with: ottla cluster add"
            )
    if configs[0].is_controller:
        metas = [read_meta_properties(fs, each.metadata_log_dir) for each in configs]
        known = next((each.cluster_id for each in metas if each is not None and each.cluster_id), None)
        cluster_id = known or random_directory_id(dice)
        for each in configs:
            format_directory(fs, each.metadata_log_dir, each.static, cluster_id, dice, now)
    addresses = ",".join(str(each.advertised_listeners[0]).partition("://")[2] for each in configs)
    directories = ", ".join(sorted({os.path.dirname(path) for path in configs[0].log_dirs}))

    def ready() -> None:
        print(f"ottla: listening on {addresses}, data in {directories} ({how()})", flush=True)
        for line in warnings(place for each in configs for place in open_ports(each, {})):
            print(line, flush=True)

    return Supervisor(
        [Supervised(each.node_id, each) for each in configs],
        restart=True,
        ready=ready,
        say=lambda text: print(f"ottla: {text}", flush=True),
        manager=ServiceManager.from_environment(os.environ),
    ).run()
