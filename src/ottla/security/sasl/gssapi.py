"""GSSAPI with Kerberos (RFC 4752): the exchange around the tokens of a security context, both ends.

    client: tokens of the context, until it is established      server: the same
    client: an empty token                                      server: which security layers it offers, wrapped
    client: the layer that it chooses and whom it acts for, wrapped

Only "no layer" is offered and chosen: TLS protects what follows. The context itself is the library's
(`drivers/nodes/kerberos.py`); each of its steps may take long.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol

from ottla.security.sasl import AuthenticationFailed

NO_LAYER: Final = b"\x01\0\0\0"
"""The only layer, and that nothing wrapped will follow."""
TOKEN_BYTES_MAX: Final = 128 * 1024
"""Twice the largest ticket of Active Directory (65,535 bytes)."""
ROUNDS_MAX: Final = 8
"""Tokens until the context is established; Kerberos needs one, or two."""


class SecurityContext(Protocol):
    """A GSS-API context. All methods raise AuthenticationFailed, and may take milliseconds."""

    @property
    def is_complete(self) -> bool:
        """Whether it is established."""
        ...

    @property
    def peer(self) -> str:
        """The principal of the other side, once it is complete."""
        ...

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token, None for the first of a client, and return the own one, which may be empty."""
        ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, token: bytes) -> bytes: ...


class _State(enum.Enum):
    CONTEXT = enum.auto()
    ESTABLISHED = enum.auto()
    LAYER = enum.auto()
    DONE = enum.auto()


class GssapiServer:
    """Takes the tokens of one client."""

    def __init__(self, context: Callable[[], SecurityContext], name_of: Callable[[str], str]) -> None:
        """`context` makes it, with the first token; `name_of` is the user's name of a principal."""
        self.user: str | None = None
        self.expires_at_s: float | None = None
        self._make = context
        self._context: SecurityContext | None = None
        self._name_of = name_of
        self._state = _State.CONTEXT
        self._rounds = 0

    def takes_long(self, token: bytes) -> bool:
        """Always: tickets are decrypted, and replays are looked for in a file."""
        return True

    def step(self, token: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        _check_size(token)
        if self._context is None:
            self._context = self._make()
        context = self._context
        if self._state is _State.CONTEXT:
            return self._establish(context, token)
        if self._state is _State.ESTABLISHED:
            if token:
                raise AuthenticationFailed(reason="a GSSAPI client goes on though the context is established")
            return self._offer(context)
        if self._state is _State.DONE:
            raise AuthenticationFailed(reason="a GSSAPI message after the last one")
        chosen = context.unwrap(token)
        if len(chosen) < len(NO_LAYER) or chosen[0] != NO_LAYER[0]:
            raise AuthenticationFailed(reason="the client chose a security layer that was not offered")
        # Whom the client asks to act for is ignored, as Kafka does: it is whom its ticket names.
        self.user = self._name_of(context.peer)
        self._state = _State.DONE
        return b""

    def _establish(self, context: SecurityContext, token: bytes) -> bytes:
        self._rounds += 1
        if self._rounds > ROUNDS_MAX:
            raise AuthenticationFailed(reason=f"the GSSAPI context is not established after {ROUNDS_MAX} tokens")
        answer = context.step(token)
        if not context.is_complete:
            return answer
        if not answer:
            return self._offer(context)
        self._state = _State.ESTABLISHED
        return answer

    def _offer(self, context: SecurityContext) -> bytes:
        self._state = _State.LAYER
        return context.wrap(NO_LAYER)


class GssapiClient:
    """`first` contacts the key distribution center: it belongs in a thread."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._state = _State.CONTEXT
        self._rounds = 0
        self._first: bytes | None = None

    def prepare(self) -> GssapiClient:
        """Make the first token now; returns this. Raises AuthenticationFailed."""
        self._first = self._context.step(None)
        return self

    def first(self) -> bytes:
        """Raises AuthenticationFailed."""
        if self._first is None:
            self.prepare()
        assert self._first is not None
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        """Raises AuthenticationFailed."""
        _check_size(challenge)
        if self._state is _State.DONE:
            if challenge:
                raise AuthenticationFailed(reason="the server goes on after its last GSSAPI message")
            return None
        context = self._context
        if not context.is_complete:
            self._rounds += 1
            if self._rounds > ROUNDS_MAX:
                raise AuthenticationFailed(reason=f"the server does not establish the context in {ROUNDS_MAX} tokens")
            return context.step(challenge)
        offered = context.unwrap(challenge)
        if len(offered) != len(NO_LAYER) or not offered[0] & NO_LAYER[0]:
            raise AuthenticationFailed(reason="the server demands a security layer of GSSAPI: use TLS (SASL_SSL)")
        self._state = _State.DONE
        return context.wrap(NO_LAYER)


def _check_size(token: bytes) -> None:
    if len(token) > TOKEN_BYTES_MAX:
        raise AuthenticationFailed(reason=f"a GSSAPI token of {len(token)} bytes; at most {TOKEN_BYTES_MAX} are read")
