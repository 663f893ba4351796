"""The command line's shape: which commands there are. Each command lives in a module of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from inspect import BoundArguments

from cyclopts import App, CycloptsError, UnusedCliTokensError, ValidationError

from ottla.cli import argument_secrets, client_security, interrupts
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.options import hints_asked_at
from ottla.cli.output import visible

_HELP = """Ottla: a partitioned commit log that every Kafka client can use.

Exit codes: 0 done, 1 failed or damage found, 2 a wrong option or setting, 3 no broker answers, 130 interrupted.
"""

COMMANDS = {
    "server": "ottla.cli.server.command:app",
    "dev": "ottla.cli.dev.command:dev",
    "topic": "ottla.cli.topic.command:app",
    "produce": "ottla.cli.records.produce:produce",
    "consume": "ottla.cli.records.consume:consume",
    "group": "ottla.cli.group.command:app",
    "share": "ottla.cli.share.command:app",
    "config": "ottla.cli.config.command:app",
    "cluster": "ottla.cli.cluster.command:app",
    "tail": "ottla.cli.tail:tail",
    "sql": "ottla.cli.sql.command:sql",
    "pipeline": "ottla.cli.pipeline.command:app",
    "schema": "ottla.cli.schema.command:app",
    "registry": "ottla.cli.registry:registry",
    "check": "ottla.cli.check.command:check",
    "quota": "ottla.cli.quota:app",
    "acl": "ottla.cli.security.acl:app",
    "user": "ottla.cli.security.user:app",
    "client": "ottla.cli.clients:app",
    "token": "ottla.cli.security.token:app",
    "mirror": "ottla.cli.mirror:app",
    "migrate": "ottla.cli.migrate.command:app",
    "txn": "ottla.cli.txn.command:app",
    "quorum": "ottla.cli.quorum:app",
    "features": "ottla.cli.features:app",
    "audit": "ottla.cli.security.audit:app",
    "cert": "ottla.cli.security.cert:app",
    "security": "ottla.cli.security.env:app",
    "storage": "ottla.cli.storage:app",
    "log": "ottla.cli.log.command:app",
    "spark": "ottla.cli.spark.command:app",
    "sim": "ottla.cli.sim:sim",
    "completion": "ottla.cli.completion:completion",
}
"""Where each is; what is used every day comes first.

Only the one that is typed is imported: what the others need would take most of a short command."""


_BEHIND_A_NOUN = {
    "start": "ottla server start",
    "up": "ottla cluster up",
    "create": "ottla topic create",
    "describe": "ottla topic describe",
    "list": "ottla topic list",
    "delete": "ottla topic delete",
    "alter": "ottla topic alter",
    "reset": "ottla group reset",
    "set": "ottla config set",
    "get": "ottla config get",
    "run": "ottla pipeline run",
}
"""Commands typed without their noun."""

TERMINAL_MIN = 10
"""Columns and lines below which a terminal's size is not believed."""


def _version() -> str:
    from ottla.cli.versions import version

    return version()


def application(only: str | None = None) -> App:
    """Every command; with `only` no more than that one, if there is such a command."""
    app = App(name="ottla", help=_HELP, help_format="markdown", version=_version, version_flags=["--version"])
    for number, (name, place) in enumerate(COMMANDS.items(), 1):
        if only in COMMANDS and name != only:
            continue
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, App):
            command.sort_key = number
            app.command(command)
        else:
            app.command(command, name=name, sort_key=number)
    return app


def _sentence(error: CycloptsError) -> str:
    """The error as a sentence like the others: `ottla: unknown option: --max`."""
    if isinstance(error, UnusedCliTokensError):
        return visible(f"unexpected argument: {' '.join(error.unused_tokens or ())}")
    if isinstance(error, ValidationError) and error.argument is not None:
        # The checks of `values` say what is wanted.
        (token, *_) = error.argument.tokens
        return f"{token.keyword or error.argument.name} {error.exception_message}"
    text = visible(str(error))
    text = text if text.endswith("...") else text.rstrip(".")
    return text[:1].lower() + text[1:]


def _correct_environment() -> None:
    """Set to nothing is not set; and no terminal has the sizes that rich fails with, or fills memory for."""
    for name in ("OTTLA_BOOTSTRAP", client_security.VARIABLE):
        if not os.environ.get(name):
            os.environ.pop(name, None)
    if client_security.VARIABLE in os.environ:  # Spark's processes begin in other directories
        os.environ[client_security.VARIABLE] = os.path.abspath(os.environ[client_security.VARIABLE])
    for name in ("COLUMNS", "LINES"):
        text = os.environ.get(name, "")
        if not (text.isdecimal() and len(text) < 5 and int(text) >= TERMINAL_MIN):
            os.environ.pop(name, None)


def _secure(bound: BoundArguments) -> None:
    """Have connections made as the client's settings say, whose `bootstrap.servers` stand in for --bootstrap. Raises
    CommandFailed."""
    client_security.use(bound.arguments.get("client_config"), bound.arguments.get("from_config"))
    known = bound.signature.parameters
    # A pipeline's own --config file may have a bootstrap, too: `options_of` puts them in order.
    if "bootstrap" in known and "config" not in known and "bootstrap" not in bound.arguments:
        named = client_security.bootstrap_of_file()
        if named is not None:
            bound.arguments["bootstrap"] = named


def run(arguments: Sequence[str], *, serves: bool = False) -> int:
    """Parse and run. Returns the exit code. A command that `serves` takes signals itself."""
    _correct_environment()
    app = application(arguments[0] if arguments else None)
    try:
        chosen, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        command = " ".join(("ottla", *(error.command_chain or ())))
        option = arguments[0].partition("=")[0] if arguments else ""
        if option in _BEHIND_A_NOUN:
            meant = _BEHIND_A_NOUN[option]
            raise CommandFailed(f"there is no ottla {option}\n  did you mean: {meant}", MISUSED) from None
        if option in ("-b", "--bootstrap", "--json"):
            raise CommandFailed(f"{option} goes after the command\n  see: ottla --help", MISUSED) from None
        raise CommandFailed(f"{_sentence(error)}\n  see: {command} --help", MISUSED) from None
    if not serves:
        interrupts.command_begins()
    argument_secrets.warn(arguments)
    _secure(bound)
    try:
        code = chosen(*bound.args, **bound.kwargs)
    except CommandFailed as failure:
        given = bound.arguments.get("bootstrap")
        if not isinstance(given, str):
            raise
        raise CommandFailed(hints_asked_at(str(failure), given), failure.exit_code) from failure.__cause__
    return code if isinstance(code, int) else 0
