"""The active controller of this node: decides on the newest image, writes to the metadata log, publishes images.

Callers give `submit` a decision to take. One worker takes all decisions that wait, each on the image that the one
before it left, appends their records, fsyncs the log once for all of them, and only then publishes the images and
answers. So nobody ever sees metadata that a crash could undo, and many requests share one fsync.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import random as random_module
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from ottla.clock import Clock
from ottla.controller import brokers, producer_ids, topics
from ottla.controller.bootstrap import bootstrap
from ottla.controller.decision import RECORDS_PER_DECISION_MAX, Decide, Decision
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.directories import Identity, check_lost, identify, lost_partitions, mark, some_of
from ottla.drivers.metadata_log import MetadataLog
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage, SecurityProtocol
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.replay import ReplayError, replay
from ottla.metadata.writer import encode, image_records
from ottla.model import LeaderEpoch, Millis, NodeId, Offset, random_uuid
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_record,
)
from ottla.protocol.internal.quorum_records import (
    KRaftVersionRecord,
    QuorumStateFile,
    VotersRecord,
)
from ottla.quorum.core import QuorumCore, Ready, Replica
from ottla.quorum.snapshot import BOOTSTRAP_FILE, SnapshotId, control_batch, data_batch, read_snapshot, write_snapshot
from ottla.storage.config import LogConfig

_LOG = logging.getLogger("ottla.controller")

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

R = TypeVar("R")

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Called on the event loop after each committed change, in the order of subscription, before the writer gets its
answer. The first call has everything in its delta, whose base is the empty image."""

SubscriberSteps = Callable[[MetadataDelta, MetadataImage], Iterator[None]]
"""What a subscriber does in steps: before its call, when the change is committed and not yet published, or after
it. The next change waits, and so does the writer's answer."""

RECORDS_PER_STEP = 128
"""Replaying a record of the metadata log and encoding it costs about 30 us."""

SNAPSHOT_CHECK_SECONDS = 60.0
"""How often to look whether a snapshot is due by time."""

REPLAY_RATIO_MAX = 2
"""A start that replays more records than this times the partitions (and a few thousand) writes a snapshot, so that
starting costs what the cluster has, not what ever happened to it."""
REPLAY_RECORDS_FREE = 20_000


class QuorumInfo(NamedTuple):
    """The state of the metadata quorum, for DescribeQuorum."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: Sequence[Replica]
    observers: Sequence[Replica]
    endpoints: Mapping[NodeId, Mapping[str, Endpoint]]


class _Job(NamedTuple):
    decide: Decide[Any]
    future: asyncio.Future[Any]


class _Done(NamedTuple):
    """A decision taken and appended, not yet fsynced."""

    job: _Job
    outcome: Any
    """The response, or the exception to raise."""
    failed: bool = False
    delta: MetadataDelta | None = None
    image: MetadataImage | None = None


class ControllerDriver:
    """Owns `__cluster_metadata-0`. All methods belong to the event loop's thread."""

    def __init__(self, fs: FileSystem, clock: Clock, random: random_module.Random, config: ServerConfig) -> None:
        self._fs = fs
        self._clock = clock
        self._random = random
        self.config = config
        self.node_id: NodeId = config.node_id
        self.image: MetadataImage = EMPTY_IMAGE
        self.cluster_id = ""
        self.directory_ids: Mapping[str, UUID] = {}
        """Id of every log directory, by path, from its meta.properties (written on first start)."""
        self.broker_epoch = -1
        """Of this node's registration; -1 before it."""
        self._log = MetadataLog(fs, config.metadata_log_dir, _log_config(config), random)
        self._quorum: QuorumCore
        self._incarnation_id = random_uuid(random)
        self._subscribers: list[Subscriber] = []
        self._before: list[SubscriberSteps] = []
        self._after: list[SubscriberSteps] = []
        self._queue: deque[_Job] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None
        self._stopped = False
        self._voter_records: dict[type, Any] = {}
        self._open_transaction = False
        self._producer_ids = range(0)
        self._allocation: asyncio.Lock | None = None
        self._bytes_since_snapshot = 0
        self._snapshot_ms: Millis = 0
        self._snapshot_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Start and stop.

    async def start(self, log_dirs: Sequence[str] | None = None) -> None:
        """Give new directories an identity, load the newest snapshot and the log, become leader, register, publish.

        `log_dirs` are those that can be used, if not all can. Raises OttlaError for directories of another node,
        or whose files cannot be read, KafkaError (KAFKA_STORAGE_ERROR) or OSError when the disk fails.
        """
        now = self._clock.now_ms()
        config = self.config
        paths = config.log_dirs if log_dirs is None else log_dirs
        identity = identify(self._fs, paths, config.metadata_log_dir, self.node_id, self._random, now)
        self.cluster_id, self.directory_ids = identity.cluster_id, identity.directory_ids
        stored = self._log.read_quorum_state()
        self._check_alone(set() if stored is None else set(stored.voters), ())
        self._log.open(now)
        delta, image, replayed = self._load()
        self._check_directories(identity, image, len(paths) == len(config.log_dirs))
        self._lead(image, stored, now)
        jobs = self._first_decisions(is_new=replayed == 0)
        image = replace(image, offset=self._quorum.end_offset - 1, epoch=self._quorum.epoch, timestamp_ms=now)
        for decide in jobs:
            decision = decide(image, now)
            assert isinstance(decision, Decision)
            values = [value for value in _prepare(decision, image, delta) if value is not None]
            self._append(values, now)
            image = delta.apply(self._quorum.end_offset - 1, self._quorum.epoch, now)
        self._log.log.flush()
        self._log.note_fsynced(self._quorum.end_offset)
        self._commit(self._quorum.on_flushed(self._quorum.end_offset, now))
        self._publish(delta, image)
        self._snapshot_ms = now
        if replayed > REPLAY_RECORDS_FREE + REPLAY_RATIO_MAX * image.partition_count:
            self._begin_snapshot()
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_CHECK_SECONDS, self._on_timer)

    def _check_directories(self, identity: Identity, image: MetadataImage, are_all: bool) -> None:
        """Refuse a directory that may stand in for one that is lost; log an error about what is recreated empty."""
        lost = lost_partitions(image, self.node_id, identity)
        check_lost(identity, lost, self.config.metadata_log_dir)
        mark(self._fs, identity, self.node_id)
        if lost and are_all:
            found = fields(count=len(lost), partitions=some_of(lost))
            _LOG.error("RECORDS ARE LOST: a log directory is gone; its partitions are recreated empty", extra=found)

    def _load(self) -> tuple[MetadataDelta, MetadataImage, int]:
        """(delta from the empty image, image, records replayed). Part of a transaction that never ended has no
        effect."""
        empty = MetadataDelta(replace(EMPTY_IMAGE, cluster_id=self.cluster_id))
        loader = MetadataLoader(empty, has_gaps=self._log.has_gaps)
        try:
            for batch in self._log.load():
                loader.add(batch.header, batch.items, batch.snapshot)
                if batch.snapshot is None:
                    self._bytes_since_snapshot += batch.header.size
        except ReplayError as error:
            raise OttlaError(
                f"the metadata in {self._log.directory} contradicts itself ({error}): restore the directory from a copy"
            ) from error
        if loader.left_out:
            found = fields(records=len(loader.left_out), first=loader.left_out[0])
            _LOG.error("metadata that builds on lost records is left out", extra=found)
        self._voter_records = loader.voter_records
        self._open_transaction = loader.transaction is not None
        return loader.delta, loader.image(), loader.replayed

    def _lead(self, image: MetadataImage, stored: QuorumStateFile | None, now: Millis) -> None:
        """Win the election of a quorum of one, and write its result to the log."""
        kraft_version = 0
        directory_id = self.directory_ids[self.config.metadata_log_dir]
        record = self._voter_records.get(KRaftVersionRecord)
        if record is not None:
            kraft_version = record.kraft_version
        dynamic = self._voter_records.get(VotersRecord)
        self._check_alone({voter.voter_id for voter in dynamic.voters} if dynamic is not None else set(), image.brokers)
        log = self._log.log
        self._quorum = QuorumCore(
            self.node_id,
            {self.node_id: Replica(self.node_id, directory_id)},
            stored or QuorumStateFile(),
            log.log_end_offset,
            kraft_version,
        )
        ready = self._quorum.campaign(max(image.epoch, log.latest_epoch or 0))
        if ready.persist is not None:
            self._log.write_quorum_state(ready.persist)
        batch = control_batch(ready.control_records, log.log_end_offset, self._quorum.epoch, now)
        self._log.append(batch, now)
        self._quorum.on_appended(log.log_end_offset)

    def _check_alone(self, voters: set[NodeId], registered: Iterable[NodeId]) -> None:
        """Raises OttlaError when the directory belongs to a cluster of several: leading it alone would split it."""
        for kind, found in (("a quorum with controllers", voters), ("a cluster with brokers", set(registered))):
            if others := found - {self.node_id}:
                names = ", ".join(map(str, sorted(others)))
                raise OttlaError(
                    f"{self.config.metadata_log_dir} belongs to {kind} {names}, but this version runs one node: "
                    f"with Kafka, move all to node {self.node_id} and unregister {names}, or give another directory"
                )

    def _first_decisions(self, *, is_new: bool) -> list[Decide[Any]]:
        """What a new leader writes before anything else (`ActivationRecordsGenerator`). A log that has only the results
        of elections is still new: a crash may have come before the bootstrap records."""
        decisions: list[Decide[Any]] = []
        if self._open_transaction:
            abort = AbortTransactionRecord("the controller that began it is gone")
            decisions.append(lambda image, now: Decision(None, [abort]))
        levels = self._bootstrap_levels() if is_new else {}
        static = self.config.static.get("min.insync.replicas", "1")
        decisions.append(lambda image, now: bootstrap(image, levels, static))
        listeners = {each.name: _endpoint(each) for each in self.config.controller_listeners}
        me = brokers.Registration(self.node_id, self._incarnation_id, listeners)
        decisions.append(lambda image, now: brokers.register_controller(image, me))
        return decisions

    def _bootstrap_levels(self) -> Mapping[str, int]:
        """The feature levels that the directory was formatted with."""
        path = posixpath.join(self.config.metadata_log_dir, BOOTSTRAP_FILE)
        if not self._fs.exists(path):
            return features.BOOTSTRAP
        try:
            records = [
                decode_record(item)[0]
                for header, items in read_snapshot(self._fs.read_bytes(path))
                for item in items
                if not header.is_control
            ]
        except (MalformedRecord, KafkaError) as error:
            raise OttlaError(
                f"{path} is damaged ({error}): nothing is in this directory yet but its feature levels; remove the "
                "file to begin with those of this release"
            ) from error
        return {record.name: record.feature_level for record in records if hasattr(record, "feature_level")}

    async def stop(self) -> None:
        """Let writes that were begun finish, fence this broker as Kafka's controlled shutdown does, close the log."""
        for steps in (self._before, self._after):
            steps.clear()
        self._subscribers.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self.broker_epoch >= 0 and self._failure is None and not self._stopped:
            try:
                await self.submit(lambda image, now: brokers.fence(image, self.node_id))
            except KafkaError:
                pass  # the disk is gone: the next start registers again anyhow
        self._stopped = True
        for task in (self._worker, self._snapshot_task):
            if task is not None:
                await asyncio.wait([task])
        try:
            self._log.close()
        except KafkaError as error:  # the next start checks it anyhow
            _LOG.warning("the metadata log was not closed cleanly", extra=fields(error=str(error)))

    @property
    def failure(self) -> KafkaError | None:
        """Why no change is accepted any more; None while they are."""
        return self._failure

    # Changes.

    def subscribe(
        self, callback: Subscriber, *, before: SubscriberSteps | None = None, after: SubscriberSteps | None = None
    ) -> None:
        """Call `callback` for every later change; with the whole current image at once if there is one already.

        What takes long is better done in `before` and `after`, which let others run at each of their yields.
        """
        self._subscribers.append(callback)
        if before is not None:
            self._before.append(before)
        if after is not None:
            self._after.append(after)
        if self.image.offset >= 0:
            callback(MetadataDelta.full(self.image), self.image)

    async def submit(self, decide: Decide[R]) -> R:
        """Run `decide` on the newest image; write, sync and replay its records; return its response.

        Raises KafkaError from `decide`, NOT_CONTROLLER after `stop`, KAFKA_STORAGE_ERROR once the log failed. A caller
        that is cancelled does not stop a decision that was begun.
        """
        if self._failure is not None:
            raise self._failure
        if self._stopped:
            raise KafkaError(ErrorCode.not_controller, "this node is shutting down")
        loop = asyncio.get_running_loop()
        job = _Job(decide, loop.create_future())
        self._queue.append(job)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        result: R = await job.future
        return result

    async def _work(self) -> None:
        while self._queue:
            jobs = list(self._queue)
            self._queue.clear()
            try:
                await self._take(jobs)
            except BaseException as error:  # nobody may wait for ever, not even when this task is cancelled
                self._fail(jobs, error)
                if not isinstance(error, Exception):
                    raise

    async def _take(self, jobs: Sequence[_Job]) -> None:
        """Decide, append, sync once, publish, answer. Raises KafkaError or OSError when the disk fails."""
        start = self._quorum.end_offset
        image = self.image
        done: list[_Done] = []
        for job in jobs:
            now = self._clock.now_ms()
            delta = MetadataDelta(image)
            try:
                decided = job.decide(image, now)
                decision = await run_yielding(decided) if isinstance(decided, Generator) else decided
                decision.check_size()
                values = await _prepared(decision, image, delta)
            except Exception as error:
                done.append(_Done(job, error, failed=True))
                continue
            if not values:
                done.append(_Done(job, decision.response))
                continue
            before = self._quorum.end_offset
            try:
                self._append(values, now)
            except KafkaError as error:
                if self._log.log.failure is not None:
                    raise
                self._roll_back(before)  # a full disk may have room again for the next
                done.append(_Done(job, error, failed=True))
                continue
            image = delta.apply(self._quorum.end_offset - 1, self._quorum.epoch, now)
            done.append(_Done(job, decision.response, delta=delta, image=image))
        if self._quorum.end_offset > start:
            end = self._quorum.end_offset
            await self._log.log.flush_async(end)
            self._log.note_fsynced(end)
            self._commit(self._quorum.on_flushed(end, self._clock.now_ms()))
        for each in done:
            if each.delta is not None and each.image is not None:
                await self._step(self._before, each.delta, each.image)
                self._publish(each.delta, each.image)
                await self._step(self._after, each.delta, each.image)
            if each.job.future.done():
                continue
            if each.failed:
                each.job.future.set_exception(each.outcome)
            else:
                each.job.future.set_result(each.outcome)
        self._maybe_snapshot(self._clock.now_ms())

    def _append(self, values: Sequence[bytes], now: Millis) -> None:
        """Append framed records, in one batch up to the largest decision that must be whole."""
        quorum, log = self._quorum, self._log.log
        for first in range(0, len(values), RECORDS_PER_DECISION_MAX):
            chunk = values[first : first + RECORDS_PER_DECISION_MAX]
            batch = data_batch(chunk, log.log_end_offset, quorum.epoch, now)
            self._bytes_since_snapshot += len(batch)
            self._log.append(batch, now)
            quorum.on_appended(log.log_end_offset)

    def _roll_back(self, end: Offset) -> None:
        """Truncate what was appended of a decision that did not fit, none of which has been published."""
        if self._log.log.log_end_offset > end:
            self._log.log.truncate_to(end)
        self._quorum.end_offset = end

    def _commit(self, ready: Ready) -> None:
        if ready.high_watermark is not None:
            self._log.log.high_watermark = ready.high_watermark

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A subscriber that fails keeps neither the others nor the writer from hearing of what is committed."""
        self.image = image
        for callback in list(self._subscribers):
            try:
                callback(delta, image)
            except Exception as error:
                _report("a subscriber failed to apply a metadata change", error)

    async def _step(self, subscribers: Sequence[SubscriberSteps], delta: MetadataDelta, image: MetadataImage) -> None:
        for steps in list(subscribers):
            try:
                for _ in steps(delta, image):
                    await asyncio.sleep(0)
            except Exception as error:
                _report("a subscriber failed in the course of a metadata change", error)

    def _fail(self, jobs: Sequence[_Job], error: BaseException) -> None:
        """After a disk error nobody knows what the log holds: refuse all further writes, as Kafka's controller
        halts."""
        _report("the metadata log failed; this node accepts no further changes", error)
        self._failure = KafkaError(ErrorCode.kafka_storage_error, f"the metadata log failed: {error}")
        self._failure.__cause__ = error
        waiting = [*jobs, *self._queue]
        self._queue.clear()
        for job in waiting:
            if not job.future.done():
                job.future.set_exception(self._failure)

    # Snapshots.

    def _on_timer(self) -> None:
        self._maybe_snapshot(self._clock.now_ms())
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_CHECK_SECONDS, self._on_timer)

    def _maybe_snapshot(self, now: Millis) -> None:
        interval = self.config["metadata.log.max.snapshot.interval.ms"]
        by_size = self._bytes_since_snapshot >= self.config["metadata.log.max.record.bytes.between.snapshots"]
        by_time = 0 < interval <= now - self._snapshot_ms and self._bytes_since_snapshot > 0
        if by_size or by_time:
            self._begin_snapshot()

    def _begin_snapshot(self) -> None:
        """Write the current image as a snapshot in a disk thread; an image never changes, so that is safe."""
        if (self._snapshot_task is not None and not self._snapshot_task.done()) or self._stopped or self._failure:
            return
        self._bytes_since_snapshot = 0
        self._snapshot_ms = self._clock.now_ms()
        self._snapshot_task = asyncio.get_running_loop().create_task(self._snapshot())

    async def _snapshot(self) -> None:
        image = self.image
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        voters = tuple(self._voter_records.values())
        now = self._clock.now_ms()
        try:
            await self._fs.run(lambda: self._log.store_snapshot(snapshot, _snapshot_batches(image, voters, now)))
        except OSError:
            return  # the log still has everything; the next one is due soon
        self._log.adopt_snapshot(snapshot)
        self._log.clean(now, self.config["metadata.max.retention.ms"], self.config["metadata.max.retention.bytes"])

    # What other parts of the node ask for.

    async def register_broker(self, endpoints: Mapping[str, Endpoint], *, rack: str | None = None) -> int:
        """Register this node under its real endpoints (listener name -> endpoint), unfence it and give it the
        leadership of its partitions in a new leader epoch; returns the broker epoch. Call once the listeners are
        bound, before answering."""
        me = brokers.Registration(
            self.node_id,
            random_uuid(self._random),
            endpoints,
            rack,
            tuple(self.directory_ids[path] for path in self.config.log_dirs if path in self.directory_ids),
        )
        self.broker_epoch = await self.submit(lambda image, now: brokers.register_broker(image, me))
        return self.broker_epoch

    async def create_topics(self, request: Mapping[str, Any], *, principal: str = "User:ANONYMOUS") -> dict[str, Any]:
        """CreateTopics: request to response, as mappings with the newest version's names. Also for auto-creation.

        `principal` is the requester; policies and quotas will want to know.
        """
        return await self.submit(lambda image, now: topics.create_topics(image, request, self.config, self._random))

    async def assign_directories(self, directories: Mapping[tuple[UUID, int], UUID]) -> None:
        """Record in which log directory this node keeps its replicas: (topic id, partition) to directory id."""
        await self.submit(lambda image, now: brokers.assign_directories(image, self.node_id, directories))

    async def allocate_producer_id(self) -> int:
        """The next unused producer id, from blocks of 1,000 that the metadata log hands out."""
        if self._allocation is None:
            self._allocation = asyncio.Lock()
        async with self._allocation:
            if not self._producer_ids:
                self._producer_ids = await self.submit(
                    lambda image, now: producer_ids.allocate(image, self.node_id, self.broker_epoch)
                )
            first = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return first

    def quorum_info(self) -> QuorumInfo:
        """The quorum as its leader sees it; the leader itself is caught up by definition."""
        quorum = self._quorum
        me = quorum.voters[self.node_id]
        me.last_fetch_ms = me.last_caught_up_ms = self._clock.now_ms()
        endpoints = {node_id: node.endpoints for node_id, node in self.image.controllers.items()}
        return QuorumInfo(
            quorum.leader_id,
            quorum.epoch,
            quorum.high_watermark,
            list(quorum.voters.values()),
            list(quorum.observers.values()),
            endpoints,
        )


def _prepare(decision: Decision[Any], image: MetadataImage, delta: MetadataDelta) -> Iterator[bytes | None]:
    """Replay the records into `delta` and encode them: what cannot be replayed or written must not get into the log.

    Gives the encoded records, and now and then a None where others may have their turn.
    """
    for index, record in enumerate(decision.records, start=1):
        if not isinstance(record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
            replay(record, delta)
        if index % RECORDS_PER_STEP == 0:
            yield None
    level = delta.features.get(features.METADATA_VERSION, features.metadata_version(image.features))
    for index, record in enumerate(decision.records, start=1):
        yield encode(record, level)
        if index % RECORDS_PER_STEP == 0:
            yield None


async def _prepared(decision: Decision[Any], image: MetadataImage, delta: MetadataDelta) -> list[bytes]:
    values = []
    for value in _prepare(decision, image, delta):
        if value is None:
            await asyncio.sleep(0)
        else:
            values.append(value)
    return values


def _report(message: str, error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _snapshot_batches(image: MetadataImage, voters: Sequence[Any], now: Millis) -> Iterator[bytearray]:
    level = features.metadata_version(image.features)
    values = (encode(record, level) for record in image_records(image))
    return write_snapshot(values, epoch=image.epoch, last_timestamp=image.timestamp_ms, now=now, voters=voters)


def _log_config(config: ServerConfig) -> LogConfig:
    """The metadata log is kept until snapshots replace it, never by retention, and fsyncs only on `flush`."""
    return LogConfig(
        segment_bytes=config["metadata.log.segment.bytes"],
        segment_ms=config["metadata.log.segment.ms"],
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=(1 << 31) - 1,
        file_delete_delay_ms=60_000,
    )


def _endpoint(listener: Any) -> Endpoint:
    return Endpoint(listener.host, listener.port, SecurityProtocol[listener.protocol])
