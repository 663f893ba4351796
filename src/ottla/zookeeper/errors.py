"""ZooKeeper's error codes (`KeeperException.Code`), and the errors that a client raises."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final


class Code(IntEnum):
    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class ZooKeeperError(Exception):
    """A request that failed. `code` is a `Code`, or the number of one that is not known here."""

    def __init__(
        self,
        code: int,
        path: str = "",
        detail: str = "",
        *,
        results: Sequence[object] = (),
        maybe_applied: bool = False,
    ) -> None:
        self.code = code_of(code)
        self.path = path
        self.detail = detail
        self.results = tuple(results)
        """Results of a `multi`, one for each operation. The operation that failed has an error of its own."""
        self.maybe_applied = maybe_applied
        """Whether the ensemble may have done what was asked for: the request was sent, and no answer came."""
        super().__init__(str(self))

    def __str__(self) -> str:
        name = self.code.name if isinstance(self.code, Code) else f"error code {self.code}"
        return name + (f" for {self.path}" if self.path else "") + (f": {self.detail}" if self.detail else "")


class ConnectionLossError(ZooKeeperError):
    """The connection broke, or the time was up, before the answer came. `maybe_applied` says whether the request may
    have been applied."""


class SessionExpiredError(ZooKeeperError):
    """The ensemble has closed the session: its ephemeral nodes and its watches are gone."""


class SessionClosedError(ZooKeeperError):
    """The client was closed."""


class AuthFailedError(ZooKeeperError):
    """The ensemble does not accept the client's credentials."""


class NoNodeError(ZooKeeperError): ...


class NoAuthError(ZooKeeperError): ...


class BadVersionError(ZooKeeperError): ...


class NodeExistsError(ZooKeeperError): ...


class NotEmptyError(ZooKeeperError): ...


_CLASSES: Final[dict[int, type[ZooKeeperError]]] = {
    Code.CONNECTION_LOSS: ConnectionLossError,
    Code.OPERATION_TIMEOUT: ConnectionLossError,
    Code.SESSION_EXPIRED: SessionExpiredError,
    Code.AUTH_FAILED: AuthFailedError,
    Code.NO_NODE: NoNodeError,
    Code.NO_AUTH: NoAuthError,
    Code.BAD_VERSION: BadVersionError,
    Code.NODE_EXISTS: NodeExistsError,
    Code.NOT_EMPTY: NotEmptyError,
}

_CODES: Final = {code.value: code for code in Code}


def code_of(number: int) -> Code | int:
    """The code with that number; the number itself where it is not known."""
    return _CODES.get(number, number)


def error_of(
    code: int, path: str = "", detail: str = "", *, results: Sequence[object] = (), maybe_applied: bool = False
) -> ZooKeeperError:
    """The error of a code, in the class that callers catch."""
    kind = _CLASSES.get(code, ZooKeeperError)
    return kind(code, path, detail, results=results, maybe_applied=maybe_applied)
