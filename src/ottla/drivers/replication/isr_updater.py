"""Asks the controller for other in-sync replicas of the partitions that this node leads (`AlterPartitionManager`).

Questions of one moment go together in one AlterPartition (KIP-497), one request at a time. Until it is decided a
partition commits nothing without those who are in the old set or the new one; what the controller did not say is
asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import LeaderRecoveryState
from ottla.metrics.instruments import NodeMetrics
from ottla.model import LeaderEpoch, NodeId
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition

_LOG = logging.getLogger("ottla.replication")

RETRY_BACKOFF_S: Final = 0.05
"""As in Kafka."""

_REFUSED: Final = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})
"""The set stays what it was."""

_OUTDATED: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
"""The controller knows better: the metadata that comes says what is, and until then both sets count."""


class _Question(NamedTuple):
    partition: Partition
    isr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int

    @property
    def is_open(self) -> bool:
        """Whether the metadata has said nothing newer."""
        partition = self.partition
        epochs = partition.leader_epoch, partition.partition_epoch
        return partition.is_leader and epochs == (self.leader_epoch, self.partition_epoch)


class IsrUpdater:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, channel: ControllerChannel, node_id: NodeId, broker_epoch: Callable[[], int], metrics: NodeMetrics
    ) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metrics = metrics
        self._questions: dict[Partition, _Question] = {}
        """Changes that are not requested yet."""
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def ask(self, partition: Partition, isr: tuple[NodeId, ...]) -> None:
        """Ask for this in-sync set of a partition that has no open question."""
        if len(isr) < len(partition.isr):
            self._metrics.isr_shrinks += 1
        else:
            self._metrics.isr_expands += 1
        found = fields(partition=partition.topic_partition, isr=list(isr), was=list(partition.isr))
        _LOG.info("requesting a change of in-sync replicas", extra=found)
        partition.propose_isr(isr)
        self._questions[partition] = _Question(partition, isr, partition.leader_epoch, partition.partition_epoch)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        await cancelled(self._task)

    async def _run(self) -> None:
        while self._questions:
            await asyncio.sleep(0)  # those of the same turn of the loop go together
            asked = [each for each in self._questions.values() if each.is_open]
            self._questions.clear()
            if not asked:
                continue
            again = await self._send(asked)
            for each in again:
                if each.is_open:
                    self._questions.setdefault(each.partition, each)
            if again:
                await asyncio.sleep(RETRY_BACKOFF_S)

    async def _send(self, asked: list[_Question]) -> list[_Question]:
        """Ask, and do what is answered; gives what is to be asked again."""
        try:
            response = await self._channel.send(ApiKey.ALTER_PARTITION, self._request(asked))
            if response["error_code"]:
                raise KafkaError(ErrorCode(response["error_code"]))
        except KafkaError as error:
            if not self._failing:
                self._failing = True
                _LOG.warning("the controller refused a change of in-sync replicas", extra=fields(error=str(error)))
            return asked
        except Exception as error:  # a bug; the questions stay open, and with them the larger of the sets
            _LOG.error("in-sync replicas cannot be changed", exc_info=error)
            return asked
        self._failing = False
        rows = {
            (topic["topic_id"], row["partition_index"]): row
            for topic in response["topics"]
            for row in topic["partitions"]
        }
        return [each for each in asked if self._is_to_be_asked_again(each, rows)]

    def _is_to_be_asked_again(self, asked: _Question, rows: dict[Any, Any]) -> bool:
        partition = asked.partition
        row = rows.get((partition.topic_id, partition.topic_partition.partition))
        if row is None:
            return True
        error = ErrorCode(row["error_code"])
        if not error:
            partition.isr_decided(row["leader_epoch"], row["partition_epoch"], tuple(row["isr"]))
            return False
        self._metrics.failed_isr_updates += 1
        found = fields(partition=partition.topic_partition, isr=list(asked.isr), error=error.name.upper())
        _LOG.info("in-sync replicas unchanged", extra=found)
        if error in _REFUSED and asked.is_open:
            partition.withdraw_isr()
        return error not in _REFUSED | _OUTDATED

    def _request(self, asked: Iterable[_Question]) -> dict[str, Any]:
        topics: dict[Any, list[dict[str, Any]]] = {}
        for each in asked:
            partition = each.partition
            row = {
                "partition_index": partition.topic_partition.partition,
                "leader_epoch": each.leader_epoch,
                "new_isr": each.isr,
                "new_isr_with_epochs": [
                    {"broker_id": broker_id, "broker_epoch": self._epoch_of(partition, broker_id)}
                    for broker_id in each.isr
                ],
                "leader_recovery_state": LeaderRecoveryState.RECOVERED,
                "partition_epoch": each.partition_epoch,
            }
            topics.setdefault(partition.topic_id, []).append(row)
        return {
            "broker_id": self._node_id,
            "broker_epoch": self._broker_epoch(),
            "topics": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()],
        }

    def _epoch_of(self, partition: Partition, broker_id: NodeId) -> int:
        if broker_id == self._node_id:
            return self._broker_epoch()
        replica = partition.others.get(broker_id)
        return -1 if replica is None else replica.broker_epoch
