"""No module imports itself by way of others.

Every import counts: those inside functions and under `TYPE_CHECKING` too, since whoever reads a module needs what it
names. What a package's `__init__` imports counts for that package only, not for the modules in it.

The folders of the server import each other in no circle either, but for those that one connection's way runs through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

SERVER = "ottla.server"
INTERWOVEN = {"listeners", "security"}
"""Folders of the server that still import each other in a circle. None may join them."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(name: str, is_package: bool, tree: ast.AST, modules: Mapping[str, object]) -> set[str]:
    """The modules of this tree that a module names in its imports, wherever they stand."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: len(name.split(".")) - node.level + is_package]
                base = ".".join([*parents, *([base] if base else [])])
            full_names = {f"{base}.{each.name}" for each in node.names}
            found |= {each if each in modules else base for each in full_names}
    return {each for each in found if each in modules and each != name}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan), each sorted."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for each in sorted(graph[module]):
            if each not in number:
                visit(each)
            if each in path:
                lowest[module] = min(lowest[module], lowest[each])
        if lowest[module] == number[module]:
            start = path.index(module)
            component = path[start:]
            del path[start:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def import_graph() -> dict[str, set[str]]:
    paths = {module_name(path): path for path in (SOURCE / "ottla").rglob("*.py")}
    return {
        name: imported(name, path.name == "__init__.py", ast.parse(path.read_text(encoding="utf-8")), paths)
        for name, path in paths.items()
    }


def described(graph: Mapping[str, set[str]], circle: list[str]) -> Iterator[str]:
    for module in circle:
        yield f"{module} imports {', '.join(sorted(graph[module] & set(circle)))}"


def test_circles() -> None:
    graph = import_graph()
    assert len(graph) > 700
    found = circles(graph)
    assert not found, "\n\n".join("\n".join(described(graph, each)) for each in found)


def folder_graph(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Which folders of the server import which others. The files beside them (`api.py`, `node.py`) lie between: they
    name the handlers by text only, and are named by all."""

    def folder(module: str) -> str:
        is_package = any(name.startswith(f"{module}.") for name in graph)
        return (module if is_package else module.rpartition(".")[0]).removeprefix(SERVER).lstrip(".")

    found: dict[str, set[str]] = {}
    for module, imports in graph.items():
        if module.startswith(f"{SERVER}.") and folder(module):
            inside = {folder(each) for each in imports if each.startswith(f"{SERVER}.")}
            found.setdefault(folder(module), set()).update(inside - {"", folder(module)})
    return found


def test_circles_of_folders() -> None:
    graph = folder_graph(import_graph())
    assert len(graph) > 15
    found = circles(graph)
    assert [each for each in found if set(each) != INTERWOVEN] == []
    assert found, "INTERWOVEN can go"


def test_circles_of_folders_would_be_found() -> None:
    graph = {
        f"{SERVER}.api": {f"{SERVER}.a"},
        f"{SERVER}.a": set[str](),
        f"{SERVER}.a.x": {f"{SERVER}.b.y", f"{SERVER}.api"},
        f"{SERVER}.b": {f"{SERVER}.a"},
        f"{SERVER}.b.y": {f"{SERVER}.b.z", "ottla.model"},
        f"{SERVER}.b.z": set[str](),
    }
    assert folder_graph(graph) == {"a": {"b"}, "b": {"a"}}
    assert circles(folder_graph(graph)) == [["a", "b"]]


def test_they_would_be_found() -> None:
    modules = {"a.b": 1, "a.c": 1, "a.d": 1, "a": 1}
    text = "if TYPE_CHECKING:\n    from a import c\ndef f():\n    from .d import x\n"
    assert imported("a.b", False, ast.parse(text), modules) == {"a.c", "a.d"}
    assert imported("a", True, ast.parse("from . import b\nfrom .c import y\nimport a.d"), modules) == {
        "a.b",
        "a.c",
        "a.d",
    }
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [["d", "e"], ["a", "b", "c"]]
