"""`ottla server start`: reads its few options by hand, so that a node carries no command-line library."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.cli.exits import MISUSED, OK, CommandFailed

if TYPE_CHECKING:
    from ottla.config.providers import Outside
    from ottla.config.server import ServerConfig, SettingsFile
    from ottla.server.main import Tell

_WITH_VALUE = {
    "--config": "FILE",
    "--set": "name=value",
    "--listen": "HOST:PORT",
    "--http": "HOST:PORT",
    "--nodes": "N",
    "--registry": "HOST:PORT",
    "--console": "HOST:PORT",
    "--console-config": "FILE",
}


DEFAULT_DIRECTORY = "ottla-data"
DEFAULT_LISTEN = "127.0.0.1:9092"


@dataclass
class StartOptions:
    """The options of the command line; the settings file and the environment are read later."""

    directory: str | None = None
    config_file: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    listen: str | None = None
    http: str | None = None
    nodes: int | None = None
    registry: str | None = None
    secure: bool = False
    console: str | None = None
    console_config: str | None = None


def parse(arguments: Sequence[str]) -> StartOptions:
    """The options of `ottla server start`. Raises CommandFailed for what it does not understand."""
    options = StartOptions()
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in _WITH_VALUE:
            if not equals:
                if not rest:
                    raise _misuse(f"{name} needs a value: {name} {_WITH_VALUE[name]}")
                value = rest.pop(0)
            _take(options, name, value)
        elif name == "--secure" and not equals:
            options.secure = True
        elif name.startswith("-"):
            raise _misuse(f"unknown option {name}")
        elif options.directory is not None:
            raise _misuse(f"give only one directory: {options.directory!r} or {name + equals + value!r}")
        else:
            options.directory = name + equals + value
    return options


def _take(options: StartOptions, name: str, value: str) -> None:
    if name in ("--config", "--console-config"):
        setattr(options, "config_file" if name == "--config" else "console_config", value)
        return
    if not value.isprintable():
        raise _misuse(f"{name} must be {_WITH_VALUE[name]} in UTF-8 without control characters, not {value!r}")
    if name == "--http":
        options.http = value
    elif name == "--registry":
        options.registry = value
    elif name == "--console":
        options.console = value
    elif name == "--nodes":
        options.nodes = _node_count(value)
    elif name == "--listen":
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit():
            raise _misuse(f"--listen must be HOST:PORT, for example 127.0.0.1:9092, not {value!r}")
        options.listen = f"{host}:{port}"
    else:
        setting, equals, text = value.partition("=")
        if not equals or not setting:
            raise _misuse(f"--set must be name=value, for example --set num.partitions=3, not {value!r}")
        options.settings[setting.strip()] = text


def _node_count(text: str) -> int:
    from ottla.cli.server.start_nodes import NODES_MAX

    if text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= NODES_MAX:
        return int(text)
    raise _misuse(f"--nodes must be a whole number from 1 to {NODES_MAX}, not {text!r}")


def _misuse(sentence: str) -> CommandFailed:
    return CommandFailed(f"{sentence}\n  see: ottla server start --help", MISUSED)


def load_configs(options: StartOptions, environ: Mapping[str, str]) -> list[ServerConfig]:
    """The settings of each node, of which `--nodes` asks for several; otherwise as `load_config`."""
    if options.nodes is None:
        return [load_config(options, environ)]
    from ottla.cli.server.start_nodes import node_configs

    return node_configs(options.nodes, *_given(options), environ, lambda: outside(environ))


def load_config(options: StartOptions, environ: Mapping[str, str]) -> ServerConfig:
    """The node's settings: command line before environment before file, as `ServerConfig.load` orders them.

    Raises OttlaError for a file that cannot be read, and for a setting that is unknown or out of range.
    """
    from ottla.config.server import ServerConfig

    return ServerConfig.load(*_given(options), environ, _host_name, lambda: outside(environ))


def _given(options: StartOptions) -> tuple[SettingsFile | None, dict[str, str]]:
    """The settings file, and what the command line says."""
    overrides = dict(options.settings)
    file = None if options.config_file is None else _read(options.config_file)
    if options.directory is not None:
        _only_once(overrides, ("log.dirs", "log.dir"), f"the directory {options.directory}")
        _agrees_with_file(options.directory, file)
        overrides["log.dirs"] = options.directory
    if options.listen is not None:
        _only_once(overrides, ("listeners",), f"--listen {options.listen}")
        name = "PLAINTEXT"
        if overrides.get("process.roles") == "controller":
            name = overrides.get("controller.listener.names", "CONTROLLER").partition(",")[0]
        overrides["listeners"] = f"{name}://{options.listen}"
    if options.http is not None:
        _only_once(overrides, ("ottla.http.listener",), f"--http {options.http}")
        overrides["ottla.http.listener"] = options.http
    return file, overrides


def _read(name: str) -> SettingsFile:
    from ottla.config.server import SettingsFile
    from ottla.errors import OttlaError
    from ottla.filesystem import OsFileSystem

    try:
        return SettingsFile(name, OsFileSystem().read_bytes(name))
    except OSError as error:
        raise OttlaError(f"cannot read the configuration file {name}: {error.strerror}") from error


def outside(environ: Mapping[str, str]) -> Outside:
    """What `config.providers` of a node's file read."""
    from ottla.config.providers import Outside
    from ottla.filesystem import OsFileSystem

    return Outside(OsFileSystem().read_bytes, os.path.realpath, environ)


def _host_name() -> str:
    from ottla.network import host_name

    return host_name()


def _only_once(settings: Mapping[str, str], names: Sequence[str], said: str) -> None:
    for name in names:
        if name in settings:
            raise _misuse(f"{said} and --set {name}={settings[name]} contradict each other: omit one")


def _agrees_with_file(directory: str, file: SettingsFile | None) -> None:
    """Raises CommandFailed where the settings file names other directories, which would be passed over."""
    from ottla.config.properties import decode_properties, parse_entries

    if file is None:
        return
    entries = parse_entries(decode_properties(file.data))
    name = next((name for name in ("log.dirs", "log.dir") if name in entries), None)
    if name is None:
        return
    found = [os.path.abspath(each.strip()) for each in entries[name].value.split(",")]
    if found != [os.path.abspath(directory)]:
        raise _misuse(
            f"the directory {directory} and {name}={entries[name].value} of {file.name} contradict each other: omit "
            f"one of them, or force the directory with --set log.dirs={directory}"
        )


def _service_manager() -> Tell | None:
    """What hears of the node's phases: systemd, where it has started this process."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from ottla.server.service_manager import ServiceManager

    return ServiceManager.from_environment(os.environ).follow


def check_directories(paths: Sequence[str]) -> None:
    """Raises CommandFailed for a path that is, or goes through, something else than a directory."""
    for path in paths:
        place = os.path.abspath(path)
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        if not os.path.isdir(place):
            what = "is not a directory: give an existing or a new directory"
            raise CommandFailed(f"{_visible(place)} {what}")


def _visible(path: str) -> str:
    from ottla.cli.output import visible

    return visible(path)


def start(arguments: Sequence[str]) -> int:
    """Run a node in this process until it is told to stop."""
    return run_with(parse(arguments))


def run_with(options: StartOptions) -> int:
    """The same for options that are parsed already. Raises OttlaError for what keeps the node from starting."""
    from ottla.errors import OttlaError
    from ottla.server.listeners.exposure import refuse_open_ports

    if options.settings:
        from ottla.cli import argument_secrets

        argument_secrets.warn([f"--set={name}={text}" for name, text in options.settings.items()])
    if options.secure:
        _secure(options)
    try:
        configs = _with_ids(options)
        for each in configs:
            refuse_open_ports(each)
    except OttlaError as error:
        sentence = str(error)
        if options.config_file is not None:
            sentence = sentence.replace(options.config_file, _visible(options.config_file))
        raise CommandFailed(sentence, MISUSED) from error
    config = configs[0]
    if options.console_config is not None and options.console is None:
        raise _misuse("--console-config goes with --console HOST:PORT")
    for name in ("registry", "console"):
        if getattr(options, name) is not None and (options.nodes is not None or not config.is_broker):
            raise _misuse(f"--{name} goes with one node that is a broker: start others with ottla {name}")
    check_directories([path for each in configs for path in (*each.log_dirs, each.metadata_log_dir)])
    if config.without_effect:
        names = ", ".join(config.without_effect)
        print(f"ottla: {options.config_file} sets what has no effect in this version: {names}", file=sys.stderr)
    from ottla.server.main import announce, run

    with failures_explained():
        if options.nodes is not None:
            from ottla.cli.server.start_nodes import run_nodes

            return run_nodes(configs)
        if options.registry is not None or options.console is not None:
            from pathlib import Path

            from ottla.cli.server.beside import CONSOLE, REGISTRY, attend_with

            asked = {REGISTRY: options.registry, CONSOLE: options.console}
            listens = {program: listen for program, listen in asked.items() if listen is not None}
            file = None if options.console_config is None else Path(options.console_config)
            return run(config, attend_with(listens, config, file), tell=_service_manager()) or OK
        return run(config, announce, tell=_service_manager()) or OK


def _with_ids(options: StartOptions) -> list[ServerConfig]:
    """The settings of each node. A cluster in ZooKeeper gives a number to a node whose file has none."""
    from ottla.errors import OttlaError

    try:
        return load_configs(options, os.environ)
    except OttlaError as error:
        from ottla.config.zookeeper import IdIsGenerated

        if not isinstance(error, IdIsGenerated) or options.nodes is not None:
            raise
    from ottla.cli.server.generated_id import id_of

    options.settings["node.id"] = "0"  # any: only the directories and the way to the ensemble are looked at
    trial = load_config(options, os.environ)
    check_directories([*trial.log_dirs, trial.metadata_log_dir])
    options.settings["node.id"] = str(id_of(trial))
    return load_configs(options, os.environ)


def _secure(options: StartOptions) -> None:
    """Add the settings of `--secure`, and make its files if there are none. Raises CommandFailed."""
    for name in ("config", "nodes"):
        if getattr(options, "config_file" if name == "config" else name) is not None:
            raise _misuse(
                f"--secure and --{name} cannot be used together: for several nodes see ottla cluster up --secure"
            )
    import shlex

    from ottla.cli.security import secured

    directory = options.directory or DEFAULT_DIRECTORY
    settings = secured.single_node(directory, options.listen or DEFAULT_LISTEN)
    options.settings, options.listen = {**settings, **options.settings}, None
    root = secured.root_of(directory)
    if options.registry is not None or options.console is not None:
        os.environ.setdefault("OTTLA_CLIENT_CONFIG", str((root / secured.CLIENT).absolute()))
    print(f"ottla: secured; clients: eval $(ottla security env {shlex.quote(directory)})", flush=True)
    if options.console is not None:
        print(
            f"ottla: log in to the console as {secured.ADMIN}, with the password in {root / secured.CLIENT}", flush=True
        )


@contextlib.contextmanager
def failures_explained() -> Iterator[None]:
    """Raises CommandFailed for what the system refuses a node that starts: a name, a port, a file."""
    try:
        yield
    except UnicodeError as error:
        raise CommandFailed(
            f"a host to listen at, or to advertise, cannot be the name of one: {error}", MISUSED
        ) from error
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise CommandFailed(f"{error.filename} is a file, not a directory") from error
        what = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        raise CommandFailed(f"the node cannot use its files or its port: {what}") from error
