"""The states of a connection on a SASL listener, and which APIs it may ask in each of them, as Kafka's
`SaslServerAuthenticator` has them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.server.api import Api, ApiSet, Login, RequestContext, Response, top_level_error


class State(enum.Enum):
    """Where a connection is on its way."""

    VERSIONS_OR_HANDSHAKE = "before ApiVersions and SaslHandshake"
    HANDSHAKE = "before SaslHandshake"
    AUTHENTICATE = "during authentication"
    BAD_MECHANISM = "during re-authentication by another mechanism"
    DONE = "logged in"
    EXPIRED = "after the end of its session"
    FAILED = "after a failed authentication"


ANSWERED: Final[Mapping[State, frozenset[ApiKey]]] = {
    State.VERSIONS_OR_HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    State.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    State.AUTHENTICATE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    State.BAD_MECHANISM: frozenset(),
    State.EXPIRED: frozenset({ApiKey.SASL_HANDSHAKE}),
    State.FAILED: frozenset(),
}
"""Anything else is refused: while authenticating with its own response, else the connection is closed."""


def apis_in(state: State, whole: ApiSet) -> ApiSet:
    """What a connection in this state may ask. ApiVersions tells of all that the listener serves."""
    answered = ANSWERED.get(state)
    if answered is None:
        return whole
    known: dict[int, Api] = {}

    def load(key: int) -> Api:
        found = known.get(key)
        if found is None:
            found = known[key] = _in_state(state, key, whole, answered)
        return found

    return ApiSet(whole.table, load, advertised=whole.advertised)


def _in_state(state: State, key: int, whole: ApiSet, answered: frozenset[ApiKey]) -> Api:
    served = whole.table[key]
    versions = (served.min_version, served.max_version)
    if key in answered:
        real = whole.load(key)
        return _noting(real) if key == ApiKey.API_VERSIONS else real
    if state is State.AUTHENTICATE:
        return _refusing(whole.load(key))
    return Api(key, versions, _close, lambda version, frame, offset: None, top_level_error, False)


def _login(context: RequestContext) -> Login:
    login = None if context.session is None else context.session.login
    assert login is not None
    return login


def _close(context: RequestContext, request: Any) -> Response:
    raise _login(context).unexpected(context.api_key)


def _refusing(real: Api) -> Api:
    def handle(context: RequestContext, request: Any) -> Any:
        return _login(context).refuse(context, lambda error: real.on_error(context, request, error))

    return _like(real, handle)


def _noting(real: Api) -> Api:
    def handle(context: RequestContext, request: Any) -> Any:
        response = real.handle(context, request)
        if isinstance(response, Mapping) and response.get("error_code") == ErrorCode.none:
            _login(context).versions_answered()
        return response

    return _like(real, handle)


def _like(real: Api, handle: Callable[[RequestContext, Any], Any]) -> Api:
    return Api(
        real.key,
        (real.min_version, real.max_version),
        handle,
        real.decode,
        real.on_error,
        False,
        decode_in_steps=real.decode_in_steps,
        long_bytes=real.long_bytes,
        cost_shift=real.cost_shift,
    )


RAW_TOKEN = Api(ApiKey.SASL_AUTHENTICATE, (0, 0), _close, lambda version, frame, offset: None, top_level_error, False)
"""A token without a request around it."""
