"""A program beside a node, as a process: how it ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from ottla.registry import child

class Served:
    url = "http://here"
    stopped = False
    def stop(self):
        print("stopped", flush=True)
        self.stopped = True

def run(options, security, http, serving):
    served = Served()
    serving(served)
    while options["waits"] and not served.stopped:
        pass

sys.exit(child.main("console", sys.argv[1:], run))
"""


def started(waits: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f'{{"waits": {waits}}}'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_ends_while_whoever_started_it_is_there() -> None:
    """By a signal, say. CPython aborted it where it waited for its standard input in an object of Python's."""
    process = started("false")
    assert process.stdout is not None and process.stderr is not None and process.stdin is not None
    assert process.stdout.read() == b"ottla: console at http://here\n"
    assert (process.wait(60), process.stderr.read()) == (0, b"")
    for each in (process.stdin, process.stdout, process.stderr):
        each.close()


def test_it_ends_with_whoever_started_it() -> None:
    process = started("true")
    said, failed = process.communicate(timeout=60)  # closes its standard input
    assert (process.returncode, said, failed) == (0, b"ottla: console at http://here\nstopped\n", b"")
