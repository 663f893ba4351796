"""Permissions of the znodes that a migration makes, where the brokers' settings ask for them (`zookeeper.set.acl`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ottla.migration.trees import Client
from ottla.zookeeper.messages import ACL, OPEN_ACL_UNSAFE, Create


class Protected:
    """A client whose new znodes have the permissions that `acl` gives by path, unless they come with others."""

    def __init__(self, client: Client, acl: Callable[[str], Sequence[ACL]]) -> None:
        self._client, self._acl = client, acl

    async def get(self, path: str) -> Any:
        return await self._client.get(path)

    async def read_many(self, requests: Sequence[Any]) -> list[Any]:
        return await self._client.read_many(requests)

    async def acl(self, path: str) -> Any:
        return await self._client.acl(path)

    async def multi(self, ops: Iterable[Any]) -> list[Any]:
        return await self._client.multi(
            replace(op, acl=tuple(self._acl(op.path))) if isinstance(op, Create) and op.acl == OPEN_ACL_UNSAFE else op
            for op in ops
        )

    async def sync(self, path: str = "/") -> None:
        await self._client.sync(path)
