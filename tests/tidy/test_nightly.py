"""What only `make nightly` runs names what finds the same kind of bug in `make test`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def nightly(tree: ast.AST) -> Iterator[ast.expr]:
    """Each use of the mark: a call, or the bare mark that says nothing."""
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.nightly":
            called.add(node.func)
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.nightly" and node not in called:
            yield node


@functools.cache
def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def is_quick(test: str) -> bool:
    """Whether `file::name`, or a whole file, is there and in `make test`."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.exists():
        return False
    if not name:
        return True
    found = functions_of(path).get(name)
    return found is not None and not any(
        "nightly" in ast.unparse(each) and "param" not in ast.unparse(each) for each in found.decorator_list
    )


def test_each_names_what_finds_its_bugs_sooner() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    marked = {path: ast.parse(text) for path, text in texts.items() if "mark.nightly" in text}
    found = [(path, node) for path, tree in marked.items() for node in nightly(tree)]
    assert found, "the mark is called otherwise"
    for path, node in found:
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        named = [ast.literal_eval(each) for each in node.args] if isinstance(node, ast.Call) else []
        assert named, f"{place} names no test of `make test`"
        assert [test for test in named if not is_quick(test)] == [], f"{place} names what `make test` does not run"


def test_nightly_runs_them() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert '-m "nightly and not matrix" tests' in makefile
    assert "VENV=.venv-newest lint test dear conformance" in makefile
