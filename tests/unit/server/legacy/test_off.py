"""Without the setting for old clients a node has nothing of it: no module, and no branch that a request meets."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ottla.protocol import messages
from ottla.protocol.layout import of_defaults
from ottla.protocol.messages import ApiKey
from ottla.server.api import OF_BROKERS
from ottla.server.produce.produce_answers import VERSION_MIN
from tests.unit.server.node import Client, batch, produce_values, running

SOURCE = Path(messages.__file__).resolve().parents[1]
MET_AT = {
    ("server/dispatch.py", "_unsupported"): "a version that is not served: the connection is closed",
    ("server/node.py", "_join_cluster"): "the start, where the setting is on",
}
"""Every function outside of `server/legacy` that imports something of it, and when it gets there."""
ONLY_OLD = ("ottla.server.legacy", "ottla.protocol.records.old_formats", "ottla.protocol.records.message_set")


def functions() -> Iterator[tuple[str, ast.AST, str]]:
    """Every function and module outside of `server/legacy`, with the path of its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        if not name.startswith("server/legacy/") and "legacy" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                    yield name, node, getattr(node, "name", "")


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function or module, without what is in the functions inside of it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each
            yield from own(each)


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{each.name}" for each in node.names]
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []


def test_who_imports_it_and_who_reads_the_setting() -> None:
    found, reads = set(), set()
    for path, function, name in functions():
        for each in own(function):
            if any(what.startswith("ottla.server.legacy") for what in imported(each)):
                found.add((path, name))
            if isinstance(each, ast.Attribute) and each.attr == "ottla_legacy_protocol_versions_enable":
                reads.add((path, name))
    assert found == MET_AT.keys()
    assert reads == {("server/node.py", "_join_cluster")}  # once, at the start


def requests() -> list[tuple[ApiKey, int]]:
    """The oldest and the newest version of each API of a broker's listener that is served without the setting."""
    found = []
    for key, served in OF_BROKERS.table.items():
        oldest = VERSION_MIN if key == ApiKey.PRODUCE else served.min_version
        found += [(ApiKey(key), each) for each in dict.fromkeys((oldest, served.max_version))]
    return found


async def work(directory: str) -> None:
    """What runs in a process of its own."""
    async with running(directory, {"quota.window.num": "2"}) as node:
        listener = node.listeners[0]
        assert listener.apis is OF_BROKERS
        client = await Client.connect(node)
        await client.create("t")
        quota = {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "test"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validate_only": False,
        }
        for _ in range(3):  # shortcuts are learned
            await client.produce("t", batch(100))
            await client.fetch("t", 0)
        await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota)
        held_ms = []
        for version in (VERSION_MIN, 9):
            answer = await client.ask(ApiKey.PRODUCE, version, produce_values("t", batch(2000)))
            held_ms.append(answer["throttle_time"])
        assert min(held_ms) > 0
        for key, version in requests():
            one = await Client.connect(node)
            request = messages.plain(of_defaults(messages.request_layout(key, version)))
            if key is ApiKey.PRODUCE:
                request["acks"] = 1
            one.send(key, version, request)
            await one.reader.read(4)  # an answer, or the end of the connection
            one.close()
        client.close()
    print(*sorted(name for name in sys.modules if name.startswith(ONLY_OLD)))


def test_a_node_without_the_setting_loads_nothing_of_it(tmp_path: Path) -> None:
    """Every API is asked, and a producer is held back by its quota: nothing on the way imports a module of old
    versions. The listener has the same table of APIs as in a tree without them."""
    code = "import asyncio, sys; from tests.unit.server.legacy import test_off; asyncio.run(test_off.work(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == []
