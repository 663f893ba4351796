"""The programs of `docs/testing.md` that start `ottla dev` from other languages: they read its line and use it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
LIMIT_S = 300
OUTPUT = re.compile(r"127\.0\.0\.1:\d+ (/\S+) 0")


def snippet(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def run(*command: str, directory: Path) -> str:
    """With the command `ottla` of this interpreter in the path."""
    place = directory / "bin"
    place.mkdir()
    script = place / "ottla"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    script.chmod(0o755)
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


NODE = """
const { startBroker } = require("./broker.js");
const net = require("node:net");
const { once } = require("node:events");
(async () => {
  const broker = await startBroker("--no-registry", "--topic", "orders:3");
  const [host, port] = broker.bootstrap.split(":");
  const socket = net.connect(port, host);
  await once(socket, "connect");
  socket.destroy();
  console.log(broker.bootstrap, broker.directory, await broker.stop());
  await startBroker("--set", "no.such.setting=1").catch((error) => console.log(error.message));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_node(tmp_path: Path) -> None:
    (tmp_path / "broker.js").write_text(snippet("js"))
    (tmp_path / "main.js").write_text(NODE)
    first, complaint, last = run("node", "main.js", directory=tmp_path).splitlines()
    found = OUTPUT.fullmatch(first)
    assert found and not Path(found[1]).exists()
    assert '"exit_code": 2' in complaint and last == "ottla dev ended with 2"


@pytest.mark.matrix
@pytest.mark.skipif(shutil.which("go") is None, reason="no go here")
def test_go(tmp_path: Path) -> None:
    (tmp_path / "broker_test.go").write_text(snippet("go"))
    (tmp_path / "go.mod").write_text("module orders\n\ngo 1.20\n")
    assert "ok " in run("go", "test", "./...", directory=tmp_path)


JAVA = """
public final class Main {
    public static void main(String[] arguments) throws Exception {
        try (OttlaBroker broker = new OttlaBroker("--no-registry", "--topic", "orders:3")) {
            String[] address = broker.bootstrap.split(":");
            new java.net.Socket(address[0], Integer.parseInt(address[1])).close();
            System.out.println(broker.bootstrap);
        }
    }
}
"""


@pytest.mark.matrix
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac here")
def test_java(tmp_path: Path) -> None:
    (tmp_path / "OttlaBroker.java").write_text(snippet("java"))
    (tmp_path / "Main.java").write_text(JAVA)
    subprocess.run(["javac", "OttlaBroker.java", "Main.java"], cwd=tmp_path, check=True, timeout=LIMIT_S)
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", run("java", "-cp", ".", "Main", directory=tmp_path))
