"""Asks share coordinators to keep, return and delete the state of share-partitions (Kafka's `PersisterStateManager`).

A coordinator on this node is called. To another one what is asked of one moment goes together, a request for each API
and group, and what comes meanwhile waits for the next; writes of one share-partition become one. What fails because a
coordinator is not there, moves or loads is asked again, at the coordinator of that moment, with pauses that grow, until
`RETRY_MS_MAX` have passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.share.combining import UNCHANGED
from ottla.coordinator.share.requests import (
    DeleteState,
    InitializeState,
    ReadState,
    StateRequest,
    StateRow,
    SummarizeState,
    WriteState,
)
from ottla.coordinator.share.shard import partition_of
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import BrokerRegistration
from ottla.model import SHARE_STATE_TOPIC, NodeId
from ottla.network import Address
from ottla.protocol.internal.share_records import SharePartitionKey
from ottla.protocol.messages import ApiKey, plain_in_steps
from ottla.protocol.schemas.records import StateBatch

if TYPE_CHECKING:
    from ottla.drivers.ports import PersisterHost

_LOG = logging.getLogger("ottla.share")

RETRY_MS_MAX: Final = 30_000
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0
"""A coordinator that moves is back in a fraction of a second; Kafka waits for a second at first."""

ROWS_PER_REQUEST: Final = 1_000

_APIS: Final[Mapping[type[StateRequest], tuple[ApiKey, tuple[int, int]]]] = {
    InitializeState: (ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0)),
    ReadState: (ApiKey.READ_SHARE_GROUP_STATE, (0, 0)),
    WriteState: (ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1)),
    DeleteState: (ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0)),
    SummarizeState: (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1)),
}

_PASSES: Final = frozenset({
    ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress,
    ErrorCode.network_exception, ErrorCode.request_timed_out,
})  # fmt: skip


Done = Callable[[StateRow | None], None]
"""Called once with the PartitionResult of the request's API, with its error; None when the node stops."""


class _Asked:
    """One share-partition in one request."""

    __slots__ = ("_persister", "deadline", "done", "later", "pause_s", "request")

    def __init__(self, persister: Persister, request: StateRequest, done: Done) -> None:
        self._persister = persister
        self.request = request
        self.done: Done | None = done
        """None once it was called."""
        self.deadline = asyncio.get_running_loop().time() + RETRY_MS_MAX / 1000
        self.pause_s = PAUSE_S
        self.later: list[WriteState] = []
        """Writes to the same share-partition that were asked for since."""

    def current(self) -> StateRequest:
        """The request as it is to be sent now: what was written since is newer, and may be at another coordinator
        already, so that nothing of it may go back."""
        request = self.request
        if not isinstance(request, WriteState) or not self.later:
            return request
        batches = list(request.state_batches)
        for newer in (batch for each in self.later for batch in each.state_batches):
            batches = [part for batch in batches for part in _outside(batch, newer)]
        count = self.later[-1].delivery_complete_count
        return request._replace(start_offset=UNCHANGED, state_batches=batches, delivery_complete_count=count)

    def complete(self, result: StateRow | KafkaError) -> None:
        """The coordinator's reply."""
        if isinstance(result, KafkaError):
            result = self.failed(result.code)
        self._persister.answered(self, result)

    def failed(self, error: ErrorCode) -> StateRow:
        return {"partition": self.request.key.partition, "error_code": error, "error_message": None}


class Persister:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: PersisterHost, make_topic: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`make_topic` creates `__share_group_state`; raises nothing."""
        self._node = node
        self._make_topic = make_topic
        self._making: asyncio.Task[None] | None = None
        self._client = node.broker_clients.new(f"broker-{node.node_id}-share")
        self._queues: dict[tuple[NodeId, ApiKey], list[_Asked]] = {}
        self._tasks: dict[tuple[NodeId, ApiKey], asyncio.Task[None]] = {}
        self._waiting: dict[_Asked, asyncio.Handle] = {}
        self._writes: dict[SharePartitionKey, list[_Asked]] = {}
        """Writes of each key without a result."""
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        for timer in self._waiting.values():
            timer.cancel()
        for task in [*self._tasks.values()]:
            await cancelled(task)
        for asked in [*self._waiting, *(each for queue in self._queues.values() for each in queue)]:
            self._finish(asked, None)
        await self._client.close()

    def ask(self, request: StateRequest) -> asyncio.Future[StateRow]:
        """The same as `tell`, to be awaited. Cancelled when the node stops."""
        result: asyncio.Future[StateRow] = asyncio.get_running_loop().create_future()

        def done(row: StateRow | None) -> None:
            if row is None:
                result.cancel()
            elif not result.done():
                result.set_result(row)

        self.tell(request, done)
        return result

    def tell(self, request: StateRequest, done: Done) -> None:
        """`done` hears what the coordinator answers: before this returns, where it is on this node and waits for
        nobody. Raises nothing."""
        asked = _Asked(self, request, done)
        if self._writes and isinstance(request, WriteState):
            for before in self._writes.get(request.key, ()):
                before.later.append(request)
        self._send(asked)
        if asked.done is not None and isinstance(request, WriteState):
            self._writes.setdefault(request.key, []).append(asked)

    def _finish(self, asked: _Asked, row: StateRow | None) -> None:
        done, asked.done = asked.done, None
        if done is None:
            return
        key = asked.request.key
        if self._writes and asked in (writes := self._writes.get(key, [])):
            writes.remove(asked)
            if not writes:
                del self._writes[key]
        done(row)

    def _send(self, asked: _Asked) -> None:
        if self._stopped:
            self._finish(asked, None)
            return
        broker = self._coordinator(asked)
        if broker is None:
            self.answered(asked, asked.failed(ErrorCode.coordinator_not_available))
        elif broker.id == self._node.node_id:
            try:
                self._node.share_coordinator.ask(asked, asked.current())
            except KafkaError as error:
                asked.complete(error)
        else:
            api, _ = _APIS[type(asked.request)]
            where = (broker.id, api)
            self._queues.setdefault(where, []).append(asked)
            if where not in self._tasks:
                self._tasks[where] = asyncio.get_running_loop().create_task(self._run(where))

    def _coordinator(self, asked: _Asked) -> BrokerRegistration | None:
        """None where nobody can be asked now."""
        node = self._node
        topic = node.image.topic(SHARE_STATE_TOPIC)
        if topic is None:
            if self._making is None or self._making.done():
                self._making = node.spawn(self._make_topic())
            return None
        registration = topic.partitions.get(partition_of(asked.request.key, len(topic.partitions)))
        broker = None if registration is None else node.image.brokers.get(registration.leader)
        return None if broker is None or broker.fenced or node.inter_broker_listener not in broker.endpoints else broker

    def answered(self, asked: _Asked, result: StateRow) -> None:
        """Handle an answer: retry the request, or report the result."""
        loop = asyncio.get_running_loop()
        if result["error_code"] in _PASSES and not self._stopped and loop.time() + asked.pause_s < asked.deadline:
            self._waiting[asked] = loop.call_later(asked.pause_s, self._again, asked)
            asked.pause_s = min(2 * asked.pause_s, PAUSE_S_MAX)
        else:
            self._finish(asked, result)

    def _again(self, asked: _Asked) -> None:
        del self._waiting[asked]
        self._send(asked)

    async def ask_broker(
        self, node_id: NodeId, api: ApiKey, values: Mapping[str, Any], *, versions: tuple[int, int]
    ) -> Any:
        """The response of another broker. Raises KafkaError."""
        broker = self._node.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._node.inter_broker_listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.broker_not_available)
        address = Address(endpoint.host, endpoint.port)
        return (await self._client.ask(address, api, values, versions=versions)).response

    # Over the wire

    async def _run(self, where: tuple[NodeId, ApiKey]) -> None:
        """Send what is there for a broker, one round after the other, until there is nothing."""
        try:
            await asyncio.sleep(0)  # what else this turn of the loop brings goes along
            while queue := self._queues.pop(where, []):
                if len(queue) > ROWS_PER_REQUEST:
                    self._queues[where] = queue[ROWS_PER_REQUEST:]
                groups: dict[str, list[_Asked]] = {}
                for asked in queue[:ROWS_PER_REQUEST]:
                    groups.setdefault(asked.request.key.group_id, []).append(asked)
                await asyncio.gather(*(self._request(*where, group, some) for group, some in groups.items()))
        finally:
            del self._tasks[where]

    async def _request(self, node_id: NodeId, api: ApiKey, group_id: str, some: list[_Asked]) -> None:
        """Ask about share-partitions of one group, in one row each. Raises nothing."""
        by_place: dict[tuple[Any, int], list[_Asked]] = {}
        for asked in some:
            together = by_place.setdefault((asked.request.key.topic_id, asked.request.key.partition), [])
            if together and _writer(asked.request) != _writer(together[-1].request):  # it has become leader again
                for each in together:
                    self.answered(each, each.failed(ErrorCode.fenced_leader_epoch))
                together.clear()
            together.append(asked)
        topics: dict[Any, list[dict[str, Any]]] = {}
        for place, together in by_place.items():
            topics.setdefault(place[0], []).append(_as_one([each.current() for each in together]).row())
        rows: dict[tuple[Any, int], StateRow] = {}
        error = ErrorCode.network_exception
        try:
            values = {
                "group_id": group_id,
                "topics": [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()],
            }
            versions = next(versions for key, versions in _APIS.values() if key is api)
            answer = await run_yielding(plain_in_steps(await self.ask_broker(node_id, api, values, versions=versions)))
            rows = {
                (topic["topic_id"], row["partition"]): row for topic in answer["results"] for row in topic["partitions"]
            }
        except KafkaError as failure:
            if failure.code is ErrorCode.unsupported_version:
                error = failure.code
            where = fields(broker=node_id, group=group_id, error=str(failure))
            _LOG.warning("a share coordinator does not answer", extra=where)
        except Exception as bug:
            error = ErrorCode.unknown_server_error
            _LOG.error("a share coordinator cannot be asked", exc_info=bug)
        for place, together in by_place.items():
            for asked in together:
                self.answered(asked, rows.get(place) or asked.failed(error))


def _outside(batch: StateBatch, newer: StateBatch) -> Iterator[StateBatch]:
    """The parts of a batch that a newer one says nothing of."""
    if newer.last_offset < batch.first_offset or batch.last_offset < newer.first_offset:
        yield batch
        return
    if batch.first_offset < newer.first_offset:
        yield batch.replaced(last_offset=newer.first_offset - 1)
    if newer.last_offset < batch.last_offset:
        yield batch.replaced(first_offset=newer.last_offset + 1)


def _writer(request: StateRequest) -> tuple[int, int] | None:
    """The epochs of a write."""
    return (request.state_epoch, request.leader_epoch) if isinstance(request, WriteState) else None


def _as_one(requests: Sequence[StateRequest]) -> StateRequest:
    """What does the same to a share-partition as these, one behind the other.

    The coordinator combines batches whatever their order, and the newest start offset counts. Of all but writes the
    last one says what the others say.
    """
    last = requests[-1]
    if not isinstance(last, WriteState):
        return last
    writes = [each for each in requests if isinstance(each, WriteState)]
    return last._replace(
        start_offset=max(each.start_offset for each in writes),
        state_batches=[batch for each in writes for batch in each.state_batches],
    )
