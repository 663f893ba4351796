"""Answers that last: live tails as server-sent events, and readings that end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.console.asking import Asking, Invalid, User
from ottla.console.tails import Round, Tail

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TAILS_MAX: Final = 50
"""Open tails of all users."""
TAILS_OF_A_USER: Final = 12
"""Where users log in: else all people are one user."""
PAUSE_S: Final = 0.5
"""Between two rounds."""
ALIVE_S: Final = 15.0
"""A proxy that hears nothing for a minute closes the connection."""
TAIL_SECONDS_MAX: Final = 900.0
"""Then the browser connects again, and its login is looked at again."""
SEND_SECONDS_MAX: Final = 60.0
"""For a browser that takes nothing."""
_PLACES: Final = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")

T = TypeVar("T")


async def in_background(asking: Asking, work: Callable[[], T]) -> T:
    """The result; a thread that works is waited for even if nobody wants the result any more."""
    doing = asyncio.get_running_loop().run_in_executor(asking.site.searches.rounds, work)
    with anyio.CancelScope(shield=True):
        await asyncio.wait([doing])
    return doing.result()


async def heeding(request: Request, asking: Asking, work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, which is told by `asking.halt` when the browser goes."""
    found: list[T] = []
    failed: list[Exception] = []

    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        asking.halt.set()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        try:
            found.append(await work())
        except Exception as error:  # not in a group of exceptions, as the task group would make of it
            failed.append(error)
        group.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return found[0]


class Tails:
    """All open tails of a console. Everything but `end` and `renew` belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[User, Asking]] = {}
        self._is_ending = False

    def end(self) -> None:
        """All of them end, and no other begins."""
        self._is_ending = True
        for _, asking in list(self._open.values()):
            asking.halt.set()

    def renew(self) -> None:
        """All of them end, and each browser begins its own again where it was: by the rights that it has now. From
        any thread."""
        for _, asking in list(self._open.values()):
            asking.halt.set()

    async def answer(self, asking: Asking, last_event: str | None, row: Callable[[Asking, Any], Any]) -> Response:
        """A stream of the records that come. `row` makes of a record what the browser gets; `last_event` is where the
        browser was, when it connects again. Raises Invalid where there are too many, NotFound."""
        mine = sum(user is asking.user for user, _ in self._open.values())
        is_many = asking.user.name is not None and mine >= TAILS_OF_A_USER
        if len(self._open) >= TAILS_MAX or is_many:
            raise Invalid(f"{len(self._open)} live tails are open: close one")
        if last_event is not None and _PLACES.fullmatch(last_event):
            asking.parameters = {**asking.parameters, "at": last_event}
        return _Stream(self, asking, await in_background(asking, lambda: Tail(asking, row)))

    async def run(self, asking: Asking, tail: Tail, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Rounds until the browser has gone."""
        self._open[id(asking)] = asking.user, asking
        try:
            await send(b"retry: 2000\n\n")
            over, alive = time.monotonic() + TAIL_SECONDS_MAX, time.monotonic()
            while not (asking.halt.is_set() or self._is_ending) and time.monotonic() < over:
                found = await in_background(asking, tail.next_round)
                if asking.halt.is_set():
                    return
                if not found.is_empty:
                    await send(event_of(found))
                    alive = time.monotonic()
                elif time.monotonic() - alive > ALIVE_S:
                    await send(b": alive\n\n")
                    alive = time.monotonic()
                if found.is_over:
                    await send(b"event: over\ndata: {}\n\n")
                    return
                await anyio.sleep(PAUSE_S)
        finally:
            del self._open[id(asking)]
            tail.close()


def as_json(_: Asking, row: Any) -> dict[str, Any]:
    """A record of a live tail, as the API has it."""
    return dataclasses.asdict(row)


def event_of(found: Round) -> bytes:
    """A round as one event, whose id is where to go on after it."""
    values: dict[str, Any] = {
        "rows": found.rows,
        "scanned": str(found.scanned),
        "skipped": str(found.skipped),
        "problem": None if found.problem is None else found.problem.sentence,
        "silent": _silent_of(found),
        "back": found.back,
    }
    # JSON has no line end of its own, so that nothing of a record can end the event.
    return f"id: {found.places}\nevent: records\ndata: {json.dumps(values)}\n\n".encode()


def _silent_of(found: Round) -> list[dict[str, Any]]:
    """Partitions that are silent, those of one broker together."""
    by_why: dict[str, list[int]] = {}
    for number, why in found.silent.items():
        by_why.setdefault(why, []).append(number)
    return [{"partitions": numbers, "why": why} for why, numbers in by_why.items()]


class _Stream(Response):
    """An answer without an end; it ends with the browser's connection."""

    def __init__(self, tails: Tails, asking: Asking, tail: Tail) -> None:
        super().__init__(media_type="text/event-stream")
        self._tails, self._asking, self._tail = tails, asking, tail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def listen(scope: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._asking.halt.set()
            scope.cancel()

        async def take(data: bytes) -> None:
            """Waits for a browser that is slow; one that takes nothing is left."""
            with anyio.fail_after(SEND_SECONDS_MAX):
                await send({"type": "http.response.body", "body": data, "more_body": True})

        async with anyio.create_task_group() as group:
            group.start_soon(listen, group.cancel_scope)
            try:
                await self._tails.run(self._asking, self._tail, take)
            except TimeoutError:
                self._asking.halt.set()
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def progress(asking: Asking, run: str, row: Callable[[Asking, Any], Any]) -> Response:
    """How far a reading of this user is, and the first records that it found. `row` makes of a record what the
    browser gets."""
    found = asking.site.searches.find(asking.user.name, run)
    if found is None:
        return JSONResponse({"error": "this reading is over"}, 404)
    asking.parameters = {"topic": found.topic}
    return JSONResponse({**found.as_json(), "rows": [row(asking, each) for each in found.first()]})


def stop(asking: Asking, run: str) -> Response:
    """End a reading of this user: its page shows what was found until then."""
    found = asking.site.searches.find(asking.user.name, run)
    if found is not None:
        found.halt.set()
    return Response(status_code=204)
