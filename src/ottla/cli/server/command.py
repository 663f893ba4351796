"""`ottla server ...`: how starting a node looks on the command line; `start.py` does it, without this library."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.options import Flag
from ottla.cli.server.health import health
from ottla.cli.server.status import status
from ottla.cli.values import NodeCount, Raw, Text

app = App(name="server", help="Run a node, and show its status.", sort_key=1)
app.command(status, sort_key=2)
app.command(health, sort_key=3)


@app.command
def start(
    directory: Raw | None = None,
    /,
    *,
    config: Raw | None = None,
    set: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    listen: Text | None = None,
    http: Text | None = None,
    nodes: NodeCount | None = None,
    registry: Text | None = None,
    console: Text | None = None,
    console_config: Raw | None = None,
    secure: Flag = False,
) -> int:
    """Start a node in the foreground; Ctrl-C or SIGTERM stops it.

    Settings have Kafka's names. They come from `--set`, then from the environment (`OTTLA_LOG_RETENTION_MS`), then from
    the file, then from Kafka's defaults.

    Parameters
    ----------
    directory
        The data directory, created if missing. Default: `./ottla-data`, or log.dirs if that is set.
    config
        A server.properties file.
    set
        A setting as name=value; may be repeated.
    listen
        HOST:PORT to accept clients at. Default: 127.0.0.1:9092, or listeners if that is set.
    http
        HOST:PORT to serve /metrics, /health and /ready at. Default: no HTTP port, or ottla.http.listener if that is
        set.
    nodes
        Run this many nodes, one per core, under a supervisor that restarts a node that dies. Ids and ports count up
        from those given. Node N keeps its data in DIRECTORY/node-N; its broker.rack is the host's name.
    registry
        HOST:PORT to serve a schema registry at, in a process of its own. Default: no registry.
    console
        HOST:PORT to serve the console at, the cluster in a browser, in a process of its own. Default: no console.
    console_config
        A file with the console's options, such as roles = "roles.toml", as of `ottla console --console-config`.
    secure
        With TLS, logins and ACLs: a certificate authority, a certificate, a user `admin`, and files for clients, all in
        DIRECTORY-security. Only for a new directory.
    """
    from ottla.cli.options import parse_settings
    from ottla.cli.server.start import StartOptions, run_with

    return run_with(
        StartOptions(
            directory, config, parse_settings(set or (), "--set"), listen, http, nodes, registry, secure, console
        )
    )
