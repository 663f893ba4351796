"""`ottla user ...`: users who log in with SCRAM, like `kafka-configs.sh --entity-type users`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ottla.cli.client import admin_client, failure, wait
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.interrupts import in_thread
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import print_json, print_table
from ottla.cli.values import FilePath, Iterations, Text, UserName

app = App(name="user", help="Create, list and delete users who log in with SCRAM.", sort_key=9)

DEFAULT_MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
GENERATED_BYTES = 18
"""Randomness of a generated password: 24 characters of base64."""
PASSWORD_BYTES_MAX = 4096
ITERATIONS = 4096
RESOURCE_NOT_FOUND = 91

Mechanism = Annotated[
    list[Text] | None,
    Parameter(name="--mechanism", negative="", help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated."),
]


@app.command(name="list")
def list_users(
    *, json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, client_config: ClientFile = None
) -> int:
    """List the users, and the mechanisms by which each can log in."""
    found = _described(bootstrap)
    if json:
        print_json(
            [
                {"user": name, "credentials": [{"mechanism": each, "iterations": rounds} for each, rounds in pairs]}
                for name, pairs in sorted(found.items())
            ]
        )
        return OK
    rows = [(name, each, rounds) for name, pairs in sorted(found.items()) for each, rounds in pairs]
    print_table(("USER", "MECHANISM", "ITERATIONS>"), rows)
    return OK


@app.command
def create(
    name: UserName,
    /,
    *,
    password_file: Annotated[
        FilePath | None,
        Parameter(name="--password-file", help="A file whose first line is the password; - for standard input."),
    ] = None,
    generate: Annotated[Flag, Parameter(name="--generate", help="Make a password and print it, once.")] = False,
    mechanism: Mechanism = None,
    iterations: Annotated[
        Iterations, Parameter(name="--iterations", help="Rounds of hashing; more make a stolen record harder to guess.")
    ] = ITERATIONS,
    replace: Annotated[Flag, Parameter(name="--replace", help="Change the password of a user who exists.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Create a user who logs in with SCRAM-SHA-512, or another mechanism. The password is asked for on a terminal.

    A password never stands on a command line, where others could read it. What the user may do is said with
    ottla acl add.

    Parameters
    ----------
    name
        The user's name.
    """
    chosen = _mechanisms(mechanism or [DEFAULT_MECHANISM])
    if generate and password_file is not None:
        raise CommandFailed("either --generate or --password-file", MISUSED)
    known = {each for each, _ in _described(bootstrap, name).get(name, ())}
    if known & set(chosen) and not replace:
        there = ", ".join(sorted(known & set(chosen)))
        raise CommandFailed(f"user {name!r} exists ({there})\n  change the password with: --replace", FAILED)
    password = _generated() if generate else _given(password_file, name)
    for each in chosen:  # two mechanisms of one user in a request are refused as a duplicate
        _upsert(bootstrap, name, each, iterations, password)
    if json:
        found: dict[str, Any] = {"user": name, "mechanisms": list(chosen)}
        print_json({**found, "password": password} if generate else found)
        return OK
    print(f"user {name}: {', '.join(chosen)}")
    if generate:
        print(f"password: {password}")
    return OK


@app.command
def delete(
    names: tuple[UserName, ...],
    /,
    *,
    mechanism: Mechanism = None,
    if_exists: Annotated[Flag, Parameter(name="--if-exists", help="A user who does not exist is no error.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Delete users, or what they log in with by one mechanism. Connections that are open stay open:
    ottla user disconnect closes them.

    Parameters
    ----------
    names
        Users to delete.
    """
    only = set(_mechanisms(mechanism or []))
    done: list[dict[str, Any]] = []
    absent: list[str] = []
    for name in dict.fromkeys(names):
        there = [each for each, _ in _described(bootstrap, name).get(name, ()) if not only or each in only]
        if not there:
            absent.append(f"there is no user {name!r}" + (f" with {', '.join(sorted(only))}" if only else ""))
        for each in there:
            _delete(bootstrap, name, each)
        if there:
            done.append({"user": name, "mechanisms": there})
    if json:
        print_json(done)
    else:
        for row in done:
            print(f"user {row['user']} deleted: {', '.join(row['mechanisms'])}")
        for line in absent if if_exists else ():
            print(line)
    if absent and not if_exists:
        raise CommandFailed("\n  ".join(absent) + "\n  see the users with: ottla user list", FAILED)
    return OK


@app.command
def disconnect(
    names: tuple[UserName, ...],
    /,
    *,
    yes: Annotated[
        Flag, Parameter(name="--yes", help="Do not ask; without a terminal nothing is asked anyhow.")
    ] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Close all connections of users on all brokers. What they have asked for is answered still.

    A user who still exists logs in again at once: delete the user, or remove the ACLs, before. Connections to nodes
    that are controllers alone stay, and so does the one that this command asks with. It takes the right to ALTER the
    cluster.

    Parameters
    ----------
    names
        Users to disconnect, as ottla client list shows them.
    """
    from ottla.cli.clients import closed, principal

    whose = {f"user {name}": {"principal": principal(name), "client_id": None} for name in names}
    return closed(whose, bootstrap, node=None, yes=yes, json=json)


def _mechanisms(given: Sequence[str]) -> list[str]:
    """Raises CommandFailed."""
    found = [each.upper() for each in dict.fromkeys(given)]
    for each in found:
        if each not in MECHANISMS:
            raise CommandFailed(f"--mechanism must be {' or '.join(MECHANISMS)}, not {each!r}", MISUSED)
    return found


def _generated() -> str:
    import secrets

    return secrets.token_urlsafe(GENERATED_BYTES)


def _given(path: Path | None, name: str) -> str:
    """The password from a file, from standard input or from whoever sits there. Raises CommandFailed."""
    if path is None:
        if not sys.stdin.isatty():
            raise CommandFailed(
                "there is no terminal to ask for the password\n"
                "  give --password-file FILE (- for standard input), or --generate",
                MISUSED,
            )
        from getpass import getpass

        password = getpass(f"password of {name}: ")
        if getpass("again: ") != password:
            raise CommandFailed("the two passwords differ", MISUSED)
    elif str(path) == "-":
        password = sys.stdin.readline(PASSWORD_BYTES_MAX).rstrip("\r\n")
    else:
        try:
            with path.open(encoding="utf-8") as file:
                password = file.readline(PASSWORD_BYTES_MAX).rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise CommandFailed(f"the password cannot be read from {path}: {why}", FAILED) from None
    if not password or not password.isprintable():
        raise CommandFailed("the password is empty or has characters that cannot be printed", MISUSED)
    return password


def _described(bootstrap: str, name: str | None = None) -> Mapping[str, list[tuple[str, int]]]:
    """(mechanism, iterations) of each user, or of one; one who does not exist is left out. Raises CommandFailed."""
    from confluent_kafka import KafkaException

    client = admin_client(bootstrap)
    ask: Any = client.describe_user_scram_credentials
    try:
        if name is None:
            answered = wait(ask())
        else:
            (future,) = ask([name]).values()
            answered = {name: wait(future)}
    except KafkaException as error:
        if name is not None and error.args[0].code() == RESOURCE_NOT_FOUND:
            return {}
        raise failure(error, "the users: ") from None
    return {
        user: [(each.mechanism.name.replace("_", "-"), int(each.iterations)) for each in found.scram_credential_infos]
        for user, found in answered.items()
    }


def _upsert(bootstrap: str, name: str, mechanism: str, iterations: int, password: str) -> None:
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], iterations)
    _alter(bootstrap, name, lambda: UserScramCredentialUpsertion(name, info, password.encode()))


def _delete(bootstrap: str, name: str, mechanism: str) -> None:
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

    _alter(bootstrap, name, lambda: UserScramCredentialDeletion(name, ScramMechanism[mechanism.replace("-", "_")]))


def _alter(bootstrap: str, name: str, change: Any) -> None:
    """Raises CommandFailed."""
    from confluent_kafka import KafkaException

    client = admin_client(bootstrap)
    try:
        (future,) = in_thread(lambda: client.alter_user_scram_credentials([change()])).values()
        wait(future)
    except KafkaException as error:
        raise failure(error, f"user {name!r}: ") from None
