"""What a request handler is: a function marked with `api`, given a context and a request, giving a response.

    @api(ApiKey.DELETE_RECORDS, versions=(0, 2), needs=(of_topics(Operation.DELETE, "topics.name"),))
    async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse: ...

The types of requests are in `protocol/schemas/received.pyi`, those of responses in `sent.pyi`, for mypy alone.
No handler is without `needs`: what its clients must be allowed to do (`permissions.py`).

A handler may be a coroutine function or a plain one; a plain one costs no task and is answered at once. It returns a
mapping for `messages.encode_response`, an `EncodedResponse` (Produce, Fetch: bytes and file slices), or None for no
response at all (acks=0). A `KafkaError` that it raises becomes the mapping that `on_error` gives. A plain handler
that must wait (long polls) may return a `Deferred`, which is cheaper than a task.

A handler whose work grows with its request is a generator function that yields the cost of each row. What takes no
more than a slice of time is answered at once; the rest yields to the event loop. Long requests are decoded, and their
answers encoded, in the same way.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ottla.drivers.cooperative import Cost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer, Millis
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.connections.outbox import EncodedResponse as EncodedResponse
from ottla.server.controller_handlers import CONTROLLER_TABLE, OWN_FORWARDED
from ottla.server.handlers import OWN, TABLE, Served

if TYPE_CHECKING:
    import asyncio

    from ottla.protocol.schemas.sent import SaslAuthenticateResponse, SaslHandshakeResponse
    from ottla.replication.replica_log import Slice
    from ottla.server.connections.outbox import Outbox
    from ottla.server.ports import Asking, NodePorts
    from ottla.server.security.permissions import Need, Needs


LONG_REQUEST_BYTES: Final = 4096
"""Above, a request is decoded in steps: it may have a thousand rows, each of which costs far more than its bytes."""

LARGE_REQUEST_BYTES: Final = 65_536
"""Above, a request waits until there is room for its rows (`decoded_rows.py`)."""

LONG_RECORDS_BYTES: Final = 1 << 20
"""The same for requests that may hold records: what is longer lies in a buffer of its connection's own anyhow."""

ROWS_COST_SHIFT: Final = 3
"""Eight bytes of an answer that is made of rows cost a microsecond."""

RECORDS_COST_SHIFT: Final = 10
"""Records are bytes that nobody looks at: a kilobyte costs a microsecond."""

ROW_COST: Final = 10
"""Cost of a look-up for a row of a request."""

_ERROR_NAMES: Final[Mapping[int, str]] = {int(code): code.name.upper() for code in ErrorCode}


Response: TypeAlias = Mapping[str, Any] | EncodedResponse | bytes | None
"""Bytes are a whole frame, its length included."""


class Deferred:
    """A response that comes later, without a task: `complete` may be called once, from the event loop.

    The connection sets `slot`, and calls `cancel` when it is lost before the response came.
    """

    __slots__ = ("cancelled", "done", "on_cancel", "on_complete", "result", "slot")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.done = False
        self.cancelled = False
        self.result: Response | BaseException = None
        self.slot: Slot | None = None
        """What gets the response: a function for each request, `on_complete`, would take longer."""
        self.on_complete: Callable[[Response | BaseException], None] | None = None
        """Gets it where there is no slot."""
        self.on_cancel = on_cancel

    def complete(self, result: Response | BaseException) -> None:
        if self.done or self.cancelled:
            return
        self.done = True
        self.result = result
        slot, on_complete = self.slot, self.on_complete
        # They refer to who refers to this: a cycle, with the answer in it.
        self.slot = self.on_complete = self.on_cancel = None
        if slot is not None:
            slot.complete(result)
        elif on_complete is not None:
            on_complete(result)

    def cancel(self) -> None:
        if not self.done and not self.cancelled:
            self.cancelled = True
            on_cancel = self.on_cancel
            self.slot = self.on_complete = self.on_cancel = None
            if on_cancel is not None:
                on_cancel()


class InOrder:
    """An outcome that the next request of the connection must wait for, even where its API is `pipelined`."""

    __slots__ = ("work",)

    def __init__(self, work: Awaitable[Any]) -> None:
        self.work = work
        """Work whose result is a response, or one more outcome, which no longer holds back the next request."""


Answer: TypeAlias = "Response | Awaitable[Response]"
Outcome: TypeAlias = "Response | Deferred | Awaitable[Response] | InOrder"
"""What a handler leaves to its connection."""


class LongRequest(Exception):
    """A request with so many rows that it is to be decoded in steps, from a copy of its frame."""


R = TypeVar("R")
Handling: TypeAlias = Generator[Cost, Any, R]
"""What a handler written as a generator gives; it returns what others return at once."""
Handler: TypeAlias = Callable[["RequestContext", Any], Response | Deferred | Awaitable[Response] | Handling[Any]]
OnError: TypeAlias = Callable[["RequestContext", Any, KafkaError], "Response | Handling[Any]"]
Decode: TypeAlias = Callable[[int, Buffer, int], Any]
"""(version, frame, offset of the body) -> request. Raises MalformedRequest and LongRequest."""
DecodeInSteps: TypeAlias = Callable[[int, Buffer, int], Generator[int, None, Any]]

H = TypeVar("H", bound=Handler)


class CloseConnection(Exception):
    """Raised by a handler that wants this connection closed without an answer (acks=0 that failed)."""


class Login(Protocol):
    """How a connection becomes known, on a listener that demands it: `authentication.Login`."""

    @property
    def done(self) -> bool: ...
    @property
    def mechanism(self) -> str | None: ...
    @property
    def intercepts(self) -> bool:
        """Whether it takes the connection's frames."""

    def begin(self, frame: memoryview, /) -> tuple[Call, Outcome]: ...
    def handshake(self, version: int, mechanism: str, /) -> SaslHandshakeResponse | Awaitable[Response]: ...
    def authenticate(self, version: int, token: bytes, /) -> SaslAuthenticateResponse | Awaitable[Response]: ...
    def versions_answered(self) -> None: ...
    def unexpected(self, api_key: int, /) -> CloseConnection: ...
    def refuse(
        self, call: RequestContext, respond: Callable[[KafkaError], Response | Handling[Response]], /
    ) -> Awaitable[Response]: ...
    def lost(self) -> None: ...


class ConnectionQuotas(Protocol):
    """Measures the requests of a connection: `quotas.ConnectionQuotas`."""

    def begin(self, frame: memoryview, /) -> tuple[Call, Outcome]: ...
    def shortcut(self, head: int, frame: memoryview, /) -> Shortcut | None: ...
    def answered(self, call: Call, response: Response, /) -> Response: ...
    def encode(self, call: Call, response: Response, /) -> tuple[list[Buffer | Slice], int]: ...
    def delayed_by_controller(self, asked: Asking, delay_ms: Millis, /) -> None: ...
    def fetched(self, asked: Asking, size: int, /) -> Millis: ...


class Session(Protocol):
    """The connection of a request, as handlers see it."""

    client_host: str
    listener_name: str
    apis: ApiSet
    principal: str
    outbox: Outbox
    quotas: ConnectionQuotas | None
    login: Login | None
    """Its way to be known, on a listener that demands one (SASL)."""
    shortcuts: dict[int, Any]
    """Facts that handlers learned about this client's requests, by API key << 16 | version; see `Shortcut`."""

    def keep_frame(self, frame: memoryview) -> memoryview:
        """The frame that is being handled, in memory that stays as it is."""
        ...

    def give_received(self) -> bool:
        """Leave the connection's own buffer to the handler, if the frame is in it."""
        ...

    def answer_together(self, answer: Callable[[], None]) -> None:
        """Call it in a later turn of the loop, with all others of then; what they answer is sent at once."""
        ...

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Register the callback, instead of an earlier one, for when this connection is lost."""
        ...


class RequestContext:
    """The connection, node and version of a request."""

    __slots__ = (
        "api_key", "api_version", "body_offset", "client_host", "client_id", "correlation_id", "in_steps",
        "listener_name", "node", "principal", "session",
    )  # fmt: skip

    def __init__(
        self,
        node: NodePorts,
        api_key: int,
        api_version: int,
        correlation_id: int = 0,
        client_id: str | None = None,
        client_host: str = "127.0.0.1",
        listener_name: str = "PLAINTEXT",
        principal: str = "User:ANONYMOUS",
        session: Session | None = None,
    ) -> None:
        self.node = node
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.listener_name = listener_name
        self.principal = principal
        self.session = session
        """The connection; None where there is none, as in tests."""
        self.body_offset = 0
        """Where its body begins in the frame; 0 where that is not known."""
        self.in_steps = False
        """Whether the request is a long one, whose frame lies where it may stay."""

    def of_another(self, correlation_id: int) -> RequestContext:
        """The context of another request like this one on the same connection."""
        other = RequestContext.__new__(RequestContext)  # a call of `__init__` would go through Python
        other.node = self.node
        other.api_key = self.api_key
        other.api_version = self.api_version
        other.correlation_id = correlation_id
        other.client_id = self.client_id
        other.client_host = self.client_host
        other.listener_name = self.listener_name
        other.principal = self.principal
        other.session = self.session
        other.body_offset = 0
        other.in_steps = False
        return other

    def count_error(self, error: int, times: int = 1) -> None:
        """Count errors of an answer that is encoded already; those in others are found when they are encoded."""
        self.node.metrics.api(self.api_key).failed(_ERROR_NAMES[error], times)


def top_level_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    """The usual error response: `error_code` and `error_message`, whichever of them the response has."""
    return {"error_code": error.code, "error_message": error.message}


Learn: TypeAlias = Callable[["RequestContext", Any, memoryview], None]
"""(context, request, frame): may leave a `Shortcut` on `context.session` for requests that will look like this one."""


class Api:
    """A handler and what the dispatcher must know of it."""

    __slots__ = (
        "cost_shift", "decode", "decode_in_steps", "handle", "key", "learn", "long_bytes", "max_version", "min_version",
        "needs", "on_error", "pipelined",
    )  # fmt: skip

    def __init__(
        self,
        key: int,
        versions: tuple[int, int],
        handle: Handler,
        decode: Decode,
        on_error: OnError,
        pipelined: bool,
        learn: Learn | None = None,
        *,
        decode_in_steps: DecodeInSteps | None = None,
        long_bytes: int = sys.maxsize,
        cost_shift: int = ROWS_COST_SHIFT,
        needs: Needs = (),
    ) -> None:
        self.key = key
        self.min_version, self.max_version = versions
        self.handle = handle
        self.decode = decode
        self.on_error = on_error
        self.pipelined = pipelined
        self.learn = learn
        self.needs = needs
        self.cost_shift = cost_shift
        """The bytes of an answer, divided by two to the power of this, are its cost."""
        self.decode_in_steps = decode_in_steps
        self.long_bytes = long_bytes
        """Size of a frame above which it is decoded in steps without another look."""


class Call:
    """One request being handled: its context and API, and the request itself while an error may need it."""

    __slots__ = ("api", "context", "request")

    def __init__(self, api: Api, context: RequestContext, request: Any) -> None:
        self.api = api
        self.context = context
        self.request = request


class Slot:
    """A response's place in the order of responses."""

    __slots__ = ("began_s", "call", "deferred", "ready", "response", "task")

    def __init__(self, call: Call, began_s: float) -> None:
        self.call = call
        self.began_s = began_s
        self.ready = False
        self.response: Response = None
        self.deferred: Deferred | None = None
        self.task: asyncio.Task[None] | None = None

    def complete(self, result: Response | BaseException) -> None:
        """Its `deferred` has the response."""
        raise NotImplementedError


class Shortcut(Protocol):
    """Answers a request of one API and version that differs from an earlier one of its connection in little.

    Gives the whole response frame (empty: no response) or an `EncodedResponse`, or None to leave the request to the
    handler, or the handler's Call with an awaitable response. Raises nothing.
    """

    def __call__(
        self, frame: memoryview, correlation_id: int
    ) -> bytes | EncodedResponse | tuple[Call, Deferred | Awaitable[Response]] | None: ...


def api(
    key: ApiKey,
    *,
    versions: tuple[int, int],
    needs: Needs = (),
    on_error: OnError = top_level_error,
    decode: Decode | None = None,
    decode_in_steps: DecodeInSteps | None = None,
    pipelined: bool = False,
    learn: Learn | None = None,
    cost_shift: int = ROWS_COST_SHIFT,
) -> Callable[[H], H]:
    """Mark the handler of an API.

    `needs` are the permissions of its clients; those that are enforced are asked before it is called.
    `on_error` builds the response for a KafkaError (pass one where the response has no top-level `error_code`). Where
    it has a row for each of the request, it makes them one by one (`long_answers.RowsOf`) or is a generator.
    `decode` and `decode_in_steps` replace the codec by schema. The bytes of a request with a `decode` of its own say
    little of its rows: up to a megabyte it is `decode` that sees whether there are so many that it is to be decoded in
    steps. `pipelined`: while its awaitable is pending, the connection's next requests of this API are handled already;
    responses keep their order. Without it, and for any other request, the connection waits, as Kafka mutes the channel.
    `learn` is called after a request that was answered at once.
    """

    def mark(handle: H) -> H:
        def by_schema(version: int, frame: Buffer, offset: int) -> Any:
            return messages.decode_request(key, version, frame, offset)

        def by_schema_in_steps(version: int, frame: Buffer, offset: int) -> Generator[int, None, Any]:
            return messages.decode_request_in_steps(key, version, memoryview(frame), offset)

        handle.__ottla_api__ = Api(  # type: ignore[attr-defined]
            key,
            versions,
            _guarded(handle, needs),
            decode or by_schema,
            on_error,
            pipelined,
            learn,
            decode_in_steps=decode_in_steps or by_schema_in_steps,
            long_bytes=LONG_REQUEST_BYTES if decode is None else LONG_RECORDS_BYTES,
            cost_shift=cost_shift,
            needs=needs,
        )
        return handle

    return mark


def _guarded(handle: Handler, needs: Needs) -> Handler:
    """`handle` for clients that may: where the node has an authorizer, it is asked before. An API that declares
    nothing, which a test forbids, is then for super users and nodes alone."""
    enforced: tuple[Need, ...] = tuple(each for each in needs if not isinstance(each, str) and each.enforced)
    if needs and not enforced:
        return handle

    def guarded(context: RequestContext, request: Any) -> Response | Deferred | Awaitable[Response] | Handling[Any]:
        if context.node.authorizer is not None:
            from ottla.server.security.authorization import enforce, enforce_undeclared  # most nodes do without

            if not enforced:
                enforce_undeclared(context)
            for need in enforced:
                enforce(context, request, need)
        return handle(context, request)

    return guarded


@cache
def load(key: int) -> Api:
    """The handler of an API that brokers serve, imported on first use. Raises KeyError for one that is not served."""
    return _load("ottla.server.handlers", key, OF_BROKERS.table[key])


@cache
def load_for_controller(key: int) -> Api:
    """The same of the APIs of a controller's listener."""
    return _load("ottla.server", key, OF_CONTROLLERS.table[key])


def _load(package: str, key: int, served: Served) -> Api:
    module = importlib.import_module(f"{package}.{served.module}")
    loaded: Api = module.handle.__ottla_api__
    if (loaded.key, loaded.min_version, loaded.max_version) != (key, served.min_version, served.max_version):
        raise RuntimeError(f"{module.__name__} disagrees with the table of handlers")
    return loaded


class ApiSet:
    """The APIs of one kind of listener. Kafka's message schemas say which kind knows which API."""

    __slots__ = ("_loaded", "_loader", "advertised", "of_clients", "table")

    def __init__(
        self,
        table: Mapping[int, Served],
        load: Callable[[int], Api],
        *,
        advertised: Mapping[int, Served] | None = None,
        of_clients: bool = False,
    ) -> None:
        self.table: Mapping[int, Served] = {int(key): served for key, served in table.items()}
        """Keys are plain integers: looking up a member of an `IntEnum` compares it each time."""
        self._loader = load
        self._loaded: dict[int, Api] = {}
        self.advertised = table if advertised is None else advertised
        """What ApiVersions says to anybody but Ottla's own commands, mirrors and nodes."""
        self.of_clients = of_clients
        """Whether anybody may send large requests, which then wait for room."""

    def load(self, key: int) -> Api:
        """The handler of an API in the table, imported on first use. Raises KeyError for another."""
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = self._loader(key)
        return found


OF_BROKERS = ApiSet({**TABLE, **OWN}, load, advertised=TABLE, of_clients=True)
OF_CONTROLLERS = ApiSet({**CONTROLLER_TABLE, **OWN_FORWARDED}, load_for_controller, advertised=CONTROLLER_TABLE)
