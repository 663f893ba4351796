"""`ottla config ...`: settings of topics and brokers: read, change, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

from cyclopts import App, Parameter

from ottla.cli import wire
from ottla.cli.client import admin_client, wait
from ottla.cli.client import explain as sentence_of
from ottla.cli.client import settings as checked_settings
from ottla.cli.config_view import (
    BROKER,
    DEFAULT_SOURCE,
    TOPIC,
    Entry,
    entry_of,
    explain_broker_setting,
    explain_layers,
    explain_topic_setting,
    find,
    meaning,
    near,
)
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_settings
from ottla.cli.output import bold, plural, print_json, print_table
from ottla.config import definitions
from ottla.protocol.messages import ApiKey

app = App(name="config", help="Read, change and explain settings of topics and brokers.", sort_key=6)

OfTopic = Annotated[str | None, Parameter(name=["--topic", "-t"], help="Of this topic.")]
OfBroker = Annotated[int | None, Parameter(name="--broker", help="Of the broker with this number.")]
OfAll = Annotated[
    bool,
    Parameter(
        name="--all-brokers", negative="", show_default=False,
        help="Of all brokers together: what was changed for the whole cluster while it runs.",
    ),
]  # fmt: skip

SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs (KIP-339)."""


class Resource(NamedTuple):
    """Whose settings: a topic's, a broker's, or with an empty name those of all brokers."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> Resource | None:
    if (topic is not None) + (broker is not None) + all_brokers > 1:
        raise CommandFailed("--topic, --broker and --all-brokers exclude each other", MISUSED)
    if topic is not None:
        return Resource(TOPIC, topic)
    if all_brokers:
        return Resource(BROKER, "")
    return None if broker is None else Resource(BROKER, str(broker))


def _required(resource: Resource | None) -> Resource:
    if resource is None:
        raise CommandFailed("whose settings? give --topic NAME, --broker ID or --all-brokers", MISUSED)
    return resource


@app.command(sort_key=1)
def get(
    *names: str,
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfAll = False,
    defaults: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Show settings with their values and where each comes from.

    Of the first broker, unless a topic or a broker is named.

    Parameters
    ----------
    names
        Which settings; patterns such as 'retention.*' too. Unless given, those that are not at their default.
    defaults
        Also settings at their default.
    """
    resource = _resource(topic, broker, all_brokers)
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
    tables: list[Mapping[str, Any]] = [
        table for of, table in ((TOPIC, definitions.TOPIC), (BROKER, definitions.BROKER)) if kind in (None, of)
    ]
    close = near(name, *tables)
    hint = f"\n  did you mean: {', '.join(close)}" if close else "\n  see them all with: ottla config get --defaults"
    other = {TOPIC: definitions.BROKER, BROKER: definitions.TOPIC}.get(kind or 0)
    if other is not None and find(name, other) is not None:
        hint = f"\n  it is a setting of {'brokers' if kind == TOPIC else 'topics'}"
    return CommandFailed(f"there is no setting {name!r}{hint}")


@app.command(name="set", sort_key=2)
def set_(
    *pairs: Annotated[str, Parameter(required=True)],
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfAll = False,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Change settings of a topic or of running brokers.

    Parameters
    ----------
    pairs
        name=value, one or more.
    dry_run
        Have the broker check the change; change nothing.
    """
    changes: dict[str, str | None] = dict(parse_settings(pairs, "ottla config set"))
    return _alter(bootstrap, _required(_resource(topic, broker, all_brokers)), changes, dry_run, json)


@app.command(sort_key=3)
def unset(
    *names: Annotated[str, Parameter(required=True)],
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfAll = False,
    dry_run: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Take changes back, so that settings follow the broker or the default again.

    Parameters
    ----------
    names
        Settings, one or more.
    dry_run
        Have the broker check the change; change nothing.
    """
    changes: dict[str, str | None] = dict.fromkeys(names)
    return _alter(bootstrap, _required(_resource(topic, broker, all_brokers)), changes, dry_run, json)


def _alter(bootstrap: str, resource: Resource, changes: Mapping[str, str | None], dry_run: bool, as_json: bool) -> int:
    before = {each.name: each for each in describe(bootstrap, resource)}
    table = definitions.TOPIC if resource.kind == TOPIC else definitions.BROKER
    for name in changes:
        if find(name, table) is None and name not in before and near(name, table):
            raise _unknown(name, resource.kind)
    if resource.name:
        _alter_one(bootstrap, resource, changes, dry_run)
    else:
        _alter_all_brokers(bootstrap, changes, dry_run)
    after = before if dry_run else {each.name: each for each in describe(bootstrap, resource)}
    rows = [(name, _text(before.get(name)), _after(name, text, after, dry_run)) for name, text in changes.items()]
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
    own = entry.source in (1, 2, 3)
    if not own:
        return entry.value
    return entry.layers[1].value if len(entry.layers) > 1 else None


def _alter_one(bootstrap: str, resource: Resource, changes: Mapping[str, str | None], dry_run: bool) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(
            name, text, incremental_operation=AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET
        )
        for name, text in changes.items()
    ]
    kind = ResourceType.TOPIC if resource.kind == TOPIC else ResourceType.BROKER
    client = admin_client(bootstrap)
    request = [ConfigResource(kind, resource.name, incremental_configs=entries)]
    (future,) = client.incremental_alter_configs(request, validate_only=dry_run).values()
    try:
        wait(future)
    except KafkaException as exception:
        raise _refused(exception, resource) from exception


def _alter_all_brokers(bootstrap: str, changes: Mapping[str, str | None], dry_run: bool) -> None:
    """By hand: librdkafka has no name for the resource of all brokers, which is the empty one."""
    checked_settings(bootstrap)
    configs = [
        {"name": name, "config_operation": DELETE if text is None else SET, "value": text}
        for name, text in changes.items()
    ]
    resources = [{"resource_type": BROKER, "resource_name": "", "configs": configs}]
    answer = wire.ask(bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": dry_run})
    wire.ensure_none(answer["responses"][0], "all brokers")


def describe(bootstrap: str, resource: Resource) -> list[Entry]:
    """Every setting that the resource has, by name. Raises CommandFailed."""
    address = _address(bootstrap, resource)
    resources = [{"resource_type": resource.kind, "resource_name": resource.name, "configuration_keys": None}]
    values = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    answer = wire.ask(address, ApiKey.DESCRIBE_CONFIGS, values)["results"][0]
    wire.ensure_none(answer, str(resource))
    return sorted(map(entry_of, answer["configs"]), key=lambda each: each.name)


def _address(bootstrap: str, resource: Resource) -> str:
    """Where to ask: a broker tells only its own settings."""
    checked_settings(bootstrap)
    if resource.kind == TOPIC or not resource.name:
        return bootstrap
    nodes = _nodes(bootstrap)
    for node in nodes:
        if str(node.id) == resource.name:
            return f"{node.host}:{node.port}"
    known = ", ".join(str(node.id) for node in sorted(nodes, key=lambda each: int(each.id)))
    raise CommandFailed(f"there is no broker {resource.name}; there are: {known}")


def _refused(exception: Any, resource: Resource) -> CommandFailed:
    sentence, unreachable = sentence_of(exception, f"{resource}: ")
    return CommandFailed(sentence, UNREACHABLE if unreachable else FAILED)


def _first_broker(bootstrap: str) -> int:
    return min(int(node.id) for node in _nodes(bootstrap))


def _nodes(bootstrap: str) -> list[Any]:
    client = admin_client(bootstrap)  # its requests die with it, so it has to have a name
    return list(wait(client.describe_cluster()).nodes)


@app.command(name="explain", sort_key=4)
def explain_(
    *names: Annotated[str, Parameter(required=True)],
    topic: OfTopic = None,
    broker: OfBroker = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Say what a setting does, what it may be, how it is changed, and where its value comes from.

    Where it comes from is told of the topic or broker that is named; without one no broker is asked.

    Parameters
    ----------
    names
        Settings, one or more.
    """
    resource = _resource(topic, broker, False)
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


def _explained(name: str, resource: Resource | None, entries: Mapping[str, Entry]) -> dict[str, Any]:
    kind = None if resource is None else resource.kind
    of_topic = find(name, definitions.TOPIC) if kind in (None, TOPIC) else None
    of_broker = find(name, definitions.BROKER) if kind in (None, BROKER) else None
    if of_topic is None and of_broker is None and name not in entries:
        raise _unknown(name, kind)
    explained: dict[str, Any] = {"name": name}
    if of_topic is not None:
        explained["of a topic"] = dict(explain_topic_setting(of_topic))
    if of_broker is not None:
        explained["of a broker"] = dict(explain_broker_setting(of_broker))
    if name in entries:
        explained["value"] = {
            "resource": str(resource),
            **entries[name].as_json(),
            "lines": explain_layers(entries[name]),
        }
    return explained


def _print_explained(setting: Mapping[str, Any]) -> None:
    from ottla.cli.words import print_wrapped

    for kind in ("of a topic", "of a broker"):
        if kind in setting:
            print(f"{bold(setting['name'])}, a setting {kind}")
            for heading, text in setting[kind].items():
                print_wrapped(f"  {heading:<10}", text)
    value = setting.get("value")
    if value is not None:
        print(f"{bold(setting['name'])} of {value['resource']}")
        for line in value["lines"]:
            print_wrapped("  ", line)
