"""What is handed over is typed: no parameter or attribute that is a part of the node is `Any`.

What is asked of others stands in files of ports, each port once, and nobody asks for a whole node without a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ottla"

PARTS = {
    "acceptor", "channel", "cleaner", "client", "clock", "config", "connection", "controller", "coordinator", "core",
    "driver", "filesystem", "fs", "groups", "image", "listener", "log", "logs", "manager", "metadata", "metrics",
    "network", "node", "outbox", "partition", "publisher", "quorum", "random", "registration", "replicas", "scheduler",
    "segment", "session", "shard",
}  # fmt: skip

WITH_A_WHOLE_NODE = {
    "server/api.py", "server/connections/connection_ports.py", "server/coordinators/share_groups.py",
    "server/dispatch.py", "server/http/shown.py", "server/listeners/listener.py", "server/listeners/listening.py",
    "server/ports.py",
}  # fmt: skip
"""What makes contexts of requests, from which handlers reach everything, and the pages that show it."""


def untyped(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            target = node.target
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            annotation = node.annotation
        else:
            continue
        if name.strip("_") in PARTS and annotation is not None and ast.unparse(annotation) in ("Any", "object"):
            yield node.lineno, name


def test_parts_of_a_node_are_typed() -> None:
    found, looked_at = [], 0
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        looked_at += sum(isinstance(node, ast.arg) and node.arg in PARTS for node in ast.walk(tree))
        found += [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in untyped(tree)]
    assert looked_at > 500
    assert found == [], "name the type, or a Protocol of what is needed"


def test_few_ask_for_a_whole_node() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "NodePorts" in path.read_text(encoding="utf-8")
    }
    assert found == WITH_A_WHOLE_NODE, "name the narrow ports that are needed (server/ports.py)"


def test_each_port_is_defined_once() -> None:
    where: dict[str, list[str]] = {}
    files = sorted(SOURCE.rglob("*ports.py"))
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert len(files) >= 6 and len(where) > 60
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_it_would_be_found() -> None:
    text = "class C:\n    def f(self, node: Any, request: Any) -> None:\n        self._log: Any = node\n"
    assert sorted(name for _, name in untyped(ast.parse(text))) == ["_log", "node"]
