"""Asks the leader to change the voters for this replica's own sake: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

What is wanted is decided by `quorum/membership.py`, each time that another node leads, others vote or something is
committed, and again after `controller.quorum.fetch.timeout.ms` as long as it is not granted, as in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as random_module
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.quorum.quorum_peers import quorum_timing
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import Millis
from ottla.network import Address, Network
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import KRaftVersionRange, Voter, VoterEndpoint
from ottla.quorum.membership import Add, Change, Remove, wanted_change

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_ports import Joining

_LOG = logging.getLogger("ottla.controller")


def listeners_of(endpoints: Sequence[VoterEndpoint]) -> list[dict[str, Any]]:
    """Listeners in the form of requests about voters."""
    return [{"name": each.name, "host": each.host, "port": each.port} for each in endpoints]


class QuorumMembership:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: Joining, network: Network, random: random_module.Random) -> None:
        self._node = node
        settings = node.settings
        self._client = NodeClient(
            network,
            f"raft-client-{settings.node_id}-voter",
            random,
            quorum_timing(settings),
            whom=node.controllers.whom,
        )
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._told = -1
        """The last epoch whose leader knows of this voter of a static quorum."""
        self._has_voted = False
        """Whether this replica was a voter since the start, and that was committed. Who is let go then stays an
        observer until it is started again, or nobody could ever let a running node go that joins by itself."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There may be something to ask for."""
        core = self._node.core
        if core.is_voter and core.configurations.newest.offset < core.high_watermark:
            self._has_voted = True
        if self._wanted() is not None:
            self._news.set()

    async def stop(self) -> None:
        await cancelled(self._task)
        await self._client.close()

    def _wanted(self) -> Change | None:
        joins = self._node.settings.auto_join and not self._has_voted
        return wanted_change(self._node.core, joins=joins, told=self._told)

    async def _run(self) -> None:
        await self._node.caught_up()
        while True:
            self._news.clear()
            wanted, address = self._wanted(), self._node.controllers.leader
            if wanted is None:
                await self._news.wait()
                continue
            if address is not None:
                try:
                    await self._ask(address, wanted)
                except KafkaError as error:
                    what = type(wanted).__name__.lower()
                    _LOG.info("the voters could not be changed yet", extra=fields(change=what, error=str(error)))
            await self._pause(self._node.settings.timing.fetch_timeout_ms)

    async def _pause(self, limit_ms: Millis) -> None:
        """Until something else is wanted, or the same again after a while."""
        before = self._wanted()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000):
                while self._wanted() == before:
                    self._news.clear()
                    await self._news.wait()

    async def _ask(self, address: Address, change: Change) -> None:
        """Raises KafkaError where the leader refuses, or cannot be asked."""
        node = self._node
        asked: dict[str, Any] = {"cluster_id": node.cluster_id or None}
        if isinstance(change, Remove):
            asked |= {"voter_id": change.key.node_id, "voter_directory_id": change.key.directory_id}
            await self._send(address, ApiKey.REMOVE_RAFT_VOTER, asked, (0, 0))
            return
        voter = change.voter
        asked |= {
            "voter_id": voter.voter_id,
            "voter_directory_id": voter.voter_directory_id,
            "listeners": listeners_of(voter.endpoints),
        }
        if isinstance(change, Add):
            asked |= {"timeout": node.settings.request_timeout_ms, "ack_when_committed": False}
            await self._send(address, ApiKey.ADD_RAFT_VOTER, asked, (0, 1))
            return
        epoch, levels = node.epoch, voter.kraft_version_feature
        asked |= {
            "current_leader_epoch": epoch,
            "k_raft_version_feature": {
                "min_supported_version": levels.min_supported_version,
                "max_supported_version": levels.max_supported_version,
            },
        }
        try:
            await self._send(address, ApiKey.UPDATE_RAFT_VOTER, asked, (0, 0))
        except KafkaError as error:
            if error.code != ErrorCode.unsupported_version or node.kraft_version >= 1:
                raise  # else a leader that cannot upgrade a static quorum, and has no use for this
        self._told = epoch

    async def _send(self, address: Address, key: ApiKey, values: Mapping[str, Any], versions: tuple[int, int]) -> None:
        answer = (await self._client.ask(address, key, values, versions=versions)).response
        if answer.error_code:
            why = getattr(answer, "error_message", None) or f"{address} refuses {key.name}"
            raise KafkaError(ErrorCode(answer.error_code), why)


async def supported_levels(node: Joining, new: Voter) -> KRaftVersionRange:
    """What levels of `kraft.version` a node says that it supports, at the address that it is to vote from. Raises
    KafkaError REQUEST_TIMED_OUT where it does not answer, INVALID_REQUEST where it names none."""
    place = next(each for each in new.endpoints if each.name == node.settings.listener)
    if node.network is None:
        raise KafkaError(ErrorCode.request_timed_out, "this node has no connections to other nodes")
    client = NodeClient(
        node.network, f"raft-client-{node.settings.node_id}-new", node.random, quorum_timing(node.settings)
    )
    asked = {"client_software_name": "ottla", "client_software_version": "0"}
    address = Address(place.host, place.port)
    try:
        answer = (await client.ask(address, ApiKey.API_VERSIONS, asked, versions=(3, 4))).response
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
    except KafkaError as error:
        what = f"voter {new.voter_id} did not answer at {address} which versions it supports: {error}"
        raise KafkaError(ErrorCode.request_timed_out, what) from error
    finally:
        await client.close()
    for each in answer.supported_features:
        if each.name == "kraft.version":
            return KRaftVersionRange(each.min_version, each.max_version)
    return KRaftVersionRange(0, 0)
