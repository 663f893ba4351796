"""`ottla txn ...` end to end: what a person sees of transactions, and what an abort does to producers and readers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.cli.completion import offers
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.testing import Broker
from peers.kafka import tool
from tests.conformance.cli.test_cli import ottla
from tests.conformance.pair import Wire
from tests.oracle import RELEASE
from tests.unit.server.node import produce_values

COMMAND = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def name(topic: str) -> str:
    return f"id-of-{topic}"


def producer(bootstrap: str, name: str) -> Producer:
    found = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 300_000})
    found.init_transactions(60)
    return found


def begin(found: Producer, topic: str, value: bytes) -> None:
    found.begin_transaction()
    found.produce(topic, value, partition=1)
    assert found.flush(60) == 0


def described(bootstrap: str, name: str) -> dict[str, Any]:
    (each,) = json.loads(ottla(bootstrap, "txn", "describe", name, "--json"))
    assert isinstance(each, dict)
    return each


def listed(bootstrap: str, *arguments: str) -> dict[str, dict[str, Any]]:
    return {
        each["transactional_id"]: each for each in json.loads(ottla(bootstrap, "txn", "list", "--json", *arguments))
    }


def test_a_transaction_from_its_beginning_to_its_end(bootstrap: str, topic: str, name: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "2")
    writer = producer(bootstrap, name)
    at_rest = described(bootstrap, name)
    assert (at_rest["state"], at_rest["open_since"], at_rest["open_seconds"]) == ("Empty", None, None)
    assert (at_rest["timeout_ms"], at_rest["partitions"]) == (300_000, [])

    begin(writer, topic, b"x")
    open_now = described(bootstrap, name)
    assert (open_now["state"], open_now["producer_id"]) == ("Ongoing", at_rest["producer_id"])
    assert open_now["partitions"] == [{"topic": topic, "partition": 1}]
    assert open_now["open_seconds"] >= 0 and open_now["open_since"].endswith("Z")
    text = ottla(bootstrap, "txn", "describe", name)
    assert "Ongoing, open for" in text and "timeout 5 minutes" in text and topic in text
    row = listed(bootstrap)[name]
    assert row == {**open_now, "open_seconds": row["open_seconds"]}
    assert name in listed(bootstrap, "--state", "Ongoing", "--state", "PrepareAbort")
    assert name not in listed(bootstrap, "--state", "Empty")
    assert name in ottla(bootstrap, "txn", "list")

    # The partition's leader and the coordinator agree: nothing hangs.
    assert not json.loads(ottla(bootstrap, "txn", "hanging", topic, "--older-than", "0", "--json"))
    refused = ottla(bootstrap, "txn", "abort", "--topic", topic, "--partition", "1", "--start-offset", "0", code=1)
    assert "is not hanging" in refused and f"ottla txn abort {name}" in refused

    writer.commit_transaction(60)
    ended = listed(bootstrap, "--state", "CompleteCommit", "--state", "PrepareCommit")[name]
    assert ended["producer_id"] == at_rest["producer_id"]
    assert name not in listed(bootstrap, "--open-for", "0.000001")


def test_an_abort_fences_the_producer_and_hides_what_it_wrote(bootstrap: str, topic: str, name: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "2")
    writer = producer(bootstrap, name)
    begin(writer, topic, b"aborted")
    result = json.loads(ottla(bootstrap, "txn", "abort", name, "--json"))
    assert (result["transactional_id"], result["aborted"]) == (name, True)
    assert result["partitions"] == [{"topic": topic, "partition": 1}]
    with pytest.raises(KafkaException) as fenced:
        writer.commit_transaction(60)
    assert fenced.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH")

    after = described(bootstrap, name)
    assert (after["state"], after["partitions"], after["timeout_ms"]) == ("CompleteAbort", [], 300_000)
    assert "has no open transaction, its state is CompleteAbort" in ottla(bootstrap, "txn", "abort", name, code=1)
    successor = producer(bootstrap, name)
    begin(successor, topic, b"committed")
    successor.commit_transaction(60)
    assert ottla(bootstrap, "consume", topic, "--values-only").split() == ["committed"]


def test_what_is_not_there(bootstrap: str, topic: str, name: str) -> None:
    producer(bootstrap, name)
    error = ottla(bootstrap, "txn", "describe", name, f"{name}-2", code=1)
    assert f"no transactional id '{name}-2'" in error and "ottla txn list" in error
    assert "no transactional id" in ottla(bootstrap, "txn", "abort", f"{name}-2", code=1)
    ottla(bootstrap, "topic", "create", topic)
    place = ["txn", "abort", "--topic", topic, "--partition"]
    assert "no open transaction starts at offset 5" in ottla(bootstrap, *place, "0", "--start-offset", "5", code=1)
    assert "there is no partition 7" in ottla(bootstrap, *place, "7", "--start-offset", "5", code=1)
    assert "all of --topic, --partition and --start-offset" in ottla(bootstrap, *place, "0", code=2)
    assert "not both" in ottla(bootstrap, "txn", "abort", name, "--topic", topic, code=2)
    assert "ottla topic list" in ottla(bootstrap, "txn", "hanging", f"{topic}-none", code=1)


def test_ids_are_offered_at_the_cursor(bootstrap: str, topic: str, name: str) -> None:
    producer(bootstrap, name)
    for command in ("describe", "abort"):
        offered = [each.word for each in offers(["txn", command, "-b", bootstrap, name[:-1]])]
        assert name in offered


def test_one_that_hangs_is_found_and_aborted_as_by_the_tool_of_kafka() -> None:
    """Produced behind the coordinator's back, which only a broker that does not verify (KIP-890) takes."""
    settings = {"transaction.partition.verification.enable": "false"}
    with Broker(settings=settings, topics={"t": 2, "other": 1}) as broker:
        ottla_ = _commands(broker.bootstrap)
        assert "no transactions yet" in ottla_("txn", "list")
        assert "no hanging transactions" in ottla_("txn", "hanging", "--older-than", "0")
        assert "no transactional id" in ottla_("txn", "describe", "x", code=1)
        assert "__transaction_state" not in ottla_("topic", "list", "--internal"), "a look creates nothing"

        writer = producer(broker.bootstrap, "sound")
        begin(writer, "t", b"x")
        ghost = _hang(broker.bootstrap, "t", age_s=600)
        assert "no hanging transactions" in ottla_("txn", "hanging"), "not for long enough"
        assert "no hanging transactions" in ottla_("txn", "hanging", "--older-than", "11")
        assert "10m" in ottla_("txn", "hanging", "--older-than", "9")
        (found,) = json.loads(ottla_("txn", "hanging", "--older-than", "0", "--json"))
        assert (found["topic"], found["partition"], found["start_offset"]) == ("t", 0, 0)
        assert (found["producer_id"], found["transactional_id"]) == (ghost, None)
        theirs = tool(
            COMMAND,
            "--bootstrap-server",
            broker.bootstrap,
            "find-hanging",
            "--broker-id",
            "1",
            "--max-transaction-timeout",
            "0",
            release=RELEASE,
        ).stdout.splitlines()
        assert [line.split()[:3] for line in theirs[1:] if line.strip()] == [["t", "0", str(ghost)]]
        text = ottla_("txn", "hanging", "--older-than", "0")
        advice = "ottla txn abort --topic t --partition 0 --start-offset 0"
        assert advice in text and "unknown" in text
        assert "is aborted" in ottla_(*advice.split()[1:])
        assert not json.loads(ottla_("txn", "hanging", "t", "--older-than", "0", "--json"))
        assert "no open transaction starts at offset 0" in ottla_(*advice.split()[1:], code=1)
        writer.commit_transaction(60)


def _commands(bootstrap: str) -> Callable[..., str]:
    def run(*arguments: str, code: int = 0) -> str:
        return ottla(bootstrap, *arguments, code=code)

    return run


def _hang(bootstrap: str, topic: str, age_s: float) -> int:
    """Write to a partition as part of a transaction that no coordinator knows of. Returns its producer id."""
    wire = Wire(bootstrap)
    given = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None, "transaction_timeout": 1_000})
    records = [SimpleRecord(int((time.time() - age_s) * 1000), None, b"x") for _ in range(2)]
    data = build_batch(records, transactional=True, producer_id=given["producer_id"], producer_epoch=0, base_sequence=0)
    values = {**produce_values(topic, bytes(data)), "transactional_id": "ghost"}
    wire.ask(ApiKey.PRODUCE, 9, values)
    return int(given["producer_id"])
