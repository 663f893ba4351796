"""Holding clients to their quotas, as Kafka's `RequestHandlerHelper` and `KafkaApis` do.

What a request used is counted when it is answered. Where that is beyond a quota the answer leaves at once and says
for how long the client is held back (`throttle_time_ms`), and for so long nothing more of its connection is handled; a
fetch is answered without records. Others do not notice: nothing waits but the connection itself.

What a request takes of a node is the time of its one loop, so that all clients together have 100 percent: its decoding,
its handler (all steps of it; not what it waits for, nor threads) and the encoding of its answer. Kafka has 100 percent
for each network and request thread.

All of this exists once there is a quota; without one a node has neither this module nor anything to look at.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import elapsed_s
from ottla.drivers.controller.controller_channel import THE_BROKER, LocalControllerChannel, Requester
from ottla.model import Buffer, Millis
from ottla.protocol import fetch_responses, messages
from ottla.protocol.fetch import FetchResponse
from ottla.protocol.layout import KINDS
from ottla.protocol.messages import ApiKey
from ottla.quotas.arithmetic import Windows
from ottla.quotas.limits import IP, UNLIMITED, AddressLimits
from ottla.quotas.usage import ClientQuota, ClientQuotas, Permits
from ottla.server import dispatch
from ottla.server.api import Call, Deferred, EncodedResponse, InOrder, Outcome, RequestContext, Response

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.replication.fetch_session import FetchSession
    from ottla.replication.replica_log import Slice
    from ottla.server import api
    from ottla.server.connections.connection import CompiledConnection
    from ottla.server.ports import Asking, MeteredNode

CHANGES_PER_STEP: Final = 200
"""Setting a quota, or giving a connection its meters, costs a few microseconds."""

STRICT_SINCE: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5,
}  # fmt: skip
"""Versions from which on clients understand THROTTLING_QUOTA_EXCEEDED."""

EXEMPT: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.UPDATE_RAFT_VOTER, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)  # fmt: skip
"""What nodes ask each other, of whose time there is no quota; so are the fetches of replicas. OffsetForLeaderEpoch is
theirs too, though consumers know it: a node that may not find where its log diverges leaves the in-sync set."""

CLIENT_ID_AT: Final = 8
"""Behind API key, version and correlation id."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PERCENT = 100.0


class NodeQuotas:
    """The quotas of a node's clients, and what they used."""

    def __init__(self, node: MeteredNode) -> None:
        config = node.config
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        of_mutations = Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self._node = node
        self._loop = asyncio.get_running_loop()
        self.clients = ClientQuotas(windows, of_mutations)
        self.addresses = AddressLimits()
        channel = node.channel
        if isinstance(channel, LocalControllerChannel):
            channel.permits_of = self._permits_of

    def now_ms(self) -> Millis:
        return int(self._loop.time() * 1000)

    def applying(self, delta: MetadataDelta) -> Iterator[None]:
        """Quotas were set or removed. Others may run at each step: the quotas hold at the end."""
        for number, (entity, changes) in enumerate(delta.client_quotas.items(), start=1):
            for key, value in changes.items():
                if entity[0][0] == IP:
                    self.addresses.change(entity, value)
                else:
                    self.clients.change(entity, key, value)
            if number % CHANGES_PER_STEP == 0:
                yield
        self.clients.limits_changed()
        for listener in self._node.listeners:
            for number, connection in enumerate(list(listener.connections), start=1):
                connection.quotas = self.of_connection(connection)
                if number % CHANGES_PER_STEP == 0:
                    yield

    def of_connection(self, connection: CompiledConnection) -> api.ConnectionQuotas | None:
        """Meters of its requests; None while there are no quotas, and while the client is not known (SASL): what it
        does until then is nobody's."""
        if not self.clients or (connection.login is not None and not connection.login.done):
            return None
        return connection.quotas or ConnectionQuotas(self, connection)

    def fetch_bytes_max(self, context: Asking) -> int:
        """The most that a consumer can ever be given."""
        quota = self.clients.fetch
        if not quota:
            return (1 << 31) - 1
        return quota.bytes_max(user_of(context.principal), context.client_id, self.now_ms())

    def _permits_of(self, api_key: ApiKey, version: int, requester: Requester) -> Permits | None:
        quota, since = self.clients.mutation, STRICT_SINCE.get(api_key)
        if since is None or not quota or requester is THE_BROKER:
            return None
        strict = version < 0 or version >= since
        return Permits(quota, user_of(requester.principal), requester.client_id, self.now_ms, strict=strict)


def limited_fetch(
    context: RequestContext,
    answer: EncodedResponse,
    session: FetchSession | None,
    session_id: int,
    found: Iterable[tuple[Any, Any]],
) -> EncodedResponse:
    """`answer`, or for a consumer beyond its quota one without anything, as if nothing had been found. `found` are
    the partitions with what was read of them; `session_id` may be that of a new session, which is then dropped."""
    quotas = None if context.session is None else context.session.quotas
    if quotas is None:
        return answer
    header_bytes = 1 if messages.is_flexible(context.api_key, context.api_version) else 0
    delay_ms = quotas.fetched(context, answer.length - header_bytes)  # Kafka counts 4 for the rest of the header
    if delay_ms <= 0:
        return answer
    response = FetchResponse([], throttle_time_ms=delay_ms)
    if session is not None:
        response.session_id = session_id
        for cached, read in found:
            if read is not None:
                cached.must_be_answered_again()
    elif session_id:
        context.node.sessions.remove(session_id)
    return EncodedResponse(*fetch_responses.encode_response(context.api_version, context.correlation_id, response))


def user_of(principal: str) -> str:
    """The name in "User:name"."""
    return principal.partition(":")[2]


class _Measured:
    """The usage of one request so far."""

    __slots__ = ("busy_s", "delay_ms", "settled", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        """Size of its frame, in bytes."""
        self.busy_s = 0.0
        self.delay_ms: Millis = 0
        """Delay as computed before the answer."""
        self.settled = False
        """Whether all of it is counted."""


class ConnectionQuotas:
    """Measures the requests of one connection and holds it back."""

    def __init__(self, quotas: NodeQuotas, connection: CompiledConnection) -> None:
        self._quotas = quotas
        self._clients = quotas.clients
        self._connection = connection
        self._user = user_of(connection.principal)
        self._measured: dict[Asking, _Measured] = {}
        """Unanswered requests, of which there are few (`PENDING_MAX`)."""
        self._beginning: _Measured | None = None

    def shortcut(self, head: int, frame: memoryview) -> api.Shortcut | None:
        """The shortcut of the connection for requests of this API and version, where nothing limits the client: then
        only its produced bytes are counted, for the metrics. None where the request is to be measured."""
        found, clients, api_key = self._connection.shortcuts.get(head), self._clients, head >> 16
        if found is None or clients.request or (api_key == ApiKey.FETCH and clients.fetch):
            return None
        if len(frame) < CLIENT_ID_AT + _INT16.size:
            return None
        if api_key != ApiKey.PRODUCE or not clients.produce:
            return found
        client_id, now_ms = _client_id(frame), self._quotas.now_ms()
        usage = clients.produce.usage(self._user, client_id, now_ms)
        if usage.limit < UNLIMITED:
            return None

        def counted(frame: memoryview, correlation_id: int) -> Any:
            answer = found(frame, correlation_id)
            if answer is not None:
                usage.rate.record(len(frame), now_ms)
            return answer

        return counted

    def begin(self, frame: memoryview) -> tuple[Call, Outcome]:
        """`dispatch.begin`, measured."""
        self._beginning = measured = _Measured(len(frame))
        began_s = elapsed_s()
        call, outcome = dispatch.begin(self._connection._listener.node, self._connection, frame)
        measured.busy_s += elapsed_s() - began_s
        self._beginning = None
        self._measured[call.context] = measured
        if isinstance(outcome, InOrder):
            return call, InOrder(_timed(outcome.work, measured))
        if isinstance(outcome, Awaitable) and not isinstance(outcome, Deferred):
            return call, _timed(outcome, measured)
        return call, outcome

    def _of(self, context: Asking) -> _Measured | None:
        return self._measured.get(context) or self._beginning

    def delayed_by_controller(self, context: Asking, delay_ms: Millis) -> None:
        """The controller found the client beyond its quota of mutations."""
        measured = self._of(context)
        if measured is not None:
            measured.delay_ms = max(measured.delay_ms, delay_ms)
            now_ms = self._quotas.now_ms()
            self._clients.mutation.throttled(self._user, context.client_id, delay_ms, now_ms)

    def fetched(self, context: Asking, size: int) -> Millis:
        """Count what a consumer's fetch found, `size` bytes as Kafka counts them. Where that, or its time, is beyond
        the quota it is to be answered without records: then it gives the delay, and the bytes are not counted."""
        measured = self._of(context)
        if measured is None:
            return 0
        clients, client_id, now_ms = self._clients, context.client_id, self._quotas.now_ms()
        of_time = self._count_time(measured, client_id, now_ms)
        of_bytes = clients.fetch.record(self._user, client_id, size, now_ms) if clients.fetch else 0
        measured.settled = True
        delay_ms = max(of_time, of_bytes)
        if delay_ms > 0:
            if clients.fetch:
                clients.fetch.record_only(self._user, client_id, -size, now_ms)
            self._hold_back(measured, clients.fetch if of_bytes > of_time else clients.request, client_id, delay_ms)
        return delay_ms

    def _count_time(self, measured: _Measured, client_id: str | None, now_ms: Millis) -> Millis:
        quota = self._clients.request
        if not quota:
            return 0
        return quota.record(self._user, client_id, measured.busy_s * _PERCENT, now_ms)

    def _hold_back(self, measured: _Measured, quota: ClientQuota, client_id: str | None, delay_ms: Millis) -> None:
        quota.throttled(self._user, client_id, delay_ms, self._quotas.now_ms())
        measured.delay_ms = max(measured.delay_ms, delay_ms)

    def answered(self, call: Call, response: Response) -> Response:
        """Count a request that is about to be answered, and hold the connection back if that was too much."""
        context = call.context
        measured = self._measured.pop(context, None)
        if measured is None:
            return response
        if not measured.settled and context.api_key not in EXEMPT and not _is_of_replica(call):
            self._settle(call, measured)
        if measured.delay_ms <= 0:
            return response
        self._connection.mute(measured.delay_ms / 1000)
        return with_throttle_time(context, response, measured.delay_ms)

    def _settle(self, call: Call, measured: _Measured) -> None:
        client_id, now_ms = call.context.client_id, self._quotas.now_ms()
        of_bytes, unanswered = 0, False
        if call.context.api_key == ApiKey.PRODUCE:
            unanswered = call.request is not None and call.request.acks == 0
            if self._clients.produce:
                of_bytes = self._clients.produce.record(self._user, client_id, measured.size, now_ms)
        of_time = 0 if unanswered else self._count_time(measured, client_id, now_ms)
        delay_ms = max(of_bytes, of_time)
        if delay_ms > 0:
            quota = self._clients.produce if of_bytes > of_time else self._clients.request
            self._hold_back(measured, quota, client_id, delay_ms)

    def encode(self, call: Call, response: Response) -> tuple[list[Buffer | Slice], int]:
        """`dispatch.encode`, measured: its time counts for the next request, as that of Kafka's network threads."""
        began_s = elapsed_s()
        encoded = dispatch.encode(call, response)
        quota, context = self._clients.request, call.context
        if quota and context.api_key not in EXEMPT:
            percent = (elapsed_s() - began_s) * _PERCENT
            quota.record_only(self._user, context.client_id, percent, self._quotas.now_ms())
        return encoded


def _client_id(frame: memoryview) -> str | None:
    """The client id in a request's header, of version 1 or 2."""
    (length,) = _INT16.unpack_from(frame, CLIENT_ID_AT)
    start = CLIENT_ID_AT + _INT16.size
    return None if length < 0 else str(frame[start : start + length], "utf-8", "replace")


def _is_of_replica(call: Call) -> bool:
    return call.context.api_key == ApiKey.FETCH and getattr(call.request, "replica_id", -1) >= 0


class _timed:
    """Awaits `work`, and adds what its steps take on the loop."""

    __slots__ = ("_measured", "_work")

    def __init__(self, work: Awaitable[Any], measured: _Measured) -> None:
        self._work = work
        self._measured = measured

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        step, value = steps.send, None
        while True:
            began_s = elapsed_s()
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            finally:
                self._measured.busy_s += elapsed_s() - began_s
            try:
                step, value = steps.send, (yield awaited)
            except BaseException as error:
                step, value = steps.throw, error


def with_throttle_time(context: RequestContext, response: Response, delay_ms: Millis) -> Response:
    """The same response with the throttle time of its client, if its version has the field."""
    if isinstance(response, Mapping):
        return {**response, "throttle_time": delay_ms}
    if not response:
        return response
    key, version = context.api_key, context.api_version
    if key == ApiKey.PRODUCE and isinstance(response, EncodedResponse):  # the time is behind the rows
        whole = b"".join(bytes(part) for part in response.parts)
        correlation_id, produced = messages.decode_response(key, version, whole)
        values = {**messages.plain(produced), "throttle_time": delay_ms}
        return EncodedResponse((messages.encode_response(key, version, correlation_id, values),))
    offset = throttle_offset(key, version)
    if offset is None:
        return response
    if isinstance(response, EncodedResponse):
        head, taken = bytearray(), 0
        while len(head) < offset + _INT32.size:
            head += response.parts[taken]
            taken += 1
        _INT32.pack_into(head, offset, delay_ms)
        return EncodedResponse([head, *response.parts[taken:]], response.length)
    frame = bytearray(response)
    _INT32.pack_into(frame, offset + 4, delay_ms)
    return bytes(frame)


@cache
def throttle_offset(api_key: int, version: int) -> int | None:
    """Where an encoded response says for how long its client is held back; None if there is no such field, or if it is
    behind one of variable size (ApiVersions, which is never encoded early).
    """
    offset = len(messages.response_header(api_key, version, 0))
    for field in messages.response_layout(api_key, version).fields:
        if field.name == "throttle_time":
            return offset
        if field.is_array or field.kind not in (KINDS["int16"], KINDS["error"]):
            return None
        offset += 2
    return None
