"""One Apache Kafka for a whole test run, shared by all workers of pytest-xdist and never left behind.

`python -m tests.oracle PID DIRECTORY` is its keeper: it starts the broker, prints the address, and kills the broker
when process PID (the one that runs pytest) ends, however it ends, or when the keeper is told to stop.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from peers.kafka import ROOT, KafkaPeer, start_fast

HEAP = "512m"
RELEASE = "4.4"
GROUPS_STAY = {"offsets.retention.check.interval.ms": "86400000"}
"""For both sides: what one of them clears away ten minutes after its start, the other still has."""


def address(directory: Path, controller: int) -> str:
    """Where the run's Kafka listens; whoever asks first starts it. Raises RuntimeError where it could not be started.

    `directory` is one for the whole run, `controller` the process whose end is the broker's end.
    """
    directory.mkdir(exist_ok=True)
    found = directory / "address"
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            found.write_text(_start(directory, controller))
    text = found.read_text()
    if not text:
        raise RuntimeError(f"Apache Kafka did not start:\n{(directory / 'keeper.log').read_text()}")
    return text


def _start(directory: Path, controller: int) -> str:
    """The address that the keeper prints, nothing if it ends instead."""
    with open(directory / "keeper.log", "ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle", str(controller), str(directory)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # an interrupt from the keyboard is for pytest
        )
    from tests import costs  # here: the keeper, which is this module too, needs no pytest

    costs.shared.add(str(keeper.pid))
    assert keeper.stdout is not None
    with keeper.stdout:
        return keeper.stdout.readline().decode().strip()


def keep(controller: int, directory: Path) -> None:
    """Run a broker for as long as the process `controller` runs."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    watched = os.pidfd_open(controller)
    peer = KafkaPeer(directory / "kafka", heap=HEAP, flags=start_fast(RELEASE), release=RELEASE, settings=GROUPS_STAY)
    try:
        peer.format()
        peer.start()
        assert peer.process is not None
        broker = os.pidfd_open(peer.process.pid)
        print(peer.bootstrap, flush=True)
        select.select([watched, broker], [], [])
    finally:
        if peer.process is not None:
            peer.process.kill()  # nobody reads its files any more
            peer.process.wait()
        with contextlib.suppress(OSError):
            shutil.rmtree(peer.data)


if __name__ == "__main__":
    keep(int(sys.argv[1]), Path(sys.argv[2]))
