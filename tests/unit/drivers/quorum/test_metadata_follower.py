"""A follower of the metadata log, against answers of a leader that a script gives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.nodes.node_client import Answer, NodeClient
from ottla.drivers.quorum.metadata_follower import MetadataFollower
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.network import Address, SystemNetwork
from ottla.protocol import messages
from ottla.quorum.snapshot import SnapshotId
from ottla.quorum.state import Role
from ottla.quorum.voters import ReplicaKey
from ottla.storage.config import LogConfig

ONE, TWO = Address("one", 1), Address("two", 2)
SETTINGS = QuorumSettings(
    9, "/data", LogConfig(), retry_backoff_ms=1, fetch_bytes_max=1000, snapshot_bytes_max=10, can_vote=False
)


class Part:
    """A snapshot that comes."""

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot, self.data = snapshot, b""

    @property
    def size(self) -> int:
        return len(self.data)


class Copy:
    """A quorum node that notes what is done to it."""

    def __init__(self, controllers: ControllerNodes) -> None:
        self.settings, self.cluster_id, self.role, self.is_active = SETTINGS, "cluster", Role.UNATTACHED, False
        self.core = SimpleNamespace(me=ReplicaKey(9, UUID(int=9)))
        self.epoch, self.last_epoch, self.end_offset, self.high_watermark = 3, 3, 50, 40
        self.leader_id = -1
        self.done: list[tuple[Any, ...]] = []
        self.controllers = controllers

    async def persisted(self) -> None:
        pass

    async def fsynced(self) -> None:
        self.done.append(("fsynced", self.end_offset))

    def heard(self, leader_id: int, epoch: int, endpoints: Mapping[int, Address], *, voter: int = -1) -> None:
        if leader_id >= 0 and (leader_id, epoch) != (self.leader_id, self.epoch):
            self.epoch, self.leader_id, self.role = epoch, leader_id, Role.FOLLOWER
            self.done.append(("follow", leader_id, epoch))
        if leader_id >= 0:
            self.controllers.found(leader_id, epoch, endpoints)

    def follows(self, leader_id: int, epoch: int) -> bool:
        return (leader_id, epoch) == (self.leader_id, self.epoch)

    def on_fetched(self, leader_id: int, epoch: int) -> None:
        assert self.follows(leader_id, epoch)

    def on_leader_lost(self) -> None:
        self.done.append(("lost",))

    def append_fetched(self, records: bytes) -> None:
        self.end_offset += len(records)
        self.done.append(("append", bytes(records)))

    async def truncate_to_epoch(self, epoch: int, end_offset: int) -> None:
        self.end_offset = end_offset
        self.done.append(("truncate", epoch, end_offset))

    async def begin_snapshot(self, snapshot: SnapshotId) -> Part:
        return Part(snapshot)

    async def write_piece(self, part: Part, piece: bytes) -> None:
        part.data += bytes(piece)

    async def end_snapshot(self, part: Part) -> None:
        pass

    async def install_snapshot(self, part: Part) -> None:
        self.end_offset = part.snapshot.end_offset
        self.done.append(("snapshot", part.snapshot, part.data))

    def advance(self, high_watermark: int) -> None:
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))
        self.done.append(("advance", high_watermark))


Script = list[tuple[Address, Callable[[Mapping[str, Any]], Any]]]
"""The address asked next, and the answer."""


class Scripted(NodeClient):
    def __init__(self, script: Script) -> None:
        super().__init__(SystemNetwork(), "test", random.Random(1))
        self._script = iter(script)
        self.over = asyncio.Event()

    async def ask(
        self,
        address: Address,
        api_key: int,
        values: Mapping[str, Any],
        *,
        versions: tuple[int, int],
        timeout_ms: int | None = None,
    ) -> Answer:
        step = next(self._script, None)
        if step is None:
            self.over.set()
            await asyncio.Event().wait()
        assert step is not None
        expected, answer = step
        assert address == expected
        found = answer(values)
        if isinstance(found, KafkaError):
            raise found
        frame = messages.encode_response(api_key, versions[1], 0, found)
        return Answer(versions[1], messages.decode_response(api_key, versions[1], frame)[1])


def fetched(epoch: int = 4, leader: int = 1, **row: Any) -> Callable[[Mapping[str, Any]], Any]:
    """An answer to Fetch, of the leader at ONE unless said otherwise."""
    endpoints = [{"node_id": 1, "host": "one", "port": 1}, {"node_id": 2, "host": "two", "port": 2}]
    values = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": -1,
        "records": b"",
        "current_leader": {"leader_id": leader, "leader_epoch": epoch},
        **row,
    }
    topic = {"topic_id": METADATA_TOPIC_ID, "partitions": [values]}
    return lambda asked: {"error_code": 0, "responses": [topic], "node_endpoints": endpoints}


def piece(data: bytes, size: int, *, position: int | None = None) -> Callable[[Mapping[str, Any]], Any]:
    """An answer to FetchSnapshot."""

    def answer(asked: Mapping[str, Any]) -> Any:
        wanted = asked["topics"][0]["partitions"][0]
        row = {
            "index": 0,
            "error_code": 0,
            "snapshot_id": wanted["snapshot_id"],
            "size": size,
            "position": wanted["position"] if position is None else position,
            "unaligned_records": data,
            "current_leader": {"leader_id": 1, "leader_epoch": 4},
        }
        return {"error_code": 0, "topics": [{"name": METADATA_TOPIC, "partitions": [row]}], "node_endpoints": ()}

    return answer


def follow(*script: tuple[Address, Callable[[Mapping[str, Any]], Any]]) -> tuple[Copy, MetadataFollower]:
    """The copy and the follower after all of the script."""
    controllers = ControllerNodes({1: ONE, 2: TWO})
    copy = Copy(controllers)

    async def body() -> MetadataFollower:
        client = Scripted(list(script))
        node = cast(QuorumNode, copy)
        follower = MetadataFollower(node, controllers, SystemNetwork(), random.Random(1))
        follower._client, follower._asking = client, Scripted([])
        follower.start()
        async with asyncio.timeout(60):
            await client.over.wait()
        await follower.stop()
        return follower

    return copy, asyncio.run(body())


GONE = KafkaError(ErrorCode.network_exception, "gone")
FOLLOW = ("follow", 1, 4)


def test_a_controller_never_claims_what_is_not_fsynced() -> None:
    """To the leader any fetch says what is on the disk, also the one that only asks for the high watermark, and that
    of a controller that does not vote yet: the leader counts what it said from the moment that it is added."""
    controllers = ControllerNodes({1: ONE})
    controllers.found(1, 3, {})
    copy = Copy(controllers)
    copy.settings, copy.end_offset = SETTINGS._replace(can_vote=True), 60
    claimed: list[tuple[int, bool]] = []

    def answer(asked: Mapping[str, Any]) -> Any:
        claimed.append((asked["topics"][0]["partitions"][0]["fetch_offset"], ("fsynced", 60) in copy.done))
        return fetched(high_watermark=55)(asked)

    async def body() -> int:
        follower = MetadataFollower(cast(QuorumNode, copy), controllers, SystemNetwork(), random.Random(1))
        follower._asking, follower._client = Scripted([(ONE, answer)]), Scripted([(ONE, answer)])
        follower._caught_up = asyncio.get_running_loop().create_future()
        end = await follower.committed_end()
        copy.done.clear()
        assert await follower._fetch(ONE)
        return end

    assert asyncio.run(body()) == 55
    assert claimed == [(60, True), (60, True)]


def test_records_and_the_high_watermark() -> None:
    copy, _ = follow((ONE, fetched(records=b"abc", high_watermark=52)), (ONE, fetched(high_watermark=53)))
    assert copy.done == [FOLLOW, ("append", b"abc"), ("advance", 52), ("advance", 53)]
    assert copy.high_watermark == 53


def test_a_log_that_went_another_way_is_truncated() -> None:
    copy, _ = follow((ONE, fetched(diverging_epoch={"epoch": 2, "end_offset": 45})), (ONE, fetched(high_watermark=45)))
    assert copy.done == [FOLLOW, ("truncate", 2, 45), ("advance", 45)]


def test_what_was_committed_is_not_truncated() -> None:
    """A leader that has lost committed records is not obeyed; the next may be another one."""
    copy, _ = follow((ONE, fetched(diverging_epoch={"epoch": 2, "end_offset": 39})), (ONE, fetched(high_watermark=45)))
    assert copy.done == [FOLLOW, ("advance", 45)]


def test_one_controller_after_the_other_until_one_leads() -> None:
    elsewhere = fetched(leader=2, epoch=5, error_code=ErrorCode.not_leader_or_follower)
    nobody = fetched(leader=-1, epoch=4, error_code=ErrorCode.not_leader_or_follower)
    copy, _ = follow(
        (ONE, lambda asked: GONE), (TWO, nobody), (ONE, elsewhere), (TWO, fetched(leader=2, epoch=5, high_watermark=50))
    )
    assert copy.done == [("follow", 2, 5), ("advance", 50)]


def test_an_epoch_that_is_over_says_nothing() -> None:
    old = fetched(epoch=2, records=b"old", high_watermark=99)
    copy, _ = follow((ONE, old), (TWO, fetched(high_watermark=50)))
    assert copy.done == [FOLLOW, ("advance", 50)], "the second answer alone counts"


def test_the_epoch_is_learned_from_a_refusal() -> None:
    def in_epoch(asked: Mapping[str, Any]) -> Any:
        assert asked["topics"][0]["partitions"][0]["current_leader_epoch"] == 4
        return fetched(high_watermark=50)(asked)

    copy, _ = follow((ONE, fetched(error_code=ErrorCode.fenced_leader_epoch)), (ONE, in_epoch))
    assert copy.done == [FOLLOW, ("advance", 50)]


def test_a_snapshot_comes_in_pieces() -> None:
    wanted = fetched(snapshot_id={"end_offset": 70, "epoch": 4})
    copy, _ = follow((ONE, wanted), (ONE, piece(b"0123456789", 13)), (ONE, piece(b"abc", 13)))
    assert copy.done == [FOLLOW, ("snapshot", SnapshotId(70, 4), b"0123456789abc")]


@pytest.mark.parametrize("wrong", [piece(b"", 13), piece(b"x", 13, position=5), piece(b"x", 1 << 40)])
def test_a_piece_that_does_not_fit_ends_the_attempt(wrong: Any) -> None:
    wanted = fetched(snapshot_id={"end_offset": 70, "epoch": 4})
    copy, _ = follow((ONE, wanted), (ONE, piece(b"0123", 13)), (ONE, wrong), (TWO, fetched(high_watermark=50)))
    assert copy.done == [FOLLOW, ("advance", 50)]  # from whom another one says it is


def test_controllers_of_another_cluster_refuse() -> None:
    refusal = {"error_code": ErrorCode.inconsistent_cluster_id, "responses": (), "node_endpoints": ()}
    _, follower = follow((ONE, lambda asked: refusal), (TWO, lambda asked: refusal))
    assert follower.refused is not None
    assert follower.refused.code == ErrorCode.inconsistent_cluster_id
    _, follower = follow((ONE, lambda asked: refusal), (TWO, fetched(high_watermark=50)))
    assert follower.refused is None
