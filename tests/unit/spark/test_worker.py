"""The modules of a Python worker of Spark are exempt from its collections of cycles."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from ottla.spark import worker


@pytest.fixture(autouse=True)
def unfrozen():
    worker._frozen = 0
    before = gc.get_freeze_count()
    yield
    if not before:
        gc.unfreeze()


def test_no_other_process_is_touched():
    before = gc.get_freeze_count()
    worker.freeze_modules()
    assert gc.get_freeze_count() == before


def test_modules_are_frozen_once_and_again_when_there_are_more(monkeypatch):
    monkeypatch.setattr(worker, "_is_worker", lambda: True)
    worker.freeze_modules()
    first = gc.get_freeze_count()
    assert first > 1000
    kept = [[] for _ in range(1000)]
    worker.freeze_modules()
    assert gc.get_freeze_count() < first + len(kept)
    monkeypatch.setitem(sys.modules, "another_module", sys)
    worker.freeze_modules()
    assert gc.get_freeze_count() >= first + len(kept) - 100


def test_a_worker_is_known_by_sparks_daemon(tmp_path):
    """The daemon forks workers, whose main module it is."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "daemon.py").write_text("from ottla.spark import worker\nprint(worker._is_worker())\n")
    code = [sys.executable, "-m", "pyspark.daemon"]
    found = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"
