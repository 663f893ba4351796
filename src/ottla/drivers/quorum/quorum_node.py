"""This node's replica of the metadata log: log, quorum-state and snapshots on disk, fed by and feeding the pure core.

It knows nothing of what the records mean. As leader it appends records and counts the replicas that have them; as
follower it takes what the leader sends; as voter it helps to choose the leader. Either way it says who leads and what
is committed, and hands out committed records (`RaftClient` and `KafkaRaftClient` in Kafka). `quorum_network.py` has its
requests to other nodes, `quorum_requests.py` its answers, `quorum_facts.py` what it says of itself.

Each step of the core gives a `Ready`: what is to be written, appended and told, in this order. `take` performs it
(`_carry_out`), and then sends requests and sets the timer (`_settle`). Kafka: `KafkaRaftClient.poll`.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.controller.decision import RECORDS_PER_DECISION_MAX
from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.quorum.metadata_log import MetadataLog, SnapshotPart, control_items
from ottla.drivers.quorum.quorum_disk import MetadataCutter, MetadataFlusher, QuorumStateWriter, write_snapshot
from ottla.drivers.quorum.quorum_facts import QuorumFacts, QuorumInfo
from ottla.drivers.quorum.quorum_metrics import QuorumMetrics, step
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.metadata.image import Endpoint
from ottla.model import Buffer, LeaderEpoch, Millis, NodeId, Offset
from ottla.network import Address
from ottla.protocol.internal.quorum_records import QuorumStateFile
from ottla.protocol.schemas.records import KRaftVersionRecord, VoterEndpoint, VotersRecord
from ottla.quorum.core import QuorumCore
from ottla.quorum.election import LogEnd
from ottla.quorum.epochs import are_doubtful
from ottla.quorum.snapshot import SnapshotId, control_batch, data_batch
from ottla.quorum.state import Ready, Request, Role
from ottla.quorum.voters import Configurations, ReplicaKey, VoterSet
from ottla.storage.log.log_health import is_passing

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_network import QuorumNetwork
    from ottla.network import Network

_LOG = logging.getLogger("ottla.controller")


class QuorumNode(QuorumFacts):
    """Owns `__cluster_metadata-0`. All methods belong to the event loop's thread. The high watermark is moved in
    `_carry_out`, and by a snapshot that takes the log's place."""

    CORE = QuorumCore

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        settings: QuorumSettings,
        network: Network | None = None,
    ) -> None:
        """Without a network it is a replica that nobody hears of: the only voter, or one that a test feeds."""
        self.fs = fs
        self._clock = clock
        self.random = random
        self.network = network
        self.settings = settings
        self.metrics = QuorumMetrics(settings.metrics_window_ms / 1000, settings.metrics_windows)
        self.log = MetadataLog(fs, settings.log_dir, settings.log_config, random, is_copy=not settings.can_vote)
        self.core = self.CORE.of(ReplicaKey(settings.node_id), (), None, LogEnd(0, 0), random, settings.timing)
        self.cluster_id = ""
        self.endpoints: Mapping[str, Endpoint] = {}
        """Where others reach the controller of this node, by listener."""
        self.controllers = ControllerNodes(settings.addresses, settings.bootstrap, settings.node_id)
        """The leader and its address, for senders of requests to the leader."""
        self._states = QuorumStateWriter(fs, self.log, self._fail, self.poke)
        self._cutter = MetadataCutter(self.log, self._fail, self._resume)
        self._flusher = MetadataFlusher(self.log, self._fail, self._on_flushed, self._cutter.idle)
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0
        self._links: QuorumNetwork | None = None
        self.doubts_logged_ms: Millis | None = None
        """When a claim of an epoch was last logged that this node does not believe."""
        self._undoing: asyncio.Task[None] | None = None
        self._started = self.stopping = False
        self._told: tuple[NodeId, LeaderEpoch] = (-1, 0)
        self.failure: KafkaError | None = None
        """Why nothing is appended any more; None while all is well."""
        self.on_leader_change: list[Callable[[NodeId, LeaderEpoch], None]] = []
        """Called with who leads and in which epoch: this node itself once it has committed the first record of its
        epoch, another one at once; -1 while nobody is known to."""
        self.on_commit: list[Callable[[Offset], None]] = []
        """Called when the high watermark has moved, with its new value."""
        self.on_append: list[Callable[[], None]] = []
        """Called when the log end or the high watermark has moved, or another role or epoch began: there may be
        something for fetches that wait."""
        self.on_snapshot: list[Callable[[SnapshotId], None]] = []
        """Called when a snapshot from the leader took the place of the whole log."""
        self.on_failure: list[Callable[[KafkaError], None]] = []

    # Start and stop.

    def open(self, me: ReplicaKey, voters: Sequence[ReplicaKey]) -> None:
        """Open the log, recover it and take up the stored epoch. `voters` count where neither log nor snapshot names
        any. Blocks. Raises OttlaError for what cannot be read, KafkaError or OSError when the disk fails."""
        stored = self.log.read_quorum_state()
        self.log.open(self._clock.now_ms())
        self.log.log.health.on_failure = self._fail_soon
        configurations = Configurations.of(VoterSet.of(voters), self.log.control_records())
        log_end = LogEnd(self.last_epoch, self.log.log.log_end_offset)
        self.core = self.CORE.of(
            me, configurations, stored, log_end, self.random, self.settings.timing, can_vote=self.settings.can_vote
        )
        if are_doubtful(self.core.epoch, self.core.last_epoch):
            from ottla.drivers.quorum.quorum_epochs import check_stored  # few starts have to ask

            check_stored(self.core, self.log.directory, has_state=stored is not None)
        self._know_voters()

    @step
    def start(self, cluster_id: str = "", endpoints: Mapping[str, Endpoint] | None = None) -> None:
        """Take part: the only voter leads when this returns, and its log is committed; others begin to look for their
        leader. `endpoints`: where others reach the controller of this node. Blocks to fsync.

        Raises KafkaError or OSError when the disk fails.
        """
        self.cluster_id, self.controllers.cluster_id, self.endpoints = cluster_id, cluster_id, endpoints or {}
        places = [VoterEndpoint(name, end.host, end.port) for name, end in self.endpoints.items()]
        self._started = True
        self._carry_out(self.core.start(self.now_ms(), places))
        if self.core.is_leader:
            self.log.log.flush()
            self._on_flushed()

    def now_ms(self) -> Millis:
        """Time of the loop's clock, which is monotonic."""
        return int(asyncio.get_running_loop().time() * 1000)

    def wake(self) -> None:
        """The node stops: waiting fetches are answered now."""
        self._tell_append()

    async def stop(self) -> None:
        """Give up leadership, let disk work that has begun end, and close the log."""
        farewell = self.core.resign(self.now_ms()) if self._started and not self.core.alone else None
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        requests: list[Request] = []
        if farewell is not None and self.failure is None:
            self.take(farewell)
            if self.core.role is Role.RESIGNED:
                requests = self.core.requests(self.now_ms())
        if self._links is not None:
            await self._links.stop(requests)
        self._cutter.stop()
        self._flusher.stop()
        await self._states.stop()
        await self._cutter.idle()
        await self._flusher.idle()
        try:
            self.log.close()
        except KafkaError as error:  # the next start checks it anyhow
            _LOG.warning("the metadata log was not closed cleanly", extra=fields(error=str(error)))

    # State.

    @property
    def serves(self) -> bool:
        """Whether this node leads and its log can be read and written."""
        return self.core.is_leader and not self._cutter.holds_back

    @property
    def refused(self) -> KafkaError | None:
        """See `QuorumNetwork`."""
        return None if self._links is None else self._links.refused

    def info(self) -> QuorumInfo:
        core, now = self.core, self.now_ms()
        replicas = core.described(now, self._clock.now_ms() - now)
        return QuorumInfo(core.leader_id, core.epoch, core.high_watermark, *replicas)

    def address_of(self, node_id: NodeId) -> Address | None:
        """Where another voter is reached."""
        return self.controllers.address_of(node_id)

    async def readable(self) -> None:
        """Waits while the files of the log are being cut, when nothing of it can be read."""
        await self._cutter.idle()

    # The leader's part.

    @step
    def append(self, values: Sequence[bytes], now: Millis, epoch: LeaderEpoch | None = None) -> Offset:
        """Append framed records in the epoch that this node leads, all or none; returns the log end behind them.

        They are one batch up to the largest decision that must be whole. `on_commit` tells when they are committed.
        With `epoch` only if this node leads in that one. Raises KafkaError: NOT_CONTROLLER, KAFKA_STORAGE_ERROR. On a
        full disk the log goes on, and a leader that has other voters lets one of them lead.
        """
        if self.failure is not None:
            raise self.failure
        core, log = self.core, self.log.log
        if not self.serves or (epoch is not None and epoch != core.epoch):
            raise KafkaError(ErrorCode.not_controller)
        before, last_epoch = core.end_offset, core.last_epoch
        try:
            for first in range(0, len(values), RECORDS_PER_DECISION_MAX):
                chunk = values[first : first + RECORDS_PER_DECISION_MAX]
                self.log.append(data_batch(chunk, log.log_end_offset, core.epoch, now), now)
                core.on_appended(log.log_end_offset, core.epoch)
        except BaseException as error:
            if isinstance(error, KafkaError) and log.failure is None:
                core.on_truncated(before, last_epoch)
                if log.log_end_offset > before:
                    self._undo(before)  # a full disk may have room again for the next
                if is_passing(error) and not core.alone:
                    asyncio.get_running_loop().call_soon(self._no_room_to_lead, error)
                raise
            failure = self._fail(error)
            if not isinstance(error, Exception):
                raise
            raise failure from error
        self.metrics.appended(core.end_offset, core.end_offset - before)
        self._appended()
        return core.end_offset

    def _undo(self, end: Offset) -> None:
        """Cut a part of a decision off the log again, as soon as there is room to do it. Raises KafkaError."""
        try:
            self.log.log.truncate_to(end)
        except KafkaError as error:
            if self.log.log.failure is not None or not is_passing(error):
                raise
            self._undoing = asyncio.get_running_loop().create_task(self._cutter.cut(end))

    def resign(self) -> None:
        """Give up leadership: another voter leads, one that is alone stands again."""
        self.take(self.core.resign(self.now_ms()))

    # The follower's part, an observer's too. `MetadataFollower` calls it.

    def heard(
        self,
        leader_id: NodeId,
        epoch: LeaderEpoch,
        endpoints: Mapping[NodeId, Address],
        *,
        from_leader: bool = False,
        voter: NodeId = -1,
    ) -> None:
        """Another node, or the leader itself, says who leads; `voter` answered so. Raises KafkaError."""
        self.controllers.know(endpoints)
        self._take_claim(lambda: self.core.heard(leader_id, epoch, self.now_ms(), from_leader=from_leader, voter=voter))
        if not self.core.believes(epoch, self.now_ms()):
            from ottla.drivers.quorum.quorum_epochs import log_doubt  # a node that is alone hears of no epoch

            log_doubt(self, epoch, voter if voter >= 0 else leader_id)
        if leader_id >= 0 and (leader_id, epoch) == (self.core.leader_id, self.core.epoch):
            self.controllers.found(leader_id, epoch, endpoints)

    def on_fetched(self, leader_id: NodeId, epoch: LeaderEpoch) -> None:
        """The leader answered a fetch. Raises KafkaError for what cannot be."""
        self._take_claim(lambda: self.core.on_fetched(leader_id, epoch, self.now_ms()))

    def on_leader_lost(self) -> None:
        """Called when nothing listens any more where the leader did."""
        self.take(self.core.on_leader_lost(self.now_ms()))

    def _take_claim(self, claim: Callable[[], Ready]) -> None:
        try:
            self.take(claim())
        except ValueError as error:
            raise KafkaError(ErrorCode.inconsistent_voter_set, str(error)) from error

    @step
    def append_fetched(self, records: Buffer) -> None:
        """Append what the leader sent; it joins the log end. It is fsynced in the background. Raises KafkaError."""
        if self.failure is not None:
            raise self.failure
        core, log = self.core, self.log.log
        self.log.append(records, self._clock.now_ms())
        self.metrics.fetched(log.log_end_offset - core.end_offset)
        core.on_appended(log.log_end_offset, self.last_epoch)
        for offset, record in control_items(records):
            if isinstance(record, KRaftVersionRecord | VotersRecord):
                self._carry_out(core.on_configuration(offset, record, self.now_ms()))
                self._know_voters()
        self._appended()

    async def fsynced(self) -> None:
        """Waits until all of the log is on disk: a voter counts for no more. Raises KafkaError."""
        await self._flusher.idle()
        if self.failure is not None:
            raise self.failure

    async def truncate_to_epoch(self, epoch: LeaderEpoch, end_offset: Offset) -> None:
        """The leader's log has nothing of ours behind `end_offset`, where its `epoch` ends. Raises KafkaError, and
        ValueError for what is committed."""
        _, own_end = self.log.log.end_offset_for_epoch(epoch)
        end = self.log.batch_start(min(end_offset, own_end) if own_end >= 0 else end_offset)
        core, log = self.core, self.log.log
        if log.log_end_offset <= end:
            return
        ready = core.on_truncated(end, max(log.epoch_for_offset(end - 1), 0) if end else 0, self.now_ms())
        self._know_voters()
        self._carry_out(ready)
        await self._cutter.cut(end)

    def advance(self, high_watermark: Offset) -> None:
        """The leader says that everything below is committed."""
        self._carry_out(self.core.on_leader_high_watermark(high_watermark))

    async def begin_snapshot(self, snapshot: SnapshotId) -> SnapshotPart:
        """A snapshot of the leader's begins to come. Raises OSError."""
        return await self.fs.run(lambda: SnapshotPart(self.fs, self.log, snapshot))

    async def write_piece(self, part: SnapshotPart, piece: Buffer) -> None:
        """Raises OSError."""
        await self.fs.run(lambda: part.write(piece))

    async def end_snapshot(self, part: SnapshotPart) -> None:
        """No more of it comes."""
        await self.fs.run(part.abandon)

    async def install_snapshot(self, part: SnapshotPart) -> None:
        """Put a whole snapshot of the leader's in the place of the log. Raises KafkaError, OttlaError or OSError."""
        snapshot, core = part.snapshot, self.core
        epoch = core.epoch
        await self.fs.run(part.finish)
        self.log.adopt_snapshot(snapshot)
        if core.is_leader or core.epoch != epoch or snapshot.end_offset <= core.high_watermark:
            return  # of a leader that is none any more: the log is as good
        ready = core.on_snapshot(snapshot.end_offset, snapshot.epoch, self.log.newest_configuration(), self.now_ms())
        self.log.bytes_since_snapshot = 0
        self._know_voters()
        await self._cutter.cut(None, snapshot.end_offset)
        self.log.log.high_watermark = snapshot.end_offset
        self._carry_out(ready)
        for callback in self.on_snapshot:
            callback(snapshot)
        self._tell_committed()

    async def caught_up(self) -> Offset:
        """Waits until this replica has all that the leader said is committed, for the first time; returns that end."""
        links = None if self.core.is_leader else self._links
        return self.core.high_watermark if links is None else await links.caught_up()

    async def committed_end(self) -> Offset:
        """The leader's committed offset at this moment, -1 if it does not say. Raises KafkaError."""
        links = None if self.core.is_leader else self._links
        return self.core.high_watermark if links is None else await links.committed_end()

    # Effects.

    def _appended(self) -> None:
        self._flusher.begin()
        self._tell_append()

    @step
    def _on_flushed(self) -> None:
        """The log's durable end counts, not the requested one: it may have been truncated meanwhile."""
        durable = min(self.log.log.durable_offset, self.core.end_offset)
        self.log.note_fsynced(durable)
        self._carry_out(self.core.on_flushed(durable, self.now_ms()))

    def take(self, ready: Ready) -> None:
        """Perform the core's effects. A disk failure is reported to all, not only to the caller of this step."""
        try:
            self._carry_out(ready)
        except (OSError, KafkaError) as error:
            if is_passing(error) and self.log.log.failure is None:
                self._no_room_to_lead(error)
            else:
                self._fail(error)

    def _no_room_to_lead(self, error: BaseException) -> None:
        """There is no room for what only the leader writes: let another voter lead. One that is alone stands again."""
        core = self.core
        if self.stopping or self.failure is not None:
            return
        self._states.begin(core.stored)  # that of the only voter may be what found no room
        if core.is_leader:
            _LOG.error("the metadata log is full: this node resigns as leader", extra=fields(error=str(error)))
            self.resign()

    def _resume(self, ready: Ready) -> None:
        """Do the work that waited for a truncation."""
        if not self.stopping:
            self.take(ready)

    @step
    def _carry_out(self, ready: Ready) -> None:
        """Perform the core's effects in the promised order. Raises KafkaError or OSError."""
        ready = self._cutter.hold_back(ready)
        if ready.persist is not None:
            self._persist(ready.persist)
        if ready.control_records:
            core, log, now = self.core, self.log.log, self._clock.now_ms()
            first = log.log_end_offset
            self.log.append(control_batch(ready.control_records, first, core.epoch, now), now)
            core.on_appended(log.log_end_offset, core.epoch)
            self.metrics.appended(log.log_end_offset, len(ready.control_records))
            for offset, record in enumerate(ready.control_records, first):
                if isinstance(record, KRaftVersionRecord | VotersRecord):
                    self._carry_out(core.on_configuration(offset, record, self.now_ms()))
                    self._know_voters()
            self._appended()
        if ready.high_watermark is not None:
            self.log.log.high_watermark = ready.high_watermark
            self.metrics.committed(ready.high_watermark)
            self._tell_committed()
        self.metrics.in_role(self.core.role)
        if self._started:
            self._settle()

    def _persist(self, state: QuorumStateFile) -> None:
        """Persist the state of the election. For the only voter it is written before anything else happens."""
        if self.core.alone or self.network is None:
            self.log.write_quorum_state(state)
        else:
            self._states.begin(state)

    async def persisted(self) -> None:
        """Until all that this node has promised is on disk. Raises KafkaError if the disk failed or has no room now."""
        await self._states.idle()
        if refusal := self.failure or self._states.refused:
            raise refusal

    def _settle(self) -> None:
        """Tell who leads, say to others what there is to say, and set the timer."""
        core = self.core
        leader_id = core.leader_id if not core.is_leader else core.node_id if core.is_active else -1
        if (leader_id, core.epoch) != self._told:
            self._tell_leader(leader_id)
        if self.stopping or self.failure is not None:
            return
        if core.is_leader and not core.is_voter and core.configurations.newest.offset < core.high_watermark:
            self.take(core.resign(self.now_ms()))  # it was removed, and now that is committed
            return
        if self.network is not None and not core.alone:
            self._communicate(self.network)
        self._arm()

    def _communicate(self, network: Network) -> None:
        if self._links is None:
            from ottla.drivers.quorum.quorum_network import QuorumNetwork  # a node that is alone has no use for them

            self._links = QuorumNetwork(self, network, self.random)
            self._links.begin()
        self._links.send(self.core.requests(self.now_ms()))

    def poke(self) -> None:
        """A voter can be asked again."""
        if self._started and not self.stopping:
            self._settle()

    def _arm(self) -> None:
        busy = () if self._links is None else self._links.busy
        due = [each for each in (self.core.deadline_ms, self.core.next_request_ms(busy)) if each is not None]
        if not due:
            return
        at_s = (min(due) + 1) / 1000  # `now_ms` rounds down
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._on_timer)

    @step
    def _on_timer(self) -> None:
        self._timer = None
        self.take(self.core.on_timeout(self.now_ms()))

    def _tell_leader(self, leader_id: NodeId) -> None:
        core, before = self.core, self._told[1]
        self._told = (leader_id, core.epoch)
        if before != core.epoch or leader_id >= 0:
            self.controllers.found(leader_id, core.epoch, {})
        level = logging.DEBUG if core.alone else logging.INFO
        _LOG.log(level, "leader of the metadata quorum", extra=fields(leader=leader_id, epoch=core.epoch))
        for callback in list(self.on_leader_change):
            callback(leader_id, core.epoch)
        if self._links is not None:
            self._links.wake()
        self._tell_append()

    def _know_voters(self) -> None:
        found = self.core.voters.endpoints(self.settings.listener)
        self.controllers.know({node_id: Address(end.host, end.port) for node_id, end in found.items()})

    def _tell_append(self) -> None:
        for callback in list(self.on_append):
            callback()

    def _tell_committed(self) -> None:
        high_watermark = self.core.high_watermark
        for on_commit in list(self.on_commit):
            on_commit(high_watermark)
        self._tell_append()

    def _fail_soon(self, error: OSError) -> None:
        if not self.stopping:
            asyncio.get_running_loop().call_soon(self._fail, error)

    def _fail(self, error: BaseException) -> KafkaError:
        """After a disk error the content of the log is unknown: refuse all further writes. Kafka's controller halts."""
        if self.failure is not None:
            return self.failure
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the metadata log failed; this node accepts no further changes", "exception": error}
        )
        self.failure = KafkaError(ErrorCode.kafka_storage_error, f"the metadata log failed: {error}")
        self.failure.__cause__ = error
        for callback in list(self.on_failure):
            callback(self.failure)
        if self._started and not self.core.alone:  # another one may lead
            self.core.resign(self.now_ms())
            self._settle()
        return self.failure

    # Snapshots of this node's own image.

    async def write_snapshot(self, snapshot: SnapshotId, batches: Iterator[bytearray]) -> bool:
        """Store a snapshot, made in a disk thread, and drop the log below it; returns whether that could be done."""
        return await write_snapshot(self.fs, self.log, self.settings, snapshot, batches, self._clock, self.readable)
