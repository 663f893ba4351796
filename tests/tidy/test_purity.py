"""Pure packages have no file, clock or randomness of their own: what the direction of imports cannot show.

`random` and `datetime` may be imported for their types. So the calls are looked at: a `random.Random` and the time are
given to who needs them.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BUILTINS = {"open", "input", "print", "breakpoint", "__import__"}
UNSEEDED = {"uuid1", "uuid4", "urandom", "getrandbits", "SystemRandom"}
NOW = {"now", "utcnow", "today"}
"""Clock methods of `datetime` and `date`."""


def contract() -> dict[str, list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["type"] == "forbidden")
    return pure  # type: ignore[no-any-return]


def modules() -> list[Path]:
    found: list[Path] = []
    for name in contract()["source_modules"]:
        path = ROOT / "src" / name.replace(".", "/")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return found


def problems(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    randoms = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "random"
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            yield from (f"{line}: random.{each.name}" for each in node.names if each.name != "Random")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = node.value.id, node.attr
            of_the_module = owner in randoms and name != "Random"
            of_the_clock = owner in ("datetime", "date") and name in NOW
            if of_the_module or of_the_clock or (name in UNSEEDED and owner != "random"):
                yield f"{line}: {owner}.{name}"
        elif isinstance(node, ast.Call):
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            if isinstance(called, ast.Name) and name in BUILTINS | UNSEEDED:
                yield f"{line}: {name}()"
            elif name == "Random" and not node.args and not node.keywords:
                yield f"{line}: Random() without a seed"


def test_pure_packages_have_no_randomness_clock_or_files() -> None:
    paths = modules()
    assert len(paths) > 60
    found = [
        f"{path.relative_to(ROOT)}:{each}" for path in paths for each in problems(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import random\nx = random.random()",
        "import random as r\nx = r.choice([1])",
        "from random import shuffle",
        "import random\nx = random.Random()",
        "from random import Random\nx = Random()",
        "import uuid\nx = uuid.uuid4()",
        "from uuid import uuid4\nx = uuid4()",
        "from datetime import datetime\nx = datetime.now()",
        "with open('f') as f: pass",
        "print('x')",
    ],
)
def test_each_of_them_is_found(text: str) -> None:
    assert list(problems(text))


def test_types_and_what_is_given_are_let_through() -> None:
    text = (
        "import random as random_module\nfrom random import Random\nfrom datetime import datetime\n"
        "def f(random: random_module.Random, now: datetime) -> float:\n    return random.random() + Random(1).random()"
    )
    assert list(problems(text)) == []


def test_the_contract_of_imports_is_as_strict_as_promised() -> None:
    """Indirect imports count, and what a pure package must not see is on its list. Imports of the root package, for
    which files are taken that only mypy reads, do not count: no module needs it."""
    pure = contract()
    assert not pure.get("allow_indirect_imports") and pure["ignore_imports"] == ["ottla.** -> ottla"]
    for path in (ROOT / "src" / "ottla").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(each.name != "ottla" for each in node.names), path
            elif isinstance(node, ast.ImportFrom) and node.module == "ottla":
                for each in node.names:
                    found = ROOT / "src" / "ottla" / each.name
                    assert found.is_dir() or found.with_suffix(".py").exists(), f"{path}: {each.name}"
    io_modules = {"os", "time", "socket", "asyncio", "threading", "uvloop", "select", "subprocess"}
    own = {"ottla.clock", "ottla.filesystem", "ottla.network"}
    assert io_modules | own <= set(pure["forbidden_modules"])
    layers = {"config", "protocol", "quorum", "metadata", "controller", "coordinator", "replication", "security"}
    assert {f"ottla.{name}" for name in layers} <= set(pure["source_modules"])
