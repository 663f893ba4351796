"""The map in `docs/architecture.md` names every package and only packages that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "ottla"
FILES_NAMED_MIN = 60


def test_the_map_is_true() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    packages = {
        ".".join(path.parent.relative_to(SOURCE).parts) for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE
    }
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert packages <= named
    assert named <= packages | modules


def test_the_map_has_the_order_of_the_layers() -> None:
    """No row stands below one of a lower layer. What the contract of imports does not name comes last."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    depths = {name: depth for depth, layer in enumerate(layers) for name in re.findall(r"ottla\.(\w+)", layer)}
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", text, re.MULTILINE)
    of_rows = [
        {depths.get(name.partition(".")[0], len(layers)) for name in re.findall(r"`([\w.]+)`", row)} for row in rows
    ]
    assert all(len(each) == 1 for each in of_rows), "packages of several layers in one row"
    found = [depth for each in of_rows for depth in each]
    assert found == sorted(found) and len(set(found)) > 20


def test_every_package_says_what_lives_there() -> None:
    for path in SOURCE.rglob("__init__.py"):
        assert path.read_text().startswith('"""'), path


def test_files_that_docstrings_name_exist() -> None:
    """In its own package where a package's `__init__` names no folder, else anywhere in the tree."""
    tree = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
    checked = 0
    for path in SOURCE.rglob("*.py"):
        named = re.findall(r"`([\w/]+\.py)`", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        for name in named:
            checked += 1
            if path.name == "__init__.py" and "/" not in name:
                assert (path.parent / name).is_file(), f"{path.relative_to(ROOT)} names {name}"
            else:
                assert any(f"/{each}".endswith(f"/{name}") for each in tree), f"{path.relative_to(ROOT)} names {name}"
    assert checked >= FILES_NAMED_MIN


def test_files_and_names_of_the_page_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = [
        f"/{path.relative_to(ROOT)}"
        for each in ("src", "tests", "bench", "tools")
        for path in (ROOT / each).rglob("*.py")
    ]
    files = re.findall(r"`([\w/]+\.py)`", text)
    assert len(files) > 60
    assert [
        name for name in files if not any(path.endswith(f"/{name}") for path in tree) and not (ROOT / name).is_file()
    ] == []
    known = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))))
    known |= set(
        re.findall(
            r"\w+", " ".join((ROOT / each[1:]).read_text(encoding="utf-8") for each in tree if "/property/" in each)
        )
    )
    names = [
        name for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\(\))?`", text) if not name.endswith((".py", ".cleaned"))
    ]
    assert len(names) > 80
    assert [name for name in names if not set(name.split(".")) <= known] == []
