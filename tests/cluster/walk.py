"""`ottla migrate walk` on a real Kafka under load, forth and back, killed in the middle: nothing acknowledged is lost.

    python -m tests.cluster walk [--release 4.4|4.3] [--separate] [--dynamic] [--secured] [--kill] [--no-back]

Beside librdkafka's and Java's producers and two groups write and read in transactions (`ottla check --transactions`),
and where the release is 4.4 workers of a share group and a Kafka Streams application with exactly_once_v2. With
`--secured` those of the first line log in by SCRAM over TLS and have what ACLs give them, as have nodes among
themselves; share groups and Streams use the listener on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from bench.method.acknowledged import Java
from ottla.cli.check import command as check
from ottla.cli.check import transactions_load, transactions_run
from ottla.cli.check.load import Load, Plan
from ottla.histories import transactions
from ottla.histories.records import History, Kind, findings
from ottla.protocol.messages import ApiKey
from tests.cluster import faults
from tests.cluster.admin import ask, until
from tests.cluster.walked import USER, WalkedCluster

TRANSACTED, SHARED = "transacted", "shared"
PATIENCE_S = 300
SHARE_RATE_S = 0.02
STREAMS_EVERY_S = 8.0
"""From one part of the input of Streams to the next: 2,400 results each, and the machine has other things to do."""


class Outcome:
    """What is wrong, by who found it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.counted: dict[str, Any] = {}

    def note(self, who: str, wrong: Any, counted: Any) -> None:
        self.counted[who] = counted
        if wrong:
            self.wrong.append(f"{who}: {wrong}")

    def __str__(self) -> str:
        return f"{'NOT SOUND ' + str(self.wrong[:5]) if self.wrong else 'sound'}; {self.counted}"


def play(cluster: WalkedCluster, moves: Callable[[], Any], *, more: bool = True) -> Outcome:
    """What becomes of a load while `moves` are made; `more`: with a share group and Streams."""
    outcome = Outcome()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_topics(
        [NewTopic(each, faults.PARTITIONS, 3) for each in (*faults.TOPICS, TRANSACTED)] + [NewTopic(SHARED, 2, 3)]
    ).values():
        future.result(60)
    if cluster.secured:
        _allow(admin)
        for address in cluster.internal.values():  # a client that was refused remembers it
            seen = AdminClient({**cluster.client(), "bootstrap.servers": address, "log_level": 0})
            until(partial(_topics, seen), {*faults.TOPICS, TRANSACTED}.issubset)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_records(cluster, outcome))
        stack.enter_context(_transactions(cluster, outcome))
        if more:
            stack.enter_context(_share_group(cluster, outcome))
            stack.enter_context(_streams(cluster, outcome))
        time.sleep(2)
        outcome.counted["moves"] = moves()
    return outcome


def _topics(admin: AdminClient) -> set[str]:
    return {*admin.list_topics(timeout=10).topics}


def walk(cluster: WalkedCluster, *, back: bool, kill: bool) -> str:
    """Run the command, and say what it did; with `kill` it is killed three times before, at moments of chance."""
    command = [
        sys.executable,
        "-m",
        "ottla.cli.main",
        "migrate",
        "walk",
        "-b",
        cluster.bootstrap,
        "--journal",
        str(cluster.directory / "walk.json"),
        "--patience",
        str(PATIENCE_S),
        "--stop",
        cluster.script("{node}", "stop"),
        "--start",
        cluster.script("{node}", "start-kafka" if back else "start-ottla"),
        *(["--back"] if back else []),
    ]
    dice = random.Random(1 + back)
    for _ in range(3 if kill else 0):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            process.wait(dice.uniform(1, 12))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    began_s = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = "\n".join(f"{node}: {cluster.said(node, 'ottla')[-800:]}" for node in cluster.nodes)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{said}"
    lines = [each.partition(", all")[0] for each in done.stdout.splitlines() if each.startswith("node ")]
    return f"{', '.join(lines)} in {time.monotonic() - began_s:.0f} s"


def _allow(admin: AdminClient) -> None:
    """The user of the load may use its topics, groups and transactional ids, and no others."""
    kinds = (
        *((ResourceType.TOPIC, each) for each in (*faults.TOPICS, TRANSACTED)),
        (ResourceType.GROUP, ""),
        (ResourceType.TRANSACTIONAL_ID, ""),
    )
    wanted = [
        AclBinding(
            kind, name or "*", ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW
        )
        for kind, name in kinds
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
        if not (kind is ResourceType.GROUP and operation is AclOperation.WRITE)
        and not (kind is ResourceType.TRANSACTIONAL_ID and operation is AclOperation.READ)
    ]
    for future in admin.create_acls(wanted).values():
        future.result(60)


@contextlib.contextmanager
def _records(cluster: WalkedCluster, outcome: Outcome) -> Iterator[None]:
    run = os.urandom(4).hex()
    history = History(groups=(f"{run}-1", f"{run}-2"))
    client = cluster.client()
    plan = Plan({"log_level": 0, **client}, faults.TOPICS[0], faults.PARTITIONS, run, faults.RATE // 2, "all", 2, 2, 2)
    load = Load(plan, history)
    with Java(client["bootstrap.servers"], faults.TOPICS[1], retries=True, settings=cluster.java_client()) as java:
        check._stand_at_the_end(load, history)
        load.start()
        faults.wait_written(cluster.bootstrap)
        try:
            yield
        finally:
            load.end_writing()
            check._read_log(plan, history)
            check._wait_for_groups(load, history)
            load.end_reading()
    found = findings(history)
    report = check._report(plan, load, history, found, 3)
    # Counted only: a Kafka leader answers OUT_OF_ORDER_SEQUENCE_NUMBER behind a batch that came before it led, and
    # librdkafka may then send again under a new epoch (`restarts.behind_a_refused_batch`).
    wrong = [each for each in found if not each.kind.is_allowed and each.kind is not Kind.DUPLICATED]
    outcome.note("librdkafka", [each.text for each in wrong[:3]], report["acknowledged"])
    outcome.counted["sent twice by librdkafka"] = sum(each.kind is Kind.DUPLICATED for each in found)
    assert report["acknowledged"] > 100
    lost = [*faults.lost_records(cluster.bootstrap, java)]
    outcome.note("Java", [*lost[:3], *java.failures[:3]], java.count())
    assert java.count() > 100


@contextlib.contextmanager
def _transactions(cluster: WalkedCluster, outcome: Outcome) -> Iterator[None]:
    history = transactions.History()
    plan = transactions_load.Plan(
        {"log_level": 0, **cluster.client()}, TRANSACTED, faults.PARTITIONS, os.urandom(4).hex(), 100
    )
    load = transactions_load.Load(plan, history)
    load.start()
    try:
        yield
    finally:
        load.end_writing(transactions_run.END_S)
        transactions_run._read_log(plan, history)
        load.end_reading()
    wrong = [each.text for each in transactions.findings(history) if not each.kind.is_allowed]
    outcome.note("transactions", wrong[:3], load.tally.committed)
    assert load.tally.committed > 50, load.tally


@contextlib.contextmanager
def _share_group(cluster: WalkedCluster, outcome: Outcome) -> Iterator[None]:
    """Every record that was acknowledged to the producer is accepted by a worker."""
    from tests.cluster.share_workers import Seen, Worker
    from tests.conformance.groups.share_consumers import JAVA, program

    _from_the_beginning(next(iter(cluster.addresses.values())), "walk-share")
    seen, at = Seen(), [program(JAVA, cluster.release) for _ in range(2)]
    workers = [Worker(each, cluster.bootstrap, "walk-share", SHARED, seen, number) for number, each in enumerate(at, 1)]
    sent: set[str] = set()
    ended = threading.Event()

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            sent.add(message.value().decode())

    def produce() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True})
        number = 0
        while not ended.wait(SHARE_RATE_S):
            value = f"s{number}"
            producer.produce(SHARED, value, partition=number % 2, on_delivery=delivered)
            producer.poll(0)
            number += 1
        producer.flush(60)

    thread = threading.Thread(target=produce)
    for each in (*workers, thread):
        each.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        deadline = time.monotonic() + 120
        while not sent <= seen.accepted.keys() and time.monotonic() < deadline:
            time.sleep(0.2)
        for each in workers:
            each.stop()
        for program_ in at:
            program_.close()
    missing = sorted(sent - seen.accepted.keys())
    crashed = [repr(each.crashed) for each in workers if each.crashed]
    outcome.note("share group", [*missing[:3], *seen.late[:3], *crashed], len(sent))
    assert len(sent) > 50


def _from_the_beginning(address: str, group: str) -> None:
    row = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [row]}
    answer = ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert not answer["responses"][0]["error_code"], answer


@contextlib.contextmanager
def _streams(cluster: WalkedCluster, outcome: Outcome) -> Iterator[None]:
    """Words are counted exactly once."""
    from tests.conformance.clients import test_streams_exactly_once as exactly_once

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(each, 2, 3) for each in exactly_once.TOPICS]).values():
        future.result(60)
    streams = exactly_once.Streams(cluster.bootstrap, cluster.directory)
    world = exactly_once.World(cluster.bootstrap)
    streams.start()
    ended = threading.Event()

    def put() -> None:
        while not ended.wait(STREAMS_EVERY_S):
            world.put()

    thread = threading.Thread(target=put)
    world.put()
    thread.start()
    try:
        yield
        ended.set()
        thread.join()
        try:
            world.until(lambda: world.size() >= world.wanted(), streams)
            world.ensure_exact()
            wrong = ""
        except AssertionError as error:
            wrong = str(error)[:1500]
        outcome.note("Streams", wrong, world.size())
    finally:
        ended.set()
        thread.join()
        streams.kill()
        world.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster walk")
    parser.add_argument("--release", choices=("4.4", "4.3"), default="4.4")
    for name, what in (
        ("separate", "three brokers and three controllers"),
        ("dynamic", "a quorum whose voters can change"),
        ("secured", "TLS, SCRAM and ACLs"),
        ("kill", "the walk is killed three times each way"),
        ("no-back", "not back to Kafka"),
        ("few", "without share groups and Streams"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    asked = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as directory,
        WalkedCluster(
            Path(directory),
            release=asked.release,
            separate=asked.separate,
            dynamic=asked.dynamic,
            secured=asked.secured,
        ) as cluster,
    ):
        ways = (False,) if asked.no_back else (False, True)
        outcome = play(
            cluster, lambda: [walk(cluster, back=each, kill=asked.kill) for each in ways], more=not asked.few
        )
    print(outcome, flush=True)
    return min(len(outcome.wrong), 1)
