"""`ottla migrate ...`: which commands there are; each is in a module of its name."""

from __future__ import annotations

from cyclopts import App

from ottla.cli.migrate.check import check
from ottla.cli.migrate.walk import walk
from ottla.cli.migrate.zookeeper import zookeeper

app = App(name="migrate", help="Make a cluster of Apache Kafka one of Ottla.", sort_key=7)
app.command(check)
app.command(walk, sort_key=2)
app.command(zookeeper, sort_key=3)
