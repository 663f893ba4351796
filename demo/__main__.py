"""`python -m demo`: three nodes, a schema registry, real input, three pipelines on Spark, a node that is killed, and
exact results."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from demo import answers
from demo.cluster import Cluster, ClusterFailed
from demo.events import page_views, transactions
from demo.feeders import Feeder, LiveMetrics
from demo.pipelines import CATCH_UP_TIMEOUT_S, START_TIMEOUT_S, Pipelines, is_at_the_end, runs
from demo.registry import Registry, RegistryFailed, page_view_serializer

ROOT = Path(__file__).resolve().parent.parent
VICTIM = 2
GAP_S, DELAY_S, WINDOW_S = 1800, 2, 5
SETTINGS = {
    "activity": {"steps": "/src,/tests,/docs"},
    "metrics": {"window": f"{WINDOW_S} seconds", "delay": f"{DELAY_S} seconds", "rules": "cpu0 > 80 for 2 seconds"},
    "ledger": {},
}
ACTIVITY_DELAY_S = 60
TRANSACTIONS = 2_000
TOPICS = {"page-views": 1, "metrics": 1, "transactions": 3}
"""Partitions by topic. One where order between keys matters: how late an event is is seen by the times of others."""
LIVE_S = 8.0
"""How long the machine is watched before and after the kill."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--bootstrap", help="use a cluster that is running already; no node of it is killed")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running until Ctrl-C")
    options = parser.parse_args()
    if missing := _missing():
        print(f"demo: {missing}; run: make demo", file=sys.stderr)
        return 1
    work = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        with _cluster(options.bootstrap, work) as (bootstrap, cluster):
            with Registry(bootstrap) as registry:
                _show(bootstrap, cluster, registry, work)
            if options.keep and cluster is not None:
                _keep(cluster)
        _how_to_go_on()
    except (ClusterFailed, RegistryFailed, RuntimeError) as error:
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
def _cluster(bootstrap: str | None, work: Path) -> Iterator[tuple[str, Cluster | None]]:
    if bootstrap is not None:
        yield bootstrap, None
        return
    _step("A cluster of three nodes, on empty directories")
    cluster = Cluster(work / "cluster")
    _say("$ " + " ".join(cluster.command))
    with cluster:
        _say(f"bootstrap: {cluster.bootstrap}   ({cluster.started_s:.2f} s)")
        yield cluster.bootstrap, cluster


def _show(bootstrap: str, cluster: Cluster | None, registry: Registry, work: Path) -> None:
    _say("$ " + " ".join(registry.command) + " &")
    _say(f"schema registry: {registry.url}")
    for topic, partitions in TOPICS.items():
        # History is older than the default retention of a week, so it is kept for good.
        _ottla(bootstrap, "topic", "create", topic, "--partitions", str(partitions), "--set", "retention.ms=-1")

    _step("Three pipelines on Spark (it takes some seconds to start), and input for them")
    views, bank = page_views(ROOT), list(transactions(TRANSACTIONS, seed=1))
    feeder = Feeder(bootstrap, {"page-views": page_view_serializer(registry.url, "page-views")})
    metrics = LiveMetrics(feeder, "metrics")
    began = time.monotonic()
    options = {"activity": ["--registry", registry.url, "--format", "avro"]}
    feeder.feed("page-views", views[:1])  # its schema is registered
    with Pipelines(bootstrap, work, SETTINGS, options) as pipelines:
        for name in SETTINGS:
            _say("$ " + " ".join(f"'{word}'" if " " in word else word for word in pipelines.command(name)) + " &")
        pipelines.until(runs, START_TIMEOUT_S)
        metrics.start()
        feeder.feed("page-views", views[1 : len(views) // 2])
        feeder.feed("transactions", bank[: len(bank) // 2])
        _say(f"they run after {time.monotonic() - began:.0f} s; fed: the folders that {len(views):,} changes of this")
        _say("repository touched as page views, in Avro by the registry; this machine's metrics;")
        _say(f"{len(bank):,} transactions of a bank")
        _wait_for_results(pipelines)

        if cluster is not None:
            _step("A node is killed in the middle of it, and all goes on")
            _say(f"$ kill -9 $(cat {cluster.pid_file(VICTIM)})")
            cluster.kill(VICTIM)
        feeder.feed("page-views", views[len(views) // 2 :])
        feeder.feed("transactions", bank[len(bank) // 2 :])
        time.sleep(LIVE_S)
        metrics.stop()
        feeder.flush()
        pipelines.until(is_at_the_end, CATCH_UP_TIMEOUT_S)
        _wait_for_the_last_windows(bootstrap, registry, feeder)
        _ottla(bootstrap, "pipeline", "status", "--directory", str(pipelines.directory), is_about_brokers=False)
    _step("The results, each exactly what was acknowledged comes to")
    _ottla(bootstrap, "schema", "list", "--registry", registry.url, is_about_brokers=False)
    _compare(bootstrap, registry, feeder)


def _wait_for_results(pipelines: Pipelines) -> None:
    """Each has processed something, so that the kill comes in the middle."""
    pipelines.until(lambda status: all(query["rows"] for query in status["queries"]), CATCH_UP_TIMEOUT_S)
    time.sleep(LIVE_S / 4)


def _wait_for_the_last_windows(bootstrap: str, registry: Registry, feeder: Feeder) -> None:
    """They are written by a batch that has no input: when the watermark has passed them."""
    expected = (
        len(answers.windows(feeder.acknowledged["metrics"], WINDOW_S, DELAY_S)),
        answers.sessions(feeder.acknowledged["page-views"], GAP_S, ACTIVITY_DELAY_S).total(),
    )
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while time.monotonic() < deadline:
        sessions = answers.rows_by_registry(bootstrap, "sessions", registry.url)
        found = len(answers.rows(bootstrap, "metrics-rollups")), len(sessions)
        if found[0] >= expected[0] and found[1] >= expected[1]:
            return
        time.sleep(0.5)


def _compare(bootstrap: str, registry: Registry, feeder: Feeder) -> None:
    """Print the results. Raises RuntimeError where they are not what they should be."""
    wrong = []
    found = answers.rows_by_registry(bootstrap, "sessions", registry.url)
    if answers.found_sessions(found) != answers.sessions(feeder.acknowledged["page-views"], GAP_S, ACTIVITY_DELAY_S):
        wrong.append("sessions are not what the page views come to")
    deep = sum(row["depth"] == 3 for row in found)
    _say(f"activity: {len(feeder.acknowledged['page-views']):,} page views, {len(found):,} sessions; {deep:,} went on")
    _say("          from /src to /tests to /docs")

    found = answers.rows(bootstrap, "metrics-rollups")
    expected = answers.windows(feeder.acknowledged["metrics"], WINDOW_S, DELAY_S)
    if {at: count for at, count in answers.found_windows(found).items() if at in expected} != expected:
        wrong.append("windows are not what the metrics come to")
    alerts = answers.rows(bootstrap, "alerts")
    busy = max((row for row in found if row["name"] == "cpu0"), key=lambda row: row["mean"], default=None)
    _say(
        f"metrics:  {len(feeder.acknowledged['metrics']):,} metrics, {len(found):,} windows, {len(alerts)} alerts"
        + (f"; cpu0 at most {busy['mean']:.0f} % over {WINDOW_S} s" if busy else "")
    )

    entries, refused = (answers.rows(bootstrap, topic) for topic in ("ledger-entries", "ledger-refused"))
    wrong += answers.ledger_mistakes(feeder.acknowledged["transactions"], entries, refused)
    newest = {row["account"]: row["balance"] for row in sorted(entries, key=lambda row: row["sequence"])}
    _say(f"ledger:   {len(entries):,} entries, {len(refused):,} refused; {sum(newest.values()) / 100:,.2f} in all:")
    _say("          " + ", ".join(f"{account} {balance / 100:,.2f}" for account, balance in sorted(newest.items())))
    if wrong:
        raise RuntimeError("; ".join(wrong))
    _say("exact: sessions, windows and books are those of every acknowledged record, each counted once")


def _keep(cluster: Cluster) -> None:
    _step("The cluster goes on until Ctrl-C")
    _say(f"$ export OTTLA_BOOTSTRAP={cluster.bootstrap}")
    _say("$ ottla consume metrics-rollups --follow")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _ottla(bootstrap: str, *arguments: str, is_about_brokers: bool = True) -> None:
    """Run the command line as a user would, and show both the command and what it prints."""
    _say("$ ottla " + " ".join(arguments))
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    command += ["--bootstrap", bootstrap] if is_about_brokers else []
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    for line in (result.stdout + result.stderr).splitlines():
        _say("  " + line)
    if result.returncode != 0:
        raise RuntimeError(f"ottla {arguments[0]} ended with exit code {result.returncode}")


def _how_to_go_on() -> None:
    _step("How to go on")
    _say("$ .venv/bin/ottla server start                         # a node of your own, data in ./ottla-data")
    _say("$ tail -F /var/log/dpkg.log | .venv/bin/ottla produce events --create")
    _say("$ .venv/bin/ottla consume events --follow              # or any Kafka client, at 127.0.0.1:9092")
    _say("$ .venv/bin/ottla pipeline list                        # what there is, and describe NAME")
    _say("$ .venv/bin/ottla pipeline new mine --from activity    # a pipeline of your own")
    _say("$ .venv/bin/python -m demo --keep                      # this again, and the cluster stays")
    _say("More: docs/spark/pipelines.md (pipelines), docs/production/cluster.md (clusters), docs/architecture.md.")


def _step(title: str) -> None:
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}== {title}{plain}", flush=True)


def _say(line: str) -> None:
    print(f"   {line}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
