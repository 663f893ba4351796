"""The least of a Kafka client: one connection, requests and responses in order, as many in flight as one likes."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any

from ottla.protocol.messages import ApiKey, decode_response, encode_request

_LENGTH = struct.Struct(">i")

CALL_TIMEOUT_S = 60
"""A node on a busy machine answers within a second or two; a client that waits longer has found a bug."""


class Disconnected(Exception):
    """The node is gone, or was never there."""


class Connection:
    """Not for use by several tasks at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._sent: deque[tuple[ApiKey, int, int]] = deque()

    @classmethod
    async def open(cls, port: int) -> Connection:
        try:
            return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**22))
        except OSError as error:
            raise Disconnected(str(error)) from error

    def send(self, api: ApiKey, version: int, values: Mapping[str, Any]) -> None:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, "crash", values)
        self._writer.write(_LENGTH.pack(len(frame)) + frame)
        self._sent.append((api, version, self._correlation_id))

    async def receive(self) -> Any:
        """The response to the oldest request that has none yet. Raises `Disconnected`."""
        api, version, correlation_id = self._sent.popleft()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                frame = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, TimeoutError):
                raise AssertionError(f"no answer to {api.name} in {CALL_TIMEOUT_S} s") from error
            raise Disconnected(str(error)) from error
        answered, response = decode_response(api, version, frame)
        assert answered == correlation_id, "responses come in the order of the requests"
        return response

    async def call(self, api: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        self.send(api, version, values)
        return await self.receive()

    def close(self) -> None:
        self._writer.close()
