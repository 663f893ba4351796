"""Requests that find the controller in their own process after all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.drivers.controller_channel import Requester
from ottla.drivers.remote_controller_channel import RemoteControllerChannel
from ottla.protocol.messages import ApiKey


def test_the_client_is_known_to_the_controller_of_this_process() -> None:
    """Its quotas, its permissions and the audit log depend on who asked."""
    heard: list[tuple[Any, ...]] = []

    async def call(api_key: ApiKey, request: Any, *, version: int, requester: Requester) -> dict[str, Any]:
        heard.append((api_key, version, requester))
        return {}

    async def test() -> None:
        here: Any = SimpleNamespace(is_open=True, call=call)
        nothing: Any = None
        channel = RemoteControllerChannel(
            nothing, nothing, nothing, own_timeout_ms=1000, forward_timeout_ms=1000, retry_backoff_ms=1,
            changed=nothing, here=here,
        )  # fmt: skip
        alice = Requester("User:alice", "10.0.0.1", "tool")
        assert await channel.send(ApiKey.CREATE_TOPICS, {}, version=5, requester=alice) == {}
        assert heard == [(ApiKey.CREATE_TOPICS, 5, alice)]

    asyncio.run(test())
