"""What is handed over is typed: no parameter or attribute that is a part of the node is `Any`."""

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


def test_it_would_be_found() -> None:
    text = "class C:\n    def f(self, node: Any, request: Any) -> None:\n        self._log: Any = node\n"
    assert sorted(name for _, name in untyped(ast.parse(text))) == ["_log", "node"]
