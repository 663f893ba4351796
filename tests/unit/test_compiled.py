"""What is compiled: both ways of running it, and that nobody tests what was compiled before the last change."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ottla.compiled import how
from tools import compiled

ROOT = Path(__file__).resolve().parents[2]
NAMES = [".".join(path.relative_to(compiled.SOURCE).with_suffix("").parts) for path in compiled.typed_modules()]


def files_of(names: list[str], **environment: str) -> list[str]:
    """The files that modules are run from in a process of its own."""
    code = f"import importlib\nfor name in {names!r}: print(importlib.import_module(name).__file__)"
    kept = {name: value for name, value in os.environ.items() if name != "OTTLA_INTERPRETED"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_both_ways_are_there() -> None:
    if not compiled.built(compiled.typed_modules()[0]):
        pytest.skip("the compiled module is not built: no C compiler")
    assert "ottla.protocol.records._records" in NAMES
    assert all(name.endswith(EXTENSION_SUFFIXES[0]) for name in files_of(NAMES))
    assert all(name.endswith(".py") for name in files_of(NAMES, OTTLA_INTERPRETED="1"))


def test_a_node_and_the_version_say_which_it_is(tmp_path: Path) -> None:
    built = sum(compiled.built(module) is not None for module in compiled.typed_modules())
    assert how() == {0: "interpreted", len(NAMES): "compiled"}.get(built, f"{built} of {len(NAMES)} modules compiled")
    said = subprocess.run(
        [sys.executable, "-m", "ottla", "--version"],
        env={**os.environ, "OTTLA_INTERPRETED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.endswith(" (interpreted)\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").touch()
        (tmp_path / f"{name}.pxd").touch()
    assert how(str(tmp_path)) == "interpreted"
    (tmp_path / f"a{EXTENSION_SUFFIXES[0]}").touch()
    assert how(str(tmp_path)) == "1 of 2 modules compiled"
    (tmp_path / f"b{EXTENSION_SUFFIXES[0]}").touch()
    assert how(str(tmp_path)) == "compiled"


def test_what_is_stale_is_found(tmp_path: Path) -> None:
    source = tmp_path / "ottla" / "thing.py"
    binary = source.with_name("thing" + EXTENSION_SUFFIXES[0])
    source.parent.mkdir()
    source.write_text("x = 1")
    assert compiled.stale(tmp_path) == []
    binary.touch()
    assert compiled.stale(tmp_path) == [f"ottla/{binary.name}"]  # its types are gone: nobody builds it any more
    source.with_suffix(".pxd").touch()
    later = binary.stat().st_mtime_ns + 10**9
    os.utime(binary, ns=(later, later))
    assert compiled.stale(tmp_path) == []
    for changed in (source, source.with_suffix(".pxd")):
        os.utime(changed, ns=(later + 1, later + 1))
        assert compiled.stale(tmp_path) == ["ottla/thing.py"]
        os.utime(changed, ns=(later, later))


def classes_of(module: Path) -> dict[str, set[str]]:
    """The attributes that classes have in their source."""
    found = {}
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == "__slots__":
                    found[node.name] = set(ast.literal_eval(part.value)) - {"__weakref__"}
    return found


def test_compiled_classes_have_the_attributes_of_their_sources() -> None:
    """One that is only in the source would be an AttributeError, where it is compiled."""
    checked = 0
    for module in compiled.typed_modules():
        sources = classes_of(module)
        for name, body in re.findall(
            r"^cdef class (\w+)[^\n]*:\n(.*?)(?=^\S|\Z)", module.with_suffix(".pxd").read_text(), re.M | re.S
        ):
            assert name in sources, f"{module.name}: {name} has no __slots__"
            typed = set(re.findall(r"^    cdef [^\n(]*?(\w+)$", body, re.M)) - {"__weakref__"}
            assert typed == sources[name], f"{module.name}: {name}"
            checked += 1
    assert checked >= 10


def suspensions(module: Path) -> list[int]:
    """Lines at which a frame waits while it handles an exception."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.AsyncWith):
            found.add(node.lineno)
        handling: list[ast.stmt] = []
        if isinstance(node, ast.ExceptHandler):
            handling = node.body
        elif isinstance(node, ast.Try):
            handling = node.finalbody
        for statement in handling:
            waits = [each for each in ast.walk(statement) if isinstance(each, ast.Await | ast.Yield | ast.YieldFrom)]
            found |= {each.lineno for each in waits}
    return sorted(found)


def test_nothing_compiled_waits_within_except(tmp_path: Path) -> None:
    """A compiled frame that does holds the traceback, with all that the frames there hold, and writes into them when it
    goes on: where the traceback was dropped meanwhile (`without_frames`), the process crashed."""
    planted = tmp_path / "planted.py"
    planted.write_text(
        "async def f(x):\n try:\n  await x\n except OSError:\n  await x\n finally:\n  await x\n async with x: pass\n"
    )
    assert suspensions(planted) == [5, 7, 8]
    waiting = {module.name: lines for module in compiled.typed_modules() if (lines := suspensions(module))}
    assert waiting == {}


def test_the_sources_pass_the_same_tests() -> None:
    """Runs the tests of the hot path interpreted."""
    files = (
        "storage/log/test_log",
        "storage/segments/test_indexes",
        "server/connections/test_connection",
        "server/connections/test_incremental_free",
        "server/coordinators/test_known_requests",
        "server/produce/test_produce_and_fetch",
        "replication/test_share_held_keys",
        "coordinator/test_scripts",
        "coordinator/test_driver",
        "coordinator/test_timers_of_groups",
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", *(f"tests/unit/{file}.py" for file in files)],
        env={**environment, "OTTLA_INTERPRETED": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(".") >= 100
