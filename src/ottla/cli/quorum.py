"""`ottla quorum ...`: the voters of the metadata quorum, like `kafka-metadata-quorum.sh`."""

from __future__ import annotations

import posixpath
from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import bold, iso_time, print_json, print_json_line, print_table, visible
from ottla.cli.values import BrokerId, FilePath, Text
from ottla.errors import ErrorCode, OttlaError
from ottla.model import ZERO_UUID, uuid_from_base64, uuid_to_base64
from ottla.protocol.messages import ApiKey

app = App(name="quorum", help="Show and change the voters of the metadata quorum.", sort_key=7)

TIMEOUT_MS = 30_000

NodeNumber = Annotated[BrokerId, Parameter(help="The controller's node.id.")]
DirectoryId = Annotated[Text, Parameter(help="The id of its metadata directory, from `ottla storage info`.")]


@app.command
def describe(
    *, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """Show the leader, the voters and the observers, with the lag of each."""
    _, row = wire.quorum(bootstrap)
    ends = {each["replica_id"]: each["log_end_offset"] for each in row["current_voters"]}
    end = ends.get(row["leader_id"], row["high_watermark"])
    replicas = [
        _replica(each, kind, row["leader_id"], end)
        for kind, rows in (("voter", row["current_voters"]), ("observer", row["observers"]))
        for each in rows
    ]
    if json:
        names = ("leader_id", "leader_epoch", "high_watermark")
        print_json({**{name: row[name] for name in names}, "replicas": replicas})
        return OK
    print(f"{bold('leader ' + str(row['leader_id']))}  epoch {row['leader_epoch']}, committed {row['high_watermark']}")
    print_table(
        ("NODE>", "DIRECTORY", "ROLE", "END>", "BEHIND>", "CAUGHT UP"),
        [[each[name] for name in ("id", "directory_id", "role", "log_end", "lag", "caught_up")] for each in replicas],
        indent=2,
    )
    return OK


def _replica(row: dict[str, Any], kind: str, leader: int, end: int) -> dict[str, Any]:
    directory_id = row["replica_directory_id"]
    return {
        "id": row["replica_id"],
        "directory_id": None if directory_id == ZERO_UUID else uuid_to_base64(directory_id),
        "role": "leader" if row["replica_id"] == leader else kind,
        "log_end": row["log_end_offset"],
        "lag": max(0, end - row["log_end_offset"]) if row["log_end_offset"] >= 0 else None,
        "caught_up": iso_time(row["last_caught_up_timestamp"]) if row["last_caught_up_timestamp"] > 0 else None,
    }


@app.command
def add(
    node: NodeNumber,
    directory_id: DirectoryId,
    listener: Text,
    /,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Make a controller that follows the quorum a voter.

    Parameters
    ----------
    listener
        Its endpoint for the other controllers: NAME://HOST:PORT.
    """
    name, _, place = listener.partition("://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        raise CommandFailed(f"the listener is NAME://HOST:PORT, not {listener!r}", MISUSED)
    values = {
        "timeout": TIMEOUT_MS,
        "voter_id": node,
        "voter_directory_id": _directory(directory_id),
        "listeners": [{"name": name, "host": host.strip("[]"), "port": int(port)}],
    }
    return _change(bootstrap, ApiKey.ADD_RAFT_VOTER, values, f"controller {node} is now a voter")


@app.command
def remove(
    node: NodeNumber,
    directory_id: DirectoryId,
    /,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Remove a controller from the voters. It keeps following the quorum."""
    values = {"voter_id": node, "voter_directory_id": _directory(directory_id)}
    return _change(bootstrap, ApiKey.REMOVE_RAFT_VOTER, values, f"controller {node} is no longer a voter")


@app.command
def unregister(
    node: NodeNumber, /, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """Remove the registration of a controller that will not come back, so that its feature levels hold up no upgrade.
    One that runs registers again. It needs metadata.version 4.4-IV2."""
    answer = wire.ask(bootstrap, ApiKey.UNREGISTER_CONTROLLER, {"controller_id": node})
    wire.ensure_none(answer, f"controller {node}")
    print(f"controller {node} is no longer registered")
    return OK


@app.command
def repair(
    *paths: Annotated[FilePath, Parameter(required=True)],
    apply: Annotated[Flag, Parameter(name="--apply")] = False,
    json: AsJson = False,
) -> int:
    """Show what has to be repaired in the epochs of a quorum that elects no leader; with --apply, repair it.

    For a voter whose `quorum-state` has an epoch that no election can have reached, and for a quorum that has used up
    its epochs: the last epochs are renumbered, the same way on every node. In the second case stop every node, brokers
    too, and run this on each before starting any again. No record and no vote is lost. Exit code 0 if there is nothing
    to repair or it was repaired, 1 if there is something to repair.

    Parameters
    ----------
    paths
        The metadata log directory of a stopped node.
    apply
        Repair it.
    """
    from ottla.cli.log.repair import lock  # the other commands only ask the cluster
    from ottla.drivers.quorum import quorum_repair
    from ottla.drivers.quorum.metadata_log import METADATA_PARTITION
    from ottla.filesystem import OsFileSystem

    fs = OsFileSystem()
    todo = 0
    for path in (posixpath.abspath(str(path)) for path in paths):
        directory = posixpath.join(path, str(METADATA_PARTITION))
        if not fs.is_dir(directory):
            raise CommandFailed(f"there is no metadata log in {visible(path)}", MISUSED)
        held = lock(fs, path, apply=apply)
        try:
            steps = quorum_repair.plan(fs, directory)
            for step in steps:
                if apply:
                    step.do()
                print_json_line({"kind": "step", "step": step.about, "applied": apply}) if json else print(step.about)
        except OttlaError as error:
            raise CommandFailed(str(error), FAILED) from error
        except OSError as error:
            raise CommandFailed(f"{visible(directory)}: {error.strerror or error}; run it again", FAILED) from error
        finally:
            if held is not None:
                held.release()
        todo += len(steps)
    if json:
        print_json_line({"kind": "summary", "to_do": 0 if apply else todo, "applied": apply})
    else:
        print(("Done." if apply else "Nothing was changed: repair with --apply.") if todo else "Nothing to repair.")
    return FAILED if todo and not apply else OK


def _directory(text: str) -> Any:
    try:
        return uuid_from_base64(text)
    except ValueError:
        raise CommandFailed(f"{text!r} is not a directory id: see ottla storage info", MISUSED) from None


def _change(bootstrap: str, key: ApiKey, values: dict[str, Any], done: str) -> int:
    answer = wire.ask(bootstrap, key, {"cluster_id": None, **values})
    if answer["error_code"]:
        why = answer["error_message"] or ErrorCode(answer["error_code"]).name.upper()
        raise CommandFailed(f"the quorum refused the change: {why}", FAILED)
    print(done)
    return OK
