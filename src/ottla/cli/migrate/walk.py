"""`ottla migrate walk`: the nodes of a cluster of Apache Kafka become Ottla one after the other, or go back."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ottla.cli import client_security, wire
from ottla.cli.client_security import ClientFile
from ottla.cli.cluster.members import members
from ottla.cli.cluster.reassign import elect, under_way
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.migrate import asking, journal
from ottla.cli.migrate.check import ControllerFile, show, show_plan
from ottla.cli.migrate.finding import LOOK, STOPS
from ottla.cli.migrate.findings import findings
from ottla.cli.migrate.health import Look
from ottla.cli.migrate.order import steps
from ottla.cli.migrate.survey import KAFKA, OTTLA, Node, Survey
from ottla.cli.migrate.walking import Walk
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import plural, print_json
from ottla.cli.status_line import StatusLine
from ottla.cli.units import duration
from ottla.cli.values import FilePath, Seconds, Text
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.client.security import Security

PATIENCE_S = 600.0
OF_THE_MOMENT = frozenset(
    {"nodes-away", "nodes-silent", "under-replicated", "partitions-offline", "voters-behind", "quorum-leader"}
)
"""Findings that a walk which goes on has to expect: one node is away. It waits for everything else itself."""


def walk(
    *,
    stop: Text | None = None,
    start: Text | None = None,
    back: Flag = False,
    plan: Annotated[Flag, Parameter(name="--plan")] = False,
    accept: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    journal_file: Annotated[FilePath | None, Parameter(name="--journal")] = None,
    patience: Seconds = PATIENCE_S,
    controller_config: ControllerFile = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Make the nodes of a cluster of Apache Kafka Ottla, one by one, while clients go on; or go back.

    Begin with `ottla migrate check` and `--plan`. For each node the --stop command is run, then the --start command,
    which starts Ottla on the same directory with the same settings file; the walk waits until the node is registered,
    all replicas are in sync and all controllers have caught up, and moves the leaders back. The active controller
    comes last. A walk that was interrupted goes on with the same command, so both commands have to be repeatable: to
    stop a node that is down, or to start one that runs, is no error.

    Parameters
    ----------
    stop
        A shell command that stops one node; {node}, {host}, {port}, {rack} and {role} are replaced by the node's:
        'ssh {host} systemctl stop kafka'.
    start
        A shell command that starts the other software there: 'ssh {host} systemctl start ottla'.
    back
        Make nodes Kafka again: --stop then stops Ottla, and --start starts Kafka.
    plan
        Show what would be done, and do nothing.
    accept
        A finding that does not stop the walk, by its name in `ottla migrate check`; may be repeated.
    journal_file
        The file that keeps the progress. Default: ottla-walk-CLUSTER.json in this directory.
    patience
        Seconds to wait at most for a node to stop, to start, and for everything to be in sync.
    """
    secured = None if controller_config is None else client_security.of_file(controller_config)
    if not plan and (stop is None or start is None):
        raise CommandFailed("give the commands --stop and --start, or --plan to see the plan", MISUSED)
    surveyed = asking.survey(bootstrap, secured)
    path = journal_file or Path(f"ottla-walk-{surveyed.cluster_id}.json")
    target = KAFKA if back else OTTLA
    with contextlib.nullcontext() if plan else journal.held(path):
        progress = journal.load(path, surveyed.cluster_id, target)
        _ensure_possible(surveyed, progress, accept or (), back=back, quiet=json)
        hooks = Hooks(stop or "", start or "", patience)
        if plan:
            return _show(surveyed, hooks, json=json)
        progress.turn(target)
        with StatusLine() as line:
            world = Cluster(surveyed, hooks, line, secured, quiet=json)
            silent = frozenset(each.id for each in surveyed.nodes if each.kind is None and not each.is_broker)
            if progress.node is not None:  # which may be down now
                silent = (silent | {progress.node}) if progress.silent else (silent - {progress.node})
            elected = Walk(world, progress, surveyed.nodes, silent, patience).run()
    if json:
        print_json({"software": target, "leaders_moved": elected, "seconds": progress.done})
    else:
        print(f"all {plural(len(surveyed.nodes), 'node')} are {target}, and {plural(elected, 'leader')} moved back")
    return OK


def _ensure_possible(
    surveyed: Survey, progress: journal.Journal, accepted: Sequence[str], *, back: bool, quiet: bool
) -> None:
    """Raises CommandFailed for a cluster that is not healthy, or cannot be taken over."""
    found = findings(surveyed)
    known = {each.code for each in found}
    for each in accepted:
        if each not in known:
            raise CommandFailed(f"--accept {each}: there is no such finding\n  see ottla migrate check", MISUSED)
    if progress.node is not None:
        accepted = [*accepted, *OF_THE_MOMENT]
    stopping = [each for each in found if each.weight == STOPS and each.code not in accepted]
    if back:  # Kafka had these settings and records before
        stopping = [each for each in stopping if each.code not in ("plug-ins", "settings-refused", "records-unknown")]
    if stopping:
        if quiet:
            print_json([each.as_json() for each in stopping])
        else:
            show(stopping)
        raise CommandFailed(
            f"{plural(len(stopping), 'finding')} in the way; nothing was done\n  see ottla migrate check"
        )
    if not quiet:
        show([each for each in found if each.code not in OF_THE_MOMENT], (LOOK,))


def _show(surveyed: Survey, hooks: Hooks, *, json: bool) -> int:
    plan = steps(surveyed)
    if json:
        print_json(
            [
                {
                    **each.as_json(),
                    "stop": hooks.filled(hooks.stop, each.node),
                    "start": hooks.filled(hooks.start, each.node),
                }
                for each in plan
            ]
        )
        return OK
    show_plan(surveyed, plan)
    for each in plan if hooks.stop or hooks.start else ():
        print(f"  node {each.node.id}: {hooks.filled(hooks.stop, each.node)}")
        print(f"  {' ' * len(f'node {each.node.id}')}  {hooks.filled(hooks.start, each.node)}")
    return OK


class Hooks:
    """The operator's commands."""

    def __init__(self, stop: str, start: str, patience_s: float) -> None:
        self.stop, self.start = stop, start
        self._patience_s = patience_s

    def filled(self, template: str, node: Node) -> str:
        """The command for a node. Other braces are the shell's; what a cluster says of itself is quoted."""
        host, _, port = str(node.address).rpartition(":")
        values: Mapping[str, str] = {
            "node": str(node.id),
            "host": host.strip("[]"),
            "port": port,
            "rack": node.rack or "",
            "role": node.role,
        }
        for name, value in values.items():
            template = template.replace(f"{{{name}}}", shlex.quote(value) if value else "")
        return template

    def run(self, option: str, template: str, node: Node) -> None:
        """What the command prints goes to standard error. Raises CommandFailed."""
        command = self.filled(template, node)
        try:
            done = subprocess.run(
                ["sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                check=False,
                timeout=self._patience_s,
            )
        except subprocess.TimeoutExpired:
            raise CommandFailed(
                f"the {option} command for node {node.id} did not end in {duration(self._patience_s)}: {command}"
            ) from None
        if done.returncode:
            raise CommandFailed(
                f"the {option} command for node {node.id} ended with exit code {done.returncode}: {command}\n"
                "  correct it and run the same walk again, or go back with --back; the other nodes were not touched"
            )


class Cluster:
    """The real world of a walk."""

    def __init__(
        self, surveyed: Survey, hooks: Hooks, line: StatusLine, secured: Security | None, *, quiet: bool
    ) -> None:
        self._bootstrap = ",".join(str(each.address) for each in surveyed.nodes if each.is_broker)
        self._hooks, self._line, self._secured, self._quiet = hooks, line, secured, quiet

    def look(self, node: Node | None = None) -> Look:
        bootstrap = self._bootstrap if node is None else str(node.address)
        found = asking.quorum(bootstrap)
        if found is None:
            raise CommandFailed("there is no metadata quorum")
        answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
        running = frozenset(each.id for each in members(bootstrap).running)
        return Look(running, tuple(asking.partitions_of(answer)), found[0], tuple(sorted(under_way(bootstrap))))

    def kind(self, node: Node) -> str | None:
        return asking.kind_of(node.address, node.id, None if node.is_broker else self._secured)

    def stop(self, node: Node) -> None:
        with self._aside():
            self._hooks.run("--stop", self._hooks.stop, node)

    def start(self, node: Node) -> None:
        with self._aside():
            self._hooks.run("--start", self._hooks.start, node)

    def elect(self) -> int:
        return elect(self._bootstrap)

    def now_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def show(self, text: str) -> None:
        self._line.show(text)

    def tell(self, text: str) -> None:
        self._line.show("")
        if not self._quiet:
            print(text, flush=True)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """The operator's command may print."""
        self._line.show("")
        yield
