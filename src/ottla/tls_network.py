"""TLS at the network's seam: a `Network` over another `Network`, with OpenSSL between them on memory BIOs.

    secured = TlsNetwork(SystemNetwork(), contexts, Handshakes())
    acceptor = await secured.listen(lambda: Connection(...), host, port)

What asyncio's own TLS cannot do stays possible: the receive buffer is the protocol's, and many records are decrypted
into it before it is handled; answers are sent past the transport, through a `Sender` that sees how much the peer takes;
and the network below may be simulated.

Bytes. Cipher text arrives in a buffer that all connections of a network share, goes into the connection's BIO at once,
and is decrypted from there while the protocol reads. A protocol that pauses leaves at most one buffer's worth of cipher
text in the BIO, because the transport below is paused with it.

Handshakes. Each step is done by a thread (`Handshakes`), so that ten thousand clients that come back together hold
nobody up. Nothing else touches the connection's SSLObject and its BIOs meanwhile: what arrives is kept aside. A client
has HANDSHAKE_SECONDS_MAX and HANDSHAKE_BYTES_MAX.

What a protocol on the server's side sees: `connection_made` at once (limits and rates of connections count before the
handshake), then `secured(peer)` with the text of the client certificate's subject or None, then bytes.

Kernel TLS would be a second `Sender`, which sends on the socket as it is once the kernel has the keys.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from ottla.model import Buffer
from ottla.network import AcceptFailed, Acceptor, MakeProtocol, Network
from ottla.tls_handshakes import ClosedInHandshake, Failure, Handshakes, Step, TlsContexts, reason_of, told
from ottla.tls_sender import TlsSender

CIPHER_BUFFER_BYTES: Final = 65_536
"""Four full records: more no longer fits into a processor's second cache with what is decrypted from it."""

HANDSHAKE_SECONDS_MAX: Final = 10.0

HANDSHAKE_BYTES_MAX: Final = 262_144
"""Received before the handshake is done: OpenSSL takes certificate chains of 100 KB, and a client may send requests
right behind its last message of the handshake."""

ALERT_SECONDS_MAX: Final = 1.0
"""How long a client that was refused may take to read why: what is closed at once is reset, and the alert lost."""

CLOSE_SECONDS_MAX: Final = 10.0
"""How long a closed connection waits for its peer to take what was sent."""

CLOSED: Final = "the connection was closed before the end of the TLS handshake"


class TlsNetwork:
    """Implements `ottla.network.Network`. All methods belong to the event loop's thread."""

    def __init__(
        self,
        inner: Network,
        contexts: TlsContexts,
        handshakes: Handshakes,
        *,
        subject_of: Callable[[bytes], str] = lambda certificate: "",
        on_failure: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        """`subject_of` gives the text of the subject in a certificate (DER); it is called in a thread. `on_failure` is
        told of each handshake that failed on the server's side."""
        self.contexts = contexts
        self.handshakes = handshakes
        self.subject_of = subject_of
        self.on_failure = on_failure
        self.inner = inner
        self.buffer = memoryview(bytearray(CIPHER_BUFFER_BYTES))
        """Where cipher text is received, of all connections."""
        self.scratch = memoryview(bytearray(0))
        """Where it is decrypted for protocols without a buffer; made when there is one."""

    async def listen(
        self, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
    ) -> Acceptor:
        """See `Network.listen`."""
        return await self.inner.listen(lambda: TlsConnection(self, protocol), host, port, accept_failed)

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `Network.connect`; returns after the handshake. Raises TlsFailed for a server that is not trusted or does
        not speak TLS, ClosedInHandshake, and other OSErrors."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody waits for it any more
        connection = TlsConnection(self, protocol, server_name=host.rstrip("."), done=done)
        try:
            await self.inner.connect(lambda: connection, host, port, receive_buffer_bytes=receive_buffer_bytes)
        except BaseException:
            connection.abandon()  # uvloop closes what was connected just then, and tells nobody
            raise
        try:
            await done
        except BaseException:
            if not connection.is_closing():
                connection.abort()
            raise
        return connection, connection.get_protocol()

    def sender(self, transport: asyncio.BaseTransport) -> TlsSender:
        return cast(TlsConnection, transport).new_sender()


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the protocol of the transport below, and the transport of the protocol above."""

    def __init__(
        self,
        network: TlsNetwork,
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
        self._early = bytearray()
        """Cipher text that arrived meanwhile, or during a step."""
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
            self._network.scratch = memoryview(bytearray(CIPHER_BUFFER_BYTES))
        self._made = True
        self._protocol.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        if self.ready:
            self._incoming.write(self._view[:nbytes])
            if self._paused:
                self._pause_raw()
            else:
                self._decrypt()
            return
        self._received += nbytes
        if self._stepping or self._held:
            self._early += self._view[:nbytes]
            if len(self._early) >= CIPHER_BUFFER_BYTES:
                self._pause_raw()
            return
        self._incoming.write(self._view[:nbytes])
        if self._received > HANDSHAKE_BYTES_MAX:
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
        if self._early and self._raw is not None and not self._closing:
            self._take_early()
            self._step()
        self._resume_raw()

    def _take_early(self) -> None:
        self._incoming.write(self._early)
        self._early = bytearray()

    def _step(self) -> None:
        self._stepping = True
        future = self._network.handshakes.run(self._loop, self._work)
        future.add_done_callback(self._stepped)

    def _work(self) -> Step:
        """In a thread."""
        try:
            if not hasattr(self, "tls"):
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
        if self._early:
            self._take_early()
        if step.done:
            self._secured(step.peer)
            return
        if not self._flushed():
            return
        if self._incoming.pending:
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
        self._failure = error
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

    def _decrypt(self) -> None:
        """Give the protocol what can be decrypted, until it pauses. Many records go into its buffer before it looks at
        it, so that few of its frames come in pieces."""
        incoming, protocol = self._incoming, self._protocol
        read: Any = self.tls.read  # gives a number where there is a buffer
        pending = self.tls.pending
        while not self._paused and not self._closing and (incoming.pending or pending()):
            view = self._network.scratch if self._plain else protocol.get_buffer(-1)
            room, filled = len(view), 0
            ended, failure = False, None
            try:
                while filled < room and (incoming.pending or pending()):
                    count = read(room - filled, view[filled:] if filled else view)
                    if not count:
                        ended = True
                        break
                    filled += count
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                failure = error
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
        if self.outgoing.pending:  # an answer to a new key, say
            self._flushed()

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
            self._decrypt()
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
        self._failure = self._failure or error
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
