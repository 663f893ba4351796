"""The two ends of a connection on the simulated network, and how a node sends through one."""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol, cast

from ottla.filesystem import File
from ottla.model import Buffer
from ottla.network import COPY_BYTES_MAX, MakeProtocol
from ottla.testing.loop import SimulatedLoop, SimulatedTime, State

RETRANSMIT_SECONDS_MAX = 20.0
"""After so long without an acknowledgement a connection is given up; Linux takes a quarter of an hour."""

RETRANSMIT_SECONDS = 0.2
"""The first pause before what did not arrive is sent again; each further one is twice as long, up to 2 s."""

WRITE_BUFFER_BYTES = 65_536
"""A transport that has more unsent bytes pauses its protocol."""


@dataclass(slots=True)
class Link:
    """What happens to bytes from one host to another."""

    delay_s: tuple[float, float]
    is_cut: bool = False
    clogged_until_s: float = 0.0


class Between(Protocol):
    """What lies between the two ends: `SimulatedNetwork`."""

    @property
    def time(self) -> SimulatedTime: ...
    @property
    def random(self) -> Random: ...
    @property
    def loop(self) -> SimulatedLoop: ...
    @property
    def counts(self) -> Counter[str]: ...
    @property
    def trace(self) -> Callable[[str, str], None]: ...
    def link(self, source: str, target: str, /) -> Link: ...
    def passes(self, source: str, target: str, /) -> bool: ...
    def is_up(self, host: str, /) -> bool: ...
    def arrives_s(self, source: str, target: str, /) -> float: ...
    def strand(self, end: SimulatedTransport, seconds: float, /) -> None: ...
    def drop(self, end: SimulatedTransport, /) -> None: ...


class _Chunk(NamedTuple):
    data: bytes | None
    """None is the end of what is sent (FIN)."""
    due_s: float


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedTransport

    def __init__(
        self, network: Between, loop: SimulatedLoop, host: str, number: int, window: int, *, is_client: bool
    ) -> None:
        super().__init__()
        self.loop = loop
        self.host = host
        self.is_client = is_client
        self.name = f"{number}{'>' if is_client else '<'}"
        self.lost = False
        """Whether the protocol was or will be told that the connection is over."""
        self.gone = False
        """Whether what arrives is answered with a reset."""
        self.broken: OSError | None = None
        self.strand_s = -1.0
        """`SimulatedNetwork.strand` follows the next thing that is sent."""
        self._network = network
        self._random = network.random.random
        self._window = window
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent = bytearray()
        self._flight: deque[_Chunk] = deque()
        self._flight_bytes = 0
        self._arriving = False
        self._stalled_since_s = -1.0
        self._inbox = bytearray()
        self._read_due = False
        self._paused = False
        self._writing_paused = False
        self._closing = False
        self._fin_sent = False
        self._fin_came = False
        self._writable: Callable[[], None] | None = None
        self._writable_due = False

    def __repr__(self) -> str:
        return f"<connection {self.name} of {self.host}>"

    def made(self, protocol: MakeProtocol) -> asyncio.BaseProtocol:
        made = self._protocol = protocol()
        made.connection_made(self)
        if self.lost:
            self.loop.call_soon(self._tell, self.broken)
        self._read_soon()
        return made

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer.host, 0) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._read_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """One limit is as good as another here."""

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        if self.is_closing() or self.loop.state is State.DEAD:
            return
        self._unsent += data
        self._pump()
        if len(self._unsent) > WRITE_BUFFER_BYTES and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        """What was written still goes out."""
        if not self._closing:
            self._closing = True
            self._finish()

    def abort(self) -> None:
        if not self.lost:
            self._closing = True
            self.send_reset()
            self._lose(None)

    # Sending.

    def take(self, data: Buffer) -> int:
        """As a socket takes bytes: as many as there is room for. Raises BlockingIOError when there is none."""
        if self.broken is not None or self.lost or self.loop.state is State.DEAD:
            raise self.broken or BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self._room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = min(len(data), room)
        if taken > 1 and self._random() < 0.05:
            taken = self._network.random.randint(1, taken)
        self._unsent += memoryview(data)[:taken]
        self._pump()
        return taken

    def watch(self, writable: Callable[[], None] | None) -> None:
        self._writable = writable
        self._look_writable()

    def _room(self) -> int:
        return self._window - len(self._unsent) - self._flight_bytes - len(self.peer._inbox)

    def _look_writable(self) -> None:
        if self._writable is not None and not self._writable_due and not self.lost and self._room() > 0:
            self._writable_due = True
            self.loop.call_soon(self._call_writable)

    def _call_writable(self) -> None:
        self._writable_due = False
        if self._writable is not None and not self.lost:
            self._writable()
            self._look_writable()

    def _pump(self) -> None:
        """Put on the way what the peer has room for."""
        while self._unsent and self._flight_bytes + len(self.peer._inbox) < self._window:
            size = min(len(self._unsent), self._window - self._flight_bytes - len(self.peer._inbox))
            if size > 1 and self._random() < 0.1:
                size = self._network.random.randint(1, size)
            self._depart(bytes(self._unsent[:size]))
            del self._unsent[:size]
        if self._writing_paused and len(self._unsent) <= WRITE_BUFFER_BYTES // 4:
            self._writing_paused = False
            self.loop.call_soon(self.get_protocol().resume_writing)

    def _depart(self, data: bytes | None) -> None:
        due_s = self._network.arrives_s(self.host, self.peer.host)
        if self._flight:
            due_s = max(due_s, self._flight[-1].due_s)
        self._flight.append(_Chunk(data, due_s))
        if data is not None:
            self._flight_bytes += len(data)
        if not self._arriving:
            self._arriving = True
            self._network.loop.exactly_at(due_s, self._arrive)
        if self.strand_s >= 0 and data is not None:
            self._network.loop.call_soon(self._network.strand, self, self.strand_s)
            self.strand_s = -1.0

    def _arrive(self) -> None:
        """The oldest chunk is where it should be, if the link lets it."""
        self._arriving = False
        if not self._flight:
            return
        network = self._network
        now_s = network.time.now_s
        if not network.passes(self.host, self.peer.host):
            if self._stalled_since_s < 0:
                self._stalled_since_s = now_s
            stalled_s = now_s - self._stalled_since_s
            if stalled_s > RETRANSMIT_SECONDS_MAX:
                self.broke(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
                return
            network.counts["stalled"] += 1
            self._arriving = True
            network.loop.exactly_in(min(max(RETRANSMIT_SECONDS, stalled_s), 2.0), self._arrive)
            return
        self._stalled_since_s = -1.0
        if self.peer.gone:
            self._flight.clear()
            self._flight_bytes = 0
            self.peer.send_reset()
            return
        chunk = self._flight.popleft()
        if chunk.data is None:
            self.peer._fin_came = True
            network.trace("net", f"{self.name} fin")
        else:
            self._flight_bytes -= len(chunk.data)
            self.peer._inbox += chunk.data
            network.trace("net", f"{self.name} {len(chunk.data)} {zlib.crc32(chunk.data):08x}")
        self.peer._read_soon()
        if self._flight:
            self._arriving = True
            network.loop.exactly_at(max(self._flight[0].due_s, now_s), self._arrive)

    # Receiving.

    def _read_soon(self) -> None:
        if not self._read_due and not self._paused and not self.lost and (self._inbox or self._fin_came):
            self._read_due = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        protocol = self._protocol
        if protocol is None:  # accepted a moment ago
            return
        while self._inbox and not self._paused and not self.lost and not self._closing:
            size = len(self._inbox)
            if size > 1 and self._random() < 0.1:
                size = self._network.random.randint(1, size)
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(cast(bytearray, protocol.get_buffer(-1)))
                size = min(size, len(buffer))
                buffer[:size] = self._inbox[:size]
                del self._inbox[:size]
                protocol.buffer_updated(size)
            else:
                data = bytes(self._inbox[:size])
                del self._inbox[:size]
                cast(asyncio.Protocol, protocol).data_received(data)
        if self._closing:
            self._inbox.clear()
        if self.peer._waits:
            self._network.loop.call_soon(self.peer._acknowledged)
        if self._fin_came and not self._inbox and not self.lost and not self._closing and not self._paused:
            self._fin_came = False
            if not cast(asyncio.Protocol, protocol).eof_received():
                self.close()

    @property
    def _waits(self) -> bool:
        """Whether it is of interest here that the other end has read."""
        return bool(self._unsent) or self._closing or self._writing_paused or self._writable is not None

    def _acknowledged(self) -> None:
        if not self.lost:
            self._pump()
            self._look_writable()
        if self._closing:
            self._finish()

    # The end.

    def _finish(self) -> None:
        if self._unsent or self._fin_sent or self.broken is not None:
            return
        self._fin_sent = True
        self._depart(None)
        self._lose(None)

    def send_reset(self) -> None:
        """Tell the peer at once that the connection is over, if that can get through."""
        network = self._network
        self._unsent.clear()
        if network.link(self.host, self.peer.host).is_cut:
            self._flight.clear()  # nobody sends it again; what is on its way otherwise may still arrive
            self._flight_bytes = 0
        else:
            arrives_s = network.arrives_s(self.host, self.peer.host)
            network.loop.exactly_at(arrives_s, self.peer._reset_came)

    def stray(self, data: bytes, seconds: float) -> None:
        """Bytes that arrive late, from somebody who is no longer there."""

        def arrive() -> None:
            if not self.lost and self._network.is_up(self.host):
                self._inbox += data
                self._network.trace("net", f"{self.name} late {len(data)} {zlib.crc32(data):08x}")
                self._read_soon()

        self._network.loop.exactly_in(seconds, arrive)
        self._network.loop.exactly_in(seconds + 1, self._reset_came)

    def _reset_came(self) -> None:
        if self._network.is_up(self.host):
            self.broke(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def broke(self, error: OSError) -> None:
        """The connection is over at this end, which its protocol learns now."""
        if self.broken is None and not self.gone:
            self.broken = error
            self._network.trace("net", f"{self.name} {type(error).__name__}")
            self._unsent.clear()
            self._flight.clear()
            self._flight_bytes = 0
            self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        if not self.lost:
            self.lost = True
            self.gone = True
            self._writable = None
            self._network.drop(self)
            self.loop.call_soon(self._tell, error)

    def _tell(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)
            self._protocol = None


class SimulatedSender:
    """Implements `ottla.network.Sender`."""

    def __init__(self, transport: SimulatedTransport) -> None:
        self._transport = transport

    def send(self, data: Buffer, /) -> int:
        return self._transport.take(data)

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[Any], flags: int, /) -> int:
        return self._transport.take(b"".join(buffers))

    def send_file(self, file: File, position: int, length: int) -> int:
        data = file.pread(min(length, COPY_BYTES_MAX), position)
        return self._transport.take(data) if data else 0

    def watch(self, writable: Callable[[], None]) -> None:
        self._transport.watch(writable)

    def unwatch(self) -> None:
        self._transport.watch(None)

    def release(self) -> None:
        self._transport.watch(None)
