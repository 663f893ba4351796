"""`ottla cluster ...`: which commands there are; each is in a module of its name, what moves replicas in `moves.py`."""

from __future__ import annotations

from cyclopts import App

from ottla.cli.cluster.add import add
from ottla.cli.cluster.api_versions import api_versions
from ottla.cli.cluster.describe import describe
from ottla.cli.cluster.moves import balance, drain, remove
from ottla.cli.cluster.restart import restart
from ottla.cli.cluster.up import up

app = App(name="cluster", help="Describe, run, balance, grow, drain and restart a cluster.", sort_key=7)
app.command(describe)
app.command(up, sort_key=2)
app.command(add, sort_key=3)
app.command(balance, sort_key=4)
app.command(drain, sort_key=5)
app.command(remove, sort_key=6)
app.command(restart, sort_key=7)
app.command(api_versions, sort_key=8)
