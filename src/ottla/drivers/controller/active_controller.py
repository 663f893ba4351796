"""The active controller: requests in, in Kafka's own messages; records into the metadata log and responses out.

Each decision is taken on the newest image, the one that the decision before it left, committed or not; its records are
appended, and the next decision goes on while they are fsynced and copied to others. An answer waits until what it says
is committed (`QuorumController` with its deferred events). No broker is waited for, not even the one of this process.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.clock import Clock
from ottla.config.effective import EffectiveConfig
from ottla.controller import brokers, requests
from ottla.controller.bootstrap import bootstrap
from ottla.controller.broker_sessions import BrokerSessions
from ottla.controller.decision import Decide, Decision, Inputs, Permits, Steps, unlimited
from ottla.controller.features import kraft_level
from ottla.drivers.controller.periodic_elections import PeriodicElections
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.metadata.loader import at_kraft_version
from ottla.metadata.replay import replay
from ottla.metadata.writer import encode
from ottla.model import NodeId, Offset
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

if TYPE_CHECKING:
    from ottla.drivers.controller.controller_ports import Keeper
    from ottla.protocol.schemas import sent
    from ottla.security.tokens import TokenFinder

R = TypeVar("R")

RECORDS_PER_STEP = 128
"""Replaying a record of the metadata log and encoding it costs about 30 us."""

STOOD_STILL_S = 0.1
"""A timer that is so late was held up by more than work."""

FENCE_AT_ONCE = 1
"""Brokers fenced in one decision; their leaders move, which may be many records (`maybeFenceStaleBroker`)."""


COMMIT_SECONDS_MAX = 1.0
"""How long a stopping controller waits for its decisions to be replicated: they may be stopping too."""


class ControllerSettings(NamedTuple):
    """Settings of a controller, fixed at start."""

    node_id: NodeId
    cluster_id: str
    static: Mapping[str, str]
    """The node's static settings, names to texts."""
    session_timeout_s: float
    has_broker: bool
    """Whether the broker of the same id is this process: as long as one lives, so does the other."""


class Answer(NamedTuple):
    """The answer to a request, after its commit."""

    response: Any
    """The mapping of the API that was asked (`schemas/sent.pyi`)."""
    offset: Offset
    """Offset of the last record that the answer builds on: whoever has seen the metadata up to there will not
    contradict it."""


Heard = Callable[[MetadataImage, Decision[Any]], None]
"""Hears of a decision whose records are appended, with the image that it was taken on."""


class _Job(NamedTuple):
    decide: Decide[Any]
    future: asyncio.Future[Answer]
    heard: Heard | None = None


class _Pending(NamedTuple):
    """A decision whose records are appended and not yet committed."""

    end: Offset
    future: asyncio.Future[Answer]
    answer: Answer


class ActiveController:
    """All methods belong to the event loop's thread. Until `activate`, everything is answered NOT_CONTROLLER."""

    def __init__(
        self,
        quorum: QuorumNode,
        publisher: MetadataPublisher,
        clock: Clock,
        random: random_module.Random,
        settings: ControllerSettings,
    ) -> None:
        self._quorum = quorum
        self._publisher = publisher
        self._clock = clock
        self._random = random
        self._settings = settings
        self.image = publisher.image
        """The newest: decisions build on it, and nobody else may, for a part of it may not be committed."""
        self.active = False
        self.keeper: Keeper | None = None
        """Has to have a decision before it counts; None where the metadata log is the truth."""
        self._resignations = 0
        self._config = EffectiveConfig(settings.static, {}, {})
        self._sessions = BrokerSessions(settings.session_timeout_s)
        self._queue: deque[_Job] = deque()
        """At most one job per waiting caller; the connections limit these."""
        self._pending: deque[_Pending] = deque()
        """Pending decisions in log order."""
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._failure: KafkaError | None = None
        self._tokens = token_finder(self._config)
        self._elections = PeriodicElections(self.submit, lambda image: self._inputs(image).config)
        quorum.on_commit.append(self._on_commit)
        quorum.on_failure.append(self._fail)

    # Start and stop.

    def activate(self) -> None:
        """Start: this node leads the quorum, and everything in its log is committed and published."""
        self.image = self._publisher.begin_staging()
        assert not self._pending and not self._queue, "all requests are answered before resigning"
        self._sessions.begin(self.image.brokers.values(), self._now_s())
        self._drop_own_session()
        self.active = True
        self._arm()
        self._elections.start(self.image)

    def resign(self, error: KafkaError | None = None) -> None:
        """Take no more requests; nobody can know what becomes of those that are not committed."""
        self.active = False
        self._resignations += 1
        self._elections.stop()
        self._publisher.unstage()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._answer_all(error or _not_active())

    async def stop(self) -> None:
        """Let decisions that were begun be committed, then take no more."""
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self._pending and self._failure is None:
            await asyncio.wait([self._pending[-1].future], timeout=None if self._quorum.alone else COMMIT_SECONDS_MAX)
        self._failure = self._failure or KafkaError(ErrorCode.not_controller, "this node is shutting down")
        self.resign(self._failure)

    # Requests.

    async def request(
        self,
        api_key: int,
        request: Any,
        permits: Permits = unlimited,
        heard: Heard | None = None,
        requester: str = "User:ANONYMOUS",
    ) -> Answer:
        """Decide on a request and return when the decision is committed. Mappings have the names of the newest version.

        Raises KafkaError for a request that is refused as a whole: NOT_CONTROLLER, KAFKA_STORAGE_ERROR once the log has
        failed, UNSUPPORTED_VERSION for an API that no controller serves, and what the decision raises. A caller that is
        cancelled does not stop a decision that was begun.
        """
        if api_key == ApiKey.BROKER_HEARTBEAT:
            unchanged = self._heard(request)
            if unchanged is not None:
                return unchanged
        elif api_key == ApiKey.BROKER_REGISTRATION:
            return await self._answer(lambda image, now: self._register(image, request))
        elif api_key == ApiKey.UPDATE_FEATURES and (level := kraft_level(request)) is not None:
            return await self._update_features(request, level, heard)
        return await self._answer(
            lambda image, now: requests.decide(
                api_key, image, request, self._inputs(image)._replace(permits=permits, now_ms=now, requester=requester)
            ),
            heard,
        )

    async def _update_features(self, request: sent.UpdateFeaturesRequest, level: int, heard: Heard | None) -> Answer:
        """The level of the quorum is among those to be set, which a record of its own says. Raises KafkaError."""
        from ottla.drivers.quorum import quorum_changes

        def decide(image: MetadataImage, now: int) -> Any:
            image = at_kraft_version(image, self._quorum.kraft_version)
            decision = requests.decide(ApiKey.UPDATE_FEATURES, image, request, self._inputs(image))
            quorum_changes.check_upgrade(self._quorum, level)
            return decision

        answer = await self._answer(decide, heard)
        if not request.get("validate_only"):
            await quorum_changes.upgrade(self._quorum, level)
        return answer

    async def submit(self, decide: Decide[R]) -> R:
        """Run any decision on the newest image, and return its response when its records are committed."""
        response: R = (await self._answer(decide)).response
        return response

    def config(self, image: MetadataImage) -> EffectiveConfig:
        """The settings that a decision on `image` is taken by."""
        return self._inputs(image).config

    def drop_session(self, node_id: NodeId) -> None:
        """End the session of a broker: another process with its id may register now."""
        self._sessions.drop(node_id)

    def _inputs(self, image: MetadataImage) -> Inputs:
        cluster_wide = image.config(ConfigResourceType.BROKER, "")
        own = image.config(ConfigResourceType.BROKER, str(self._settings.node_id))
        config = self._config
        if config.cluster_wide is not cluster_wide or config.per_broker is not own:
            self._config = config = EffectiveConfig(self._settings.static, cluster_wide, own)
        settings = self._settings
        return Inputs(
            config,
            self._random,
            settings.cluster_id,
            self._sessions,
            node_id=settings.node_id,
            voters=self._voters,
            tokens=self._tokens,
        )

    def _voters(self) -> list[NodeId]:
        return [each.node_id for each in self._quorum.voters]

    def _answer(self, decide: Decide[Any], heard: Heard | None = None) -> asyncio.Future[Answer]:
        if self._failure is not None:
            raise self._failure
        if not self.active:
            raise _not_active()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._queue.append(_Job(decide, future, heard))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return future

    # Decisions.

    async def _work(self) -> None:
        try:
            while self._queue:
                await self._take(self._queue.popleft())
        except BaseException as error:  # cancelled; nobody may wait for ever
            self._answer_all(_given_up(error))
            raise

    async def _take(self, job: _Job) -> None:
        """Decide, append, and leave the rest to the commit."""
        now, resignations = self._clock.now_ms(), self._resignations
        image = self.image
        delta = MetadataDelta(image)
        try:
            decided = job.decide(image, now)
            decision = await run_yielding(decided) if isinstance(decided, Generator) else decided
            decision.check_size()
            values = await _prepared(decision, image, delta)
            if self._resignations != resignations:  # while others ran; the image may have been of what is not committed
                raise self._failure or _not_active()
            if values:
                if self.keeper is not None:
                    self.keeper.check(delta)
                end = self._quorum.append(values, now)
                self.image = delta.apply(end - 1, self._quorum.epoch, now)
                self._publisher.stage(delta, self.image)
                if self.keeper is not None:
                    self.keeper.appended(delta, self.image, end)
            if job.heard is not None:
                job.heard(image, decision)
        except BaseException as error:
            if not job.future.done():
                job.future.set_exception(error if isinstance(error, Exception) else _given_up(error))
            if not isinstance(error, Exception):
                raise
            return
        if values or self._pending:  # what it only read may not be committed either
            answer = Answer(decision.response, self.image.offset)
            self._pending.append(_Pending(self.image.offset + 1, job.future, answer))
        elif not job.future.done():
            job.future.set_result(Answer(decision.response, image.offset))

    def _on_commit(self, high_watermark: Offset) -> None:
        while self._pending and self._pending[0].end <= high_watermark:
            _, future, answer = self._pending.popleft()
            if not future.done():
                future.set_result(answer)

    def _fail(self, error: KafkaError) -> None:
        self._failure = error
        self.resign(error)

    def _answer_all(self, error: KafkaError) -> None:
        waiting = [*(each.future for each in self._pending), *(each.future for each in self._queue)]
        self._pending.clear()
        self._queue.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever gave up waiting need not hear of it

    # The life of brokers.

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _register(
        self, image: MetadataImage, request: sent.BrokerRegistrationRequest
    ) -> Steps[sent.BrokerRegistrationResponse]:
        """One incarnation at a time: another process with the same id must be gone for a session (KIP-631)."""
        node_id, before = request["broker_id"], image.brokers.get(request["broker_id"])
        if (
            before is not None
            and before.incarnation_id != request["incarnation_id"]
            and not before.in_controlled_shutdown
            and self._sessions.is_valid(node_id, before.epoch, self._now_s())
        ):
            raise KafkaError(
                ErrorCode.duplicate_broker_registration,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )
        self._sessions.drop(node_id)
        return brokers.register_broker(image, request, self._settings.cluster_id, self._inputs(image).config)

    def _heard(self, request: sent.BrokerHeartbeatRequest) -> Answer | None:
        """Note that a broker lives; its answer where nothing changes, which is nearly always. Raises KafkaError."""
        if not self.active:
            return None
        answer = brokers.unchanging(self.image, request)
        if not self._is_own(request["broker_id"]):
            offset = request["current_metadata_offset"]
            self._sessions.touch(request["broker_id"], request["broker_epoch"], self._now_s(), offset)
            if self._timer is None:
                self._arm()
        return None if answer is None or self._pending else Answer(answer, -1)

    def _is_own(self, node_id: NodeId) -> bool:
        return self._settings.has_broker and node_id == self._settings.node_id

    def _drop_own_session(self) -> None:
        """A node whose machine slept must not fence itself; nor does its own restart wait for a session to end."""
        if self._settings.has_broker:
            self._sessions.drop(self._settings.node_id)

    def _arm(self) -> None:
        """Wake up when the next session may end; a controller that has only its own broker sets no timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_s = self._sessions.next_expiry_s()
        if at_s is not None and self.active:
            self._timer = asyncio.get_running_loop().call_at(at_s, self._on_timer, at_s)

    def _on_timer(self, due_s: float, *, is_again: bool = False) -> None:
        """A process that stood still has not read what brokers said meanwhile: it listens before it judges. Else it
        would fence them one by one, and who is left last may be one that has died."""
        self._timer = None
        now_s, timeout_s = self._now_s(), self._settings.session_timeout_s
        if now_s > due_s + timeout_s:
            self._sessions.begin(self.image.brokers.values(), now_s)
            self._drop_own_session()
        elif not is_again and (now_s > due_s + STOOD_STILL_S or self._sessions.all_silent(now_s - timeout_s / 2)):
            at_s = now_s + timeout_s / 4
            self._timer = asyncio.get_running_loop().call_at(at_s, partial(self._on_timer, at_s, is_again=True))
            return
        for node_id in self._sessions.stale(now_s)[:FENCE_AT_ONCE]:
            self.fence(node_id)
        self._arm()

    def fence(self, node_id: NodeId) -> None:
        """A broker is gone, by what is known of it; another process with its id may register now."""
        self._sessions.drop(node_id)
        self._answer(lambda image, now: brokers.fence(image, node_id, self._inputs(image).config))


def token_finder(config: EffectiveConfig) -> TokenFinder | None:
    """What finds delegation tokens, on a node that has the secret for them."""
    secret = config.delegation_token_secret_key
    if not secret:
        return None
    from ottla.security.tokens import TokenFinder  # most clusters have no tokens

    return TokenFinder(secret)


def _not_active() -> KafkaError:
    return KafkaError(ErrorCode.not_controller, "this node is not the active controller")


def _given_up(error: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.unknown_server_error, f"the controller failed: {error!r}")


def first_decisions(
    levels: Mapping[str, int],
    static_min_isr: str,
    *,
    open_transaction: bool,
    registration: sent.ControllerRegistrationRequest,
    more: Sequence[Any] = (),
) -> list[Decide[Any]]:
    """What a new leader writes before anything else (`ActivationRecordsGenerator`). `levels` are those of a new
    cluster, empty for one that has metadata, and `more` records that it begins with."""
    decisions: list[Decide[Any]] = []
    if open_transaction:
        abort = AbortTransactionRecord("the controller that started it has gone")
        decisions.append(lambda image, now: Decision(None, [abort]))
    decisions.append(lambda image, now: bootstrap(image, levels, static_min_isr, more))
    decisions.append(lambda image, now: brokers.register_controller(image, registration))
    return decisions


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


async def _prepared(decision: Decision[Any], image: MetadataImage, delta: MetadataDelta) -> Sequence[bytes]:
    values = []
    for value in _prepare(decision, image, delta):
        if value is None:
            await asyncio.sleep(0)
        else:
            values.append(value)
    return values
