"""How the process of a node ends that cannot go on: its exit code, and what it leaves on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.server.main import YOUNG_OBJECTS_MAX, _loop_factory

PROGRAM = """
import asyncio, errno, sys
from ottla.config.server import ServerConfig
from ottla.server.main import run

async def attend(node, stop):
    {what}

settings = {{"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.log.level": "WARN"}}
sys.exit(run(ServerConfig.load(None, settings, {{}}), attend))
"""


def ended(directory: Path, what: str) -> tuple[int, str, bool]:
    """(exit code, what was printed, whether it was a clean stop) of a node that does `what` once it serves."""
    program = [sys.executable, "-c", PROGRAM.format(what=what), str(directory)]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr, (directory / ".kafka_cleanshutdown").exists()


def test_a_node_that_halts_writes_nothing_more(tmp_path: Path) -> None:
    what = 'node.failure.halt("the disk failed", OSError(errno.EIO, "no"))'
    code, printed, clean = ended(tmp_path, what)
    assert (code, clean) == (1, False)
    assert 'FATAL ottla.node: the node halts error="the disk failed"' in printed


def test_a_node_that_stops_anyhow_does_not_halt(tmp_path: Path) -> None:
    what = 'node.on_stop.append(lambda: node.failure.halt("the disk failed", OSError(errno.EIO, "no"))); stop.set()'
    assert ended(tmp_path, what) == (0, "", True)


def test_a_node_that_gives_up_stops_cleanly_with_exit_code_1(tmp_path: Path) -> None:
    code, printed, clean = ended(tmp_path, "node.lifecycle.on_unreported(*node.metadata.directory_ids.values())")
    assert (code, clean) == (1, True)
    assert "FATAL ottla.node: the node stops" in printed
    assert f"the controller could not be told in 30000 ms that log directory {tmp_path} failed" in printed


@pytest.mark.parametrize("name", ["uvloop", "asyncio"])
def test_the_event_loop_is_the_one_that_is_asked_for(name: str) -> None:
    loop = _loop_factory(name)()
    assert type(loop).__module__.partition(".")[0] == name
    loop.close()


def test_the_collector_looks_at_few_objects_at_once(tmp_path: Path) -> None:
    """No client is served meanwhile, and a topic of 9,000 partitions makes a million objects that stay."""
    what = """
    import gc
    looked = []

    def look(phase, about):
        if phase == "start":
            looked.append(sum(len(gc.get_objects(generation=each)) for each in range(about["generation"] + 1)))

    gc.callbacks.append(look)
    kept = [[] for _ in range(1_000_000)]
    gc.callbacks.clear()
    print(len(looked), max(looked), file=sys.stderr)
    stop.set()
"""
    code, printed, _ = ended(tmp_path, what)
    collections, most = map(int, printed.split())
    assert code == 0 and collections > 40
    assert most < 3.2 * YOUNG_OBJECTS_MAX
