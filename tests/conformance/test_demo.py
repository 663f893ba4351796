"""`python -m demo`, whole: a node, this machine's data, a consumer group, and Spark both ways by `format("ottla")`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that do so little that what the better compiler costs is never earned."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("java") is None or importlib.util.find_spec("pyspark") is None,
        reason="Spark is not set up: demo/setup.sh",
    ),
]


@pytest.mark.client(
    "Spark structured streaming", "the demo: topics read as streams and written exactly once by Ottla's data source"
)
def test_the_demo_runs_to_its_end() -> None:
    command = [sys.executable, "-m", "demo", "--seconds", "6"]
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": START_FAST, "SPARK_LAUNCHER_OPTS": START_FAST}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    out = done.stdout
    assert re.search(r"ottla: listening on 127\.0\.0\.1:\d+", out)
    windows = re.findall(r"^ +\d\d:\d\d:\d\d to \d\d:\d\d:\d\d +(\d+) ", out, re.MULTILINE)
    assert windows and all(int(count) > 0 for count in windows), "Spark saw the live metrics in windows"
    (installed,) = re.findall(r"exactly once and read back: ([\d,]+) records", out)
    assert int(installed.replace(",", "")) > 100
    assert "packages and commits in windows of 1 hour" in out
    (fed,), (followed,) = re.findall(r"^ +fed: +(.*)$", out, re.MULTILINE), re.findall(r"^ +followed: (.*)$", out, re.M)
    assert fed == followed
    assert "kill -9" in out and "sound: all that was acknowledged is there" in out
    assert "How to go on" in out
