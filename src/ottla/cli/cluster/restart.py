"""`ottla cluster restart`: every node once, one after the other, each only while the others can do without it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.facts import Facts, facts
from ottla.cli.cluster.members import quorum_leader
from ottla.cli.cluster.reassign import elect
from ottla.cli.cluster.up import node_directories
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, asked_at
from ottla.cli.output import plural
from ottla.cli.server.processes import holder, process
from ottla.cli.status_line import StatusLine
from ottla.cli.units import duration
from ottla.cli.values import BrokerId, FilePath, Seconds, Text
from ottla.storage.log_directories import LOCK_FILE

POLL_S = 0.1
PATIENCE_S = 300.0


def restart(
    directory: FilePath | None = None,
    /,
    *,
    node: Annotated[list[BrokerId] | None, Parameter(negative="", consume_multiple=False)] = None,
    command: Text | None = None,
    patience: Seconds = PATIENCE_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Restart the nodes of a cluster one by one, for new settings or a new release. Clients are not interrupted.

    Each restart waits until every partition has all its replicas in sync; the active controller comes last. At the end
    every partition is led by its preferred leader. Nodes of `ottla cluster up` and `add` are found by their DIRECTORY;
    for other nodes, Kafka's included, give a --command that restarts one.

    Parameters
    ----------
    directory
        The directory of `ottla cluster up`: each node is stopped, and its supervisor starts it again.
    node
        Only this one; may be repeated.
    command
        A command that restarts one node; {id}, {host} and {port} are replaced by the node's: 'ssh {host} systemctl
        restart ottla'.
    patience
        Seconds to wait for all replicas to be in sync, before the first node and after each.
    """
    if (directory is None) == (command is None):
        raise CommandFailed("give the DIRECTORY of the nodes, or a --command that restarts one", MISUSED)
    words = None if command is None else _words(command)
    found = facts(bootstrap)
    places = {} if directory is None else _places(directory)
    order = _order(found, node)
    if directory is not None:
        missing = [each for each in order if each not in places]
        if missing:
            raise CommandFailed(f"node {missing[0]} has no directory in {directory}\n  name the others with --node")
    with StatusLine() as line:
        _wait_until_in_sync(found, patience, line, "before the first node")
        for number, each in enumerate(order, 1):
            began_s = time.monotonic()
            line.show(f"restarting node {each} ({number} of {len(order)})")
            if words is not None:
                _run(words, each, found.addresses[each])
            else:
                _signal(places[each], each, patience)
            _wait_until_in_sync(found, patience, line, f"after node {each}")
            line.show("")
            took = duration(time.monotonic() - began_s)
            print(f"node {each} restarted, all replicas in sync after {took}", flush=True)
        line.show("electing the preferred leaders")
        elected = elect(found.bootstrap)
    print(f"{plural(len(order), 'node')} restarted, and {plural(elected, 'leader')} moved back")
    return OK


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
        _filled(words, 0, "host:0")
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise CommandFailed(
            f"--command is not a command line with {{id}}, {{host}} and {{port}}: {error}", MISUSED
        ) from error
    if not words:
        raise CommandFailed("--command is empty", MISUSED)
    return words


def _filled(words: list[str], node: int, address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    return [each.format(id=node, host=host, port=port) for each in words]


def _places(directory: Path) -> Mapping[int, Path]:
    found = node_directories(directory.absolute())
    if not found:
        raise CommandFailed(f"{directory} has no nodes: it is not a directory of `ottla cluster up`")
    return found


def _order(found: Facts, only: list[int] | None) -> list[int]:
    """The active controller last: each restart of one costs an election."""
    for each in only or ():
        found.broker(each)
    wanted = sorted(set(only) if only else found.addresses)
    leader = quorum_leader(found.bootstrap)
    return sorted(wanted, key=lambda each: (each == leader, each))


def _run(words: list[str], node: int, address: str) -> None:
    done = subprocess.run(_filled(words, node, address), stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        code = done.returncode
        raise CommandFailed(
            f"the command for node {node} ended with exit code {code}; the other nodes were not restarted"
        )


def _signal(place: Path, node: int, patience_s: float) -> None:
    """Have the node's supervisor start it again. Returns when there is a new process."""
    path = place / "pid"
    before = _pid(path)
    start = f"start it with: ottla cluster add {shlex.quote(str(place))}"
    if before is None:
        raise CommandFailed(f"node {node} is not running: {path} does not exist\n  {start}")
    if not is_node(before, place):
        raise CommandFailed(
            f"node {node} is not running: {path} names process {before}, which is not the node\n  {start}"
        )
    os.kill(before, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if _pid(path) not in (None, before):
            return
        time.sleep(POLL_S / 10)
    raise CommandFailed(f"node {node} was stopped, but not started again: is its supervisor running with --no-restart?")


def is_node(pid: int, place: Path) -> bool:
    """Whether a process is the node in `place`: it holds the lock of its data. One that is still starting may not hold
    it yet, and then has to be of this program at least: after a power loss the number may be anybody's."""
    owner = holder(str(place / "data" / LOCK_FILE))
    return owner == pid if owner is not None else str(process(pid).get("program", "")).startswith("Ottla")


def _pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _wait_until_in_sync(found: Facts, patience_s: float, line: StatusLine, when: str) -> None:
    """Until all brokers are there, and with every partition all its replicas. Raises CommandFailed."""
    deadline = time.monotonic() + patience_s
    trouble = "no broker answers"
    while True:
        try:
            now = facts(found.bootstrap)
        except CommandFailed as failure:
            trouble = str(failure).partition("\n")[0]
        else:
            trouble = _trouble(found, now)
            if not trouble:
                return
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"{when}: {trouble}, after {duration(patience_s)}; the other nodes were not restarted\n"
                f"  find out why with: {asked_at('ottla cluster describe', found.bootstrap)}"
            )
        line.show(f"waiting {when}: {trouble}")
        time.sleep(POLL_S)


def _trouble(before: Facts, now: Facts) -> str:
    """Why no node may be stopped now; nothing where one may."""
    away = before.addresses.keys() - now.addresses.keys()
    if away:
        return f"node {min(away)} is down"
    behind = [each for each in now.partitions if len(now.in_sync[each.key]) < len(each.replicas)]
    if behind:
        first = behind[0]
        return f"{plural(len(behind), 'partition')} with missing replicas, the first is {first.topic} {first.number}"
    return ""
