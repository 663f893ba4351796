"""A bank's ledger while driver, Python workers and a node of three are killed: the books are right at the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import answers
from demo.events import Event, transactions
from ottla.testing import Cluster
from tests.spark.pipelines.pipeline_process import Command, kill, set_
from tests.spark.pipelines.pipelines import feed, rows

TOPICS = {"input": "transactions", "entries": "entries", "credits": "credits", "balances": "balances", "refused": "no"}
COUNT = 1200
VICTIMS = ("node", "driver", "worker")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Cluster(3, settings, topics={"transactions": 3}) as started:
        yield started


@pytest.mark.nightly(
    "tests/spark/pipelines/test_pipeline_ledger.py::test_money_is_neither_made_nor_lost",
    "tests/spark/pipelines/test_pipeline_command.py::test_stopped_killed_and_gone_on_with",
    "tests/spark/test_kills.py::test_every_record_is_copied_once",
)
@pytest.mark.usefixtures("spark")
def test_the_books_are_right_whoever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    events: list[Event] = list(transactions(COUNT, seed=11))
    arguments = [
        "-b",
        cluster.bootstrap,
        "--master",
        "local[2]",
        "--batch-records",
        "200",
        *set_(TOPICS),
        "--spark",
        "spark.sql.shuffle.partitions=2",
    ]
    command = Command("ledger", tmp_path, *arguments)
    try:
        for number, victim in enumerate(VICTIMS):
            part = events[number::3] if number else events[::3]
            feed(cluster.bootstrap, "transactions", [event.value for event in part], key="account")
            command.until(lambda status: any(query["rows"] >= 200 for query in status["queries"]))
            kill(victim, command, cluster)
            if command.process.poll() is not None:
                command = Command("ledger", tmp_path, *arguments)
        command.until(lambda status: any(query["lag_records"] == 0 for query in status["queries"]))
        assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
    finally:
        command.process.kill()
    last = Command("ledger", tmp_path, *arguments, "--once")
    last.until(lambda status: status["state"] == "done")
    assert last.ended() == 0
    entries, refused = rows(cluster.bootstrap, "entries"), rows(cluster.bootstrap, "no")
    assert answers.ledger_mistakes(events, entries, refused) == []
    newest = {
        row["account"]: row for row in sorted(rows(cluster.bootstrap, "balances"), key=lambda row: row["sequence"])
    }
    of_entries = {row["account"]: row["balance"] for row in sorted(entries, key=lambda row: row["sequence"])}
    assert {account: row["balance"] for account, row in newest.items()} == of_entries
