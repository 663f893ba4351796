"""`ottla config ...`: settings of topics, groups and brokers: read, change, and what they mean."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client import settings as checked_settings
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_settings
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.cli.values import BrokerId, GroupId, SettingName, Text, TopicName
from ottla.client.requests import asked_settings, changed_settings
from ottla.config import definitions
from ottla.config.definitions import may_be_secret
from ottla.config.explained import (
    BROKER,
    DEFAULT_SOURCE,
    GROUP,
    TOPIC,
    Entry,
    entry_of,
    explain_broker_setting,
    explain_group_setting,
    explain_layers,
    explain_topic_setting,
    find,
    meaning,
    near,
)
from ottla.config.secret import HIDDEN
from ottla.protocol.messages import ApiKey

CHANGED_WITHIN_S = 1.0
"""How long a change may take to show; Kafka needs some milliseconds."""

app = App(name="config", help="Read, change and explain settings of topics, groups and brokers.", sort_key=6)

OfTopic = Annotated[TopicName | None, Parameter(name=["--topic", "-t"], help="This topic's settings.")]
OfGroup = Annotated[GroupId | None, Parameter(name=["--group", "-g"], help="This group's settings.")]
OfBroker = Annotated[BrokerId | None, Parameter(name="--broker", help="The settings of the broker with this id.")]
OfAll = Annotated[
    bool,
    Parameter(
        name="--all-brokers", negative="", show_default=False,
        help="The dynamic settings of all brokers (cluster-wide defaults).",
    ),
]  # fmt: skip

_KINDS = {TOPIC: "topic", GROUP: "group", BROKER: "broker"}
_TABLES = {TOPIC: definitions.TOPIC, GROUP: definitions.GROUP, BROKER: definitions.BROKER}


class Resource(NamedTuple):
    """The owner of settings: a topic, a group, a broker, or with an empty name all brokers."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind in (TOPIC, GROUP):
            return f"{_KINDS[self.kind]} {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@Parameter(name="*")
@dataclass(frozen=True)
class Of:
    """The options that say whose settings."""

    topic: OfTopic = None
    group: OfGroup = None
    broker: OfBroker = None

    def given(self) -> list[Resource]:
        named = {TOPIC: self.topic, GROUP: self.group, BROKER: self.broker}
        return [Resource(kind, str(name)) for kind, name in named.items() if name is not None]

    def resource(self) -> Resource | None:
        """None where none of them is given. Raises CommandFailed for more than one."""
        given = self.given()
        if len(given) > 1:
            raise CommandFailed("--topic, --group, --broker and --all-brokers cannot be used together", MISUSED)
        return given[0] if given else None


@Parameter(name="*")
@dataclass(frozen=True)
class OfOneOrAll(Of):
    """These, or the one for all brokers."""

    all_brokers: OfAll = False

    def given(self) -> list[Resource]:
        return [*super().given(), *([Resource(BROKER, "")] if self.all_brokers else [])]


def _required(resource: Resource | None) -> Resource:
    if resource is None:
        raise CommandFailed("give --topic NAME, --group NAME, --broker ID or --all-brokers", MISUSED)
    return resource


@app.command(sort_key=1)
def get(
    *names: SettingName,
    of: OfOneOrAll = OfOneOrAll(),
    defaults: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show settings with their values and where each comes from.

    Shows the first broker's settings unless a topic, group or broker is named.

    Parameters
    ----------
    names
        Settings to show; patterns such as 'retention.*' work too. Default: those that differ from their defaults.
    defaults
        Include settings at their default.
    """
    resource = of.resource()
    if resource is None:
        resource = Resource(BROKER, str(_first_broker(bootstrap)))
    entries = describe(bootstrap, resource)
    shown = _matching(entries, names, resource)
    if not names and not defaults:
        shown = [each for each in shown if each.source != DEFAULT_SOURCE]
    if json:
        print_json({"resource": str(resource), "settings": [each.as_json() for each in shown]})
        return OK
    if shown:
        rows = [(each.name, _value(each), meaning(each.name, each.value), each.where) for each in shown]
        wanted = [0, 1, 2, 3] if any(row[2] for row in rows) else [0, 1, 3]
        columns = ("SETTING", "VALUE", "WHICH IS", "FROM")
        print_table([columns[each] for each in wanted], [[row[each] for each in wanted] for row in rows])
    hidden = len(entries) - len(shown)
    if not names and hidden:
        print(("\n" if shown else "") + f"{resource}: {plural(hidden, 'setting')} at the default; see them: --defaults")
    elif not shown:
        print(f"{resource}: nothing is set")
    return OK


def _value(entry: Entry) -> str:
    if entry.sensitive:
        return "(hidden)"
    return "(none)" if entry.value is None else entry.value or "(empty)"


def _matching(entries: Sequence[Entry], names: Iterable[str] | None, resource: Resource) -> list[Entry]:
    if not names:
        return list(entries)
    chosen: dict[str, Entry] = {}
    for pattern in names:
        found = [each for each in entries if fnmatchcase(each.name, pattern)]
        if not found and resource != Resource(BROKER, ""):
            raise _unknown(pattern, resource.kind)
        chosen |= {each.name: each for each in found}
    return list(chosen.values())


def _unknown(name: str, kind: int | None = None) -> CommandFailed:
    others = [f"{_KINDS[each]}s" for each, table in _TABLES.items() if each != kind and find(name, table) is not None]
    close = near(name, *(table for each, table in _TABLES.items() if kind in (None, each)))
    if kind is not None and others:
        hint = f"it is a setting of {' and '.join(others)}"
    elif close:
        hint = f"did you mean: {', '.join(close)}"
    else:
        hint = "see all settings with: ottla config get --defaults"
    return CommandFailed(f"there is no setting {name!r}{'' if kind is None else f' of {_KINDS[kind]}s'}\n  {hint}")


@app.command(name="set", sort_key=2)
def set_(
    *pairs: Annotated[Text, Parameter(required=True)],
    of: OfOneOrAll = OfOneOrAll(),
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Change settings of a topic, of a group or of running brokers.

    Parameters
    ----------
    pairs
        One or more settings as name=value.
    dry_run
        Let the broker check the change without making it.
    """
    changes: dict[str, str | None] = dict(parse_settings(pairs, "ottla config set"))
    return _alter(bootstrap, _required(of.resource()), changes, dry_run, json)


@app.command(sort_key=3)
def unset(
    *names: Annotated[SettingName, Parameter(required=True)],
    of: OfOneOrAll = OfOneOrAll(),
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Reset settings to the broker's value or the default.

    Parameters
    ----------
    names
        One or more settings.
    dry_run
        Let the broker check the change without making it.
    """
    changes: dict[str, str | None] = dict.fromkeys(names)
    return _alter(bootstrap, _required(of.resource()), changes, dry_run, json)


def _alter(bootstrap: str, resource: Resource, changes: Mapping[str, str | None], dry_run: bool, as_json: bool) -> int:
    before = {each.name: each for each in describe(bootstrap, resource)}
    table = _TABLES[resource.kind]
    for name in changes:
        if find(name, table) is not None or name in before:
            continue
        if near(name, table) or any(find(name, each) for each in _TABLES.values()):
            raise _unknown(name, resource.kind)
    change(bootstrap, resource, changes, dry_run)
    after = before if dry_run else _changed(bootstrap, resource, changes, before)
    hidden = {name for name in changes if may_be_secret(resource.kind, name)}
    rows = [
        (
            name,
            HIDDEN if name in hidden and name in before else _text(before.get(name)),
            HIDDEN if name in hidden and text is not None else _after(name, text, after, dry_run),
        )
        for name, text in changes.items()
    ]
    if as_json:
        settings = [{"name": name, "old_value": old, "new_value": new} for name, old, new in rows]
        print_json({"resource": str(resource), "dry_run": dry_run, "settings": settings})
    else:
        print(f"{bold(str(resource))}{': nothing was changed; without --dry-run:' if dry_run else ''}")
        columns = ("SETTING", "WAS", "WOULD BE" if dry_run else "NOW")
        print_table(columns, [(name, *map(_or_default, (old, new))) for name, old, new in rows], indent=2)
    return OK


def _or_default(value: str | None) -> str:
    return "(not set)" if value is None else value or "(empty)"


def _text(entry: Entry | None) -> str | None:
    return None if entry is None else entry.value


def _after(name: str, text: str | None, after: Mapping[str, Entry], dry_run: bool) -> str | None:
    if dry_run:
        entry = after.get(name)
        return text if text is not None or entry is None else _text_below(entry)
    return _text(after.get(name))


def _text_below(entry: Entry) -> str | None:
    """The value that shows once the deciding layer is gone."""
    own = entry.source in (1, 2, 3, 8)
    if not own:
        return entry.value
    return entry.layers[1].value if len(entry.layers) > 1 else None


def change(bootstrap: str, resource: Resource, changes: Mapping[str, str | None], dry_run: bool) -> None:
    """None takes a setting away. Raises CommandFailed."""
    change_at(_address(bootstrap, resource), resource, changes, dry_run)


def change_at(address: str, resource: Resource, changes: Mapping[str, str | None], dry_run: bool) -> None:
    """The same through a broker that is known; a broker's own settings are changed through itself."""
    values = changed_settings(resource.kind, resource.name, changes, validate_only=dry_run)
    answer = wire.ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, values)
    wire.ensure_none(answer["responses"][0], str(resource))


def _changed(
    bootstrap: str, resource: Resource, changes: Mapping[str, str | None], before: Mapping[str, Entry]
) -> dict[str, Entry]:
    """The settings after a change. A broker that learns of it from the controller may report the old ones for a moment;
    what it reports in the end counts, for a value may come back in another form than it was given in."""
    expected = {
        name: text if text is not None or name not in before else _text_below(before[name])
        for name, text in changes.items()
        if not may_be_secret(resource.kind, name)
    }
    deadline = time.monotonic() + CHANGED_WITHIN_S
    while True:
        after = {each.name: each for each in describe(bootstrap, resource)}
        if all(_text(after.get(name)) == text for name, text in expected.items()) or time.monotonic() > deadline:
            return after
        time.sleep(0.05)


def describe(bootstrap: str, resource: Resource) -> list[Entry]:
    """Every setting that the resource has, by name. Raises CommandFailed."""
    address = _address(bootstrap, resource)
    values = asked_settings(resource.kind, [resource.name], layers=True)
    answer = wire.ask(address, ApiKey.DESCRIBE_CONFIGS, values)["results"][0]
    wire.ensure_none(answer, str(resource))
    return sorted(map(entry_of, answer["configs"]), key=lambda each: each.name)


def _address(bootstrap: str, resource: Resource) -> str:
    """Where to ask: a broker knows only its own settings."""
    checked_settings(bootstrap)
    if resource.kind != BROKER or not resource.name:
        return bootstrap
    nodes = _brokers(bootstrap)
    for node_id, address in nodes.items():
        if str(node_id) == resource.name:
            return address
    known = ", ".join(map(str, sorted(nodes)))
    raise CommandFailed(f"there is no broker {resource.name}; there are: {known}")


def _first_broker(bootstrap: str) -> int:
    return min(_brokers(bootstrap))


def _brokers(bootstrap: str) -> dict[int, str]:
    """The addresses of the brokers by id. Raises CommandFailed."""
    metadata = wire.ask(bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    return wire.broker_addresses(metadata)


@app.command(name="explain", sort_key=4)
def explain_(
    *names: Annotated[SettingName, Parameter(required=True)],
    of: Of = Of(),
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Explain a setting: what it does, its allowed values, how to change it, and where its value comes from.

    The source of the value is shown only for a named topic, group or broker; otherwise no broker is asked.

    Parameters
    ----------
    names
        One or more settings.
    """
    resource = of.resource()
    entries = {each.name: each for each in describe(bootstrap, resource)} if resource is not None else {}
    explained = [_explained(name, resource, entries) for name in names]
    if json:
        print_json(explained)
        return OK
    for number, setting in enumerate(explained):
        if number:
            print()
        _print_explained(setting)
    return OK


_EXPLAIN = {TOPIC: explain_topic_setting, GROUP: explain_group_setting, BROKER: explain_broker_setting}


def _explained(name: str, resource: Resource | None, entries: Mapping[str, Entry]) -> dict[str, Any]:
    kind = None if resource is None else resource.kind
    explained: dict[str, Any] = {"name": name}
    for each, table in _TABLES.items():
        setting = find(name, table) if kind in (None, each) else None
        if setting is not None:
            explained[f"of a {_KINDS[each]}"] = dict(_EXPLAIN[each](setting))
    if len(explained) == 1 and name not in entries:
        raise _unknown(name, kind)
    if name in entries:
        explained["value"] = {
            "resource": str(resource),
            **entries[name].as_json(),
            "lines": explain_layers(entries[name]),
        }
    return explained


def _print_explained(setting: Mapping[str, Any]) -> None:
    from ottla.cli.units import print_wrapped

    for kind in (f"of a {each}" for each in _KINDS.values()):
        if kind in setting:
            print(f"{bold(setting['name'])}, a setting {kind}")
            for heading, text in setting[kind].items():
                print_wrapped(f"  {heading:<10}", text)
    value = setting.get("value")
    if value is not None:
        print(f"{bold(setting['name'])} of {value['resource']}")
        for line in value["lines"]:
            print_wrapped("  ", line)
