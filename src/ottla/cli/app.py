"""The command line's shape: which commands there are. Each command lives in a module of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from ottla.cli import cluster, configs, groups, topics
from ottla.cli.completion import completion
from ottla.cli.consume import consume
from ottla.cli.dump.command import dump
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.produce import produce
from ottla.cli.status import status
from ottla.cli.topic_words import explain_topic

_HELP = """Ottla: a partitioned commit log that every Kafka client can use.

Exit codes: 0 done, 1 refused or damaged, 2 a mistake in the command line, 3 no broker answers, 130 interrupted.
"""

server_app = App(name="server", help="Run a node.", sort_key=1)
log_app = App(name="log", help="Look into a log directory; no broker is needed.", sort_key=9)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"ottla {version('ottla')}"
    except PackageNotFoundError:
        return "ottla (not installed)"


app = App(name="ottla", help=_HELP, help_format="markdown", version=_version, version_flags=["--version"])
app.command(server_app)
app.command(topics.app)
app.command(produce, sort_key=3)
app.command(consume, sort_key=4)
app.command(groups.app)
app.command(configs.app)
app.command(cluster.app)
app.command(log_app)
log_app.command(dump)
app.command(completion, sort_key=10)
server_app.command(status, sort_key=2)
topics.app.command(explain_topic, name="explain")


@server_app.command
def start(
    directory: str | None = None,
    /,
    *,
    config: str | None = None,
    set: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    listen: str | None = None,
) -> int:
    """Start a node in the foreground; Ctrl-C or SIGTERM stops it.

    Settings have Kafka's names. They come from `--set`, then from the environment (`OTTLA_LOG_RETENTION_MS`), then from
    the file, then from Kafka's defaults.

    Parameters
    ----------
    directory
        Where data lives; made if it is not there. `./ottla-data` unless given here or as log.dirs.
    config
        A server.properties file.
    set
        A setting as name=value; may be repeated.
    listen
        HOST:PORT to accept clients at; 127.0.0.1:9092 unless given here or as listeners.
    """
    from ottla.cli.options import parse_settings
    from ottla.cli.server import StartOptions, run_with

    return run_with(StartOptions(directory, config, parse_settings(set or (), "--set"), listen))


def _sentence(error: CycloptsError) -> str:
    """What is wrong, as the other complaints say it: `ottla: unknown option: --max`."""
    if isinstance(error, UnusedCliTokensError):
        return f"one argument too many: {' '.join(error.unused_tokens or ())}"
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]


def run(arguments: Sequence[str]) -> int:
    """Parse and run. Returns the exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        command = " ".join(("ottla", *(error.command_chain or ())))
        raise CommandFailed(f"{_sentence(error)}\n  see: {command} --help", MISUSED) from None
    return code if isinstance(code, int) else 0
