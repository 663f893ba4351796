"""Without the libraries of an extra, every command says which one it needs, or does without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ottla.cli.extras import LIBRARIES, missing
from tests.conformance.cli.commands import every_command
from tests.conformance.cli.test_cli_hostile_values import VALID

ROOT = Path(__file__).parents[3]
MODULES = {"delta-spark": "delta", "grpcio-tools": "grpc_tools", "protobuf": "google", "pyjwt": "jwt"}
"""Modules of distributions that are imported by another name."""
NEEDS = re.compile(r"(cert|console|pipeline|mirror|registry|schema|sql|spark)")
STARTS = {"server start", "dev", "cluster up", "cluster add", "cluster restart", "sim", "registry", "completion"}
"""Nodes and histories; they need no extra, or are asked on their own."""

WITHOUT = """
import contextlib, io, json, sys
libraries, calls = json.load(sys.stdin)
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in libraries:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from ottla.cli.main import main
said = {}
for name, argv in calls.items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    said[name] = [code, err.getvalue()]
print(json.dumps(said))
"""


def test_every_library_of_an_extra_is_known() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"[\[<>=]", each)[0] for name, all_of in extras.items() if name != "dev" for each in all_of}
    modules = {MODULES.get(each, each) for each in wanted if each != "ottla"}
    assert modules == set(LIBRARIES)
    assert set(LIBRARIES.values()) <= set(extras)


def test_every_command_says_what_it_needs(tmp_path: Path) -> None:
    calls = {name: [*name.split(), *VALID[name]] for name, _ in every_command() if name not in STARTS}
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input=json.dumps([sorted(LIBRARIES), calls]),
        text=True,
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        env={**os.environ, "OTTLA_BOOTSTRAP": "127.0.0.1:1"},
    )
    said = json.loads(ended.stdout.splitlines()[-1])
    assert set(said) == set(calls), ended.stderr
    for name, (code, text) in said.items():
        assert "internal error" not in text and "Traceback" not in text, (name, text)
        if "not installed" in text:
            assert code == 1 and "pip install 'ottla[" in text, (name, text)
            assert NEEDS.match(name), (name, text)
    assert "ottla[pipelines]" in said["pipeline list"][1]


@pytest.mark.parametrize(
    ("library", "command", "extra"),
    [
        ("pyspark.sql", "pipeline", "pipelines"),
        ("pyspark", "mirror", "pipelines"),
        ("delta", "pipeline", "lake"),
        ("psycopg", "pipeline", "postgres"),
        ("fastavro", "produce", "registry"),
        ("pyarrow", "sql", "sql"),
        ("pyarrow", "consume", "arrow"),
        ("something", "pipeline", None),
    ],
)
def test_the_extra_of_a_command(library: str, command: str, extra: str | None) -> None:
    sentence = missing(ModuleNotFoundError(name=library), command)
    assert (sentence or "None").endswith(str(None) if extra is None else f"pip install 'ottla[{extra}]'")
