"""`ottla check` on a cluster that is safe (acks=all, three replicas, `min.insync.replicas=2`) while leaders are killed.

    python -m tests.cluster check [--side kafka|ottla] [--seconds N] [--kills N] [--rate N]

It has to find nothing, on Apache Kafka too: that it finds the losses of an unsafe one is a test (`test_check.py`).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from functools import partial
from typing import Any

from tests.cluster import faults
from tests.cluster.faults import TOPICS, World

EXAMPLES_MAX = 3


def checked(cluster: faults.Nodes, seconds: float, kills: int, rate: int) -> tuple[int, dict[str, Any], list[str]]:
    """The command's exit code, what it reports, and what was done. Raises AssertionError and CalledProcessError."""
    world = World(cluster, random.Random(kills))
    consumer = faults.reader(cluster.bootstrap)
    before = world.patiently(lambda: faults.ends(consumer, TOPICS[:1]))
    check = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "check",
            "--bootstrap",
            cluster.bootstrap,
            "--topic",
            TOPICS[0],
            "--seconds",
            str(seconds),
            "--rate",
            str(rate),
            "--json",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    did = []
    try:
        for _ in range(kills):
            world.patiently(partial(faults.wait_written, cluster.bootstrap, TOPICS[:1], before))
            assert check.poll() is None, "it ended before a leader was killed: give it more --seconds"
            did.append(faults.kill(world, world.leader(TOPICS[0])))
            world.wait_whole()
            before = world.patiently(lambda: faults.ends(consumer, TOPICS[:1]))
        out, _ = check.communicate(timeout=seconds + 10 * faults.WHOLE_S)
    finally:
        check.kill()
        consumer.close()
    return check.returncode, json.loads(out), did


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster check")
    parser.add_argument("--side", choices=("kafka", "ottla"), default="kafka")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--rate", type=int, default=1000)
    asked = parser.parse_args(arguments)
    with faults.started(asked.side, 3) as cluster:
        code, report, did = checked(cluster, asked.seconds, asked.kills, asked.rate)
    print(json.dumps({**report, "examples": report["examples"][:EXAMPLES_MAX]}, indent=2))
    sound = code == 0 and report["sound"] and report["acknowledged"] > 0
    print(f"{asked.side}: {'; '.join(did)}; exit code {code}, {'sound' if sound else 'NOT SOUND'}")
    return int(not sound)
