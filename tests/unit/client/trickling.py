"""A server whose answers come too slowly or are too large, in the ways that a timeout of each read does not see."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PAUSE_S: Final = 0.02
"""Between two bytes: a small part of any timeout."""

_OK: Final = b"HTTP/1.1 200 OK\r\n"
TRICKLES: Final = {
    "headers": (_OK, b"x: "),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (_OK + b"content-length: 1000000\r\n\r\n", b" "),
    "chunk's size": (_OK + b"transfer-encoding: chunked\r\n\r\n1;", b"x"),
    "unframed body": (_OK + b"\r\n", b" "),
}
"""What comes at once, and what comes byte by byte for ever, by the part of the answer that does not end."""
ENDLESS: Final = (_OK + b"\r\n", b"x" * 65_536)


@contextmanager
def server(begin: bytes, then: bytes, pause_s: float = PAUSE_S) -> Iterator[int]:
    """The port of a server that answers each request with `begin`, and with the bytes of `then` for ever."""
    over = threading.Event()
    pieces = [then] if not pause_s else [bytes([each]) for each in then]

    def serve(opened: socket.socket) -> None:
        with suppress(OSError), opened:
            opened.recv(65_536)
            opened.sendall(begin)
            for piece in itertools.cycle(pieces):
                opened.sendall(piece)
                if pause_s and over.wait(pause_s):
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                opened, _ = listener.accept()
                threading.Thread(target=serve, args=(opened,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
