"""One connection to a broker: requests out, answers in, in the same order."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.client.config import ClientConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.version import VERSION

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""An answer that says it is longer is none: the port belongs to something else, such as a web or a TLS server."""
_LENGTH: Final = struct.Struct(">i")
_VERSIONS_VERSION: Final = 3
_CORRELATION_ID_MAX: Final = 2**31 - 1
_PARTS_MAX: Final = 1024
"""IOV_MAX of Linux and macOS."""


class Connection:
    """A socket whose broker has said which versions it knows (KIP-35). Any failure is an OSError; then it is closed."""

    def __init__(self, host: str, port: int, config: ClientConfig) -> None:
        """Raises OSError when nobody answers within `connect_timeout_s`, or whoever does speaks another protocol."""
        self.address = f"{host}:{port}"
        self._client_id = config.client_id
        self._correlation_id = 0
        self._socket = socket.create_connection((host, port), config.connect_timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket.settimeout(config.request_timeout_s)
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def _negotiate(self) -> None:
        values = {"client_software_name": "ottla", "client_software_version": VERSION}
        self.send(ApiKey.API_VERSIONS, _VERSIONS_VERSION, values)
        frame = self.receive_frame()
        # A broker that lacks version 3 answers in version 0, whose error code is in the same place.
        version = _VERSIONS_VERSION if bytes(frame[4:6]) == b"\0\0" else 0
        answer = self._decoded(ApiKey.API_VERSIONS, version, frame)
        if version == 0 and not answer["api_keys"]:
            raise ConnectionError(f"{self.address} is older than Kafka 2.4, which is not supported")
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
    def following_id(self) -> int:
        """The correlation id that the next frame has to have."""
        return self._correlation_id

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        """One request; its answer is `receive`d after those of earlier ones."""
        self.send_frame(messages.encode_request(api_key, version, self.following_id, self._client_id, values))

    def send_frame(self, *parts: Buffer) -> int:
        """A request that is encoded already, with `following_id` in it, which is returned."""
        sent = self._correlation_id
        self._correlation_id = 0 if sent == _CORRELATION_ID_MAX else sent + 1
        try:
            self._send_all([_LENGTH.pack(sum(map(len, parts))), *parts])
        except OSError as error:
            raise self._failed(error) from error
        return sent

    def _send_all(self, parts: Sequence[Buffer]) -> None:
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
                raise ConnectionError("it does not speak Kafka's protocol")
            frame = memoryview(bytearray(length) if into is None or len(into) < length else into)[:length]
            self._fill(frame)
        except OSError as error:
            raise self._failed(error) from error
        return frame

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer. None may be under way."""
        asked = self.following_id
        self.send(api_key, version, values)
        frame = self.receive_frame()
        if (got := int.from_bytes(frame[:4], "big", signed=True)) != asked:
            raise self._failed(ConnectionError(f"an answer to request {got}, not {asked}"))
        return self._decoded(api_key, version, frame)

    def fileno(self) -> int:
        """For `select`: readable when an answer has begun to come."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the connection was closed")
            view = view[count:]

    def _decoded(self, api_key: int, version: int, frame: memoryview) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = messages.plain(messages.decode_response(api_key, version, frame)[1])
        except (MalformedRequest, IndexError, ValueError) as error:
            raise self._failed(ConnectionError(f"an answer that cannot be read: {error}")) from error
        return plain

    def _failed(self, error: OSError) -> OSError:
        self.close()
        what = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return ConnectionError(f"{self.address}: {what}")
