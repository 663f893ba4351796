"""`python -m demo`, whole: three nodes, pipelines on Spark by `format("ottla")`, a node killed, exact results."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("java") is None or importlib.util.find_spec("pyspark") is None,
        reason="Spark is not set up: make demo",
    ),
]


@pytest.mark.client(
    "Spark structured streaming", "the demo: topics read as streams and written exactly once by Ottla's data source"
)
def test_the_demo_runs_to_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    out = done.stdout
    assert re.search(r"bootstrap: 127\.0\.0\.1:\d+,127\.0\.0\.1:\d+,127\.0\.0\.1:\d+ ", out)
    assert "kill -9" in out
    assert {"page-views-value", "sessions-value"} <= set(re.findall(r"(\S+) +AVRO", out))
    ((views, sessions),) = re.findall(r"activity: ([\d,]+) page views, ([\d,]+) sessions", out)
    ((metrics, windows),) = re.findall(r"metrics:  ([\d,]+) metrics, ([\d,]+) windows", out)
    ((entries, refused),) = re.findall(r"ledger:   ([\d,]+) entries, ([\d,]+) refused", out)
    assert all(int(count.replace(",", "")) > 0 for count in (views, sessions, metrics, windows, entries, refused))
    assert "exact: sessions, windows and books are those of every acknowledged record" in out
    assert "How to go on" in out
