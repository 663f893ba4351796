"""Files and functions stay small enough to read, and every module says what it is for."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ottla"
FILES = sorted(SOURCE.rglob("*.py"))

LINES_PER_FILE_MAX = 600
LINES_PER_FUNCTION_MAX = 70

LONG_FILES: dict[str, str] = {
    "protocol/records/_records.py": "compiled as one: its parts call each other as C functions",
}
"""Longer, and why."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`path:function`, and why."""


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def functions(path: Path) -> list[tuple[str, int]]:
    """Each with its lines behind the parameters, which in a command of the command line are a table of options."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [(f"{name_of(path)}:{node.name}", (node.end_lineno or 0) - node.body[0].lineno + 1) for node in found]


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name for name, lines in lengths.items() if lines > LINES_PER_FILE_MAX}
    assert long - set(LONG_FILES) == set(), f"over {LINES_PER_FILE_MAX} lines: split them, or say why not"
    assert set(LONG_FILES) - long == set(), "short again: take them off the list"


def test_functions_are_short() -> None:
    lengths = [each for path in FILES for each in functions(path)]
    long = {name for name, lines in lengths if lines > LINES_PER_FUNCTION_MAX}
    assert long - set(LONG_FUNCTIONS) == set(), f"over {LINES_PER_FUNCTION_MAX} lines: split them, or say why not"
    assert set(LONG_FUNCTIONS) - long == set(), "short again: take them off the list"


@pytest.mark.parametrize("folder", ["src", "bench", "demo", "peers"])
def test_every_module_has_a_docstring(folder: str) -> None:
    modules = [path for path in sorted((ROOT / folder).rglob("*.py")) if path.read_text(encoding="utf-8").strip()]
    silent = [str(path) for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []


def skipped_in_functions(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    code = ast.FunctionDef | ast.AsyncFunctionDef
    inside = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, code)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(line.endswith("# fmt: skip") for number, line in lines if number in inside)


def test_only_tables_are_left_as_they_are_by_the_formatter() -> None:
    """Rows of a table at the level of a module or a class read better in columns; code is formatted like all code."""
    found = {
        path.relative_to(ROOT).as_posix(): count
        for top in ("src", "tests", "bench", "demo", "tools", "deploy", "peers")
        for path in sorted((ROOT / top).rglob("*.py"))
        if (count := skipped_in_functions(path))
    }
    assert found == {}


FILES_PER_FOLDER_MAX = 30
TEXTS = {".py", ".pxd", ".md", ".txt", ".json", ".sh", ".yaml", ".yml", ".java", ".go", ".js", ".mjs", ".rs"}


def test_folders_are_short() -> None:
    """A folder that holds more has corridors of its own."""
    counts = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for top in ("src", "tests", "bench", "demo", "docs", "tools", "deploy", "peers")
        for path in (ROOT / top).rglob("*")
        if path.suffix in TEXTS and not {"node_modules", "target"} & set(path.parts)
    )
    assert len(counts) > 100
    assert {folder: count for folder, count in counts.items() if count > FILES_PER_FOLDER_MAX} == {}
