"""Fetches the metadata log from whoever leads, as a voter or as an observer (KIP-595, KIP-630).

Fetch with the epoch of the last record, so that the leader says where a log that went another way has to be truncated
to; a snapshot, piece by piece, where the log of the leader begins behind the end of ours. What the leader says is
committed is what anybody here sees. A voter asks for more only when it has fsynced what it has: its requests count as
votes for what is before. Who does not know a leader asks one controller after the other.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.nodes.node_client import NodeClient, OtherNode
from ottla.drivers.quorum.quorum_epochs import check_epochs
from ottla.drivers.quorum.quorum_peers import quorum_timing
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, NodeId, Offset
from ottla.network import Address, Network
from ottla.protocol.messages import ApiKey
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.state import Role
from ottla.storage.log.log_health import is_passing

if TYPE_CHECKING:
    from ottla.drivers.quorum.metadata_log import SnapshotPart
    from ottla.drivers.quorum.quorum_ports import Following
    from ottla.protocol.schemas import received, sent

_LOG = logging.getLogger("ottla.controller")

FETCH_VERSIONS = (13, 18)
"""From 13 on topics have ids; 17 names the directory of who fetches, 18 lets a fetch end when the high watermark moved
(KIP-1166)."""
SNAPSHOT_VERSIONS = (0, 1)

MAX_WAIT_MS = 500
"""How long the leader may hold an answer back, as in Kafka's raft client."""

SNAPSHOT_BYTES_MAX = 1 << 36
"""A longer one is a mistake: a million partitions take a hundred megabytes."""

_ELSEWHERE = frozenset(
    {ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch, ErrorCode.not_leader_or_follower}
)
"""Answers that say who leads instead."""

_IDLE = frozenset({Role.LEADER, Role.CANDIDATE, Role.RESIGNED})
"""Roles in which there is nobody to fetch from."""


class MetadataFollower:
    """Follows from `start` to `stop`. All methods belong to the event loop's thread."""

    def __init__(
        self, node: Following, controllers: ControllerNodes, network: Network, random: random_module.Random
    ) -> None:
        self.refused: KafkaError | None = None
        """Why no controller lets this node follow (another cluster's id); None while one does or none was reached."""
        self._node = node
        self._controllers = controllers
        settings = node.settings
        timing = quorum_timing(settings)
        self._client = NodeClient(network, f"raft-client-{settings.node_id}", random, timing, whom=controllers.whom)
        self._asking = NodeClient(network, f"raft-client-{settings.node_id}-end", random, timing, whom=controllers.whom)
        """The fetches of the first wait at the leader."""
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        """Set when another one leads, or this node does."""
        self._unreached = False
        """Whether it was already logged that no controller answers."""
        self._broken = False
        """The same of a copy that cannot be written."""
        self._caught_up: asyncio.Future[Offset] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._caught_up = loop.create_future()
        self._task = loop.create_task(self._run())

    def wake(self) -> None:
        """Called when the leader has changed."""
        self._news.set()

    async def stop(self) -> None:
        await cancelled(self._task)
        await self._client.close()
        await self._asking.close()

    async def caught_up(self) -> Offset:
        """Waits until the copy has all that the leader said is committed, for the first time; returns that end."""
        assert self._caught_up is not None
        return await asyncio.shield(self._caught_up)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            address = None if self._node.role in _IDLE else self._controllers.to_ask()
            if address is None:
                self._tell_caught_up()
                await self._news.wait()
                continue
            if not await self._attempt(address) and not self._news.is_set():
                await asyncio.sleep(self._node.settings.retry_backoff_ms / 1000)

    async def _attempt(self, address: Address) -> bool:
        """Ask one controller. Returns whether the next request may follow at once."""
        try:
            return await self._fetch(address)
        except KafkaError as error:
            if is_passing(error):  # this node's own disk has no room now
                self._cannot_copy(error)
                return False
            if isinstance(error.__cause__, ConnectionRefusedError) and self._controllers.leader == address:
                self._node.on_leader_lost()
            self._controllers.lost(address)
            if isinstance(error, OtherNode):
                self._refuse(error)
            if not self._unreached:
                self._unreached = True
                _LOG.warning("the controller cannot be followed", extra=fields(error=str(error)))
        except Exception as error:  # a full disk may have room again
            self._cannot_copy(error)
        return False

    def _cannot_copy(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            _LOG.error("the metadata log cannot be copied", exc_info=error)

    async def _unless_news(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a request; None if another one leads before it is there."""
        loop = asyncio.get_running_loop()
        asked, news = loop.create_task(work), loop.create_task(self._news.wait())
        try:
            await asyncio.wait([asked, news], return_when=asyncio.FIRST_COMPLETED)
            return await asked if asked.done() else None
        finally:
            asked.cancel()
            news.cancel()

    async def committed_end(self) -> Offset:
        """What the leader has committed at this moment, -1 if it does not say. Raises KafkaError.

        It is asked over another connection than the fetch that waits there. To the leader it is a fetch like others:
        it takes all before the offset for fsynced.
        """
        address = self._controllers.to_ask()
        if address is None:
            return -1
        await self._node.persisted()
        if self._node.settings.can_vote:
            await self._node.fsynced()
        answer = await self._asking.ask(address, ApiKey.FETCH, self._request(0), versions=FETCH_VERSIONS)
        if answer.response.error_code:
            return -1
        partition = _only(answer.response.responses)
        return -1 if partition.error_code else int(partition.high_watermark)

    async def _fetch(self, address: Address) -> bool:
        node = self._node
        if node.settings.can_vote:  # also who does not yet: what it said counts as soon as the leader adds it
            await node.fsynced()
        await node.persisted()
        asked = self._client.ask(address, ApiKey.FETCH, self._request(MAX_WAIT_MS), versions=FETCH_VERSIONS)
        answer = await self._unless_news(asked)
        if answer is None:
            return True
        response = answer.response
        if response.error_code:
            self._refuse(KafkaError(ErrorCode(response.error_code), f"{address} refuses fetches of the metadata log"))
            return False
        partition = _only(response.responses)
        endpoints = {each.node_id: Address(each.host, each.port) for each in getattr(response, "node_endpoints", ())}
        leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
        if epoch < node.epoch:
            return False
        node.heard(leader_id, epoch, endpoints, voter=self._controllers.node_at(address))
        error = ErrorCode(partition.error_code)
        if error in _ELSEWHERE:
            self._unreached = False
            leader = self._controllers.leader
            if leader == address and error is ErrorCode.not_leader_or_follower:
                self._controllers.lost(address)
            return leader is not None and (leader != address or error is not ErrorCode.not_leader_or_follower)
        if error:
            raise KafkaError(error, f"{address} does not serve the metadata log")
        node.on_fetched(leader_id, epoch)
        if node.follows(leader_id, epoch):
            await self._take(address, partition, leader_id, epoch)
        self._unreached = self._broken = False
        self.refused = None
        return True

    def _request(self, max_wait_ms: int) -> sent.FetchRequest:
        node = self._node
        settings = node.settings
        asked: sent.FetchRequestFetchPartition = {
            "partition": 0,
            "current_leader_epoch": node.epoch,
            "fetch_offset": node.end_offset,
            "last_fetched_epoch": max(node.last_epoch, 0),
            "partition_max_bytes": settings.fetch_bytes_max,
            "replica_directory_id": node.core.me.directory_id,
            "high_watermark": max(node.high_watermark, -1),
        }
        return {
            "cluster_id": node.cluster_id or None,
            "replica_id": settings.node_id,
            "replica_state": {"replica_id": settings.node_id, "replica_epoch": -1},
            "max_wait": max_wait_ms,
            "min_bytes": 0,
            "max_bytes": settings.fetch_bytes_max,
            "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [asked]}],
        }

    async def _take(
        self, address: Address, answered: received.FetchResponsePartitionData, leader_id: NodeId, epoch: LeaderEpoch
    ) -> None:
        """An answer of the leader that is followed."""
        node = self._node
        diverging, snapshot = answered.diverging_epoch, answered.snapshot_id
        if diverging.epoch >= 0:
            if diverging.end_offset < node.high_watermark:
                what = f"the leader asks to truncate to offset {diverging.end_offset}, below committed records"
                raise RuntimeError(what)  # it has lost what it had: nothing here is thrown away for it
            _LOG.info("metadata log truncated", extra=fields(offset=diverging.end_offset, epoch=diverging.epoch))
            await node.truncate_to_epoch(diverging.epoch, diverging.end_offset)
        elif snapshot.epoch >= 0 and snapshot.end_offset >= 0:
            wanted = SnapshotId(snapshot.end_offset, snapshot.epoch)
            if wanted.epoch > epoch:
                raise KafkaError(
                    ErrorCode.network_exception, f"{address} has a snapshot of an epoch that is later than its own"
                )
            part = await node.begin_snapshot(wanted)
            try:
                await self._fetch_snapshot(address, part, leader_id, epoch)
            finally:
                await node.end_snapshot(part)
        else:
            if answered.records:
                check_epochs(answered.records, node.epoch)
                node.append_fetched(answered.records)
            if answered.high_watermark >= 0:
                node.advance(answered.high_watermark)
                if node.end_offset >= answered.high_watermark:
                    self._tell_caught_up(answered.high_watermark)

    def _tell_caught_up(self, end: Offset | None = None) -> None:
        """`end`: what the leader committed; None if this node leads, when it has all there is."""
        assert self._caught_up is not None
        if end is None and self._node.is_active:
            end = self._node.high_watermark
        if end is not None and not self._caught_up.done():
            self._caught_up.set_result(end)

    async def _fetch_snapshot(
        self, address: Address, part: SnapshotPart, leader_id: NodeId, epoch: LeaderEpoch
    ) -> None:
        """Fetch a snapshot piece by piece into a file, and go on behind it. Raises KafkaError."""
        node = self._node
        while True:
            asked = self._client.ask(
                address, ApiKey.FETCH_SNAPSHOT, self._snapshot_request(part), versions=SNAPSHOT_VERSIONS
            )
            answer = await self._unless_news(asked)
            if answer is None:
                return
            if answer.response.error_code:
                raise KafkaError(ErrorCode(answer.response.error_code), f"{address} refuses to send a snapshot")
            piece = _only(answer.response.topics)
            if piece.error_code:
                what = f"{address} does not send snapshot {part.snapshot.filename}"
                raise KafkaError(ErrorCode(piece.error_code), what)
            got = piece.unaligned_records or b""
            if piece.position != part.size or not got or piece.size > SNAPSHOT_BYTES_MAX:
                what = f"{address} sent {len(got)} bytes at {piece.position} of a snapshot of {piece.size}"
                raise KafkaError(ErrorCode.network_exception, what)
            node.on_fetched(leader_id, epoch)
            await node.write_piece(part, got)
            if not node.follows(leader_id, epoch):
                return
            if part.size >= piece.size:
                break
        _LOG.info("snapshot of the metadata fetched", extra=fields(snapshot=part.snapshot.filename, bytes=part.size))
        await node.install_snapshot(part)

    def _snapshot_request(self, part: SnapshotPart) -> sent.FetchSnapshotRequest:
        node = self._node
        asked: sent.FetchSnapshotRequestPartitionSnapshot = {
            "partition": 0,
            "current_leader_epoch": node.epoch,
            "snapshot_id": {"end_offset": part.snapshot.end_offset, "epoch": part.snapshot.epoch},
            "position": part.size,
            "replica_directory_id": node.core.me.directory_id,
        }
        return {
            "cluster_id": node.cluster_id or None,
            "replica_id": node.settings.node_id,
            "max_bytes": node.settings.snapshot_bytes_max,
            "topics": [{"name": METADATA_TOPIC, "partitions": [asked]}],
        }

    def _refuse(self, error: KafkaError) -> None:
        if self.refused is None:
            _LOG.error("the controller refuses this node", extra=fields(error=str(error)))
        self.refused = error


def _only(topics: Any) -> Any:
    """The one partition of an answer about the metadata log. Raises KafkaError."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.network_exception, "an answer about other logs than was asked for")
    return topics[0].partitions[0]
