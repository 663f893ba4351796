"""What changed between two releases of Kafka, as Markdown: `python -m tools.kafka_diff 4.3 4.4`.

Each is a folder of jars, or a release that `peers.kafka` knows. Everything is read from the jars: no list is kept here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tools.kafka_tables import Release, Row, release

KINDS: Final = (
    "broker", "topic", "group", "client metrics", "broker quota", "client quota", "ip quota", "producer", "consumer",
    "admin",
)  # fmt: skip
_COMPARED: Final = (
    "type", "default", "required", "validator", "mode", "default from", "importance", "internal", "documentation",
)  # fmt: skip
_DOCUMENTATION_MAX: Final = 300


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; nothing for no rows."""
    lines = ["| " + " | ".join(_cell(each) for each in row) + " |" for row in rows]
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *lines, ""] if lines else []


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def plain(text: str | None) -> str:
    """Documentation without its HTML."""
    found = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text or "")).strip()
    found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&")
    return found if len(found) <= _DOCUMENTATION_MAX else found[:_DOCUMENTATION_MAX].rpartition(" ")[0] + " ..."


def names(old: Iterable[Any], new: Iterable[Any]) -> list[Any]:
    return sorted({*old, *new})


def apis(old: Release, new: Release) -> Iterator[Sequence[object]]:
    """API, what it was, what it is."""
    for key in names(old.apis, new.apis):
        was, now = old.apis.get(key), new.apis.get(key)
        if was == now:
            continue
        found = now or was
        assert found is not None
        more = []
        if was and now and was.name != now.name:
            more.append(f"was called {was.name}")
        if was is None or now is None or was.listeners != now.listeners:
            more.append(f"listeners {', '.join(now.listeners) if now else 'none'}")
        yield f"{found.name} ({key})", was.versions if was else "-", now.versions if now else "-", "; ".join(more)


def _flat(fields: Iterable[Row], common: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Row]]:
    """Every field with the path to it."""
    for field in fields:
        name = f"{path}{field['name']}"
        yield name, field
        below = field.get("fields") or common.get(field["type"].removeprefix("[]"))
        if below is not None:
            yield from _flat(below, common, f"{name}.")


def flat(message: Row) -> dict[str, Row]:
    common = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    return dict(_flat(message.get("fields", ()), common))


_OF_A_FIELD: Final = {
    "type": "type", "versions": "versions", "nullableVersions": "nullable in", "tag": "tag",
    "taggedVersions": "tagged in", "default": "default", "ignorable": "ignorable", "flexibleVersions": "flexible in",
    "entityType": "entity", "mapKey": "map key",
}  # fmt: skip


def described(field: Row) -> str:
    """A field in words: `int32, versions 3+, default -1: what it is`."""
    parts = [field["type"]]
    for name, label in _OF_A_FIELD.items():
        if name not in ("type", "entityType") and field.get(name) not in (None, "", False):
            parts.append(label if field[name] is True else f"{label} {field[name]}")
    return ", ".join(parts) + (f": {field['about']}" if field.get("about") else "")


def message_changes(old: Row | None, new: Row | None) -> Iterator[str]:
    """What changed in one message, a sentence each."""
    if old is None or new is None:
        found = new or old
        assert found is not None
        yield f"{'new' if new else 'gone'}, versions {found['validVersions']}"
        for name, field in flat(new or {}).items():
            yield f"`{name}`: {described(field)}"
        return
    for key in ("apiKey", "type", "validVersions", "flexibleVersions", "latestVersionUnstable"):
        if old.get(key) != new.get(key):
            yield f"{key} {old.get(key)} -> {new.get(key)}"
    was, now = flat(old), flat(new)
    for name in dict.fromkeys((*was, *now)):
        if name not in was:
            yield f"`{name}` is new: {described(now[name])}"
        elif name not in now:
            yield f"`{name}` is gone"
        else:
            changes = [
                f"{label} {was[name].get(key)} -> {now[name].get(key)}"
                for key, label in _OF_A_FIELD.items()
                if was[name].get(key) != now[name].get(key)
            ]
            if changes:
                yield f"`{name}`: {', '.join(changes)}"
            elif was[name].get("about") != now[name].get("about"):
                yield f"`{name}` is explained otherwise: {now[name].get('about')}"


def messages(old: Release, new: Release, kinds: Iterable[str]) -> Iterator[str]:
    """The changed messages of some types, each with a list."""
    for name in names(old.messages, new.messages):
        was, now = old.messages.get(name), new.messages.get(name)
        if (now or was or {})["type"] in kinds and (changes := [*message_changes(was, now)]):
            yield from (f"- {name}", *(f"  - {each}" for each in changes))


def settings(old: Release, new: Release, kind: str) -> Iterator[Sequence[object]]:
    """Setting, what it was, what it is."""
    was, now = old.settings(kind), new.settings(kind)
    for name in names(was, now):
        if name not in now:
            yield f"`{name}`", "is gone", ""
        elif name not in was:
            row = now[name]
            parts = [row["type"], "required" if row["required"] else f"default {shown(row['default'])}"]
            parts += [f"{each} {row[each]}" for each in ("validator", "mode", "default from") if row.get(each)]
            parts += [row["importance"].lower(), *(["internal"] if row["internal"] else [])]
            yield f"`{name}`", "new: " + ", ".join(parts), plain(row["documentation"])
        elif changes := [each for each in _COMPARED if was[name].get(each) != now[name].get(each)]:
            texts = [
                f"{each} {shown(was[name].get(each))} -> {shown(now[name].get(each))}"
                for each in changes
                if each != "documentation"
            ]
            said = "documentation" in changes
            yield f"`{name}`", "; ".join(texts) or "documentation", new_words(was[name], now[name]) if said else ""


def shown(value: object) -> str:
    return "none" if value is None else '""' if value == "" else str(value)


def new_words(was: Row, now: Row) -> str:
    """The sentences of a documentation that are new."""
    known = {each.strip() for each in re.split(r"(?<=[.!:]) ", _stripped(was))}
    fresh = [each for each in re.split(r"(?<=[.!:]) ", _stripped(now)) if each.strip() not in known]
    return plain(" ".join(fresh)) or "sentences are gone"


def _stripped(row: Row) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row["documentation"] or "")).strip()


def rows(old: Release, new: Release, what: str) -> Iterator[Sequence[object]]:
    """Changes of the rows that the Java program prints: name, what it was, what it is."""
    was, now = old.of(what), new.of(what)
    for name in sorted(names(was, now), key=lambda each: (_order(now.get(each) or was[each]), each)):
        before, after = was.get(name), now.get(name)
        if before != after:
            yield name, _said(before, after), _said(after, before)


def metrics(old: Release, new: Release) -> Iterator[Sequence[object]]:
    """Metrics that are new or gone, with the classes that have them; among them may be other texts that look alike."""
    was, now = old.metrics, new.metrics
    for name in names(was, now):
        if (name in was) != (name in now):
            yield f"`{name}`", ", ".join(was.get(name, ())) or "-", ", ".join(now.get(name, ())) or "-"


def _order(row: Row) -> int:
    return int(row.get("code", row.get("level", 0)))


def _said(row: Row | None, other: Row | None) -> str:
    """A row's values; only those that differ where there is another."""
    if row is None:
        return "-"
    shown_keys = [key for key in row if key not in ("what", "name") and (other is None or row[key] != other.get(key))]
    return ", ".join(f"{key} {_value(row[key])}" for key in shown_keys)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_value(each)}" for key, each in value.items()) or "nothing"
    return str(value).lower() if isinstance(value, bool) else str(value)


def render(old: Release, new: Release) -> str:
    """The page."""
    heads = f"{old.name}", f"{new.name}"
    lines = [f"# What Kafka {new.name} changed since {old.name}", "", "Read from the jars of both.", ""]
    for each in (old, new):
        lines += [f"- Not found in {each.name}: {what}" for what in each.missing]
    parts: list[tuple[str, list[str]]] = [
        ("APIs", table(("API (key)", *heads, ""), apis(old, new))),
        ("Requests and responses", [*messages(old, new, ("request", "response", "header")), ""]),
        ("Records and data", [*messages(old, new, ("metadata", "coordinator-key", "coordinator-value", "data")), ""]),
        ("Errors", table(("error", *heads), rows(old, new, "error"))),
        ("Features", table(("feature", *heads), rows(old, new, "feature"))),
        ("Metadata versions", table(("metadata.version", *heads), rows(old, new, "metadata version"))),
    ]
    for kind in KINDS:
        title = f"Settings: {kind}"
        parts.append((title, table(("setting", "change", "documentation"), settings(old, new, kind))))
    parts.append(("Metrics", table(("metric", *heads), metrics(old, new))))
    for title, body in parts:
        lines += [f"## {title}", "", *(body if any(body) else ["Nothing.", ""])]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", help="a folder of jars, or a release such as 4.3")
    parser.add_argument("new", help="a folder of jars, or a release such as 4.4")
    arguments = parser.parse_args()
    print(render(release(arguments.old), release(arguments.new)), end="")


if __name__ == "__main__":
    main()
