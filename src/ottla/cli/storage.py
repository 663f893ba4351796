"""`ottla storage ...`: the identity of directories before the first start, like `kafka-storage.sh`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag, parse_settings
from ottla.cli.output import print_json, print_table
from ottla.cli.values import Raw, Text
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.metadata.formatting import InitialController

app = App(name="storage", help="Format log directories before the first start, and show their ids.", sort_key=7)

Config = Annotated[Raw | None, Parameter(help="A server.properties file.")]
Settings = Annotated[
    list[Text] | None,
    Parameter(name="--set", negative="", consume_multiple=False, help="A setting as name=value; may be repeated."),
]


ScramUsers = Annotated[list[Raw] | None, Parameter(negative="", consume_multiple=False)]
Levels = Annotated[list[Text] | None, Parameter(name=("--feature", "-f"), negative="", consume_multiple=False)]


@app.command(name="format")
def format_(
    directory: Raw | None = None,
    /,
    *,
    cluster_id: Text | None = None,
    config: Config = None,
    set: Settings = None,
    standalone: Flag = False,
    initial_controllers: Text | None = None,
    no_initial_controllers: Flag = False,
    release_version: Annotated[Text | None, Parameter(name=("--release-version", "-r"))] = None,
    feature: Levels = None,
    ignore_formatted: Flag = False,
    add_scram: ScramUsers = None,
) -> int:
    """Format a node's log directories with cluster id and node id, and set the first voters of a dynamic quorum.

    A single node formats itself at its first start. Without one of the three options about controllers, the voters are
    those of controller.quorum.voters.

    Parameters
    ----------
    directory
        The data directory, if log.dirs is not in the settings.
    cluster_id
        The cluster id, the same for all nodes. Default: a new one, which is printed.
    standalone
        Make this controller the only voter at first; others are added later.
    initial_controllers
        The first voters as ID@HOST:PORT:DIRECTORY-ID,..., the same on each of them.
    no_initial_controllers
        Other controllers are voters already; this one is added to them later.
    release_version
        The release, such as 4.3 or 4.3-IV0, whose feature levels the cluster begins with. Default: the newest.
    feature
        A feature and the level that the cluster begins with as NAME=LEVEL, over the release's; may be repeated.
    ignore_formatted
        Skip directories that are formatted already.
    add_scram
        A user that the cluster begins with, as SCRAM-SHA-512=[name=NAME,password=PASSWORD], or @FILE with that text,
        which the list of processes does not show; may be repeated.
    """
    import random

    from ottla.clock import SystemClock
    from ottla.drivers.metadata.formatting import format_directories
    from ottla.filesystem import OsFileSystem
    from ottla.storage.checkpoints.meta_properties import random_directory_id

    if sum((standalone, initial_controllers is not None, no_initial_controllers)) > 1:
        raise CommandFailed(
            "--standalone, --initial-controllers and --no-initial-controllers cannot be used together", MISUSED
        )
    found = _config(directory, config, set)
    chosen = cluster_id or random_directory_id(random.SystemRandom())
    try:
        names = standalone or initial_controllers is not None
        is_dynamic = _changes_voters(found, names=names, joins=no_initial_controllers)
        levels = _levels(release_version, feature, is_dynamic=is_dynamic, has_users=bool(add_scram))
        voters = _voters(found, standalone=standalone, initial=initial_controllers)
        rows = format_directories(
            OsFileSystem(),
            found.log_dirs,
            found.metadata_log_dir,
            found.node_id,
            chosen,
            random.SystemRandom(),
            SystemClock().now_ms(),
            voters=voters,
            listener=found.controller_protocol[0],
            ignore_formatted=ignore_formatted,
            credentials=_credentials(add_scram or ()),
            levels=levels,
        )
    except (OttlaError, OSError) as error:
        raise CommandFailed(str(error), FAILED) from None
    print(f"cluster {chosen}, node {found.node_id}")
    _print_formatted(rows, levels if (found.metadata_log_dir, True) in rows else {})
    return OK


@app.command
def info(directory: Raw | None = None, /, *, config: Config = None, set: Settings = None, json: AsJson = False) -> int:
    """Show the cluster id, node id and directory ids of a node's directories. Exit code 1 if one is not formatted, or
    they disagree.

    Parameters
    ----------
    directory
        The data directory, if log.dirs is not in the settings.
    """
    from ottla.filesystem import OsFileSystem
    from ottla.storage.checkpoints.meta_properties import read_meta_properties

    found = _config(directory, config, set)
    fs = OsFileSystem()
    rows: list[dict[str, Any]] = []
    for path in dict.fromkeys((found.metadata_log_dir, *found.log_dirs)):
        row: dict[str, Any] = {"path": path, "cluster_id": None, "node_id": None, "directory_id": None, "problem": None}
        try:
            meta = read_meta_properties(fs, path) if fs.exists(path) else None
        except OttlaError as error:
            row["problem"] = str(error)
        else:
            if meta is None:
                row["problem"] = "not formatted" if fs.exists(path) else "is not there"
            else:
                row.update(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=meta.directory_id)
                if meta.node_id != found.node_id:
                    row["problem"] = f"node.id is {found.node_id} in the settings"
        rows.append(row)
    if len({row["cluster_id"] for row in rows if row["cluster_id"]}) > 1:
        for row in rows:
            row["problem"] = row["problem"] or "the directories belong to different clusters"
    if json:
        print_json(rows)
    else:
        print_table(
            ("PATH", "CLUSTER", "NODE>", "DIRECTORY", "PROBLEM"),
            [[row[name] for name in ("path", "cluster_id", "node_id", "directory_id", "problem")] for row in rows],
        )
    return FAILED if any(row["problem"] for row in rows) else OK


def _config(directory: str | None, file: str | None, settings: list[str] | None) -> ServerConfig:
    from ottla.cli.server.start import StartOptions, load_config

    try:
        return load_config(StartOptions(directory, file, parse_settings(settings or (), "--set")), os.environ)
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from None


def _changes_voters(config: ServerConfig, *, names: bool, joins: bool) -> bool:
    """Whether the voters of the quorum can change: the command `names` some, or this node `joins` others. Raises
    CommandFailed."""
    if names and config.quorum_voters:
        what = "controller.quorum.voters fixes the voters: leave it out to use --standalone or --initial-controllers"
        raise CommandFailed(f"{what}, and set controller.quorum.bootstrap.servers", MISUSED)
    return names or (joins and not config.quorum_voters)


def _levels(release: str | None, feature: list[str] | None, *, is_dynamic: bool, has_users: bool) -> dict[str, int]:
    """The feature levels that the cluster begins with. Raises OttlaError, CommandFailed."""
    from ottla.cli.features import parse_levels
    from ottla.metadata.first_levels import first_levels

    return first_levels(release, parse_levels(feature or ()), is_dynamic=is_dynamic, has_users=has_users)


def _print_formatted(rows: Sequence[tuple[str, bool]], levels: Mapping[str, int]) -> None:
    from ottla.metadata.features import METADATA_VERSION, metadata_version_name

    if levels:
        named = {**levels, METADATA_VERSION: metadata_version_name(levels[METADATA_VERSION])}
        print("  " + ", ".join(f"{name} {level}" for name, level in named.items()))
    for path, is_new in rows:
        print(f"  {path}: {'formatted' if is_new else 'formatted already, skipped'}")


def _credentials(arguments: Sequence[str]) -> list[Any]:
    """The records of SCRAM users. Raises OttlaError."""
    from ottla.controller.scram import record_of
    from ottla.security.sasl.scram import NONCE_BYTES
    from ottla.security.sasl.scram_argument import parse_scram_argument

    users = [parse_scram_argument(_text_of(each), os.urandom(NONCE_BYTES)) for each in arguments]
    named = [(each.name, each.mechanism) for each in users]
    if len(set(named)) < len(named):
        raise OttlaError("--add-scram: a user is given twice with the same mechanism")
    return [record_of(each.mechanism, each.name, each.credential) for each in users]


def _text_of(argument: str) -> str:
    """The argument, or the text of the file that it names. Raises OttlaError."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise OttlaError(f"--add-scram: {argument[1:]} cannot be read: {error}") from None


def _voters(config: ServerConfig, *, standalone: bool, initial: str | None) -> list[InitialController] | None:
    """The first voters of a dynamic quorum; None if the options do not name any. Raises OttlaError, CommandFailed."""
    import random

    from ottla.drivers.metadata.formatting import InitialController, parse_initial_controllers
    from ottla.storage.checkpoints.meta_properties import random_directory_id

    if initial is not None:
        return parse_initial_controllers(initial)
    if not standalone:
        return None
    if not config.is_controller or not config.advertised_controller_listeners:
        what = "--standalone needs a controller with a listener named in controller.listener.names"
        raise CommandFailed(what, MISUSED)
    own = config.advertised_controller_listeners[0]
    directory_id = random_directory_id(random.SystemRandom())
    return [InitialController(config.node_id, own.host, own.port, directory_id)]
