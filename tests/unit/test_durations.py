"""What a run cost is written down with it, told as tables, and orders the next one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import costs, order
from tools import durations
from tools.durations import Cost

ROOT = Path(__file__).resolve().parents[2]
BURNS = """
import subprocess, sys

BURN = "import time\\nend = time.process_time() + 0.5\\nwhile time.process_time() < end: pass"

def test_here():
    exec(BURN)

def test_below():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_nothing():
    pass
"""


def write(path: Path, *rows: tuple[str, str, float, float]) -> Path:
    """A run of (module, test, clock, CPU), one after the other."""
    began, cases = 1000.0, ""
    for module, name, clock, cpu in rows:
        kept = {"cpu": cpu, "began": began, "worker": "gw0"}
        properties = "".join(f'<property name="{key}" value="{value}"/>' for key, value in kept.items())
        cases += f'<testcase classname="{module}" name="{name}" time="{clock}"><properties>{properties}</properties>'
        cases += "</testcase>"
        began += clock
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_a_run_says_what_each_test_cost(tmp_path: Path) -> None:
    """Its own processor time and that of what it started."""
    tests = tmp_path / "tests" / "unit"
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text(BURNS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.costs", "--junitxml=run.xml", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    here, below, nothing = (test.cost for test in durations.read(tmp_path / "run.xml"))
    assert here.cpu_s >= 0.4 and below.cpu_s >= 0.5
    assert nothing.cpu_s < 0.3 and here.tests == 1


def test_what_still_runs_counts_as_well() -> None:
    before = costs.spent()
    burns = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", burns], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert costs.spent() - before >= 0.45
        process.communicate(b"\n")
    assert costs.spent() - before >= 0.45


RUN = (
    ("tests.unit.test_a", "test_one", 1.0, 0.5),
    ("tests.unit.test_a", "test_two[x.y]", 2.0, 0.5),
    ("tests.spark.test_b", "test_three", 10.0, 30.0),
)


def test_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = durations.read(write(tmp_path / "run.xml", *RUN))
    assert durations.by(lambda test: test.folder, tests) == {
        "tests/unit": Cost(2, 3.0, 1.0),
        "tests/spark": Cost(1, 10.0, 30.0),
    }
    assert durations.took_s(tests) == 13.0
    assert durations.kept(tests) == {"tests/spark/test_b.py": 30.0, "tests/unit/test_a.py": 3.0}
    assert durations.main([str(tmp_path / "run.xml"), "--top", "1"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "13 s by the clock on 1 workers"
    assert any(row.split() == ["all", "3", "13.0", "31.0"] for row in rows)
    assert any(row.split() == ["tests/spark/test_b.py::test_three", "1", "10.0", "30.0"] for row in rows)
    assert not any("test_two" in row for row in rows)
    write(tmp_path / "less.xml", *RUN[:2])
    assert durations.main([str(tmp_path / "less.xml"), "--before", str(tmp_path / "run.xml")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "| tests/spark | 1 | 30 | 10 | 0 | 0 | 0 |" in rows and "| **all** | 3 | 31 | 13 | 2 | 1 | 3 |" in rows
    assert durations.main([str(tmp_path / "nothing.xml")]) == 1


def test_the_file_of_a_test_in_a_class(tmp_path: Path) -> None:
    (test,) = durations.read(write(tmp_path / "run.xml", ("tests.unit.test_a.TestThis", "test_one", 3.0, 0.5)))
    assert (test.file, test.name) == ("tests/unit/test_a.py", "tests/unit/test_a.py::TestThis::test_one")


def test_what_is_kept_is_there() -> None:
    """Files that were moved have lost their place in the order: `python -m tools.durations --write` after a run."""
    kept = json.loads(durations.KEPT.read_text())
    assert [file for file in kept if not (ROOT / file).exists()] == []


def test_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of Spark first and together, then what takes longest."""
    monkeypatch.setattr(order, "seconds", lambda: {order.SPARK: float("inf"), "tests/unit/test_a.py": 3.0})

    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    ids = ["tests/crash/test_c.py::test_1", "tests/unit/test_a.py::test_2", "tests/unit/test_a.py::test_1"]
    ids += ["tests/spark/test_b.py::test_1", "tests/spark/test_d.py::test_1"]
    items = [Item(each) for each in ids]
    order.pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == [*ids[3:], *ids[1:3], ids[0]]
    assert len({order.piece_of(each) for each in ids}) == 3
