"""A transaction that its coordinator does not know of: Kafka's TransactionsCommand finds it and aborts it."""

from __future__ import annotations

import pytest

from ottla.protocol.messages import ApiKey
from ottla.testing import Broker
from peers.kafka import tool
from tests.conformance.pair import Wire
from tests.oracle import RELEASE
from tests.unit.server.node import batch, produce_values

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
READ_COMMITTED = 1


@pytest.mark.client("TransactionsCommand", "find-hanging", "abort by partition and start offset")
def test_a_hanging_transaction_is_found_and_aborted() -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    with Broker(settings=settings, topics={"t": 1}) as broker:
        wire = Wire(broker.bootstrap)
        given = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None, "transaction_timeout": 1_000})
        producer = {"producer_id": given["producer_id"], "producer_epoch": 0, "base_sequence": 0}
        values = {**produce_values("t", batch(transactional=True, **producer)), "transactional_id": "ghost"}
        wire.ask(ApiKey.PRODUCE, 9, values)

        def stable_end() -> int:
            asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
            topics = [{"name": "t", "partitions": [asked]}]
            values = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": topics}
            return int(wire.ask(ApiKey.LIST_OFFSETS, 5, values)["topics"][0]["partitions"][0]["offset"])

        def command(*arguments: str) -> str:
            return tool(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments, release=RELEASE).stdout

        assert stable_end() == 0
        found = command("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0").splitlines()
        assert [line.split()[:3] for line in found[1:] if line.strip()] == [["t", "0", str(given["producer_id"])]]
        command("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert stable_end() == 2
        assert len(command("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0").splitlines()) == 1
