"""`ottla console`: a web page that shows a cluster, in the foreground."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Flag
from ottla.cli.registry import address, port_settings
from ottla.cli.schema.access import RegistryUrls, of_client
from ottla.cli.values import FilePath, Text

if TYPE_CHECKING:
    from ottla.console.server import Console, Options
    from ottla.console.settings_file import SettingsFile

DEFAULT_LISTEN = "127.0.0.1:8080"

PipelinesDirectory = Annotated[
    FilePath | None,
    Parameter(
        env_var="OTTLA_PIPELINES",
        help="Where pipelines of this machine keep their status. Default: ~/.local/state/ottla/pipelines.",
    ),
]


def console(
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
    listen: Text = DEFAULT_LISTEN,
    registry: RegistryUrls = None,
    masks: FilePath | None = None,
    roles: FilePath | None = None,
    oidc: FilePath | None = None,
    host_name: list[Text] | None = None,
    http_config: FilePath | None = None,
    behind_proxy: Flag = False,
    read_only: Flag = False,
    pipelines: PipelinesDirectory = None,
    console_config: FilePath | None = None,
) -> int:
    """Serve a web page that shows and changes a cluster, of Ottla or of Kafka; Ctrl-C or SIGTERM stops it.

    Where the client's settings have a login (security.protocol=SASL_...), everyone who opens the page logs in as a user
    of the cluster, by SCRAM or PLAIN or at an identity provider, and sees and does what its ACLs allow. Without one it
    listens at loopback addresses only.

    Parameters
    ----------
    listen
        HOST:PORT to serve HTTP at; port 0 picks a free port.
    registry
        URL of a schema registry, to show its subjects and to decode records.
    masks
        A file of rules that say which fields and headers of records are hidden, and from whom.
    roles
        A file of roles that say which users may read which records, act and see the audit log; who has none sees
        nothing.
    oidc
        A file of identity providers (OpenID Connect) where users log in; their tokens are shown to the brokers.
    host_name
        A further name by which browsers call this console where it asks for no login. Can be given several times.
    http_config
        A file with the TLS of the console's own port, by the names of a node's HTTP port, such as
        ottla.http.security.protocol=SSL and ssl.keystore.location; a node's server.properties will do.
    behind_proxy
        A proxy in front of the console speaks TLS, so that it may serve other machines without a certificate.
    read_only
        Only show the cluster: nothing can be changed, whatever the user's rights.
    console_config
        A file with these options, such as roles = "roles.toml"; what is typed wins over it.
    """
    from ottla.cli.client import addresses

    host, port = address(listen, "--listen", DEFAULT_LISTEN)
    try:
        from ottla.console.server import Options
    except ImportError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[console]'") from error
    servers = ",".join(addresses(bootstrap))
    file = settings_of(console_config)
    return run(
        Options(
            servers,
            host,
            port,
            client_security.of_users(),
            _registry(registry or file.registry),
            masks or file.masks,
            roles or file.roles,
            oidc or file.oidc,
            (*(host_name or ()), *file.host_names),
            port_settings(http_config or file.http_config),
            behind_proxy or file.behind_proxy,
            read_only or file.read_only,
            pipelines or file.pipelines,
        )
    )


def settings_of(path: Path | None) -> SettingsFile:
    """The options of `--console-config`. Raises CommandFailed."""
    from ottla.cli.exits import MISUSED
    from ottla.console.settings_file import SettingsFile, read_settings
    from ottla.errors import OttlaError

    try:
        return SettingsFile() if path is None else read_settings(path)
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error


def _registry(url: str | None) -> Mapping[str, str]:
    """Options of the registry's client. Raises CommandFailed."""
    if url is None:
        return {}
    from ottla.cli.schema.access import complaints

    with complaints():
        from ottla.schemas.access import carried

        return carried(of_client(url), client_security.of_users())


def run(options: Options) -> int:
    """Until a signal. Raises CommandFailed."""
    import logging

    from ottla import logs
    from ottla.console.server import Console
    from ottla.errors import OttlaError
    from ottla.formats.errors import SchemaError

    logs.configure("text", "INFO")
    for name in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        console = Console(options)
    except (OttlaError, SchemaError) as error:
        raise CommandFailed(str(error)) from error
    console.serve(lambda: _announce(console))
    return OK


def _announce(console: Console) -> None:
    login = "users of the cluster log in" if console.options.asks_for_login else "no login"
    print(f"ottla: console at {console.url}, of {console.options.bootstrap} ({login})", flush=True)
