"""The commands of docs/migration/node-by-node.md against three nodes of Kafka under load, forth and back.

More of it, secured, with controllers apart, dynamic or killed: `python -m tests.cluster walk`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import walk
from tests.cluster.walked import WalkedCluster

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migration" / "node-by-node.md"
COMMAND = re.compile(r"^<!-- run -->\n```\n(.*?)^```$", re.M | re.S)
SSH = """#!/bin/sh
# ssh kafka-N systemctl VERB SOFTWARE, for the nodes below this directory
node=${{1#kafka-}}
[ "$3" = stop ] && exec sh {directory}/node-$node/stop.sh
exec sh {directory}/node-$node/start-$4.sh
"""


@pytest.mark.nightly(
    "tests/unit/cli/migrate/test_walking.py",
    "tests/unit/cli/migrate/test_findings.py",
    "tests/cluster/kafka/test_mixed_quorum.py",
    "tests/conformance/drop_in/test_drop_in.py",
)
def test_the_commands_of_the_page_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no cheaper test finds: what Kafka's nodes answer to the walk, and whether clients lose a record by it."""
    commands = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    assert [each.split()[:3] for each in commands] == [
        ["ottla", "migrate", word] for word in ("check", "walk", "walk", "walk")
    ]
    programs = tmp_path / "bin"
    programs.mkdir()
    directory = tmp_path / "cluster"
    (programs / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    (programs / "ssh").write_text(SSH.format(directory=directory))
    for each in programs.iterdir():
        each.chmod(0o755)
    with WalkedCluster(directory) as cluster:

        def run(text: str) -> str:
            done = subprocess.run(
                ["sh", "-c", text.replace("kafka-1:9092,kafka-2:9092", cluster.bootstrap)],
                cwd=tmp_path,
                env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
                text=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=1200,
                check=False,
            )
            assert done.returncode == 0, f"{text}{done.stdout}{done.stderr}{cluster.said(1, 'ottla')}"
            return done.stdout

        check, plan, forth, back = commands
        assert "plan for" in run(check) and "ssh kafka-2 systemctl start ottla" in run(plan)
        outcome = walk.play(cluster, moves=lambda: [run(forth), run(back)], more=False)
        assert not outcome.wrong, outcome
        for said, kind in zip(outcome.counted["moves"], ("ottla", "kafka"), strict=True):
            assert f"all 3 nodes are {kind}" in said
        assert "ottla" not in run(check).partition("plan for")[2]
