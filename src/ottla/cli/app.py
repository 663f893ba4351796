"""The command line's shape: which commands there are. Each command lives in a module of its own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from cyclopts import App, CycloptsError, UnusedCliTokensError

from ottla.cli.exits import MISUSED, CommandFailed

_HELP = """Ottla: a partitioned commit log that every Kafka client can use.

Exit codes: 0 done, 1 refused or damaged, 2 a mistake in the command line, 3 no broker answers, 130 interrupted.
"""

COMMANDS = {
    "server": "ottla.cli.servers:app",
    "topic": "ottla.cli.topics:app",
    "produce": "ottla.cli.produce:produce",
    "consume": "ottla.cli.consume:consume",
    "group": "ottla.cli.groups:app",
    "config": "ottla.cli.configs:app",
    "cluster": "ottla.cli.cluster:app",
    "log": "ottla.cli.dump.command:app",
    "completion": "ottla.cli.completion:completion",
}
"""Where each is. Only the one that is typed is imported: what the others need would take most of a short command."""


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"ottla {version('ottla')}"
    except PackageNotFoundError:
        return "ottla (not installed)"


def application(only: str | None = None) -> App:
    """Every command; with `only` no more than that one, if there is such a command."""
    app = App(name="ottla", help=_HELP, help_format="markdown", version=_version, version_flags=["--version"])
    for number, (name, place) in enumerate(COMMANDS.items(), 1):
        if only in COMMANDS and name != only:
            continue
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, App):
            app.command(command)
        else:
            app.command(command, name=name, sort_key=number)
    return app


def _sentence(error: CycloptsError) -> str:
    """What is wrong, as the other complaints say it: `ottla: unknown option: --max`."""
    if isinstance(error, UnusedCliTokensError):
        return f"one argument too many: {' '.join(error.unused_tokens or ())}"
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]


def run(arguments: Sequence[str]) -> int:
    """Parse and run. Returns the exit code."""
    app = application(arguments[0] if arguments else None)
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        command = " ".join(("ottla", *(error.command_chain or ())))
        option = arguments[0].partition("=")[0] if arguments else ""
        if option in ("-b", "--bootstrap", "--json"):
            raise CommandFailed(f"{option} stands behind the command\n  see: ottla --help", MISUSED) from None
        raise CommandFailed(f"{_sentence(error)}\n  see: {command} --help", MISUSED) from None
    return code if isinstance(code, int) else 0
