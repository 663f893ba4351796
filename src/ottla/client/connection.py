"""One connection to a broker: requests out, answers in, in the same order; by TLS and with a login if its config says
so."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.client.config import ClientConfig
from ottla.client.security import SecurityFailure
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer, MeantNode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.version import VERSION

if TYPE_CHECKING:
    import ssl

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""An answer that says it is longer is none: the port belongs to something else, such as a web or a TLS server."""
_LENGTH: Final = struct.Struct(">i")
_VERSIONS_VERSION: Final = 5
_VERSIONS_VERSION_MIN: Final = 3
_CORRELATION_ID_MAX: Final = 2**31 - 1
_PARTS_MAX: Final = 1024
"""IOV_MAX of Linux and macOS."""
_JOINED_BYTES_MAX: Final = 64 * 1024
"""Parts of a request that are encrypted together; larger ones are not copied before."""
_SESSION_SHARE: Final = (0.85, 0.95)
"""The share of a session's life after which it is renewed, at random as in Kafka's client (KIP-368), so that clients
that began together do not all come together."""


_OTHER_PROTOCOL: Final = "it does not speak Kafka's protocol"
_TLS_SPOKEN: Final = "it speaks TLS: set security.protocol=SSL (SASL_SSL with a login)"
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin."""


class OtherNode(ConnectionError):
    """Another node, perhaps of another cluster, has got the address (KIP-1242)."""


class _Closed(ConnectionError):
    """By the other side."""


_CLOSED: Final = (_Closed, ConnectionResetError, BrokenPipeError)


class Connection:
    """A socket whose broker has said which versions it knows (KIP-35). Any failure is an OSError; then it is closed.

    What security forbids is a SecurityFailure, which no retry mends. A session that ends is renewed with the next
    request for which no other one is under way.
    """

    def __init__(
        self,
        host: str,
        port: int,
        config: ClientConfig,
        opened: socket.socket | None = None,
        meant: MeantNode | None = None,
    ) -> None:
        """`opened` is a connection to there that the caller has made; `meant` is the node that the caller knows to be
        there. Raises OSError when nobody answers within `connect_timeout_s`, or whoever does speaks another protocol
        or is another node (OtherNode), and SecurityFailure."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._client_id = config.client_id
        self._software = config.software
        self._security = config.security
        self._correlation_id = 0
        self._under_way = 0
        self._renew_at: float | None = None
        """Monotonic: when to log in again; None: the session has no end."""
        self._answered = 0
        self._socket = socket.create_connection((host, port), config.connect_timeout_s) if opened is None else opened
        self._tls: ssl.SSLSocket | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._security.tls is not None:
                from ottla.client import tls

                self._socket.settimeout(config.connect_timeout_s)
                self._socket = self._tls = tls.handshake(self._socket, host, self.address, self._security.tls)
            self._socket.settimeout(config.request_timeout_s)
            self._negotiate(meant)
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        """Log in, and find out when to do so again. No request may be under way."""
        login = self._security.login
        if login is None:
            return
        from ottla.client.login import log_in

        begun, following = time.monotonic(), self._correlation_id
        self._renew_at = None
        session_s = log_in(self, login)
        self._correlation_id = following  # a caller may have encoded its request already
        if session_s > 0:
            self._renew_at = begun + session_s * random.uniform(*_SESSION_SHARE)

    def _negotiate(self, meant: MeantNode | None) -> None:
        values: dict[str, Any] = {"client_software_name": self._software, "client_software_version": VERSION}
        if meant is not None:
            values |= {"cluster_id": meant.cluster_id, "node_id": meant.node_id}
        self.send(ApiKey.API_VERSIONS, _VERSIONS_VERSION, values)
        frame = self.receive_frame()
        # A broker that lacks a version answers in version 0, whose error code is in the same place, and names its own.
        refused = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.unsupported_version
        version = 0 if refused else _VERSIONS_VERSION
        answer = self._decoded(ApiKey.API_VERSIONS, version, frame)
        if refused:
            newest = (row["max_version"] for row in answer["api_keys"] if row["api_key"] == ApiKey.API_VERSIONS)
            version = min(next(newest, -1), _VERSIONS_VERSION - 1)
            if version < _VERSIONS_VERSION_MIN:
                raise ConnectionError(f"{self.address} is older than Kafka 2.4, which is not supported")
            self.send(ApiKey.API_VERSIONS, version, values)
            answer = self._decoded(ApiKey.API_VERSIONS, version, self.receive_frame())
        if answer["error_code"] == ErrorCode.rebootstrap_required:
            raise OtherNode(f"{self.address}: another node has the address of {meant}")
        if answer["error_code"]:
            code = ErrorCode(answer["error_code"]).name.upper()
            raise ConnectionError(f"{self.address} did not answer which versions it supports: {code}")
        self._versions = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}

    def version(self, api_key: int, lowest: int, highest: int) -> int:
        """The newest version that both sides know. Raises KafkaError UNSUPPORTED_VERSION when there is none."""
        first, last = self._versions.get(api_key, (0, -1))
        chosen = min(last, highest)
        if chosen < max(first, lowest):
            what = messages.ApiKey(api_key).name
            has = f"{first} to {last}" if last >= 0 else "none"
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"{self.address} supports versions {has} of {what}, this client {lowest} to {highest}",
            )
        return chosen

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and the last version of each API that the broker has, as it said when the connection was made."""
        return self._versions

    def newest(self, api_key: int) -> int:
        """The newest version of an API that the broker has, -1 for none."""
        return self._versions.get(api_key, (0, -1))[1]

    @property
    def following_id(self) -> int:
        """The correlation id that the next frame has to have."""
        return self._correlation_id

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        """One request; its answer is `receive`d after those of earlier ones."""
        self.send_frame(messages.encode_request(api_key, version, self.following_id, self._client_id, values))

    def send_frame(self, *parts: Buffer, is_answered: bool = True) -> int:
        """A request that is encoded already, with `following_id` in it, which is returned."""
        if self._renew_at is not None and not self._under_way and time.monotonic() >= self._renew_at:
            self._renew()
        sent = self._correlation_id
        self._correlation_id = 0 if sent == _CORRELATION_ID_MAX else sent + 1
        self._under_way += is_answered
        try:
            self._send_all([_LENGTH.pack(sum(map(len, parts))), *parts])
        except OSError as error:
            raise self._failed(error) from error
        return sent

    def _renew(self) -> None:
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _send_all(self, parts: Sequence[Buffer]) -> None:
        if self._tls is not None:
            for each in _joined(parts):
                self._tls.sendall(each)
            return
        for begin in range(0, len(parts), _PARTS_MAX):
            views: deque[memoryview] = deque(memoryview(part) for part in parts[begin : begin + _PARTS_MAX])
            count = self._socket.sendmsg(views)
            while views and count >= len(views[0]):
                count -= len(views.popleft())
            for view in views:  # more than the socket's buffer took
                self._socket.sendall(view[count:])
                count = 0

    def receive(self, api_key: int, version: int) -> dict[str, Any]:
        """The next answer as plain dictionaries. Raises OSError."""
        return self._decoded(api_key, version, self.receive_frame())

    def receive_frame(self, into: bytearray | None = None) -> memoryview:
        """The next answer without its length: in `into` if it is large enough, else in a new bytearray."""
        try:
            head = bytearray(4)
            self._fill(memoryview(head))
            (length,) = _LENGTH.unpack(head)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise ConnectionError(_TLS_SPOKEN if bytes(head[:2]) in _TLS_RECORDS else _OTHER_PROTOCOL)
            frame = memoryview(bytearray(length) if into is None or len(into) < length else into)[:length]
            self._fill(frame)
        except OSError as error:
            raise self._failed(error) from error
        self._under_way -= 1
        self._answered += 1
        return frame

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer. None may be under way."""
        asked = self.following_id
        self.send(api_key, version, values)
        frame = self.receive_frame()
        if (got := int.from_bytes(frame[:4], "big", signed=True)) != asked:
            raise self._failed(ConnectionError(f"an answer to request {got}, not {asked}"))
        return self._decoded(api_key, version, frame)

    def wait_at_most(self, seconds: float) -> None:
        """From now on an answer fails when nothing of it has come for so long, in place of `request_timeout_s`."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """For `select`: readable when an answer has begun to come."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """End it from another thread: what waits for an answer here fails now."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._read(view)
            if not count:
                raise _Closed("the connection was closed")
            view = view[count:]

    def _read(self, view: memoryview) -> int:
        return self._socket.recv_into(view)

    def _decoded(self, api_key: int, version: int, frame: memoryview) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = messages.plain(messages.decode_response(api_key, version, frame)[1])
        except (MalformedRequest, IndexError, ValueError) as error:
            raise self._failed(ConnectionError(f"an answer that cannot be read: {error}")) from error
        return plain

    def _failed(self, error: OSError) -> OSError | SecurityFailure:
        failure = self._refused_by_tls(error) if self._tls is not None and not self._answered else None
        self.close()
        if failure is not None:
            return failure
        what = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        # Later a broker that stops is the likelier cause.
        hint = self._hint() if isinstance(error, _CLOSED) and self._answered < 2 else ""
        return ConnectionError(f"{self.address}: {what}{hint}")

    def _refused_by_tls(self, error: OSError) -> SecurityFailure | None:
        """With TLS 1.3 a broker says what it thinks of the client's certificate after the handshake; it may have closed
        the connection by the time the first request is sent."""
        import ssl

        from ottla.client import tls

        assert self._tls is not None
        if isinstance(error, ssl.SSLEOFError | BrokenPipeError | ConnectionResetError):
            try:
                self._tls.recv(1)
            except OSError as behind:
                error = behind
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            assert self._security.tls is not None
            host = self.address.rpartition(":")[0].strip("[]")
            return tls.refusal(error, host, self.address, self._security.tls)
        return None

    def _hint(self) -> str:
        """Why a listener may close connections with the first or second request."""
        security = self._security
        if not self._answered and security.tls is None:
            return f": if its listener has TLS, set security.protocol={'SASL_' if security.login else ''}SSL"
        if self._answered == 1 and security.login is None:
            return f": if its listener wants a login, set security.protocol=SASL_{security.protocol}"
        return ""


def _joined(parts: Iterable[Buffer]) -> Iterable[Buffer]:
    """Small parts together: each is a record of TLS and a call of the system."""
    small = bytearray()
    for part in parts:
        if len(part) >= _JOINED_BYTES_MAX:
            if small:
                yield small
                small = bytearray()
            yield part
            continue
        small += part
        if len(small) >= _JOINED_BYTES_MAX:
            yield small
            small = bytearray()
    if small:
        yield small
