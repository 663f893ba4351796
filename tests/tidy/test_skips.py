"""In CI a test that skips has failed (tests/skips.py); elsewhere it is skipped with its reason."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.protocol.records import _records
from tests.skips import MAY_SKIP

ROOT = Path(__file__).resolve().parents[2]
SKIPPING = """
import pytest

def test_by_call():
    pytest.skip("no Java here")

@pytest.mark.skipif(True, reason="kcat is not installed")
def test_by_mark():
    pass

@pytest.fixture
def kafka():
    pytest.skip("no Kafka here")

def test_by_fixture(kafka):
    pass

def test_accepted():
    pytest.skip("zsh is not installed")

@pytest.mark.xfail
def test_expected():
    assert False

def test_passing():
    pass
"""
SKIPPING_ITSELF = 'import pytest\npytest.importorskip("no_such_module")\ndef test_it(): pass\n'


def run(directory: Path, text: str, ci: str | None) -> str:
    """The last line of a run of its own."""
    (directory / "test_skipping.py").write_text(text)
    environ = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider", "-rA", "."],
        cwd=directory,
        env={**environ, "PYTHONPATH": str(ROOT), **({"CI": ci} if ci else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("ci", [None, "false"])
def test_elsewhere_a_skip_is_a_skip(tmp_path: Path, ci: str | None) -> None:
    out = run(tmp_path, SKIPPING, ci)
    assert "1 passed, 4 skipped, 1 xfailed" in out
    assert "no Java here" in out


def test_in_ci_a_skip_is_a_failure(tmp_path: Path) -> None:
    out = run(tmp_path, SKIPPING, "true")
    assert "1 passed, 1 skipped, 1 xfailed" in out.replace("3 failed, ", "", 1)
    for reason in ("no Java here", "kcat is not installed", "no Kafka here"):
        assert f"skipped, which in CI is a failure: {reason}" in out


def test_in_ci_a_module_that_skips_itself_is_a_failure(tmp_path: Path) -> None:
    assert "1 skipped" in run(tmp_path, SKIPPING_ITSELF, None)
    out = run(tmp_path, SKIPPING_ITSELF, "true")
    assert "1 error" in out and "skipped, which in CI is a failure" in out


def test_the_reasons_that_are_accepted_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path.name != "skips.py"]
    for reason in MAY_SKIP:
        start = reason if not reason.startswith("no ") else "no {' and no '.join(absent)} here"
        assert any(start in text for text in texts), f"nothing skips with {reason!r} any more"


def test_the_compiled_module_is_tested_where_there_is_a_compiler() -> None:
    """Without it the tests of compiled code compare the interpreted code with itself."""
    if not str(_records.__file__).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        pytest.skip("the compiled module is not built: no C compiler")
