"""Programs beside a node are its clients: the node serves until they have ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.server import node as module
from tests.unit.server.node import Client, running


def test_a_node_serves_until_its_companions_have_ended(tmp_path: Path) -> None:
    asyncio.run(ending(tmp_path))


async def ending(directory: Path) -> None:
    stop = asyncio.Event()
    ended = []
    async with running(str(directory)) as node:

        async def companion() -> None:
            await stop.wait()
            client = await Client.connect(node)  # such as to leave its group
            assert (await client.ask(ApiKey.API_VERSIONS, 0, {}))["error_code"] == 0
            client.writer.close()
            ended.append(True)

        node.companions = [node.spawn(companion())]
        stop.set()
    assert ended == [True]


def test_a_companion_that_does_not_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPANIONS_SECONDS_MAX", 0.01)

    async def test() -> None:
        async with running(str(tmp_path)) as node:
            task = node.spawn(asyncio.sleep(3600))
            node.companions = [task]
        assert task.cancelled()

    asyncio.run(test())
