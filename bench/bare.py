"""The physical limit beside which a broker is judged: receive a frame, append it, answer; or sendfile one back.

It parses nothing but the length, checks nothing and keeps nothing: no broker in this language can be faster.
`python -m bench.bare FILE` for the first, `python -m bench.bare FILE SIZE` for answers of SIZE bytes out of FILE.
`python -m bench.bare FILE SIZE PORT COUNT FILES` is a replica of the second: it asks PORT for COUNT answers of SIZE and
keeps them, in turn at the end of so many files, then says how many seconds and how much of the processor it took.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import time

import uvloop

ANSWER_SIZE = 64
KEPT_AT_ONCE = 1 << 16
"""Received and written in one piece: it stays in the processor's caches."""
ASKED_AHEAD = 2


class Bare(asyncio.BufferedProtocol):
    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        self.position = 0
        self.buffer = bytearray(1 << 21)
        self.view = memoryview(self.buffer)
        self.start = self.end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        os.close(self.fd)
        os.unlink(self.path)

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
        return Bare(f"{path}.{count}")

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def send_files(path: str, size: int) -> None:
    """Answer every frame on every connection with a length and `size` bytes of the file."""
    fd = os.open(path, os.O_RDONLY)
    places = max(1, os.fstat(fd).st_size // size)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    head = size.to_bytes(4, "big")
    clients: dict[int, list[int]] = {}  # descriptor: [answers due, bytes left of the current one, its place]
    sockets = {}
    while True:
        for ready, event in poller.poll():
            if ready == listener.fileno():
                client = listener.accept()[0]
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[client.fileno()] = client
                clients[client.fileno()] = [0, 0, 0]
                poller.register(client, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
                continue
            state = clients[ready]
            try:
                if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    data = sockets[ready].recv(1 << 16)
                    if not data:
                        raise ConnectionResetError
                    state[0] += data.count(b"bench")  # one client id in each request
                while state[0]:
                    if state[1] == 0:
                        sockets[ready].send(head, socket.MSG_MORE)
                        state[1], state[2] = size, (state[2] + 1) % places
                    state[1] -= os.sendfile(ready, fd, state[2] * size + size - state[1], state[1])
                    state[0] -= state[1] == 0
            except BlockingIOError:
                pass
            except ConnectionError:
                poller.unregister(ready)
                sockets.pop(ready).close()


def keep(path: str, size: int, port: int, count: int, files: int) -> None:
    """Ask for answers, ahead so that the sender never waits, and write them as they come."""
    kept = [os.open(f"{path}.{number}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC) for number in range(files)]
    positions = [0] * files
    view = memoryview(bytearray(KEPT_AT_ONCE))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        sock.sendall(b"bench" * ASKED_AHEAD)
        for number in range(count):
            if number + ASKED_AHEAD < count:
                sock.sendall(b"bench")
            if sock.recv(4, socket.MSG_WAITALL) != size.to_bytes(4, "big"):
                raise ConnectionError("the sender is gone")
            file, left = number % files, size
            while left:
                got = sock.recv_into(view, min(left, KEPT_AT_ONCE))
                positions[file] += os.pwrite(kept[file], view[:got], positions[file])
                left -= got
    print(time.perf_counter() - begin, time.process_time())


if __name__ == "__main__":
    if len(sys.argv) > 3:
        keep(sys.argv[1], *map(int, sys.argv[2:]))
    elif len(sys.argv) > 2:
        send_files(sys.argv[1], int(sys.argv[2]))
    else:
        uvloop.run(main(sys.argv[1]))
