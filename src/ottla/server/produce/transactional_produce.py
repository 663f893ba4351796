"""What a transactional produce request needs before its batches are appended: that its transaction is open (KIP-890).

A partition that has an open transaction of the producer knows that itself. For the others the coordinator is asked,
once a transaction; the records are kept meanwhile, and nothing else of the connection is done. From Produce version 12
on (transaction.version 2) the coordinator adds the partitions, before only looks whether they were added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator
from typing import TYPE_CHECKING, Any, Final

from ottla.drivers.cooperative import Cost
from ottla.drivers.coordinators.transaction_verifier import Errors, Question
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_GUARD
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, BatchHeader, unpack_header
from ottla.replication.partition import Partition
from ottla.server.api import ROW_COST, RequestContext
from ottla.server.produce.produce_answers import find_partition, key_of
from ottla.storage.producers.producer_entry import NotVerified

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceRequest, TopicProduceData

ADDS_SINCE: Final = 12
"""The client leaves it to the brokers to add partitions to its transactions."""
_ABORTABLE_SINCE: Final = 11
"""The client knows TRANSACTION_ABORTABLE."""

_RETRIED: Final = frozenset({
    ErrorCode.network_exception, ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
})  # fmt: skip
"""Errors of a coordinator, with which producers would not try again as they should."""

Guards = dict[Partition, int | NotVerified]
KeepRecords = Callable[[RequestContext, "ProduceRequest"], None]


def needs_verification(context: RequestContext, version: int) -> bool:
    return version >= ADDS_SINCE or bool(context.node.config.transaction_partition_verification_enable)


def verify(
    context: RequestContext, request: ProduceRequest, keep_records: KeepRecords, denied: Container[Any] = ()
) -> Generator[Cost, Any, Guards]:
    """The guards of the partitions that were asked about, and errors. `keep_records` is called before others run.
    Topics that are `denied`, by name or id, are not asked about: they must not become part of the transaction.

    Raises INVALID_PRODUCER_ID_MAPPING for batches of several producers.
    """
    version = context.api_version
    batches: dict[Partition, BatchHeader] = {}
    for topic in request.topic_data:
        if key_of(context, topic) in denied:
            continue
        for data in topic.partition_data:
            header = transactional_header(data.records)
            partition = None if header is None else _find(context, topic, data.index)
            if header is not None and partition is not None:
                batches[partition] = header
            if context.in_steps:  # otherwise the records still lie in the receive buffer
                yield ROW_COST
    producers = {(header.producer_id, header.producer_epoch) for header in batches.values()}
    if len(producers) > 1:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if not producers or not needs_verification(context, version):
        return {}
    ((producer_id, producer_epoch),) = producers
    config, loop = context.node.config, asyncio.get_running_loop()
    deadline = loop.time() + min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms) / 1e3
    while True:
        guards = _start(context, batches)
        asked = {
            partition.topic_partition: partition
            for partition, guard in guards.items()
            if not isinstance(guard, NotVerified) and guard != NO_GUARD
        }
        if not asked:
            return guards
        assert request.transactional_id is not None
        question = Question(request.transactional_id, producer_id, producer_epoch, tuple(asked), version >= ADDS_SINCE)
        answer = context.node.transaction_verifier.ask(question)
        if not answer.done():
            keep_records(context, request)
        errors: Errors = yield answer
        is_ending = version >= ADDS_SINCE and ErrorCode.concurrent_transactions in errors.values()
        if not is_ending or loop.time() >= deadline:
            break
        # The markers of the transaction before are being written. The client would wait for longer.
        keep_records(context, request)
        yield asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1e3)
    for key, error in errors.items():
        guards[asked[key]] = _refusal(error, version)
    return guards


def transactional_header(records: Any) -> BatchHeader | None:
    """The header of a transactional batch of a producer with an id."""
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return None
    header = unpack_header(records)
    return header if header.is_transactional and header.producer_id >= 0 else None


def _find(context: RequestContext, topic: TopicProduceData, index: int) -> Partition | None:
    """None where the append meets the error."""
    try:
        return find_partition(context, topic, index)
    except KafkaError:
        return None


def _start(context: RequestContext, batches: dict[Partition, BatchHeader]) -> Guards:
    guards: Guards = {}
    begins = context.api_version >= ADDS_SINCE
    now_ms = context.node.clock.now_ms()
    for partition, header in batches.items():
        try:
            partition.check_leader()
            producers = partition.log.producer_state
            guards[partition] = producers.start_verification(header, begins_transaction=begins, now_ms=now_ms)
        except KafkaError as error:
            guards[partition] = NotVerified(error.code)
    return guards


def _refusal(error: ErrorCode, version: int) -> NotVerified:
    """The error for a producer: never one that only coordinators give, except those that its version knows."""
    if error == ErrorCode.transaction_abortable and version < _ABORTABLE_SINCE:
        error = ErrorCode.invalid_txn_state
    if error == ErrorCode.invalid_txn_state:
        return NotVerified(error, "Partition was not added to the transaction")
    if error in _RETRIED or (error == ErrorCode.concurrent_transactions and version < ADDS_SINCE):
        return NotVerified(
            ErrorCode.not_enough_replicas,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name.upper()}",
        )
    return NotVerified(error)
