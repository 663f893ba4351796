"""Browsers that look at a console, all in one process that takes the processor only when nobody else wants it.

`python -m bench.console_watch HOST:PORT TAIL_TOPIC TAILS SEARCH_TOPIC SEARCHES`: opens the tails, searches for what is
nowhere, one search after the other, prints a line once all are under way, and ends with its standard input. Real
browsers run on other machines: what they take of this one is not to be counted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from urllib.parse import urlencode

CHUNK = 1 << 16


async def _open(host: str, port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def _tail(host: str, port: int, topic: str, opened: asyncio.Event) -> None:
    reader, writer = await _open(host, port, f"/topics/{topic}/tail/events")
    assert b" 200 " in await reader.readline(), "a tail was refused"
    while await reader.read(CHUNK):
        opened.set()
    writer.close()


async def _search(host: str, port: int, topic: str, opened: asyncio.Event) -> None:
    while True:
        query = urlencode({"q": "nowhere", "seconds": 30})
        reader, writer = await _open(host, port, f"/topics/{topic}/messages?{query}")
        opened.set()
        assert b" 200 " in await reader.readline(), "a search was refused"
        while await reader.read(CHUNK):
            pass
        writer.close()


async def watch(address: str, tailed: str, tails: int, searched: str, searches: int) -> None:
    host, _, port = address.rpartition(":")
    opened = [asyncio.Event() for _ in range(tails + searches)]
    tasks = [
        asyncio.ensure_future(
            _tail(host, int(port), tailed, each) if number < tails else _search(host, int(port), searched, each)
        )
        for number, each in enumerate(opened)
    ]
    waiting = asyncio.gather(*(each.wait() for each in opened))
    await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        await asyncio.gather(*tasks)  # says why one ended
    print("open", flush=True)
    await asyncio.gather(*tasks)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    address, tailed, tails, searched, searches = sys.argv[1:]
    asyncio.run(watch(address, tailed, int(tails), searched, int(searches)))
