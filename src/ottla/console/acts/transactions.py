"""Acts on transactions: abort the open one of an id, or one that hangs in a partition."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from ottla.config.units import iso_time
from ottla.console.acts.act import Act, Blocked, Change, Field, Plan, command, found_topic
from ottla.console.acts.topics import TOPIC
from ottla.console.asking import Asking, NotFound
from ottla.console.brokers import REQUEST_TIMEOUT_S, ensure_none
from ottla.console.cluster import Cluster, leader_of, on_every_node, read_cluster
from ottla.console.views.transactions import AT_REST
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey

ONGOING: Final = "Ongoing"
TRANSACTION_KEY: Final = 1
"""FindCoordinator's type of key."""
MARKERS_S: Final = 5.0
"""How long an act waits for the markers of an abort."""
PAUSE_S: Final = 0.1
_BACK: Final = ("/transactions", "Transactions")


def abort(asking: Asking) -> Plan:
    name = asking.text("transactional_id")
    read_cluster(asking.brokers, [])
    node = _coordinator(asking, name)
    found = _described(asking, node, name)
    state, started = found["transaction_state"], found["transaction_start_time"]
    parts = [f"{topic['topic']}-{number}" for topic in found["topics"] for number in topic["partitions"]]
    return Plan(
        f"The open transaction of {name} is aborted, and its producer is fenced.",
        lambda: _fence(asking, node, name, found),
        [
            Change("state", state, "CompleteAbort"),
            Change("begun", iso_time(started) if started > 0 else None, None),
            *(
                Change("partition", each, None, "its records are never shown to readers of committed ones")
                for each in parts
            ),
        ],
        command(asking, "txn abort", [name]),
        ["A producer that is still running gets an error with its next request."],
        "" if state == ONGOING else f"It has no open transaction: its state is {state}.",
        back=_BACK,
    )


def _coordinator(asking: Asking, name: str) -> int:
    values = {"key": name, "key_type": TRANSACTION_KEY, "coordinator_keys": [name]}
    (row,) = asking.brokers.ask_any(ApiKey.FIND_COORDINATOR, values)["coordinators"]
    ensure_none(ApiKey.FIND_COORDINATOR, row, name)
    return int(row["node_id"])


def _described(asking: Asking, node: int, name: str) -> Mapping[str, Any]:
    answer = asking.brokers.ask(node, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]})
    row: Mapping[str, Any] = answer["transaction_states"][0]
    if row["error_code"] == ErrorCode.transactional_id_not_found:
        raise NotFound(f"There is no transactional id {name}, or you may not see it.")
    ensure_none(ApiKey.DESCRIBE_TRANSACTIONS, row, name)
    return row


def _fence(asking: Asking, node: int, name: str, seen: Mapping[str, Any]) -> None:
    """Like `Admin.fenceProducers`: a new epoch for the id ends what the old one has open."""
    now = _described(asking, node, name)
    if now["transaction_state"] != ONGOING or now["transaction_start_time"] != seen["transaction_start_time"]:
        raise Blocked(f"The transaction ended meanwhile: the state of {name} is {now['transaction_state']}.")
    # The id gets this timeout if the transaction ends of itself first, until its next producer brings its own.
    timeout = min(max(1, seen["transaction_timeout"]), int(REQUEST_TIMEOUT_S * 1000))
    values = {"transactional_id": name, "transaction_timeout": timeout}
    answer = asking.brokers.change(ApiKey.INIT_PRODUCER_ID, values, node)
    # A coordinator that has begun the abort tells the client to come again when the markers are written.
    if answer["error_code"] != ErrorCode.concurrent_transactions:
        ensure_none(ApiKey.INIT_PRODUCER_ID, answer, name)
    until = time.monotonic() + MARKERS_S
    while _described(asking, node, name)["transaction_state"] not in AT_REST and time.monotonic() < until:
        time.sleep(PAUSE_S)


def abort_hanging(asking: Asking) -> Plan:
    name, number, start = asking.text("topic"), asking.number("partition"), asking.number("start_offset")
    cluster, _ = found_topic(asking, name)
    at = TopicPartition(name, number)
    found = _open_from(asking, cluster, at, start)
    owner = _owner(asking, at, found["producer_id"])
    marker = {
        "producer_id": found["producer_id"],
        "producer_epoch": found["producer_epoch"],
        "transaction_result": False,
        "topics": [{"name": name, "partition_indexes": [number]}],
        "coordinator_epoch": max(0, found["coordinator_epoch"]),
    }

    def run() -> None:
        _open_from(asking, cluster, at, start)
        answer = asking.brokers.change(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, leader_of(cluster, at))
        for each in answer["markers"]:
            for topic in each["topics"]:
                for row in topic["partitions"]:
                    ensure_none(ApiKey.WRITE_TXN_MARKERS, row, name)

    return Plan(
        f"The transaction that is open in {name}-{number} from offset {start} on is aborted there.",
        run,
        [
            Change("producer", f"{found['producer_id']}, epoch {found['producer_epoch']}", None),
            Change("last written", iso_time(found["last_timestamp"]), None),
        ],
        command(asking, "txn abort", [], {"--topic": name, "--partition": number, "--start-offset": start}),
        ["Readers of committed records go on behind it."],
        f"It does not hang: transactional id {owner} owns it, so abort it there." if owner else "",
        back=_BACK,
    )


def _open_from(asking: Asking, cluster: Cluster, at: TopicPartition, start: int) -> Mapping[str, Any]:
    leader = leader_of(cluster, at)
    if leader < 0:
        raise KafkaError(ErrorCode.leader_not_available, f"{at.topic}-{at.partition} has no leader")
    values = {"topics": [{"name": at.topic, "partition_indexes": [at.partition]}]}
    answer = asking.brokers.ask(leader, ApiKey.DESCRIBE_PRODUCERS, values)
    row = answer["topics"][0]["partitions"][0]
    ensure_none(ApiKey.DESCRIBE_PRODUCERS, row, at.topic)
    for each in row["active_producers"]:
        if each["current_txn_start_offset"] == start:
            found: Mapping[str, Any] = each
            return found
    raise NotFound(f"No transaction is open in {at.topic}-{at.partition} from offset {start} on.")


def _owner(asking: Asking, at: TopicPartition, producer_id: int) -> str:
    """The transactional id that has the partition in its open transaction; empty for one that hangs. Raises OSError
    and KafkaError where a coordinator does not say."""
    values = {
        "state_filters": [],
        "producer_id_filters": [producer_id],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    for node, answer in on_every_node(
        asking.brokers, read_cluster(asking.brokers, []), ApiKey.LIST_TRANSACTIONS, values
    ).items():
        if isinstance(answer, Exception):
            raise answer
        ensure_none(ApiKey.LIST_TRANSACTIONS, answer, f"transactions of broker {node}")
        for row in answer["transaction_states"]:
            found = _described(asking, node, row["transactional_id"])
            if any(each["topic"] == at.topic and at.partition in each["partitions"] for each in found["topics"]):
                return str(row["transactional_id"])
    return ""


ACTS: Final = (
    Act("abort-transaction", "Abort a transaction", "The open transaction of a transactional id, in all partitions.",
        "Write on the transactional id", abort,
        (Field("transactional_id", "The transactional id.", is_required=True, label="Transactional id"),),
        "transactions", confirm="transactional_id"),
    Act("abort-hanging", "Abort a hanging transaction",
        "A transaction that no coordinator knows, in one partition: readers of committed records wait for it.",
        "ClusterAction on the cluster", abort_hanging,
        (TOPIC, Field("partition", "The partition.", low=0, high=2**31 - 1, is_required=True, widget="number"),
         Field("start_offset", "Its first offset, as the topic's page shows it.", low=0, high=2**63 - 1,
               is_required=True, widget="number")),
        "transactions", confirm="topic"),
)  # fmt: skip
