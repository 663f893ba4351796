"""`ottla check --transactions` against Ottla and Apache Kafka, and a reader that does not isolate."""

from __future__ import annotations

import os

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.check.transactions_run import Plan, check
from ottla.histories.findings import counts
from ottla.histories.transactions import Kind
from tests.conformance.cli.test_check import Check


def check_is_sound(bootstrap: str, seconds: int) -> None:
    arguments = ("--transactions", "--seconds", str(seconds), "-p", "3", "--rate", "300")
    code, report = Check(bootstrap, *arguments).result()
    assert (code, report["sound"]) == (0, True)
    assert report["committed"] > 20 and report["aborted"] > 5
    assert report["read"] > 100 and report["consumed"] > 5
    assert report["topic"] not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics


def test_a_node_alone(bootstrap: str) -> None:
    check_is_sound(bootstrap, 4)


def test_an_apache_kafka(oracle: str) -> None:
    """It makes its internal topics first, and gives a new group three seconds to come together."""
    check_is_sound(oracle, 10)


def test_readers_that_do_not_isolate_are_found(bootstrap: str) -> None:
    """As if the cluster showed them what is open and what was aborted; the log in the end is sound all the same."""
    name = f"unisolated-{os.urandom(4).hex()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=2)])[name].result(60)
    client = {"bootstrap.servers": bootstrap, "log_level": 0}
    outcome = check(Plan(client, name, 2, "unisolated", 300, isolation="read_uncommitted"), 3.0, fresh=True)
    admin.delete_topics([name])[name].result(60)
    found = counts(Kind, outcome.wrong)
    assert not outcome.sound
    assert found[Kind.ABORTED] > 20
    assert not (found[Kind.LOST] or found[Kind.DUPLICATED] or found[Kind.REORDERED] or found[Kind.UNSTABLE])


def test_acks_are_of_all(bootstrap: str) -> None:
    """Before anything is made."""
    check = Check(bootstrap, "--transactions", "--acks", "1")
    out, err = check.process.communicate(timeout=60)
    assert (check.process.returncode, out) == (2, "")
    assert "--acks all" in err
