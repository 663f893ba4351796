"""A browser and a program that act on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx

from ottla.console.acts.act import Act
from ottla.console.acts.table import ACTS, BY_NAME
from ottla.console.app import Application
from ottla.console.asking import Site
from ottla.console.masks import Masks
from ottla.console.routes import API
from ottla.schemas.client import Registered, Registry, Schema
from tests.unit.console.fake_changes import ChangingBrokers, token_of
from tests.unit.console.fake_cluster import user

ORIGIN: Final = "http://localhost"
NAMES: Final = [each.name for each in ACTS]


class ChangingRegistry(Registry):
    def __init__(self) -> None:
        self.changes: list[str] = []
        self.refused: list[str] = []

    def subjects(self, start: str = "") -> list[str]:
        return ["s"]

    def versions(self, subject: str) -> list[int]:
        return [1, 2]

    def version(self, subject: str, version: int | str = "latest") -> Registered:
        return Registered(subject, 1, 7, Schema("t"))

    def compatibility(self, subject: str | None = None) -> str:
        return "BACKWARD"

    def problems(self, subject: str, schema: Schema, version: str | None = None) -> list[str]:
        return self.refused

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        self.changes.append("register")
        return 3

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        self.changes.append(f"{method} {path}")
        return {}

    def close(self) -> None:
        pass


class Acting:
    """One console of one user, and its cluster."""

    def __init__(self, *, read_only: bool = False, masks: Masks | None = None) -> None:
        self.brokers, self.registry = ChangingBrokers(), ChangingRegistry()
        site = Site(masks or Masks(), self.registry, None, "http://r", is_read_only=read_only, bootstrap="b:1")
        self.user = user(self.brokers)
        made = Application(site, anonymous=self.user)
        self.site, self.app = made.site, made.asgi()

    def ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        (answer,) = self.ask_all([(method, path, arguments)])
        return answer

    def ask_all(self, requests: Iterable[tuple[str, str, Mapping[str, Any]]]) -> list[httpx.Response]:
        """One after the other; a loop for all of them costs a third."""

        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                return [await client.request(method, path, **arguments) for method, path, arguments in requests]

        return asyncio.run(ask())

    @property
    def changed(self) -> int:
        return len(self.brokers.changes) + len(self.registry.changes)

    def token(self, act: str) -> str:
        """The token of a form that is shown."""
        return self.user.tokens.issue(act)

    def form(self, act: str, values: Mapping[str, str], **more: str) -> httpx.Response:
        """Shows the form and sends it."""
        shown = self.ask("GET", f"/acts/{act}")
        assert shown.status_code == 200, shown.text
        data = {"token": token_of(shown.text), "step": "do", **confirmed(BY_NAME[act], values), **values, **more}
        return self.ask("POST", f"/acts/{act}", data=data)

    def api(self, act: str, values: Mapping[str, Any], **more: Any) -> httpx.Response:
        return self.ask("POST", f"{API}/acts/{act}", json={**confirmed(BY_NAME[act], values), **values, **more})


def confirmed(act: Act, values: Mapping[str, Any]) -> dict[str, str]:
    return {"confirm": values.get(act.confirm, "")} if act.confirm else {}
