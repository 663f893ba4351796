"""`python -m demo`: a node, this machine's own data, a consumer group and Spark, then a cluster that loses a node."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from demo import cluster
from demo.events import commit_events, package_events
from demo.feeders import Feeder, LiveMetrics
from demo.follower import Group
from demo.node import Node, NodeFailed

ROOT = Path(__file__).resolve().parent.parent
TOPICS = {"packages": 3, "metrics": 2, "commits": 1}
"""Partitions by topic."""
MADE_BY_SPARK = {"installed": 2}
SPARK_TIMEOUT_S = 600.0
CATCH_UP_TIMEOUT_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="how long Spark watches the live metrics")
    parser.add_argument("--bootstrap", help="use a broker that is running already instead of starting a node")
    parser.add_argument("--keep", action="store_true", help="leave the node running until Ctrl-C")
    options = parser.parse_args()
    missing = _missing()
    if missing:
        print(f"demo: {missing}; run: demo/setup.sh", file=sys.stderr)
        return 1
    work = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        with _broker(options.bootstrap, work) as (bootstrap, node):
            _show(bootstrap, node, work, options.seconds)
            if options.keep and node is not None:
                _keep(node)
            if node is not None:
                _say(f"The node used {node.memory_mib():.0f} MiB of memory and stopped in {node.stop():.2f} s.")
        if options.bootstrap is None:
            _step("Three nodes; one is killed under load, and nothing that was acknowledged is lost")
            cluster.show(work / "cluster", _say)
        _how_to_go_on()
    except (NodeFailed, RuntimeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _missing() -> str | None:
    if shutil.which("java") is None:
        return "Spark needs Java, and there is none"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "PySpark is not installed"
    return None


@contextlib.contextmanager
def _broker(bootstrap: str | None, work: Path) -> Iterator[tuple[str, Node | None]]:
    if bootstrap is not None:
        yield bootstrap, None
        return
    node = Node(work / "data")
    _step("A node, on an empty directory")
    _say("$ " + " ".join(node.command))
    began = time.monotonic()
    with node:
        _say(f"{node.greeting}   ({time.monotonic() - began:.2f} s)")
        yield node.bootstrap, node


def _show(bootstrap: str, node: Node | None, work: Path, seconds: float) -> None:
    _step("Topics")
    for topic, partitions in (TOPICS | MADE_BY_SPARK).items():
        # History is older than the default retention of a week, so it is kept for good.
        _ottla(bootstrap, "topic", "create", topic, "--partitions", str(partitions), "--set", "retention.ms=-1")

    _step("This machine's own data, fed live; a consumer group of two follows")
    spark = _start_spark(bootstrap, work, seconds)
    feeder = Feeder(bootstrap)
    metrics = LiveMetrics(feeder, "metrics")
    group = Group(bootstrap, "demo-followers", list(TOPICS))
    try:
        metrics.start()
        feeder.feed("packages", package_events())
        feeder.feed("commits", commit_events(ROOT))
        feeder.flush()
        _say(f"fed so far: {_counts(feeder.acknowledged)}, and metrics go on")
        _wait_for_assignment(group)
        for member in group.members:
            _say(f"{member.name} follows {', '.join(member.assignment) or 'nothing yet'}")
        if node is not None:
            _ottla(bootstrap, "consume", "packages", "--from", "-1", "--partition", "0", "--json")

        _step("PySpark reads the same topics and writes one, without a jar (Spark takes a few seconds to start)")
        _relay(spark, work)
        if node is not None:
            _ottla(bootstrap, "consume", "installed", "--from", "-1", "--partition", "0", "--json")
            _ottla(bootstrap, "group", "describe", "demo-spark")
    finally:
        if spark.poll() is None:
            spark.kill()
        metrics.stop()
        feeder.flush()
        _wait_until_followed(group, feeder.acknowledged)
        group.stop()

    _step("Everything that was acknowledged was followed")
    followed = group.total()
    _say(f"fed:      {_counts(feeder.acknowledged)}")
    _say(f"followed: {_counts(followed)}")
    if followed != feeder.acknowledged:
        raise RuntimeError("the group did not read exactly what was acknowledged")
    if node is not None:
        _ottla(bootstrap, "topic", "list")


def _start_spark(bootstrap: str, work: Path, seconds: float) -> subprocess.Popen[str]:
    """Spark in a process of its own; what it logs goes to a file that is shown only if it fails."""
    log = (work / "spark.log").open("w")
    command = [sys.executable, "-m", "demo.spark_job", "--bootstrap", bootstrap,
               "--work", str(work), "--seconds", str(seconds)]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)


def _relay(spark: subprocess.Popen[str], work: Path) -> None:
    """Print what the job prints. Raises RuntimeError with the end of its log if it fails or takes too long."""
    too_long = threading.Timer(SPARK_TIMEOUT_S, spark.kill)
    too_long.start()
    try:
        assert spark.stdout is not None
        for line in spark.stdout:
            _say(line.rstrip())
        code = spark.wait()
    finally:
        too_long.cancel()
    if code != 0:
        tail = "\n".join((work / "spark.log").read_text(errors="replace").splitlines()[-30:])
        raise RuntimeError(f"the Spark job ended with exit code {code}; the end of its log:\n{tail}")


def _wait_for_assignment(group: Group) -> None:
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while time.monotonic() < deadline:
        if sum(len(member.assignment) for member in group.members) == sum(TOPICS.values()) and all(
            member.assignment for member in group.members
        ):
            return
        time.sleep(0.05)


def _wait_until_followed(group: Group, acknowledged: Counter[str]) -> None:
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while time.monotonic() < deadline and group.total().total() < acknowledged.total():
        time.sleep(0.05)


def _keep(node: Node) -> None:
    _step("The node goes on until Ctrl-C")
    _say(f"$ export OTTLA_BOOTSTRAP={node.bootstrap}")
    _say("$ ottla consume metrics --follow")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _ottla(bootstrap: str, *arguments: str) -> None:
    """Run the command line as a user would, and show both the command and what it prints."""
    _say("$ ottla " + " ".join(arguments))
    command = [sys.executable, "-m", "ottla.cli.main", *arguments, "--bootstrap", bootstrap]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    for line in (result.stdout + result.stderr).splitlines():
        _say("  " + line)
    if result.returncode != 0:
        raise RuntimeError(f"ottla {arguments[0]} ended with exit code {result.returncode}")


def _how_to_go_on() -> None:
    _step("How to go on")
    _say("$ .venv/bin/ottla server start                         # a node of your own, data in ./ottla-data")
    _say("$ .venv/bin/ottla topic create events --partitions 3")
    _say("$ tail -F /var/log/dpkg.log | .venv/bin/ottla produce events")
    _say("$ .venv/bin/ottla consume events --follow              # or any Kafka client, at 127.0.0.1:9092")
    _say("$ .venv/bin/python -m demo --keep                      # this again, and the node stays")
    _say("$ .venv/bin/ottla cluster up 3                         # a cluster on this machine: docs/cluster.md")
    _say("demo/spark_job.py is a Spark job to start from; docs/architecture.md explains how it all works.")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{topic} {counter[topic]:,}" for topic in TOPICS)


def _step(title: str) -> None:
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}== {title}{plain}", flush=True)


def _say(line: str) -> None:
    print(f"   {line}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
