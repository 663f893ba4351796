"""`ottla client ...`: who is connected to the brokers, by an API of Ottla's own (`tools/protocol_schemas.py`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.members import Member, members
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import human_bytes, plural, print_json, print_table
from ottla.cli.security.acl_words import principal_of
from ottla.cli.units import duration
from ottla.cli.values import BrokerId, Text, UserName
from ottla.model import ZERO_UUID
from ottla.protocol.messages import ApiKey

app = App(name="client", help="List who is connected, with which software, and disconnect clients.", sort_key=9)

Node = Annotated[BrokerId | None, Parameter(name="--node", help="Ask this broker alone, by its id.")]
Yes = Annotated[Flag, Parameter(name="--yes", help="Do not ask; without a terminal nothing is asked anyhow.")]


@app.command(name="list")
def list_clients(
    *,
    user: Annotated[UserName | None, Parameter(name="--user", help="Only this user.")] = None,
    client_id: Annotated[
        Text | None, Parameter(name="--client-id", help="Only clients that call themselves so.")
    ] = None,
    node: Node = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """List the connections of all brokers: user, client, software, address, TLS and login, age and traffic.

    Other brokers and this command itself are connected, too. IDLE is since the last byte came in. A client of an old
    library, which does not say what it is, has no name here. It takes the right to DESCRIBE the cluster.
    """
    wanted = {"principal": _principal(user), "client_id": client_id}
    rows, failures = [], []
    for broker in _brokers(bootstrap, node):
        try:
            answer = _ask(broker, ApiKey.LIST_CLIENTS, wanted)
        except CommandFailed as failure:
            if failure.exit_code == FAILED:
                raise
            failures.append(str(failure))
            continue
        rows += [{"node": int(answer["node_id"]), **_row(each)} for each in answer["clients"]]
    rows.sort(key=lambda row: (row["user"], row["client_id"] or "", row["node"], row["address"]))
    if json:
        print_json(rows)
    else:
        columns = (
            "NODE>",
            "USER",
            "CLIENT",
            "SOFTWARE",
            "ADDRESS",
            "LISTENER",
            "TLS",
            "LOGIN",
            "CONNECTED>",
            "IDLE>",
            "IN>",
            "OUT>",
        )
        print_table(columns, map(_cells, rows))
    return _told(failures)


@app.command
def disconnect(
    client_id: Text,
    /,
    *,
    user: Annotated[UserName | None, Parameter(name="--user", help="Only connections of this user.")] = None,
    node: Node = None,
    yes: Yes = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Close the connections of a client on all brokers. Most clients connect again at once.

    What the client has asked for is answered still. It takes the right to ALTER the cluster.

    Parameters
    ----------
    client_id
        How the client calls itself.
    """
    wanted = {"principal": _principal(user), "client_id": client_id}
    return closed({f"client {client_id!r}": wanted}, bootstrap, node=node, yes=yes, json=json)


def closed(
    whose: Mapping[str, Mapping[str, str | None]], bootstrap: str, *, node: int | None, yes: bool, json: bool
) -> int:
    """Close connections on all brokers, or on one. `whose`: whom to name, and what to ask for. Raises CommandFailed."""
    if not yes and not json and sys.stdin.isatty() and not _agreed(f"close all connections of {', '.join(whose)}?"):
        raise CommandFailed("nothing is closed", FAILED)
    counts: dict[str, dict[int, int]] = {each: {} for each in whose}
    failures = []
    for broker in _brokers(bootstrap, node):
        try:
            for each, wanted in whose.items():
                answer = _ask(broker, ApiKey.DISCONNECT_CLIENTS, wanted)
                counts[each][int(answer["node_id"])] = int(answer["closed"])
        except CommandFailed as failure:
            if failure.exit_code == FAILED:
                raise
            failures.append(str(failure))
    if json:
        print_json(
            [
                {"user": _name(wanted["principal"]), "client_id": wanted["client_id"], "node": number, "closed": count}
                for each, wanted in whose.items()
                for number, count in sorted(counts[each].items())
            ]
        )
    else:
        for each, found in counts.items():
            print(f"{each}: {plural(sum(found.values()), 'connection')} closed")
    return _told(failures)


def _name(principal_: str | None) -> str | None:
    return None if principal_ is None else principal_.removeprefix("User:")


def principal(user: str) -> str:
    """`User:NAME` of a name. Raises CommandFailed for everyone at once."""
    found = principal_of(user)
    if found.endswith(":*"):
        raise CommandFailed("name one user", MISUSED)
    return found


def _principal(user: str | None) -> str | None:
    return None if user is None else principal(user)


def _agreed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _brokers(bootstrap: str, node: int | None) -> list[Member]:
    """Raises CommandFailed."""
    running = members(bootstrap).running
    found = [each for each in running if node in (None, each.id)]
    if not found:
        known = ", ".join(str(each.id) for each in running)
        raise CommandFailed(f"broker {node} is not running: running are {known}")
    return found


def _ask(broker: Member, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of one broker. Raises CommandFailed, MISUSED for one that has no such API."""
    try:
        with closing(wire.Link(broker.address)) as link:
            if link.version_max(key) < 0:
                raise CommandFailed(f"broker {broker.id} is not Ottla, or an older one", MISUSED)
            answer = link.ask(key, values)
    except OSError as error:
        raise wire.no_answer(f"broker {broker.id} at {broker.address}", broker.address, error) from error
    wire.ensure_none(answer, f"broker {broker.id}")
    return answer


def _told(failures: list[str]) -> int:
    """The exit code, after an error for each broker that could not be asked."""
    for each in failures:
        print(f"ottla: {each}", file=sys.stderr)
    return FAILED if failures else OK


def _row(client: Mapping[str, Any]) -> dict[str, Any]:
    """A connection as JSON; what nobody knows is null."""
    host = client["host"]
    instance = client["client_instance_id"]
    return {
        "user": _name(client["principal"]),
        "client_id": client["client_id"],
        "software": _known(client["software_name"]),
        "software_version": _known(client["software_version"]),
        "address": f"[{host}]:{client['port']}" if ":" in host else f"{host}:{client['port']}",
        "listener": client["listener"],
        "protocol": client["security_protocol"],
        "tls_version": client["tls_version"],
        "tls_cipher": client["tls_cipher"],
        "mechanism": client["mechanism"],
        "connected_seconds": int(client["connected_ms"]) / 1000,
        "idle_seconds": None if client["idle_ms"] < 0 else int(client["idle_ms"]) / 1000,
        "bytes_in": None if client["bytes_in"] < 0 else int(client["bytes_in"]),
        "bytes_out": None if client["bytes_out"] < 0 else int(client["bytes_out"]),
        "client_instance_id": None if instance == ZERO_UUID else _base64(instance),
        "pushed_metrics": int(client["pushed_metrics"]),
        "producer_id": None if client["producer_id"] < 0 else int(client["producer_id"]),
    }


def _known(text: str) -> str | None:
    return None if text == "unknown" else str(text)


def _base64(instance: Any) -> str:
    from ottla.model import uuid_to_base64

    return uuid_to_base64(instance)


def _cells(row: Mapping[str, Any]) -> tuple[Any, ...]:
    software = " ".join(each for each in (row["software"], row["software_version"]) if each)
    seconds = [row["connected_seconds"], row["idle_seconds"]]
    ages = ["" if each is None else duration(each) for each in seconds]
    traffic = ["" if row[name] is None else human_bytes(row[name]) for name in ("bytes_in", "bytes_out")]
    return (
        row["node"],
        row["user"],
        row["client_id"],
        software,
        row["address"],
        row["listener"],
        row["tls_version"],
        row["mechanism"],
        *ages,
        *traffic,
    )
