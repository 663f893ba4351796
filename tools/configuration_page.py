"""Writes docs/reference/settings.md from the table of settings: `python -m tools.configuration_page [FILE]`.

Without a file it writes to standard output. A test fails when the file in the repository is not what this gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from ottla.config import definitions
from ottla.config.server import EMBEDDED
from ottla.config.setting import Setting
from ottla.config.tables.without_effect import WITHOUT_EFFECT, why
from tools.pages import write_page

INTRODUCTION = """\
# Configuration

This page is rendered from the table of settings: `python -m tools.configuration_page docs/reference/settings.md`.

Settings have the names, types, defaults and ranges of Apache Kafka 4.4. A node takes them, the later over the earlier,
from

1. a properties file: `ottla server start --config server.properties`,
2. the environment: `OTTLA_LOG_RETENTION_MS=3600000` stands for `log.retention.ms`, `OTTLA_HTTP_LISTENER` for
   `ottla.http.listener`, as Kafka's images read `KAFKA_...` (`__` is an underscore, `___` a dash),
3. the command line: `ottla server start --set log.retention.ms=3600000`,
4. dynamic settings that a client gave to all brokers, then those that it gave to this one (`kafka-configs`,
   IncrementalAlterConfigs). They are stored in the metadata log. The column *change* says what may change so: nowhere
   (`read-only`), for each broker (`per-broker`), or for all or each (`cluster-wide`).

An unknown name or a value out of range is refused, with the name, the value and what is allowed, and the line of the
file.

A setting marked with a dagger (†) is accepted, checked and reported, but does nothing in this version; a start lists
those that the file sets, and [Settings without effect](#settings-without-effect) says why. The few that would protect
something are refused instead, see [drop-in.md](../kafka/drop-in.md).

## A node without configuration

A configuration that does not set `process.roles` is of a node on its own, and these values stand in for what it leaves
out. One that sets `process.roles` is a whole Kafka configuration: Kafka's own defaults fill its gaps.

| setting | value |
|---|---|
"""

TOPICS = """\
## Topic settings

A topic's own settings come first, then the broker settings named here, in this order, then the default.
"""

GROUPS = """\
## Group settings

A group's own settings come first, then the broker setting of the same name with `group.` before it, then the default.
"""


WITHOUT = """\
## Settings without effect

A node accepts these so that a file that works for Kafka works as it is. A name that ends with a dot stands for all
that begin with it.
"""


def document() -> str:
    """The whole page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield INTRODUCTION
    for name, value in EMBEDDED.items():
        yield f"| `{name}` | `{value}` |\n"
    for section in definitions.BROKER_SECTIONS:
        if all(each.internal for each in section.settings):
            continue
        yield f"\n## {section.title}\n\n"
        yield from _table(section.settings, "change", lambda setting: setting.mode.value)
    yield f"\n{TOPICS}\n"
    yield from _table(definitions.TOPIC.values(), "broker settings", _broker_settings)
    yield f"\n{GROUPS}\n"
    yield from _table(definitions.GROUP.values())
    yield "\n## Client metrics subscriptions\n\n"
    yield from _table(definitions.CLIENT_METRICS.values())
    yield f"\n{WITHOUT}\n"
    yield from _reasons()


def _table(
    settings: Iterable[Setting], title: str | None = None, column: Callable[[Setting], str] | None = None
) -> Iterator[str]:
    head = ["setting", "type", "default", "allowed", *([title] if title else []), "what it does"]
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for setting in settings:
        if setting.internal:
            continue
        dagger = "" if why(setting.name) is None else " †"
        cells = [f"`{setting.name}`{dagger}", setting.type.name.lower(), _default(setting), setting.allowed]
        if column is not None:
            cells.append(column(setting))
        yield f"| {' | '.join([*cells, setting.doc])} |\n"


def _reasons() -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in WITHOUT_EFFECT.items():
        by_reason.setdefault(reason, []).append(name)
    yield "| why | settings |\n|---|---|\n"
    for reason, names in by_reason.items():
        yield f"| {reason} | {', '.join(f'`{each}`' for each in names)} |\n"


def _default(setting: Setting) -> str:
    if setting.required:
        return "(required)"
    if setting.default is None:
        return "(none)"
    return f"`{setting.default}`" if setting.default else "(empty)"


def _broker_settings(setting: Setting) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in definitions.TOPIC_SYNONYMS.get(setting.name, ())) or "(none)"


if __name__ == "__main__":
    write_page(document(), sys.argv[1:])
