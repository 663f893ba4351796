"""The physical limit beside which a broker is judged: receive a frame, append it to a file, answer.

It parses nothing but the length, checks nothing and keeps nothing: no broker in this language can be faster.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvloop

ANSWER_SIZE = 64


class Bare(asyncio.BufferedProtocol):
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.position = 0
        self.buffer = bytearray(1 << 21)
        self.view = memoryview(self.buffer)
        self.start = self.end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.end += nbytes
        answers = 0
        while self.end - self.start >= 4:
            size = int.from_bytes(self.view[self.start : self.start + 4], "big")
            if self.end - self.start - 4 < size:
                break
            os.pwritev(self.fd, [self.view[self.start + 4 : self.start + 4 + size]], self.position)
            self.position += size
            self.start += 4 + size
            answers += 1
        rest = self.end - self.start
        if self.start:
            self.view[:rest] = self.view[self.start : self.end]
            self.start, self.end = 0, rest
        if answers:
            answer = (ANSWER_SIZE - 4).to_bytes(4, "big") + bytes(ANSWER_SIZE - 4)
            self.transport.write(answer * answers)  # type: ignore[attr-defined]


async def main(path: str) -> None:
    loop = asyncio.get_running_loop()
    count = 0

    def protocol() -> Bare:
        nonlocal count
        count += 1
        return Bare(os.open(f"{path}.{count}", os.O_CREAT | os.O_RDWR | os.O_TRUNC))

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
