"""Logins of clients on SASL listeners: the states of a connection before, during and after its login.

As Kafka's `SaslServerAuthenticator` (KIP-43, 152, 368, 684), request for request: ApiVersions once, SaslHandshake, then
the mechanism's tokens, as they are (SaslHandshake v0) or in SaslAuthenticate. Before the handshake anything else closes
the connection without an answer; after it a wrong request gets its own response with ILLEGAL_SASL_STATE. A failure is
answered only after `connection.failed.authentication.delay.ms`, then the connection is closed.

Not on the hot path. A connection has a `Login` only on such a listener, and its frames come here only while
`intercepts` holds: until it is logged in, and again once its session has ended. Its `apis` then are those of its state.

Before a client is known, frames are limited by `sasl.server.max.receive.size` where their length is read, and time by
`ottla.login.timeout.ms`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.protocol.messages import ApiKey
from ottla.protocol.principal import TokenPrincipal
from ottla.security.sasl import AuthenticationFailed, ServerMechanism
from ottla.server import dispatch
from ottla.server.api import ApiSet, Call, CloseConnection, Handling, Outcome, RequestContext, Response
from ottla.server.security.login_settings import Counts, LoginSettings, Mechanism
from ottla.server.security.login_states import RAW_TOKEN, State, apis_in
from ottla.server.security.login_threads import LoginThreads

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import SaslAuthenticateResponse, SaslHandshakeResponse
    from ottla.server.connections.connection import CompiledConnection
    from ottla.server.listeners.listener import Listener

_LOG = logging.getLogger("ottla.authentication")

REAUTHENTICATION_SECONDS_MIN: Final = 1.0
"""A client may authenticate again once in this time (KIP-368)."""

TIMER_SECONDS_MAX: Final = 86_400.0
"""A session may last for years; a timer is armed again after a day."""

LIFETIME_MS_MAX: Final = 10**15
"""30,000 years, which every type of a duration can hold."""

LOGGED_PER_SECOND_MAX: Final = 10
"""Failures that are logged one by one; the rest is counted."""

REFUSED_BYTES_MAX: Final = 4096
"""The answer to a request at the wrong time has an error for each of its rows, for which the request is decoded. Half a
megabyte of rows takes half a second of a processor and 20 MB, for a client that is not known. Kafka answers it."""

R = TypeVar("R", bound=Response)
_INT32 = struct.Struct(">i")


class Authentication:
    """The logins of one listener. All methods belong to the event loop's thread."""

    def __init__(self, listener: Listener, settings: LoginSettings, mechanisms: Mapping[str, Mechanism]) -> None:
        self.listener = listener
        self.settings = settings
        self.mechanisms = mechanisms
        """By name, in the order of `sasl.enabled.mechanisms`."""
        self.counts = Counts()
        self.threads = LoginThreads()
        self._apis = {state: apis_in(state, listener.apis) for state in State}
        self._logged_second = 0
        self._logged = 0
        self._unlogged = 0

    def begin(self, connection: CompiledConnection) -> None:
        """A client has connected: it may do nothing but log in."""
        connection.login = Login(self, connection)

    def apis(self, state: State) -> ApiSet:
        return self._apis[state]

    def log_failure(self, connection: CompiledConnection, mechanism: str | None, reason: str) -> None:
        """A flood of failures must not fill the disk."""
        second = int(self.listener.loop.time())
        if second != self._logged_second:
            self._logged_second, self._logged = second, 0
        self._logged += 1
        if self._logged > LOGGED_PER_SECOND_MAX:
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        _LOG.info(
            "authentication failed",
            extra=fields(
                client=connection.client_host,
                listener=self.listener.name,
                mechanism=mechanism,
                reason=reason,
                unlogged=unlogged or None,
            ),
        )


class Login:
    """The login of one connection."""

    __slots__ = (
        "__weakref__",
        "_authentication",
        "_connection",
        "_deadline",
        "_framed",
        "_mechanism",
        "_previous",
        "_reauthenticated_at",
        "_server",
        "_session_end",
        "_session_ends_at",
        "intercepts",
        "state",
    )

    def __init__(self, authentication: Authentication, connection: CompiledConnection) -> None:
        self.intercepts = True
        """Whether frames go through `begin`, and past all shortcuts."""
        self.state = State.VERSIONS_OR_HANDSHAKE
        self._authentication = authentication
        self._connection = connection
        self._framed = True
        """Whether tokens come in SaslAuthenticate."""
        self._mechanism: str | None = None
        self._server: ServerMechanism | None = None
        self._previous: tuple[str, str] | None = None
        """Mechanism and principal that a re-authentication must have."""
        self._reauthenticated_at: float | None = None
        self._session_end: asyncio.Handle | None = None
        self._session_ends_at: float | None = None
        """In the loop's time; None: never."""
        self._deadline: asyncio.Handle | None = None
        self._wait_for_client()
        self._enter(State.VERSIONS_OR_HANDSHAKE)

    @property
    def done(self) -> bool:
        """Whether the client is known."""
        return self.state is State.DONE

    def _enter(self, state: State) -> None:
        connection, authentication = self._connection, self._authentication
        self.state = state
        self.intercepts = state is not State.DONE
        connection.apis = authentication.apis(state)
        known = state in (State.DONE, State.EXPIRED)
        limit = authentication.listener.request_bytes_max
        connection.frame_bytes_max = limit if known else min(limit, authentication.settings.bytes_max)

    def _wait_for_client(self) -> None:
        loop, settings = self._authentication.listener.loop, self._authentication.settings
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_later(settings.timeout_s, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self.state in (State.DONE, State.EXPIRED) or self._connection.closed:
            return
        seconds = self._authentication.settings.timeout_s
        self._log_failure(f"the client has not logged in within {seconds:g} s")
        self._connection.abort()

    @property
    def mechanism(self) -> str | None:
        """What the client logs in with."""
        return self._mechanism

    def lost(self) -> None:
        """The connection is no more."""
        for timer in (self._deadline, self._session_end):
            if timer is not None:
                timer.cancel()
        self._deadline = self._session_end = None
        self._server = None
        self._connection.login = None  # else each would keep the other in memory

    # Frames.

    def begin(self, frame: memoryview) -> tuple[Call, Outcome]:
        """`dispatch.begin` for a connection that is not logged in. Raises MalformedRequest or CloseConnection."""
        connection = self._connection
        node = self._authentication.listener.node
        if self.state is State.BAD_MECHANISM:
            assert self._previous is not None
            raise self._closing(
                f"{self._mechanism} cannot re-authenticate a connection that was authenticated by {self._previous[0]}"
            )
        if self.state is not State.AUTHENTICATE:
            return dispatch.begin(node, connection, frame)
        if self._framed:
            key = int.from_bytes(frame[:2], "big", signed=True)
            if len(frame) > REFUSED_BYTES_MAX and key != ApiKey.SASL_AUTHENTICATE:
                raise self._closing(f"a request of {len(frame)} bytes during the login")
            return dispatch.begin(node, connection, frame)
        context = RequestContext(
            node,
            ApiKey.SASL_AUTHENTICATE,
            0,
            0,
            None,
            connection.client_host,
            connection.listener_name,
            connection.principal,
            connection,
        )
        return Call(RAW_TOKEN, context, None), self._token(bytes(frame), self._raw_answer)

    def versions_answered(self) -> None:
        """ApiVersions is answered once, as Kafka does; what follows is the handshake."""
        if self.state is State.VERSIONS_OR_HANDSHAKE:
            self._enter(State.HANDSHAKE)

    def handshake(self, version: int, mechanism: str) -> SaslHandshakeResponse | Awaitable[Response]:
        """The response to SaslHandshake."""
        if self.state in (State.DONE, State.EXPIRED):
            now = self._authentication.listener.loop.time()
            last = self._reauthenticated_at
            is_soon = last is not None and now - last < REAUTHENTICATION_SECONDS_MIN
            if self._session_ends_at is None or is_soon:
                if self.state is State.EXPIRED:
                    raise self._gone_on()
                return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
            assert self._mechanism is not None
            self._reauthenticated_at = now
            self._previous = (self._mechanism, self._connection.principal)
            self._stop_session()
            self._wait_for_client()
        authentication = self._authentication
        names = list(authentication.mechanisms)
        found = authentication.mechanisms.get(mechanism)
        self._framed = version >= 1
        if found is None:
            self._enter(State.FAILED)
            answer = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": names}
            self._mechanism = None
            shown = mechanism if mechanism.isascii() and mechanism.isprintable() else "a name that is not printable"
            return self._fail(answer, f"{shown[:100]} is not enabled; enabled are {', '.join(names)}")
        self._mechanism = mechanism
        if self._previous is not None and self._previous[0] != mechanism:
            self._enter(State.BAD_MECHANISM)
        else:
            self._server = found.serve()
            self._enter(State.AUTHENTICATE)
        return {"error_code": ErrorCode.none, "mechanisms": names}

    def authenticate(self, version: int, token: bytes) -> SaslAuthenticateResponse | Awaitable[Response]:
        """The response to SaslAuthenticate, or the way to it."""
        if self.state is not State.AUTHENTICATE:
            return answered_late()

        def answer(data: bytes, lifetime_ms: int) -> SaslAuthenticateResponse:
            if version == 0 and lifetime_ms >= 0:
                self._authentication.counts.no_reauthentications += 1
            return {
                "error_code": ErrorCode.none,
                "error_message": "",
                "auth_bytes": data,
                "session_lifetime": max(lifetime_ms, 0),
            }

        return self._token(token, answer)

    def refuse(
        self, call: RequestContext, respond: Callable[[KafkaError], Response | Handling[Response]]
    ) -> Awaitable[Response]:
        """The response, after the delay, to a request that is not the next one."""
        what = f"Unexpected Kafka request of type {ApiKey(call.api_key).name} during SASL authentication."
        self._enter(State.FAILED)
        answer = respond(KafkaError(ErrorCode.illegal_sasl_state, what))
        return self._fail(answer, what)

    # The mechanism.

    def _raw_answer(self, data: bytes, lifetime_ms: int) -> Response:
        if lifetime_ms >= 0:
            self._authentication.counts.no_reauthentications += 1
        return _INT32.pack(len(data)) + data

    def _token(self, token: bytes, answer: Callable[[bytes, int], R]) -> R | Awaitable[Response]:
        """What `answer` makes of the mechanism's token and of the session's milliseconds, which are -1 as long as the
        login is not done; or the way to it."""
        server = self._server
        assert server is not None
        if server.takes_long(token):
            return self._token_in_thread(server, token, answer)
        try:
            return self._stepped(server.step(token), server, answer)
        except AuthenticationFailed as error:
            return self._failed(error)
        except Exception:  # a bug must let nobody try again from the middle of an exchange
            self._enter(State.FAILED)
            raise

    async def _token_in_thread(
        self, server: ServerMechanism, token: bytes, answer: Callable[[bytes, int], R]
    ) -> Response:
        try:
            data = await self._authentication.threads.run(lambda: server.step(token))
            if self._connection.closed:
                raise CloseConnection("the client has gone meanwhile")
            return self._stepped(data, server, answer)
        except AuthenticationFailed as error:
            return await self._failed(error)
        except Exception:
            self._enter(State.FAILED)
            raise

    def _stepped(self, data: bytes, server: ServerMechanism, answer: Callable[[bytes, int], R]) -> R:
        """Raises AuthenticationFailed."""
        if server.user is None:
            return answer(data, -1)
        return answer(data, self._succeed(server, server.user))

    def _succeed(self, server: ServerMechanism, user: str) -> int:
        """The client is known; returns the milliseconds of its session, 0 without a limit. Raises
        AuthenticationFailed."""
        connection, authentication = self._connection, self._authentication
        principal, previous = f"User:{user}", self._previous
        if getattr(server, "by_token", False):
            principal = TokenPrincipal(principal)
        if previous is not None and previous[1] != principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {previous[1].replace(':', '.', 1)}: "
                f"{principal.replace(':', '.', 1)}"
            )
        assert self._mechanism is not None
        offered = authentication.mechanisms.get(self._mechanism)
        if offered is None:  # the settings have changed meanwhile
            raise AuthenticationFailed(reason=f"{self._mechanism} is not offered any more")
        self._server, self._previous = None, None
        lifetime_ms = self._lifetime_ms(server, offered.session_ms_max)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if previous is None:
            authentication.counts.successes += 1
        else:
            authentication.counts.resuccesses += 1
        connection.principal = principal
        self._enter(State.DONE)
        audit = authentication.listener.node.audit
        if audit is not None:
            is_again = previous is not None
            audit.logged_in(
                principal, connection.client_host, authentication.listener.name, self._mechanism, again=is_again
            )
        quotas = authentication.listener.quotas
        connection.quotas = None if quotas is None else quotas.of_connection(connection)
        if lifetime_ms is not None:
            self._begin_session(lifetime_ms)
        _LOG.debug(
            "authenticated", extra=fields(client=connection.client_host, principal=principal, mechanism=self._mechanism)
        )
        return lifetime_ms or 0

    def _lifetime_ms(self, server: ServerMechanism, session_ms_max: int) -> int | None:
        """The least of what the credential and the setting allow; None where neither says anything."""
        limits = [session_ms_max] if session_ms_max > 0 else []
        if server.expires_at_s is not None:
            left_ms = int(server.expires_at_s * 1000) - self._authentication.listener.node.clock.now_ms()
            limits.append(left_ms)
        return min(max(min(limits), 0), LIFETIME_MS_MAX) if limits else None

    # The session.

    def _begin_session(self, lifetime_ms: int) -> None:
        loop = self._authentication.listener.loop
        self._session_ends_at = loop.time() + lifetime_ms / 1000
        self._arm()

    def _arm(self) -> None:
        loop = self._authentication.listener.loop
        assert self._session_ends_at is not None
        left_s = self._session_ends_at - loop.time()
        self._session_end = loop.call_later(min(max(left_s, 0.0), TIMER_SECONDS_MAX), self._session_due)

    def _session_due(self) -> None:
        self._session_end = None
        if self._session_ends_at is None or self._connection.closed:
            return
        if self._session_ends_at > self._authentication.listener.loop.time():
            self._arm()
        else:
            self._connection.shortcuts.clear()
            self._enter(State.EXPIRED)

    def _stop_session(self) -> None:
        if self._session_end is not None:
            self._session_end.cancel()
            self._session_end = None
        self._session_ends_at = None
        self._connection.shortcuts.clear()

    def _gone_on(self) -> CloseConnection:
        """A request after the end of the session that does not begin another one."""
        self._authentication.counts.expired += 1
        return self._closing("a request after the end of the session", is_failure=False)

    # Failures.

    def unexpected(self, api_key: int) -> CloseConnection:
        """A request at a time when it is not even answered."""
        if self.state is State.EXPIRED:
            return self._gone_on()
        return self._closing(f"{ApiKey(api_key).name} before the login, which this listener demands (SASL)")

    def _log_failure(self, reason: str) -> None:
        authentication, connection = self._authentication, self._connection
        authentication.log_failure(connection, self._mechanism, reason)
        audit = authentication.listener.node.audit
        if audit is not None:
            claimed = getattr(self._server, "claimed", None)
            audit.login_failed(connection.client_host, authentication.listener.name, self._mechanism, reason, claimed)

    def _count_failure(self) -> None:
        counts = self._authentication.counts
        if self._previous is None:
            counts.failures += 1
        else:
            counts.refailures += 1

    def _closing(self, reason: str, *, is_failure: bool = True) -> CloseConnection:
        self._log_failure(reason)
        if is_failure:
            self._count_failure()
        self._enter(State.FAILED)
        return CloseConnection(reason)

    def _failed(self, error: AuthenticationFailed) -> Coroutine[Any, Any, Response]:
        during = "authentication" if self._previous is None else "re-authentication"
        message = error.message or (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        answer = {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": message,
            "auth_bytes": b"",
            "session_lifetime": 0,
        }
        self._enter(State.FAILED)
        return self._fail(answer if self._framed else None, error.reason)

    async def _fail(self, answer: Response | Handling[Response], reason: str) -> Response:
        """The answer, held back for a while so that guessing takes time; then the connection is closed."""
        self._log_failure(reason)
        self._count_failure()
        self._server = None
        response: Response = await run_yielding(answer) if isinstance(answer, Generator) else answer
        await asyncio.sleep(self._authentication.settings.failure_delay_s)
        if response is None:
            raise CloseConnection(reason)
        self._connection.closing = True
        return response


def answered_late() -> SaslAuthenticateResponse:
    """SaslAuthenticate of a client that is logged in, or need not be."""
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ErrorCode.illegal_sasl_state, "error_message": message, "auth_bytes": b""}
