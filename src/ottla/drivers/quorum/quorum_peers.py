"""What a node says to the other voters: Vote, BeginQuorumEpoch, EndQuorumEpoch (KIP-595, 853, 996).

The core wants something said until it is answered. Here each voter is asked one thing at a time; without an answer it
is asked again after `controller.quorum.retry.backoff.ms`, should the core still want it; if the core wants something
else, that goes first. Nothing is sent before what it promises is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, NodeId
from ottla.network import Address, Network
from ottla.protocol.messages import ApiKey
from ottla.quorum.state import BeginRequest, EndRequest, Request, VoteRequest

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_ports import Voting
from ottla.drivers.quorum.quorum_settings import QuorumSettings

_LOG = logging.getLogger("ottla.controller")

BACKOFF_MS, BACKOFF_MS_MAX = 20, 250
"""Between attempts to connect to a voter: a quorum is few nodes, and without it nothing can be decided."""

FAREWELL_SECONDS_MAX = 1.0
"""How long a leader that stops waits until the others have heard of it."""


def quorum_timing(settings: QuorumSettings) -> Timing:
    return Timing(settings.request_timeout_ms, BACKOFF_MS, BACKOFF_MS_MAX, settings.setup_timeout_ms)


class QuorumPeers:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: Voting, network: Network, random: random_module.Random) -> None:
        self._node = node
        settings = node.settings
        self._client = NodeClient(
            network, f"raft-client-{settings.node_id}", random, quorum_timing(settings), whom=node.controllers.whom
        )
        self._asked: dict[NodeId, tuple[Request, asyncio.Task[None]]] = {}

    @property
    def busy(self) -> Mapping[NodeId, Any]:
        """Voters that are being asked something, or were without success a moment ago."""
        return self._asked

    def send(self, wanted: Sequence[Request]) -> None:
        """Ask what the core wants asked now."""
        for request in wanted:
            node_id = request.to.node_id
            before = self._asked.get(node_id)
            if before is not None:
                if (type(before[0]), before[0].epoch, _is_pre_vote(before[0])) == (
                    type(request),
                    request.epoch,
                    _is_pre_vote(request),
                ):
                    continue
                before[1].cancel()
            task = asyncio.get_running_loop().create_task(self._ask(request))
            self._asked[node_id] = (request, task)
            task.add_done_callback(lambda task, node_id=node_id: self._done(node_id, task))  # type: ignore[misc]

    def _done(self, node_id: NodeId, task: asyncio.Task[None]) -> None:
        asked = self._asked.get(node_id)
        if asked is not None and asked[1] is task:
            del self._asked[node_id]
            if not task.cancelled():
                self._node.poke()

    async def _ask(self, request: Request) -> None:
        try:
            await self._node.persisted()
            await self._ask_once(request)
        except KafkaError:
            await asyncio.sleep(self._node.settings.retry_backoff_ms / 1000)
        except Exception as error:
            _LOG.error("internal error in a request to a controller", exc_info=error)
            await asyncio.sleep(self._node.settings.retry_backoff_ms / 1000)

    async def _ask_once(self, request: Request) -> None:
        address = self._node.address_of(request.to.node_id)
        if address is None:
            raise KafkaError(ErrorCode.broker_not_available, f"the address of voter {request.to.node_id} is unknown")
        if isinstance(request, VoteRequest):
            await self._ask_vote(address, request)
        elif isinstance(request, BeginRequest):
            await self._ask_begin(address, request)
        else:
            await self._ask_end(address, request)

    async def _ask_vote(self, address: Address, request: VoteRequest) -> None:
        node = self._node
        partition = {
            "partition_index": 0,
            "replica_epoch": request.epoch,
            "replica_id": node.core.node_id,
            "replica_directory_id": node.core.me.directory_id,
            "voter_directory_id": request.to.directory_id,
            "last_offset_epoch": request.last_epoch,
            "last_offset": request.end_offset,
            "pre_vote": request.pre_vote,
        }
        values = {"voter_id": request.to.node_id, **self._about(partition)}
        versions = (2, 2) if request.pre_vote else (0, 2)
        try:
            granted = (await self._exchange(request.to.node_id, address, ApiKey.VOTE, values, versions)).vote_granted
        except KafkaError as error:
            if error.code != ErrorCode.unsupported_version or not request.pre_vote:
                raise
            granted = True  # it knows of no pre-votes, so it cannot be against one (KIP-996)
        node.take(node.core.on_vote_answer(request, node.now_ms(), granted=granted))

    async def _ask_begin(self, address: Address, request: BeginRequest) -> None:
        node = self._node
        partition = {
            "partition_index": 0,
            "voter_directory_id": request.to.directory_id,
            "leader_id": node.core.node_id,
            "leader_epoch": request.epoch,
        }
        values = {"voter_id": request.to.node_id, "leader_endpoints": self._endpoints(), **self._about(partition)}
        await self._exchange(request.to.node_id, address, ApiKey.BEGIN_QUORUM_EPOCH, values, (0, 1))
        node.take(node.core.on_begin_answer(request, node.now_ms()))

    async def _ask_end(self, address: Address, request: EndRequest) -> None:
        node = self._node
        partition = {
            "partition_index": 0,
            "leader_id": node.core.node_id,
            "leader_epoch": request.epoch,
            "preferred_successors": [key.node_id for key in request.successors],
            "preferred_candidates": [
                {"candidate_id": key.node_id, "candidate_directory_id": key.directory_id} for key in request.successors
            ],
        }
        values = {"leader_endpoints": self._endpoints(), **self._about(partition)}
        await self._exchange(request.to.node_id, address, ApiKey.END_QUORUM_EPOCH, values, (0, 1))
        node.take(node.core.on_end_answer(request))

    def _about(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        topic = {"topic_name": METADATA_TOPIC, "partitions": [partition]}
        return {"cluster_id": self._node.cluster_id or None, "topics": [topic]}

    def _endpoints(self) -> list[dict[str, Any]]:
        return [{"name": name, "host": end.host, "port": end.port} for name, end in self._node.endpoints.items()]

    async def _exchange(
        self, voter: NodeId, address: Address, api_key: ApiKey, values: Mapping[str, Any], versions: tuple[int, int]
    ) -> Any:
        """The row of the answer about the metadata log; what it says of the leader is known then. Raises KafkaError."""
        response = (await self._client.ask(address, api_key, values, versions=versions)).response
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{address} refuses {api_key.name}")
        if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
            raise KafkaError(ErrorCode.network_exception, "an answer about other logs than was asked for")
        row = response.topics[0].partitions[0]
        endpoints = {each.node_id: Address(each.host, each.port) for each in getattr(response, "node_endpoints", ())}
        self._node.heard(row.leader_id, row.leader_epoch, endpoints, voter=voter)
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), f"{address} refuses {api_key.name}")
        return row

    async def say_farewell(self, requests: Sequence[Request]) -> None:
        """Report once that this node no longer leads, because it stops."""
        for _, task in list(self._asked.values()):
            task.cancel()
        tasks = [asyncio.get_running_loop().create_task(self._ask_once(request)) for request in requests]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FAREWELL_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        tasks = [task for _, task in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()


def _is_pre_vote(request: Request) -> bool:
    return isinstance(request, VoteRequest) and request.pre_vote
