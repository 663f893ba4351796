"""Three nodes in a process of its own each, one of which is killed under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo.node import NodeFailed

VICTIM = 2
CHECK_S = 8
KILL_AFTER_S = 3.0
COMMAND_TIMEOUT_S = 300.0
_OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def show(directory: Path, say: Callable[[str], None]) -> None:
    """Start the cluster, check it while a node is killed, stop it. Raises NodeFailed where something was lost."""
    say(f"$ ottla cluster up 3 {directory}")
    began = time.monotonic()
    up = subprocess.Popen(
        [*_OTTLA, "cluster", "up", "3", str(directory), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert up.stdout is not None
        greeting = up.stdout.readline().rstrip()
        if not greeting.startswith("bootstrap: "):
            raise NodeFailed(f"the cluster did not start: {greeting}{up.stdout.read()}")
        say(f"{greeting}   ({time.monotonic() - began:.2f} s)")
        _check(directory, greeting.removeprefix("bootstrap: "), say)
    finally:
        up.send_signal(signal.SIGINT)
        rest, _ = up.communicate(timeout=COMMAND_TIMEOUT_S)
    for line in rest.splitlines():
        say(line)


def _check(directory: Path, bootstrap: str, say: Callable[[str], None]) -> None:
    say(f"$ ottla check --seconds {CHECK_S} &")
    check = subprocess.Popen(
        [*_OTTLA, "check", "--bootstrap", bootstrap, "--seconds", str(CHECK_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        time.sleep(KILL_AFTER_S)  # the load goes on for a while before and after
        say(f"$ kill -9 $(cat {directory}/node-{VICTIM}/pid)")
        os.kill(int((directory / f"node-{VICTIM}" / "pid").read_text()), signal.SIGKILL)
        out, _ = check.communicate(timeout=COMMAND_TIMEOUT_S)
    finally:
        check.kill()
        check.wait()
    for line in out.splitlines():
        say("  " + line)
    if check.returncode != 0:
        raise NodeFailed(f"ottla check ended with exit code {check.returncode}")
