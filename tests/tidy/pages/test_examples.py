"""Examples in Python on the pages: each compiles, what it imports is there, and each name that it uses was said before.

A page is read from its top, as one program: names of an earlier example hold in later ones.
`tests/spark/test_docs.py` and others run those that can be run.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
GIVEN: dict[str, set[str]] = {"secure.md": {"spark"}}
"""Names that a page may use without an example that makes them, by page, as it says so in words."""


def examples(page: Path) -> list[str]:
    return [textwrap.dedent(text) for _, text in EXAMPLE.findall(page.read_text(encoding="utf-8"))]


class Names(ast.NodeVisitor):
    """What an example binds, anywhere in it, and what it uses."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.used: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        (self.used if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.bound.add(node.arg)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.bound.add(node.asname or node.name.split(".")[0])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.bound |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef


def problems(page: str, texts: list[str]) -> list[str]:
    """What is wrong with the examples of a page."""
    found: list[str] = []
    known = {*dir(builtins), "__name__", "__file__", *GIVEN.get(page, ())}
    for number, text in enumerate(texts, 1):
        try:
            tree = ast.parse(text)
            compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            found.append(f"{page}, example {number}: {error}")
            continue
        names = Names()
        names.visit(tree)
        known |= names.bound
        found += [f"{page}, example {number}: {name} is not defined" for name in sorted(names.used - known)]
        found += [f"{page}, example {number}: {missing}" for missing in _missing_imports(tree)]
    return found


def _missing_imports(tree: ast.AST) -> list[str]:
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in wanted:
            try:
                loaded = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if (error.name or "").split(".")[0] in ("ottla", "pyspark_ottla"):
                    missing.append(f"there is no {module}")
                continue  # a library of the reader's
            if name is not None and not hasattr(loaded, name):
                try:
                    importlib.import_module(f"{module}.{name}")
                except ModuleNotFoundError:
                    missing.append(f"{module} has no {name}")
    return missing


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_examples_hold_together(page: Path) -> None:
    assert problems(page.name, examples(page)) == []


def test_what_is_wrong_is_found() -> None:
    assert problems("p", ["x = 1", "print(x)"]) == []
    assert problems("p", ["print(x)", "x = 1"]) == ["p, example 1: x is not defined"]
    assert problems("p", ["from ottla.testing import Nothing"]) == ["p, example 1: ottla.testing has no Nothing"]
    assert problems("p", ["import ottla.nowhere"]) == ["p, example 1: there is no ottla.nowhere"]
    assert "p, example 1: " in problems("p", ["def f(:"])[0]
    assert sum(len(examples(page)) for page in PAGES) > 20
