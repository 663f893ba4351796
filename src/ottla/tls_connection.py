"""One connection over TLS, between the transport below and the protocol above; see `tls_network.py`."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.model import Buffer
from ottla.network import MakeProtocol
from ottla.tls_handshakes import ClosedInHandshake, Failure, Step, reason_of, told, without_frames
from ottla.tls_records import HEADER_BYTES, Noise, Pieces
from ottla.tls_sender import TlsSender

if TYPE_CHECKING:
    from ottla.tls_handshakes import SharedTls

HANDSHAKE_SECONDS_MAX: Final = 10.0

HANDSHAKE_BYTES_MAX: Final = 262_144
"""Received before the handshake is done: OpenSSL takes certificate chains of 100 KB, and a client may send requests
right behind its last message of the handshake."""

KEPT_BYTES_MAX: Final = 65_536
"""Received while a thread does a step; beyond it the transport below is paused."""

ALERT_SECONDS_MAX: Final = 1.0
"""How long a client that was refused may take to read why: what is closed at once is reset, and the alert lost."""

CLOSE_SECONDS_MAX: Final = 10.0
"""How long a closed connection waits for its peer to take what was sent."""

MESSAGE_BYTES: Final = 22
"""The shortest message of TLS 1.3."""

NOTHING: Final = memoryview(b"")
NOISE: Final = ssl.SSLError(1, "too many messages that are no data")

CLOSED: Final = "the connection was closed before the end of the TLS handshake"


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the protocol of the transport below, and the transport of the protocol above."""

    def __init__(
        self,
        network: SharedTls,
        make: MakeProtocol,
        *,
        server_name: str | None = None,
        done: asyncio.Future[None] | None = None,
    ) -> None:
        """With `done` it is the client's end, and `server_name` the name that the server has to prove."""
        super().__init__()
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._server_name = server_name
        self._done = done
        self._raw: asyncio.Transport | None = None
        self._protocol: Any = None
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls: ssl.SSLObject
        self._view = network.buffer
        self.ready = False
        """Whether the handshake is done."""
        self._stepping = False
        """Whether a thread has the SSLObject and the BIOs."""
        self._held = False
        """Whether the handshake is to begin later."""
        self._kept = bytearray()
        """Cipher text that OpenSSL was not given yet: a thread has the BIOs, or the protocol has paused."""
        self._pieces = Pieces()
        self._between = False
        """Whether the next byte is the first of a record that can be decrypted at once."""
        self._noise: Noise | None = None
        self._early_eof = False
        self._early_writes: list[bytes] = []
        self._received = 0
        """Bytes received before the handshake was done."""
        self._timer: asyncio.Handle | None = None
        """Ends a handshake, or a connection whose peer does not take what is left at its close."""
        self._paused = False
        """Whether the protocol wants nothing now."""
        self._raw_paused = False
        self._going_on = False
        self._ended = False
        """Whether the protocol knows that the peer sends nothing more."""
        self._closing = False
        self._made = False
        """Whether the protocol knows of the connection."""
        self._plain = False
        """Whether the protocol is one of asyncio that is handed bytes, and has no buffer."""
        self._failure: Exception | None = None
        self._sender: TlsSender | None = None

    # What the transport below calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = self._raw = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS_MAX, self._late)
        if self._done is None:
            self._tell_made()
            if raw.is_closing():
                self._stop_timer()
        else:
            self._step()

    def _tell_made(self) -> None:
        self._protocol = self._make()
        self._plain = not isinstance(self._protocol, asyncio.BufferedProtocol)
        if self._plain and not self._network.scratch:
            self._network.scratch = memoryview(bytearray(len(self._network.buffer)))
        self._made = True
        self._protocol.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        view = self._view
        if self._between and (view[3] << 8 | view[4]) == nbytes - HEADER_BYTES:
            self._one_record(view[:nbytes])
            return
        view = view[:nbytes]
        if self.ready:
            if self._paused or self._kept:
                self._kept += view
                self._pause_raw()
            else:
                self._decrypt(view)
            return
        self._received += nbytes
        self._kept += view
        if self._stepping or self._held:
            if len(self._kept) >= KEPT_BYTES_MAX:
                self._pause_raw()
        elif self._received > HANDSHAKE_BYTES_MAX:
            self._fail(ssl.SSLError(1, f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the handshake"))
        else:
            self._step()

    def eof_received(self) -> bool:
        if self._stepping or self._held:  # its last bytes may end the handshake
            self._early_eof = True
            return True
        if not self.ready:
            self._fail(ClosedInHandshake(CLOSED))
            return False
        return self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._raw = None
        self._stop_timer()
        if not self.ready and self._failure is None and not self._closing:
            self._failure = ClosedInHandshake(CLOSED if exc is None else f"{CLOSED}: {exc}")
            self._report(self._failure)
        if self._sender is not None:
            self._sender.lost()
            self._sender = None
        failure = self._failure or exc
        if failure is not None:
            failure = told(failure)
        if self._done is not None and not self._done.done():
            self._done.set_exception(failure or ClosedInHandshake("the connection was closed"))
        if self._made:
            self._protocol.connection_lost(failure)

    def pause_writing(self) -> None:
        if self._made:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._made:
            self._protocol.resume_writing()

    # The handshake.

    def hold_handshake(self, seconds: float) -> None:
        """Begin the handshake only after so long: the rate of new connections is limited."""
        self._held = True
        self._stop_timer()
        self._timer = self._loop.call_later(seconds + HANDSHAKE_SECONDS_MAX, self._late)
        self._loop.call_later(seconds, self._begin_held)

    def _begin_held(self) -> None:
        self._held = False
        if self._kept and self._raw is not None and not self._closing:
            self._step()
        self._resume_raw()

    def _step(self) -> None:
        """One more step with one more piece of what has arrived."""
        if self._kept:
            with memoryview(self._kept) as kept:
                end = self._pieces.next(kept, 0)
                self._incoming.write(kept[:end])
            del self._kept[:end]
        self._stepping = True
        future = self._network.handshakes.run(self._loop, self._work)
        future.add_done_callback(self._stepped)

    def _work(self) -> Step:
        """In a thread."""
        try:
            begun = hasattr(self, "tls")
            if self._closing or self._raw is None or (self._early_eof and not begun):
                raise ClosedInHandshake(CLOSED)  # a client that did not wait for its turn costs no key
            if not begun:
                self.tls = self._wrapped()
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                return Step(done=False)
            suites = self._network.contexts.suites
            chosen = self.tls.cipher()
            if suites and chosen is not None and chosen[1] == "TLSv1.3" and chosen[0] not in suites:
                raise ssl.SSLError(1, f"the cipher suite {chosen[0]} is not among ssl.cipher.suites")
            return Step(done=True, peer=self._peer() if self._done is None else None)
        except Exception as error:
            return Step(done=False, error=error)

    def _wrapped(self) -> ssl.SSLObject:
        contexts = self._network.contexts
        context = contexts.server if self._done is None else contexts.client
        if context is None:
            raise ssl.SSLError(1, "there is no certificate")
        if self._done is None:
            return context.wrap_bio(self._incoming, self.outgoing, server_side=True)
        return context.wrap_bio(self._incoming, self.outgoing, server_hostname=self._server_name)

    def _peer(self) -> str | None:
        certificate = self.tls.getpeercert(binary_form=True)
        return None if certificate is None else self._network.subject_of(certificate)

    def _stepped(self, future: asyncio.Future[Step]) -> None:
        self._stepping = False
        if future.cancelled() or self._raw is None:
            return
        if self._closing:
            self._finish()
            return
        step = future.result()
        if step.error is not None:
            self._fail(step.error)
            return
        if step.done:
            self._secured(step.peer)
            return
        if not self._flushed():
            return
        if self._incoming.pending or self._kept:
            self._step()
        elif self._early_eof:
            self._fail(ClosedInHandshake(CLOSED))
        else:
            self._resume_raw()

    def _secured(self, peer: str | None) -> None:
        self._stop_timer()
        self.ready = True
        if not self._flushed():  # on the server's side tickets, and what ends the handshake
            return
        if self._done is None:
            secured = getattr(self._protocol, "secured", None)
            if secured is not None:
                secured(peer)
        else:
            self._tell_made()
            if not self._done.done():
                self._done.set_result(None)
        early, self._early_writes = self._early_writes, []
        for data in early:
            self.write(data)
        if self._sender is not None:
            self._sender.opened()
        self._go_on()
        if self._early_eof:
            self._end()

    def _fail(self, error: Exception) -> None:
        """End the connection; the peer is sent the alert that says why."""
        if self._failure is not None or self._closing:
            return
        self._failure = without_frames(error)
        if not self.ready:
            self._report(error)
        if self._raw is not None:
            self._closing = True
            if not self._stepping:
                with suppress(OSError):
                    self._flush()
            self._stop_timer()
            if self._done is not None and not self._done.done():
                self._done.set_exception(told(error))
            if self._done is not None or self.ready or not self._raw.can_write_eof() or self._has_rest():
                self._raw_close()
            else:
                self._raw.write_eof()
                self._timer = self._loop.call_later(ALERT_SECONDS_MAX, self.abort)

    def abandon(self) -> None:
        """End a connection that nobody waits for any more."""
        self._stop_timer()
        self._closing = True
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.abort()

    def _late(self) -> None:
        self._timer = None
        if self.ready:  # at its end
            self.abort()
        elif self._stepping and self._done is None:  # it waits for a thread of this node: the client is not late
            self._timer = self._loop.call_later(HANDSHAKE_SECONDS_MAX, self._late)
        else:
            self._fail(TimeoutError(f"the TLS handshake was not done in {HANDSHAKE_SECONDS_MAX:g} s"))

    def _report(self, error: Exception) -> None:
        if self._done is None and (self._received or not isinstance(error, ClosedInHandshake)):  # else it is a probe
            self._network.on_failure(Failure(self._peer_host(), reason_of(error)))

    def _peer_host(self) -> str:
        name = None if self._raw is None else self._raw.get_extra_info("peername")
        host = getattr(self._protocol, "client_host", None)  # the transport does not know it any more
        return str(host or (name[0] if isinstance(name, tuple) else "localhost"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Receiving.

    def _one_record(self, record: memoryview) -> None:
        """The shortest way for what most requests are."""
        self._incoming.write(record)
        view = self._protocol.get_buffer(-1)
        size = len(record)
        if len(view) < size:
            self._decrypt(NOTHING)
            return
        try:
            count: Any = self.tls.read(size, view)
        except ssl.SSLWantReadError:
            if self._is_noise(0):
                self._fail(NOISE)
        except ssl.SSLError as error:
            self._fail(without_frames(error))
        else:
            if count:
                self._protocol.buffer_updated(count)
            else:
                self._end()
        if self.outgoing.pending:  # an answer to a new key, say
            self._flushed()

    def _decrypt(self, data: memoryview) -> None:
        """Give the protocol what can be decrypted of `data`, and of what the BIO has, until it pauses. Many records go
        into its buffer before it looks at it, so that few of its frames come in pieces."""
        incoming, outgoing, protocol, pieces = self._incoming, self.outgoing, self._protocol, self._pieces
        read: Any = self.tls.read  # gives a number where there is a buffer
        pending = self.tls.pending
        at, size = 0, len(data)
        while not self._paused and not self._closing and (at < size or incoming.pending or pending()):
            view = self._network.scratch if self._plain else protocol.get_buffer(-1)
            room, filled, said = len(view), 0, outgoing.pending
            ended = False
            failure: Exception | None = None
            while filled < room:
                if not (incoming.pending or pending()):
                    if at == size:
                        break
                    if outgoing.pending > said and self._is_noise(outgoing.pending - said):
                        failure = NOISE
                        break
                    end = pieces.next(data, at)
                    incoming.write(data[at:end])
                    at = end
                try:
                    count = read(room - filled, view[filled:] if filled else view)
                except ssl.SSLWantReadError:
                    if not filled and pieces.is_between and self._is_noise(0):
                        failure = NOISE
                        break
                    continue
                except ssl.SSLError as error:
                    failure = without_frames(error)
                    break
                if not count:
                    ended = True
                    break
                filled += count
            if filled and self._plain:
                protocol.data_received(bytes(view[:filled]))
            elif filled:
                protocol.buffer_updated(filled)
            if failure is not None:
                self._fail(failure)
            elif ended:
                self._end()
            elif not filled:
                break
        if at < size and not self._closing:
            self._kept += data[at:]
            self._pause_raw()
        if outgoing.pending:  # an answer to a new key, say
            self._flushed()
        self._between = not self._paused and not self._plain and pieces.is_between  # and nothing is kept then

    def _is_noise(self, answers: int) -> bool:
        """Whether the peer sends too much that is no data; `answers` are bytes that OpenSSL has to say to it."""
        if self._noise is None:
            self._noise = Noise()
        return self._noise.is_too_much(1 + answers // MESSAGE_BYTES, self._loop.time())

    def _end(self) -> bool:
        """The peer sends nothing more; returns whether the connection stays for what is still to be sent."""
        if self._ended:
            return not self._closing
        self._ended = True
        if self._closing or not self._made:
            return False
        stays = bool(self._protocol.eof_received())
        if not stays:
            self.close()
        return stays

    def _go_on(self) -> None:
        """Decrypt what waits, then receive again."""
        self._going_on = False
        if self._raw is None or self._closing:
            return
        if not self._paused:
            kept, self._kept = self._kept, bytearray()
            self._decrypt(memoryview(kept))
        if self._paused:
            self._pause_raw()
        else:
            self._resume_raw()

    def _pause_raw(self) -> None:
        if not self._raw_paused and self._raw is not None:
            self._raw_paused = True
            self._raw.pause_reading()

    def _resume_raw(self) -> None:
        if self._raw_paused and self._raw is not None and not self._closing:
            self._raw_paused = False
            self._raw.resume_reading()

    # Sending.

    def new_sender(self) -> TlsSender:
        assert self._raw is not None
        self._sender = TlsSender(self, self._network.inner.sender(self._raw))
        return self._sender

    def encrypt(self, data: Buffer) -> None:
        """Encrypt all of it, which is not sent before `TlsSender.push`. OpenSSL takes a record at a time."""
        write = self.tls.write
        size = len(data)
        done = write(data)
        if done < size:
            view = memoryview(data)
            while done < size:
                done += write(view[done:])

    def _flush(self) -> None:
        """Send what TLS has to say. Raises OSError."""
        if self._sender is not None:
            self._sender.push()
        elif self.outgoing.pending and self._raw is not None:
            self._raw.write(self.outgoing.read())

    def _flushed(self) -> bool:
        """`_flush`; returns False where the connection turned out to be broken, and is ended for that."""
        try:
            self._flush()
        except OSError as error:
            self._broke(error)
            return False
        return True

    def _has_rest(self) -> bool:
        return self._sender is not None and self._sender.has_rest

    def _broke(self, error: OSError) -> None:
        self._failure = self._failure or without_frames(error)
        self.abort()

    def drained(self) -> None:
        """The sender has nothing left."""
        if self._closing:
            self._raw_close()

    # asyncio.Transport, for the protocol above.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return getattr(self, "tls", default)
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        return self._closing or self._raw is None

    def is_reading(self) -> bool:
        return not self._paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._between = False
        if self.ready:
            self._pause_raw()

    def resume_reading(self) -> None:
        """What waits is decrypted in a later turn: who resumes is not called back at once."""
        self._paused = False
        if self.ready and not self._going_on and self._raw is not None:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def write(self, data: Any) -> None:
        if self._closing or self._raw is None:
            return
        if not self.ready:
            self._early_writes.append(bytes(data))
            return
        try:
            if len(data):
                self.encrypt(data)
        except OSError as error:
            self._broke(error)
            return
        self._flushed()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def close(self) -> None:
        """Send what was written and a close_notify, then end the connection."""
        if self._closing or self._raw is None:
            return
        self._closing = True
        self._stop_timer()
        if not self._stepping:
            self._finish()

    def _finish(self) -> None:
        """The last bytes of a connection that closes."""
        if self.ready:
            with suppress(OSError):  # it waits for the peer's close_notify, which nobody needs
                self.tls.unwrap()
        if self._flushed():
            self._raw_close()

    def _raw_close(self) -> None:
        """Close once the peer has taken everything, which it gets some time for."""
        if self._raw is not None:
            if self._has_rest():
                self._timer = self._timer or self._loop.call_later(CLOSE_SECONDS_MAX, self.abort)
            else:
                self._stop_timer()
                self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._stop_timer()
        if self._raw is not None:
            self._raw.abort()
