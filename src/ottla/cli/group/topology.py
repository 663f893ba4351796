"""`ottla group describe --topology`: the processing graph of a streams application, as its members described it
(KIP-1331)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from ottla.cli import wire
from ottla.cli.exits import FAILED, CommandFailed
from ottla.cli.group.requests import coordinators_of
from ottla.errors import ErrorCode
from ottla.protocol.internal.topology_descriptions import PROCESSOR, SINK, SOURCE
from ottla.protocol.messages import ApiKey

WIDTH: Final = 80
NOT_STORED, AVAILABLE = 1, 3
TYPES: Final = {SOURCE: "source", PROCESSOR: "processor", SINK: "sink"}

Row = Mapping[str, Any]


def descriptions(bootstrap: str, names: Sequence[str]) -> dict[str, Row]:
    """By group; `subtopologies` and `global_stores` as in the message. Raises CommandFailed for a group without one."""
    found: dict[str, Row] = {}
    for address, theirs in coordinators_of(bootstrap, names).items():
        with closing(wire.Link(address)) as link:
            if link.version_max(ApiKey.STREAMS_GROUP_DESCRIBE) < 1:
                raise CommandFailed(f"{address} is older than topology descriptions, which came with Kafka 4.4", FAILED)
            asked = {
                "group_ids": theirs,
                "include_authorized_operations": False,
                "include_topology_description": True,
            }
            for row in link.ask(ApiKey.STREAMS_GROUP_DESCRIBE, asked, 1)["groups"]:
                found[row["group_id"]] = _description(row)
    return {name: found[name] for name in names}


def _description(row: Row) -> Row:
    name = row["group_id"]
    if row["error_code"] == ErrorCode.group_id_not_found:
        raise CommandFailed(f"group {name!r}: no streams group of that name", FAILED)
    if row["error_code"]:
        raise wire.failure_of(int(row["error_code"]), f"group {name!r}: ", row["error_message"] or None)
    if row["topology_description_status"] != AVAILABLE:
        if row["topology_description_status"] == NOT_STORED:
            raise CommandFailed(
                f"group {name!r}: no member has described its topology yet; applications with Kafka Streams 4.4 or "
                "newer do, unless topology.description.push.enabled is false",
                FAILED,
            )
        raise CommandFailed(f"group {name!r}: the broker cannot read the description of its topology", FAILED)
    described: Row = row["topology_description"]
    return described


def as_json(name: str, description: Row) -> dict[str, Any]:
    return {
        "group": name,
        "subtopologies": [
            {"subtopology": each["subtopology_id"], "nodes": [_node_json(node) for node in each["nodes"]]}
            for each in description["subtopologies"]
        ],
        "global_stores": [
            {"source": _node_json(each["source"]), "processor": _node_json(each["processor"])}
            for each in description["global_stores"]
        ],
    }


def _node_json(node: Row) -> dict[str, Any]:
    kind = node["node_type"]
    found: dict[str, Any] = {"name": node["name"], "type": TYPES.get(kind, str(kind))}
    if kind == SOURCE:
        found["topics"] = list(node["source_topics"])
    elif kind == SINK:
        found["topic"] = node["sink_topic"]
    else:
        found["stores"] = list(node["stores"])
    return {**found, "successors": list(node["successors"])}


def drawn(description: Row) -> Iterator[str]:
    """Lines of at most 80 columns, where names allow it: each node once, below the first node that leads to it."""
    for number, each in enumerate(description["subtopologies"]):
        if number:
            yield ""
        yield f"subtopology {each['subtopology_id']}"
        yield from _graph(each["nodes"])
    for number, each in enumerate(description["global_stores"]):
        if number or description["subtopologies"]:
            yield ""
        yield f"global store {', '.join(each['processor']['stores'])}".rstrip()
        yield from _graph([each["source"], {**each["processor"], "successors": ()}])


def _graph(nodes: Sequence[Row]) -> Iterator[str]:
    by_name = {node["name"]: node for node in nodes}
    led_to = {name for node in nodes for name in node["successors"]}
    starts = [name for name in by_name if name not in led_to]
    shown: set[str] = set()
    waiting = [(name, 1) for name in reversed([*starts, *(name for name in by_name if name in led_to)])]
    while waiting:
        name, depth = waiting.pop()
        node = by_name.get(name)
        if depth == 1 and name in shown:
            continue  # it has been drawn below another one
        if node is None or name in shown:
            yield from _lines(f"{name} (above)" if node is not None else name, (), depth)
            continue
        shown.add(name)
        yield from _lines(name, _facts(node), depth)
        waiting += [(each, depth + 1) for each in reversed(node["successors"])]


def _facts(node: Row) -> Iterator[str]:
    kind = node["node_type"]
    if kind == SOURCE:
        yield f"reads {_names(node['source_topics']) or 'topics by a pattern'}"
    elif kind == SINK:
        yield f"writes {node['sink_topic'] or 'topics that records choose'}"
    elif node["stores"]:
        yield f"stores {_names(node['stores'])}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _lines(name: str, facts: Iterable[str], depth: int) -> Iterator[str]:
    """A node, and what it has beside it or, where that is too long, below."""
    indent = "  " * min(depth, 12)  # deeper ones would leave no room
    line = f"{indent}{'' if depth == 1 else '> '}{name}"
    about = list(facts)
    if about and len(line) + 2 + len(about[0]) <= WIDTH:
        yield f"{line}  {about[0]}"
        return
    yield line
    for fact in about:
        yield from textwrap.wrap(
            fact,
            WIDTH,
            initial_indent=f"{indent}    ",
            subsequent_indent=f"{indent}      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
