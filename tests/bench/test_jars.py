"""The benchmarks of Spark fetch the jars that they need: a clone in which only the demo ran has none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import spark

ROOT = Path(__file__).resolve().parents[2]

MAVEN = """#!/bin/sh
for each; do case $each in -Djars.directory=*) jars=${each#*=};; esac; done
for number in 1 2 3 4; do : > "$jars/$number.jar"; done
echo called >> "$jars/../calls"
"""


@pytest.mark.parametrize("script", ["spark/jars.sh", "spark/lake.sh", "mirror_maker/jars.sh"])
def test_a_script_fetches_with_maven_that_it_installs(script: str, tmp_path: Path) -> None:
    """Once: the second call finds what is there. Without Maven it asks for it first, which a clone does not have."""
    copy, tools = tmp_path / "peers" / script, tmp_path / "tools"
    copy.parent.mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / "peers" / script, copy)
    installer = tmp_path / "peers" / "debian.sh"
    installer.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/asked\nmv {tools}/maven {tools}/mvn\n")
    (tools / "maven").write_text(MAVEN)
    for each in (installer, tools / "maven"):
        each.chmod(0o755)
    for name in ("bash", "find", "wc", "mkdir", "dirname", "sh", "mv", "grep"):
        (tools / name).symlink_to(shutil.which(name) or name)
    for _ in range(2):
        subprocess.run([copy], check=True, env={"PATH": str(tools)}, capture_output=True)
    assert "mvn:maven" in (tmp_path / "asked").read_text()
    assert (tmp_path / ".cache" / "calls").read_text() == "called\n"


def test_what_the_script_has_fetched_is_used(monkeypatch: Any, tmp_path: Path) -> None:
    """Also if it was not there when the module was imported."""
    chosen: dict[str, str] = {}

    class Builder:
        def master(self, name: str) -> Builder:
            return self

        def config(self, map: dict[str, str]) -> Builder:
            chosen.update(map)
            raise InterruptedError

    monkeypatch.setattr(spark, "JARS", tmp_path)
    monkeypatch.setattr(spark, "SparkSession", type("Session", (), {"builder": Builder()}))
    monkeypatch.setitem(os.environ, "PYSPARK_PYTHON", "python")

    def fetches(command: list[Path]) -> Done:
        (tmp_path / "a.jar").touch()
        return Done(0)

    monkeypatch.setattr(subprocess, "run", fetches)
    spark.fetch_jars()
    with pytest.raises(InterruptedError):
        spark.session(1)
    assert chosen["spark.jars"] == str(tmp_path / "a.jar")
    monkeypatch.setattr(subprocess, "run", lambda command: Done(1))
    with pytest.raises(SystemExit, match=r"peers/spark/jars\.sh"):
        spark.fetch_jars()


class Done:
    def __init__(self, returncode: int) -> None:
        self.returncode = returncode


def test_every_script_that_a_benchmark_names_is_there() -> None:
    named = {
        (path.name, script)
        for path in (ROOT / "bench").glob("*.py")
        for script in re.findall(r"[\w/]+\.sh\b", path.read_text(encoding="utf-8"))
        if "/" in script
    }
    assert named
    assert not [(name, script) for name, script in named if not (ROOT / script).is_file()]
