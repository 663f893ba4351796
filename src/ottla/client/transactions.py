"""Transactions from outside of the producer that began them: ended, described, listed, by whoever knows their ids.

The protocol is that of clients before KIP-890's second part (EndTxn up to 4, Produce up to 11): an epoch is the same
from InitProducerId to the end, so that another process can end what a producer began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.cluster import COORDINATOR_MOVED, TRANSACTION, Cluster, Retry
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, TopicPartition
from ottla.protocol.messages import ApiKey

ONGOING: Final = "Ongoing"
BUSY: Final = frozenset({ErrorCode.concurrent_transactions})
"""The markers of the transaction before are still being written."""


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


class Description(NamedTuple):
    """A transactional id, as its coordinator has it."""

    state: str
    """`Ongoing`, `PrepareCommit`, `CompleteAbort`, ..., as Kafka names them."""
    producer_id: int
    epoch: int
    started_ms: Millis
    """-1 where no transaction is open."""
    timeout_ms: Millis


def init_producer(cluster: Cluster, transactional_id: str | None, timeout_ms: Millis = 60_000) -> ProducerId:
    """InitProducerId: with a transactional id it aborts its open transaction, and fences earlier producers with the id.
    Raises KafkaError, OSError.
    """
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    if transactional_id is None:
        answer = _patiently(cluster, values)
    else:
        answer = cluster.ask_coordinator(
            TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, values, _error_code, retried=BUSY
        )
    return ProducerId(answer["producer_id"], answer["producer_epoch"])


def _patiently(cluster: Cluster, values: Mapping[str, Any]) -> dict[str, Any]:
    """Any broker gives producer ids, once it has a block of them."""
    retry = Retry(cluster.config.request_timeout_s)
    while True:
        answer = cluster.ask_any(ApiKey.INIT_PRODUCER_ID, values)
        code = ErrorCode(answer["error_code"])
        if code is ErrorCode.none:
            return answer
        if (code not in COORDINATOR_MOVED and code is not ErrorCode.request_timed_out) or not retry.again():
            raise KafkaError(code, "no producer id")


def add_partitions(
    cluster: Cluster, transactional_id: str, producer: ProducerId, partitions: Iterable[TopicPartition]
) -> None:
    """AddPartitionsToTxn: may be repeated. Raises KafkaError, OSError."""
    topics: dict[str, list[int]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    values = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }

    def error_of(answer: Mapping[str, Any]) -> int:
        codes = [
            row["partition_error_code"]
            for topic in answer["results_by_topic_v3_and_below"]
            for row in topic["results_by_partition"]
        ]
        known = [code for code in codes if code and code != ErrorCode.operation_not_attempted]
        return known[0] if known else next(filter(None, codes), 0)

    retried = BUSY | {ErrorCode.unknown_topic_or_partition}
    cluster.ask_coordinator(
        TRANSACTION, transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, values, error_of, retried=retried
    )


def end_transaction(cluster: Cluster, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
    """EndTxn: done again, it is done already. Raises KafkaError: INVALID_TXN_STATE when the transaction has ended the
    other way, INVALID_PRODUCER_EPOCH or PRODUCER_FENCED when it is another's; OSError."""
    values = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "committed": commit,
    }
    cluster.ask_coordinator(TRANSACTION, transactional_id, ApiKey.END_TXN, values, _error_code, retried=BUSY)


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, Description]:
    """Descriptions by id; ids unknown to their coordinator are absent. Raises KafkaError, OSError."""
    found: dict[str, Description] = {}
    left = list(dict.fromkeys(transactional_ids))
    retry = Retry(cluster.config.request_timeout_s)
    while left:
        failure: KafkaError | OSError | None = None
        by_node: dict[int, list[str]] = {}
        again = []
        try:
            for name, node_id in cluster.coordinators(TRANSACTION, left).items():
                by_node.setdefault(node_id, []).append(name)
        except OSError as error:
            failure, again = error, left
        except KafkaError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            failure, again = error, left
        for node_id, names in by_node.items():
            try:
                answer = cluster.ask(node_id, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": names})
            except OSError as error:
                failure = error
                again += names
                continue
            for row in answer["transaction_states"]:
                code, name = ErrorCode(row["error_code"]), row["transactional_id"]
                if code in COORDINATOR_MOVED:
                    failure = KafkaError(code, f"the coordinator of {name}")
                    again.append(name)
                elif code is ErrorCode.none:
                    found[name] = Description(
                        row["transaction_state"],
                        row["producer_id"],
                        row["producer_epoch"],
                        row["transaction_start_time"],
                        row["transaction_timeout"],
                    )
                elif code is not ErrorCode.transactional_id_not_found:
                    raise KafkaError(code, f"transactional id {name}")
        for name in again:
            cluster.drop_coordinator(TRANSACTION, name)
        if failure is not None and not retry.again():
            raise failure
        left = again
    return found


def list_transactions(cluster: Cluster, prefix: str) -> list[str]:
    """The transactional ids that begin so and have a transaction open, of all coordinators. Raises KafkaError,
    OSError where one of them does not answer for as long as a request may take."""
    retry = Retry(cluster.config.request_timeout_s)
    while True:
        cluster.topics()  # who is there now: a node that died is not, once its coordinators are elsewhere
        try:
            return sorted({name for node in cluster.node_ids for name in _open_at(cluster, node, prefix)})
        except (KafkaError, OSError) as error:
            if isinstance(error, KafkaError) and error.code not in COORDINATOR_MOVED:
                raise
            if not retry.again():
                raise


def _open_at(cluster: Cluster, node_id: int, prefix: str) -> list[str]:
    values = {"state_filters": [ONGOING], "producer_id_filters": [], "duration_filter": -1}
    answer = cluster.ask(node_id, ApiKey.LIST_TRANSACTIONS, values)
    code = ErrorCode(answer["error_code"])
    if code is not ErrorCode.none:
        raise KafkaError(code, f"the transactions of node {node_id}")
    names = (row["transactional_id"] for row in answer["transaction_states"])
    return [name for name in names if name.startswith(prefix)]


def _error_code(answer: Mapping[str, Any]) -> int:
    code: int = answer["error_code"]
    return code
