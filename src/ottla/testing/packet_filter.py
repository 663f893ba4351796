"""A network partition between processes of one machine, for anybody: sockets that drop what comes from certain nodes.

A node of a test connects from a loopback address of its own (`packet_source.py`), so that a packet says who sent it. A
classic BPF program on every TCP socket of a node (SO_ATTACH_FILTER, Linux; it needs no privilege) drops those of the
nodes that it is cut off from, as a broken cable does: nothing is refused or reset, TCP goes on sending and delivers
after `heal`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence

from ottla.network import MakeProtocol, SystemNetwork
from ottla.testing.packet_source import source

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
INSTRUCTIONS_MAX = 200
"""Jumps reach 255 instructions."""

_LOAD_HALF, _LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x20, 0x15, 0x06
_NETWORK_HEADER = -0x100000 & 0xFFFFFFFF
"""SKF_NET_OFF: the program of a TCP socket sees the TCP header first, and the IP header from here."""
_SOURCE_ADDRESS, _SOURCE_PORT = _NETWORK_HEADER + 12, 0
_ALL = 0xFFFFFFFF


class Cut:
    """What is dropped: packets from addresses, and from ports of 127.0.0.1, where nodes listen."""

    def __init__(self, addresses: Iterable[str] = (), ports: Iterable[int] = ()) -> None:
        self.addresses = sorted(addresses)
        self.ports = sorted(ports)
        if len(self.addresses) + len(self.ports) > INSTRUCTIONS_MAX:
            raise ValueError("too many nodes to be cut off from")

    def __bool__(self) -> bool:
        return bool(self.addresses or self.ports)

    def program(self) -> bytes:
        """Instructions of classic BPF: compare, jump to the end where it is equal, else go on and take the packet."""
        words = [int.from_bytes(socket.inet_aton(each), "big") for each in self.addresses]
        loads = [(_LOAD_WORD, _SOURCE_ADDRESS, words), (_LOAD_HALF, _SOURCE_PORT, self.ports)]
        length = sum(1 + len(values) for _, _, values in loads)
        code = []
        for load, where, values in loads:
            code.append(_instruction(load, 0, 0, where))
            for value in values:
                code.append(_instruction(_JUMP_IF_EQUAL, length - len(code), 0, value))
        code += [_instruction(_RETURN, 0, 0, _ALL), _instruction(_RETURN, 0, 0, 0)]
        return b"".join(code)

    def apply(self, sock: socket.socket) -> None:
        """Put it in the place of the one that the socket has. Raises OSError."""
        if not self:
            with contextlib.suppress(OSError):  # it had none
                sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            return
        code = self.program()
        memory = ctypes.create_string_buffer(code)
        head = struct.pack("HP", len(code) // 8, ctypes.addressof(memory))
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def tcp_sockets() -> Iterator[socket.socket]:
    """Copies of the descriptors of this process's TCP sockets over IPv4, those that listen first: what they accept from
    then on has their filter."""
    found: list[tuple[bool, socket.socket]] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # gone meanwhile
            continue
        try:
            sock = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM:
            found.append((not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), sock))
        else:
            sock.close()
    for _, sock in sorted(found, key=lambda each: each[0]):
        with sock:
            yield sock


class CutNetwork(SystemNetwork):
    """The network of a node that can be cut off from others. Everything listens at 127.0.0.1."""

    def __init__(self, send_buffer_bytes: int, node_id: int) -> None:
        super().__init__(send_buffer_bytes)
        self._source = source(node_id)
        self._cut = Cut()

    async def cut(self, addresses: Sequence[str], ports: Sequence[int]) -> None:
        """Drop what comes from there, from now on; nothing where both are empty. Raises OSError."""
        self._cut = Cut(addresses, ports)
        for _ in range(2):  # the second time for connections that waited to be accepted
            for sock in tcp_sockets():
                self._cut.apply(sock)
            await asyncio.sleep(0)

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        try:
            sock.setblocking(False)
            if receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            sock.bind((self._source, 0))
            if self._cut:
                self._cut.apply(sock)
            await loop.sock_connect(sock, (host, port))
            return await loop.create_connection(protocol, sock=sock)
        except BaseException:
            sock.close()
            raise
