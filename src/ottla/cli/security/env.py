"""`ottla security ...`: a secured cluster for the commands of a shell."""

from __future__ import annotations

import shlex

from cyclopts import App

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.security.secured import CLIENT, root_of
from ottla.cli.values import Raw

app = App(name="security", help="Settings for clients of a secured cluster.", sort_key=7)


@app.command
def env(directory: Raw, /) -> int:
    """Print variables with which the commands of this shell find and may administer a cluster that --secure made.

    Use it as: eval $(ottla security env DIRECTORY)

    Parameters
    ----------
    directory
        The directory of `ottla cluster up --secure` or `ottla server start --secure`.
    """
    from ottla.client.properties import read_file
    from ottla.client.security_settings import WrongSecurity

    file = (root_of(directory) / CLIENT).absolute()
    try:
        settings = read_file(file)
    except WrongSecurity as error:
        raise CommandFailed(
            f"{error}\n  make a secured cluster with: ottla cluster up --secure {shlex.quote(directory)}", FAILED
        ) from None
    print(f"export OTTLA_CLIENT_CONFIG={shlex.quote(str(file))}")
    bootstrap = settings.get("bootstrap.servers")
    if bootstrap:
        print(f"export OTTLA_BOOTSTRAP={shlex.quote(bootstrap)}")
    return OK
