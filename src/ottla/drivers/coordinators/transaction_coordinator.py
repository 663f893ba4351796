"""The transaction coordinator of every partition of `__transaction_state` that this node leads
(`coordinator_shards.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.partitioning import partition_for
from ottla.coordinator.transaction import admin
from ottla.coordinator.transaction.admin import Filter
from ottla.coordinator.transaction.config import TransactionConfig
from ottla.coordinator.transaction.effects import NewProducerId, SendMarkers
from ottla.coordinator.transaction.partitions import verify
from ottla.coordinator.transaction.producers import check
from ottla.coordinator.transaction.requests import AddPartitions, InitProducerId, TransactionRequest
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.transaction import VERSION_2, Transaction
from ottla.drivers.coordinators.coordinator_load import LoadTimes
from ottla.drivers.coordinators.coordinator_shard import Shard, ShardKind
from ottla.drivers.coordinators.coordinator_shards import Shards
from ottla.drivers.coordinators.marker_sender import MarkerSender
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.model import TRANSACTION_TOPIC, LeaderEpoch, Millis, NodeId, ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.internal.transaction_records import (
    TransactionRecord,
    decode_record,
    encode_record,
    log_value_version,
)
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.drivers.ports import PublishedMetadata, TransactionHost, Waiter
    from ottla.protocol.schemas.sent import (
        DescribeTransactionsResponseTransactionState,
        ListTransactionsResponseTransactionState,
    )

_LOG = logging.getLogger("ottla.transactions")

UNCOMPRESSED: Final = 0
IDS_PER_STEP: Final = 16
"""Ids that one step of a list looks at."""
STATES_PER_STEP: Final = 1_000


class TransactionsLed(Shard):
    """One partition of `__transaction_state` led by this node."""

    core: TransactionShard

    def __init__(self, partition: Partition, core: TransactionShard, driver: TransactionCoordinatorDriver) -> None:
        super().__init__(partition, core)
        self._driver = driver

    @property
    def is_serving(self) -> bool:
        return self.error is None

    @property
    def coordinator_epoch(self) -> LeaderEpoch:
        return self.partition.leader_epoch

    def written(self, markers: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        self._driver.written(self, markers, partitions)


class TransactionCoordinatorDriver:
    """All methods belong to the event loop's thread. Those that find the id's shard elsewhere, not yet loaded or gone
    raise NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE."""

    def __init__(self, node: TransactionHost, metadata: PublishedMetadata) -> None:
        self._node = node
        self._config = TransactionConfig.from_settings(node.config)
        self._sender = MarkerSender(node, node.broker_clients.new(f"broker-{node.node_id}-txn-marker-sender"))
        self._server_version = node.image.features.get(TRANSACTION_VERSION, 0)
        self._tasks: dict[asyncio.Task[None], None] = {}
        kind = ShardKind(
            TRANSACTION_TOPIC,
            "transactions",
            self._new_shard,
            self._encode,
            decode_record,
            UNCOMPRESSED,
            node.config.transaction_state_log_load_buffer_size,
            commit_timeout_ms=node.config.request_timeout_ms,
            count=lambda shard: len(shard.core.state.entries),
            perform=self._perform,
        )
        self._shards: Shards[TransactionsLed] = Shards(node, kind)
        self._effects = self._shards.effects
        metadata.subscribe(self._on_metadata)
        self._shards.begin()

    async def stop(self) -> None:
        self._shards.stop()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.stop()

    def _new_shard(self, partition: Partition) -> TransactionsLed:
        return TransactionsLed(partition, TransactionShard(self._config, self._server_version, self._observe), self)

    def _encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record, log_value_version(self._server_version))

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        version = image.features.get(TRANSACTION_VERSION, 0)
        if version != self._server_version:
            self._server_version = version
            for shard in self._shards.by_number.values():
                shard.core.set_server_version(version)
        self._sender.metadata_changed()

    def _observe(self, event: str, transactional_id: str, transaction: Transaction) -> None:
        level = logging.DEBUG if event == "completed" else logging.INFO
        if not _LOG.isEnabledFor(level):
            return
        where = fields(
            id=transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            state=transaction.state.title,
        )
        _LOG.log(level, "transaction %s", event, extra=where)

    # Where transactions live

    def partition_of(self, transactional_id: str) -> int:
        topic = self._node.image.topic(TRANSACTION_TOPIC)
        count = self._node.config.transaction_state_log_num_partitions if topic is None else len(topic.partitions)
        return partition_for(transactional_id, count)

    def find(self, transactional_id: str, listener_name: str) -> tuple[NodeId, Endpoint]:
        """The node that coordinates an id. Raises COORDINATOR_NOT_AVAILABLE, also before the topic exists."""
        return self._shards.find(self.partition_of(transactional_id), listener_name)

    def _shard_of(self, transactional_id: str) -> TransactionsLed:
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        return self._shards.serving(self.partition_of(transactional_id))

    def loading(self) -> int:
        """Partitions of `__transaction_state` whose transactions are not known yet."""
        return self._shards.loading()

    def damaged(self) -> dict[TopicPartition, str]:
        """Partitions of `__transaction_state` that are not served because of what is on disk; and why."""
        return self._shards.damaged()

    # What there is, for metrics

    @property
    def markers(self) -> MarkerSender:
        return self._sender

    def load_times(self) -> LoadTimes:
        return self._shards.load_times

    def shards(self) -> Mapping[str, int]:
        """Partitions of `__transaction_state` led here, by Kafka's name of how they are."""
        return self._shards.states()

    def states(self) -> Generator[int, None, Mapping[str, int]]:
        """Transactional ids by the title of their state; yields the cost of its steps."""
        found: Counter[str] = Counter()
        for shard in [*self._shards.by_number.values()]:
            for number, entry in enumerate([*shard.core.state.entries.values()], start=1):
                found[entry.transaction.state.title] += 1
                if number % STATES_PER_STEP == 0:
                    yield 1
            yield 1
        return found

    def longest_open_ms(self) -> Millis:
        """How long the transaction is open that began first; 0 without any."""
        began = [
            entry.transaction.start_ms
            for shard in self._shards.by_number.values()
            for entry in shard.core.state.ongoing.values()
        ]
        return max(0, self._effects.now().wall_ms - min(began)) if began else 0

    # Requests

    def ask(self, waiter: Waiter, request: TransactionRequest) -> None:
        """Replies {"error_code"}; to InitProducerId and EndTxn also the producer's id and epoch. Raises KafkaError."""
        if isinstance(request, InitProducerId):
            check(self._config, request)
        shard = self._shard_of(request.transactional_id)
        shard.core.ask(waiter, request, self._effects.now())
        self._effects.work(shard)

    def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        state = self._shard_of(transactional_id).core.state
        return verify(state, transactional_id, producer_id, producer_epoch, partitions)

    def add_partitions(
        self,
        waiter: Waiter,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> None:
        """For brokers: replies {partition: ErrorCode}, and raises nothing. The partitions exist (`missing`)."""
        try:
            if verify_only:
                waiter.complete(self.verify(transactional_id, producer_id, producer_epoch, partitions))
                return
            request = AddPartitions(transactional_id, producer_id, producer_epoch, partitions, VERSION_2)
            self.ask(_ForEach(waiter, partitions), request)
        except KafkaError as error:
            waiter.complete(dict.fromkeys(partitions, error.code))

    def describe(self, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
        return admin.describe(self._shard_of(transactional_id).core.state, transactional_id)

    def list_transactions(self, wanted: Filter) -> Generator[int, None, list[ListTransactionsResponseTransactionState]]:
        """List the transactions of all shards; yields the cost of its steps. Raises COORDINATOR_LOAD_IN_PROGRESS while
        one of them is loading."""
        found = []
        for shard in [*self._shards.by_number.values()]:
            if shard.error is ErrorCode.coordinator_load_in_progress:
                raise KafkaError(shard.error)
            if shard.error is None:
                state, now_ms = shard.core.state, self._effects.now().wall_ms
                for number, transactional_id in enumerate([*state.entries], start=1):
                    row = admin.row(state, transactional_id, wanted, now_ms)
                    if row is not None:
                        found.append(row)
                    if number % IDS_PER_STEP == 0:
                        yield IDS_PER_STEP
        return found

    # Effects

    def _perform(self, shard: TransactionsLed, effect: NewProducerId | SendMarkers) -> None:
        if isinstance(effect, SendMarkers):
            self._sender.send(shard, effect)
            return
        task = asyncio.get_running_loop().create_task(self._get_producer_id(shard, effect))
        self._tasks[task] = None
        task.add_done_callback(partial(self._tasks.pop))

    async def _get_producer_id(self, shard: TransactionsLed, effect: NewProducerId) -> None:
        failure: KafkaError | None = None
        try:
            producer_id = await self._node.producer_ids.next()
        except KafkaError as error:
            failure = error
        except Exception as error:  # nobody may wait for ever
            _LOG.error("internal error in producer ids", exc_info=error)
            failure = KafkaError(ErrorCode.unknown_server_error)
        except asyncio.CancelledError:
            failure = KafkaError(ErrorCode.not_coordinator)
        if failure is None and shard.error is not None:
            failure = KafkaError(ErrorCode.not_coordinator)
        if failure is not None:
            if effect.token is not None:
                effect.token.complete(failure)
            return
        effect.then(producer_id, self._effects.now())
        self._effects.work(shard)

    def written(self, shard: TransactionsLed, markers: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        """Markers are in these partitions, or need not be any more."""
        shard.core.markers_written(
            markers.transactional_id, markers.producer_id, markers.producer_epoch, partitions, self._effects.now()
        )
        self._effects.work(shard)


class _ForEach:
    """Turns the error of a request into one for each partition."""

    __slots__ = ("_partitions", "_waiter")

    def __init__(self, waiter: Waiter, partitions: Collection[TopicPartition]) -> None:
        self._waiter = waiter
        self._partitions = partitions

    def complete(self, result: Any) -> None:
        error = result.code if isinstance(result, KafkaError) else result["error_code"]
        self._waiter.complete(dict.fromkeys(self._partitions, error))
