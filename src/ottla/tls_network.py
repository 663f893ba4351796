"""TLS at the network's seam: a `Network` over another `Network`, with OpenSSL between them on memory BIOs.

    secured = TlsNetwork(SystemNetwork(), contexts, Handshakes())
    acceptor = await secured.listen(lambda: Connection(...), host, port)

What asyncio's own TLS cannot do stays possible: the receive buffer is the protocol's, and many records are decrypted
into it before it is handled; answers are sent past the transport, through a `Sender` that sees how much the peer takes;
and the network below may be simulated.

Bytes. Cipher text arrives in a buffer that all connections of a network share, goes into the connection's BIO in pieces
(`tls_records.py`), and is decrypted from there while the protocol reads. A protocol that pauses leaves at most one
buffer's worth of cipher text behind, because the transport below is paused with it.

Handshakes. Each step is done by a thread (`Handshakes`), so that ten thousand clients that come back together hold
nobody up. Nothing else touches the connection's SSLObject and its BIOs meanwhile: what arrives is kept aside. A client
has HANDSHAKE_SECONDS_MAX and HANDSHAKE_BYTES_MAX.

What a protocol on the server's side sees: `connection_made` at once (limits and rates of connections count before the
handshake), then `secured(peer)` with the text of the client certificate's subject or None, then bytes.

Kernel TLS would be a second `Sender`, which sends on the socket as it is once the kernel has the keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from ottla.network import AcceptFailed, Acceptor, MakeProtocol, Network
from ottla.tls_connection import TlsConnection
from ottla.tls_handshakes import Failure, Handshakes, TlsContexts
from ottla.tls_sender import TlsSender

CIPHER_BUFFER_BYTES: Final = 131_072
"""A batch of 64 KB comes in one piece with what is around it. More no longer fits into a processor's second cache with
what is decrypted from it."""


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
