"""The cluster behind `exactly_once.Port`: decisions as records of a compacted topic, and tasks' transactions."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ottla import arrow
from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.producer import Producer
from ottla.client.requests import asked_settings
from ottla.client.transactions import (
    ONGOING,
    Description,
    describe_transactions,
    end_transaction,
    init_producer,
    list_transactions,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.spark.exactly_once import Decision, Fenced, Open, State, Written

logger = logging.getLogger("ottla.spark")

PREFIX: Final = "ottla-sink"
_SEPARATOR: Final = ":"
_CLAIM_TIMEOUT_MS: Final = 30_000
"""Timeout of a decision's transaction, which takes a moment: a killed driver delays others' claims by at most this."""
_LOOK_BACK: Final = 64
_TOPIC: Final = 2
"""The type of resource, to DescribeConfigs."""
_POLICY: Final = "cleanup.policy"
_DECISION_BYTES_MAX: Final = 16 * 1024 * 1024
"""Compressed: some 40 bytes a task. A topic that has Kafka's default, 1 MB, takes decisions about 20,000."""
_FENCED: Final = frozenset(
    {ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping}
)
_NOT_SO: Final = _FENCED | {ErrorCode.invalid_txn_state, ErrorCode.transactional_id_not_found}
"""Why a transaction is not ended as it was to be: it has ended otherwise, or is another one by now."""
_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
_ABORTED: Final = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")


def transactional_id(query: str, run: str, task: int, attempt: int | str) -> str:
    """No two attempts of a task share one, nor two runs of a query: none can fence another's that is decided. Batches
    of a run do, one after the other, so that there are few."""
    return _SEPARATOR.join((PREFIX, query, run, str(task), str(attempt)))


class SinkLog:
    """Log of one query; implements `exactly_once.Port`."""

    def __init__(self, cluster: Cluster, query: str, topic: str) -> None:
        self._cluster = cluster
        self._query = query
        self._topic = topic
        self._producer: Producer | None = None
        self._before: frozenset[str] = frozenset()
        """Ids of the tasks of the newest decision that was read: a killed driver's next batch is open there, too. A
        coordinator that is moving does not list it, and reports so only when asked for it.
        """
        self._is_topic_known = False

    def close(self) -> None:
        self._drop_claim()
        self._cluster.close()

    def _drop_claim(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def claim(self) -> None:
        self._drop_claim()
        self._ensure_topic()
        name = _SEPARATOR.join((PREFIX, self._query, "driver"))
        producer = Producer(
            self._cluster, transactional_id=name, transaction_timeout_ms=_CLAIM_TIMEOUT_MS, compression="gzip"
        )
        producer.start()
        self._producer = producer

    def decision(self) -> Decision | None:
        """Looked for from the end on, as it is the newest of its key and most often near."""
        at = TopicPartition(self._topic, 0)
        # Not the last stable offset: somebody else's open transaction may hide what this query has committed.
        end = self._cluster.offsets({at: LATEST})[at].offset
        first = self._cluster.offsets({at: EARLIEST})[at].offset
        step = _LOOK_BACK
        while end > first:
            start = max(first, end - step)
            if (found := self._newest(start, end)) is not None:
                decision = Decision.of_json(found)
                self._before = frozenset(one.transactional_id for one in decision.written)
                return decision
            end, step = start, step * 8
        return None

    def _newest(self, start: int, end: int) -> bytes | None:
        fields = arrow.schema(("key", "value"))
        key, found = self._query.encode(), None
        for batch in arrow.batches(self._cluster, self._topic, 0, start, end, fields, read_committed=True):
            for name, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                if name == key:
                    found = value
        return found

    def decide(self, decision: Decision) -> None:
        assert self._producer is not None, "not claimed"
        # The partition is said, as somebody may have made the topic with others.
        record = pa.record_batch({"key": [self._query.encode()], "value": [decision.to_json()], "partition": [0]})
        try:
            self._producer.begin()
            self._producer.send(self._topic, record)
            self._producer.commit()
        except KafkaError as error:
            self._drop_claim()
            if error.code in _FENCED:
                raise Fenced from error
            raise
        except BaseException:
            self._drop_claim()
            raise

    def states(self, written: Sequence[Written]) -> list[State]:
        known = describe_transactions(self._cluster, [one.transactional_id for one in written])
        return [_state(one, known.get(one.transactional_id)) for one in written]

    def end(self, written: Written, commit: bool) -> State:
        try:
            end_transaction(self._cluster, written.transactional_id, written.producer_id, written.epoch, commit=commit)
        except KafkaError as error:
            if error.code not in _NOT_SO:
                raise
            (state,) = self.states([written])
            if state is State.OPEN:
                raise
            return state
        return State.COMMITTED if commit else State.ABORTED

    def open_transactions(self) -> list[Open]:
        names = {*list_transactions(self._cluster, f"{PREFIX}:{self._query}:"), *self._before}
        found = []
        for name, described in describe_transactions(self._cluster, names).items():
            parts = name.split(_SEPARATOR)
            if len(parts) != 5 or described.state != ONGOING:  # five: the driver's own has fewer
                continue
            written = Written(name, described.producer_id, described.epoch, int(parts[3]), 0, "")
            found.append(Open(written, parts[2], time.time() - described.started_ms / 1000))
        return found

    def open_if_known(self) -> list[Open]:
        try:
            return self.open_transactions()
        except (KafkaError, OSError) as error:
            logger.info("transactions left open by others could not be searched for: %s", error)
            return []

    def mark_ended(self, run: str) -> None:
        """Say to tasks of a run that are still at work that nobody waits for them: see `has_ended`. An id of the run
        that no task uses is the mark, and the coordinator forgets it as any other."""
        init_producer(self._cluster, self._mark(run))

    def has_ended(self, run: str) -> bool:
        """Whether the run is marked. A task that asks after its transaction is open misses no driver: one that marks
        later finds the transaction when it fences the run."""
        mark = self._mark(run)
        return mark in describe_transactions(self._cluster, [mark])

    def _mark(self, run: str) -> str:
        return _SEPARATOR.join((PREFIX, self._query, run, "ended"))

    def fence(self, run: str) -> None:
        """Abort what a run has open, and keep its tasks from going on. Not for runs about which there are decisions."""
        for name in list_transactions(self._cluster, _SEPARATOR.join((PREFIX, self._query, run, ""))):
            init_producer(self._cluster, name)

    def _ensure_topic(self) -> None:
        """Create the topic, replicated as far as the cluster allows, up to three times."""
        if self._is_topic_known:
            return
        if self._cluster.partitions([self._topic]):
            self._check_topic()
            self._is_topic_known = True
            return
        replicas = min(3, max(1, len(self._cluster.node_ids)))
        configs = {
            _POLICY: "compact",
            "min.insync.replicas": str(max(1, replicas - 1)),
            "max.message.bytes": str(_DECISION_BYTES_MAX),
        }
        self._cluster.create_topic(self._topic, 1, configs, replicas=replicas)

    def _check_topic(self) -> None:
        """One that deletes what is old, as brokers create topics by themselves, forgets what was decided."""
        values = asked_settings(_TOPIC, [self._topic], [_POLICY])
        (found,) = self._cluster.ask_any(ApiKey.DESCRIBE_CONFIGS, values)["results"]
        policies = [row["value"] for row in found["configs"] if row["name"] == _POLICY]
        if policies and policies != ["compact"]:  # none: they may not be read
            raise KafkaError(
                ErrorCode.invalid_config,
                f"topic {self._topic} keeps what was decided about batches: {_POLICY} must be compact, but is "
                f"{policies[0]}",
            )


def _state(written: Written, known: Description | None) -> State:
    if known is None or known.producer_id != written.producer_id:
        return State.UNKNOWN
    if known.state in _ABORTED and known.epoch in (written.epoch, written.epoch + 1):
        return State.ABORTED  # one that times out is fenced by the next epoch
    if known.epoch != written.epoch:
        return State.UNKNOWN
    if known.state in _COMMITTED:
        return State.COMMITTED
    return State.OPEN if known.state == ONGOING else State.UNKNOWN
