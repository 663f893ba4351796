"""`ottla cluster up`: a cluster on one machine, in one directory, for as long as the command runs."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from ottla.cli import client_security, interrupts
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.options import Flag, asked_at, parse_settings
from ottla.cli.output import plural
from ottla.cli.values import FilePath, NodesOrDirectory, Port, Text

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

NODES = 3
DEFAULT_PORT = 9092
CONTROLLER_PORTS = 10_000
"""Between a node's port for clients and its port for other nodes."""
PROPERTIES = "server.properties"
DIRECTORY = Path("ottla-cluster")
NODES_MAX = 100
REMOVED = "removed"
"""A file beside the `server.properties` of a node that is not of the cluster any more."""
ELECT_S_MAX = 120.0
"""How long replicas may take to catch up before preferred leaders are elected without them."""


def up(
    nodes: NodesOrDirectory | None = None,
    directory: FilePath | None = None,
    /,
    *,
    port: Port = DEFAULT_PORT,
    set: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    no_restart: Flag = False,
    secure: Flag = False,
    console: Text | None = None,
    console_config: FilePath | None = None,
) -> int:
    """Run a cluster on this machine until Ctrl-C, which stops it cleanly. Run the same command to start it again.

    DIRECTORY/node-N holds node N's data, `server.properties`, `pid` and `output` (its log). With three or more nodes,
    topics have three replicas and the cluster survives the loss of one node. A node that dies is restarted. Nodes added
    with `ottla cluster add DIRECTORY/node-N` are started too, unless `ottla cluster remove` has removed them.

    Parameters
    ----------
    nodes
        Number of nodes. Default: the nodes found in DIRECTORY, or 3. May be omitted: `ottla cluster up DIRECTORY`.
    directory
        The cluster's directory, created if missing. Default: ottla-cluster.
    port
        Port of the first node; the others get the ports after it. 0 picks free ports. Only for a new directory.
    set
        A setting for all nodes as name=value; may be repeated. Only for a new directory.
    no_restart
        Do not restart a node that dies.
    secure
        With TLS, logins and ACLs: a certificate authority, certificates of the nodes, a user `admin`, and files for
        clients such as DIRECTORY/client.properties. Only for a new directory.
    console
        PORT or HOST:PORT to serve the console at: the cluster in a browser. Default: no console.
    console_config
        A file with the console's options, such as roles = "roles.toml", as of `ottla console --console-config`.
    """
    count, named = _nodes_and_directory(nodes, directory)
    settings = parse_settings(set or (), "--set")
    if console_config is not None and console is None:
        raise CommandFailed("--console-config goes with --console PORT", MISUSED)
    shown = None if console is None else (*_console_at(console), console_config)
    lock = _lock(named.absolute())
    try:
        found = _nodes_of(named, count, port, settings, secure=secure)
        return _run(found, restart=not no_restart, client=_client_file(named), console=shown)
    finally:
        os.close(lock)


def _console_at(text: str) -> tuple[str, int]:
    """Where the console is to listen. Raises CommandFailed."""
    from ottla.cli.registry import address
    from ottla.cli.server.beside import CONSOLE, ensure_free

    host, port = address(text if ":" in text else f"127.0.0.1:{text}", CONSOLE.option, f"8080 or {CONSOLE.example}")
    ensure_free(host, port, CONSOLE)
    return host, port


def _client_file(named: Path) -> Path | None:
    """The file for clients of a secured cluster."""
    from ottla.cli.security.secured import CLIENT

    file = named.absolute() / CLIENT
    return file if file.exists() else None


def _nodes_of(
    named: Path, count: int | None, port: int, settings: Mapping[str, str], *, secure: bool = False
) -> dict[int, Path]:
    """The nodes of a directory, which are made if there are none. Raises CommandFailed."""
    directory = named.absolute()
    found = node_directories(directory)
    if not found:
        _create(directory, count or NODES, port, settings, secure=secure)
        return node_directories(directory)
    if secure and _client_file(named) is None:
        raise CommandFailed(
            f"{directory} has a cluster without security, and --secure is for a new one: name another directory",
            MISUSED,
        )
    if count is not None and count != len(found):
        other = max([*found, *removed_directories(directory)]) + 1
        raise CommandFailed(
            f"{directory} has {plural(len(found), 'node')}, not {count}: omit the number\n"
            f"  bring them up with: ottla cluster up {shlex.quote(str(named))}\n"
            f"  add another node with: ottla cluster add {shlex.quote(str(named / f'node-{other}'))}",
            MISUSED,
        )
    return found


def _run(
    found: Mapping[int, Path],
    *,
    restart: bool,
    client: Path | None = None,
    console: tuple[str, int, Path | None] | None = None,
) -> int:
    from ottla.server.listeners.exposure import open_ports, refuse_open_ports, warnings
    from ottla.server.supervisor import Supervised, Supervisor

    configs = {number: node_config(place) for number, place in found.items()}
    for each in configs.values():
        refuse_open_ports(each)
    supervised = [
        Supervised(config.node_id, config, str(found[number] / "pid"), str(found[number] / "output"))
        for number, config in configs.items()
    ]
    bootstrap = ",".join(map(address_of, configs.values()))
    client_security.use(client)
    beside = [] if console is None else [_console(list(configs.values()), bootstrap, client, *console)]
    interrupts.hand_over()

    def ready() -> None:
        print(f"bootstrap: {bootstrap}", flush=True)
        if client is not None:
            print(f"secured: eval $(ottla security env {shlex.quote(str(client.parent))})", flush=True)
            if console is not None:
                from ottla.cli.security.secured import ADMIN

                print(f"log in to the console as {ADMIN}, with the password in {client}", flush=True)
        for line in warnings(place for each in configs.values() for place in open_ports(each, {})):
            print(line, flush=True)

    elects = len(configs) > 1 and all(each["auto.leader.rebalance.enable"] for each in configs.values())
    return Supervisor(
        supervised,
        restart=restart,
        ready=ready,
        say=lambda text: print(f"ottla: {text}", flush=True),
        afterwards=[*beside, *([partial(_elect, bootstrap)] if elects else [])],
    ).run()


def _console(
    configs: Sequence[ServerConfig], bootstrap: str, client: Path | None, host: str, port: int, file: Path | None
) -> Callable[[], None]:
    """Keeps a console running beside the nodes, in a process. Raises CommandFailed where it would be open."""
    from ottla.cli.server.beside import CONSOLE, console_at, ensure_other, keep_running
    from ottla.registry.port_settings import of_node

    for each in configs:
        ensure_other(host, port, CONSOLE, each)
    log_dirs = [path for each in configs for path in each.log_dirs]
    planned = console_at(host, port, of_node(configs[0]), file, log_dirs)

    def run() -> None:
        import asyncio

        if client is not None:
            os.environ[client_security.VARIABLE] = str(client)

        async def keep() -> None:
            await keep_running(
                CONSOLE,
                {**planned.options, "bootstrap": bootstrap, "host": host, "port": port},
                asyncio.Event(),
                http=planned.http,
            )

        asyncio.run(keep())

    return run


def _elect(bootstrap: str) -> None:
    """The first node that is there leads what it can; once the others have caught up, everybody leads their part."""
    from ottla.cli.cluster.reassign import elect_when_in_sync

    with suppress(CommandFailed):  # the controller looks again at each leader.imbalance.check.interval.seconds
        elect_when_in_sync(bootstrap, ELECT_S_MAX)


def _nodes_and_directory(nodes: str | None, directory: Path | None) -> tuple[int | None, Path]:
    """How many nodes, and where; the first argument may be either. Raises CommandFailed."""
    if nodes is None:
        return None, directory or DIRECTORY
    if re.fullmatch(r"[+-]?\d+", nodes, re.ASCII):
        if not 1 <= int(nodes) <= NODES_MAX:
            raise CommandFailed(f"NODES must be a whole number from 1 to {NODES_MAX}, not {nodes}", MISUSED)
        return int(nodes), directory or DIRECTORY
    if directory is not None:
        raise CommandFailed(
            f"give NODES before DIRECTORY: {nodes!r} is not a number, {str(directory)!r} is a directory", MISUSED
        )
    return None, Path(nodes)


def node_directories(directory: Path) -> dict[int, Path]:
    """The nodes in a directory, by number, without those that were removed from the cluster."""
    return {number: place for number, place in _places(directory) if not (place / REMOVED).exists()}


def removed_directories(directory: Path) -> dict[int, Path]:
    """The nodes that `ottla cluster remove` has taken out of the cluster."""
    return {number: place for number, place in _places(directory) if (place / REMOVED).exists()}


def _places(directory: Path) -> Sequence[tuple[int, Path]]:
    found = directory.glob(f"node-*/{PROPERTIES}")
    places = [each.parent for each in found if re.fullmatch(r"node-[1-9]\d{0,8}", each.parent.name, re.ASCII)]
    return sorted((int(each.name.removeprefix("node-")), each) for each in places)


def mark_removed(data: str, broker: int, cluster_id: str) -> Path | None:
    """Note beside a node's data, on this machine, that the node is not of the cluster any more: `ottla cluster up`
    leaves it. `data` is that of another node of the same DIRECTORY. Where the note is; None where there is no such
    node."""
    from ottla.filesystem import OsFileSystem
    from ottla.storage.checkpoints.meta_properties import read_meta_properties

    for _, place in _places(Path(data).parent.parent):
        path = str(place / "data")
        meta = read_meta_properties(OsFileSystem(), path) if os.path.isdir(path) else None
        if meta is not None and (meta.node_id, meta.cluster_id) == (broker, cluster_id):
            note = place / REMOVED
            note.write_text(
                f"Broker {broker} was removed from the cluster. To add it again, with its data, run:\n"
                f"ottla cluster add {shlex.quote(str(place))}\n"
            )
            return note
    return None


def _lock(directory: Path) -> int:
    """One command for a directory. Raises CommandFailed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}: name another directory") from error
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        places = node_directories(directory).values()
        bootstrap = ",".join(address_of(config) for config in map(node_config, places) if config.is_broker)
        raise CommandFailed(
            f"a cluster is running on {directory} already: stop it with Ctrl-C in its terminal\n"
            f"  see it with: {asked_at('ottla cluster describe', bootstrap)}"
        ) from error
    return descriptor


def _create(directory: Path, nodes: int, port: int, settings: Mapping[str, str], *, secure: bool = False) -> None:
    """Directories, settings files and one cluster id for all; with `secure` what `secured.py` makes, too. Raises
    CommandFailed."""
    import random

    from ottla.cli.security import secured
    from ottla.clock import SystemClock
    from ottla.filesystem import OsFileSystem
    from ottla.server.local_cluster import LOOPBACK, Place, format_directory, node_settings
    from ottla.storage.checkpoints.meta_properties import random_directory_id

    dice = random.Random(os.urandom(16))
    cluster_id = random_directory_id(dice)
    ports = _ports(port, nodes)
    places = [Place(number, each.clients, each.controllers) for number, each in enumerate(ports, 1)]
    password = secured.new_password() if secure else ""
    credentials = secured.credentials(password) if secure else ()
    if secure:
        secured.make_authority(directory)
    for at, (number, own) in zip(ports, node_settings(places).items(), strict=True):
        place = directory / f"node-{number}"
        file = place / secured.NODE_FILE
        if secure:
            own |= secured.node_settings(directory, file, own, at.brokers)
        text = {**own, "log.dirs": str(place / "data"), **settings}
        check_settings(place, text)
        place.mkdir(exist_ok=True)
        if secure:
            secured.write_certificate(directory, file, LOOPBACK)
        now = SystemClock().now_ms()
        format_directory(OsFileSystem(), text["log.dirs"], text, cluster_id, dice, now, credentials)
        write_settings(place, text)
    if secure:
        secured.client_files(directory, ",".join(f"{each.host}:{each.port}" for each in places), password)


def write_settings(place: Path, settings: Mapping[str, str]) -> None:
    """The file that the node is started with, from then on. There may be secrets in it."""
    from ottla.cli.security import authority

    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    authority.write_private(place / PROPERTIES, text.encode())


def check_settings(place: Path, settings: Mapping[str, str]) -> None:
    """Raises CommandFailed for what no node takes, and for one that everybody could use (`exposure.py`)."""
    from ottla.config.server import ServerConfig
    from ottla.errors import OttlaError
    from ottla.server.listeners.exposure import refuse_open_ports

    if "," in str(place):
        raise CommandFailed(f"{place} contains a comma, which separates directories in settings: name another", MISUSED)
    try:
        refuse_open_ports(ServerConfig.load(None, dict(settings), {}, lambda: "localhost"))
    except OttlaError as error:
        raise CommandFailed(f"{error}", MISUSED) from error


class Ports(NamedTuple):
    """The ports of a node; `brokers` is for other brokers, where they do not use that of clients."""

    clients: int
    controllers: int
    brokers: int


def _ports(first: int, nodes: int) -> list[Ports]:
    """The ports of each node. Raises CommandFailed where there are no such ports."""
    if not first:
        return _free_ports(nodes)
    if first + nodes > CONTROLLER_PORTS * 5:
        raise CommandFailed(f"--port {first} is too high: controllers use the ports {CONTROLLER_PORTS} above", MISUSED)
    return [
        Ports(port, port + CONTROLLER_PORTS, port + CONTROLLER_PORTS + NODES_MAX)
        for port in range(first, first + nodes)
    ]


def _free_ports(nodes: int) -> list[Ports]:
    import socket
    from contextlib import ExitStack

    with ExitStack() as held:
        ports = []
        for _ in range(3 * nodes):
            sock = held.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            ports.append(int(sock.getsockname()[1]))
    return list(map(Ports, ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]))


def node_config(place: Path, more: Mapping[str, str] = MappingProxyType({})) -> ServerConfig:
    """The settings in the node's file and `more`; its data is beside it, also if the directory was moved. Raises
    CommandFailed."""
    from ottla.cli.server.start import outside
    from ottla.config.server import ServerConfig, SettingsFile
    from ottla.errors import OttlaError
    from ottla.network import host_name

    path = place / PROPERTIES
    try:
        file = SettingsFile(str(path), path.read_bytes())
        own = {"log.dirs": str(place / "data"), **more}
        return ServerConfig.load(file, own, {}, host_name, lambda: outside(os.environ))
    except OttlaError as error:
        raise CommandFailed(f"{error}", MISUSED) from error


def address_of(config: ServerConfig) -> str:
    """The address of the node for clients."""
    first = config.advertised_listeners[0]
    return f"[{first.host}]:{first.port}" if ":" in first.host else f"{first.host}:{first.port}"
