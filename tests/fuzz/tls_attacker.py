"""A client that has the keys of its connection over TLS 1.3, and writes records itself (RFC 8446)."""

from __future__ import annotations

import asyncio
import hmac
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALERT, HANDSHAKE, DATA = 21, 22, 23
KEY_UPDATE = 24


class TlsAttacker:
    """`keys` is a path for a file of keys, `context` the client's, of TLS 1.3."""

    def __init__(self, keys: Path, context: ssl.SSLContext) -> None:
        self._keys = keys
        context.keylog_filename = str(keys)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._secret = b""
        self._digest = ""
        self._sent = 0
        """Records by the newest key."""
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self, port: int) -> None:
        """Connect, and shake hands. Raises OSError."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                data = await self.reader.read(1 << 16)
                if not data:
                    raise ConnectionResetError("closed in the handshake") from None
                self._incoming.write(data)
        self.writer.write(self._outgoing.read())
        lines = map(str.split, self._keys.read_text().splitlines())
        self._keys.unlink()
        self._secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._digest = "sha384" if len(self._secret) == 48 else "sha256"

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (7.1)."""
        info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        found, last, number = b"", b"", 0
        while len(found) < size:
            number += 1
            last = hmac.digest(self._secret, last + info + bytes([number]), self._digest)
            found += last
        return found[:size]

    def record(self, content: bytes, kind: int = DATA, padding: int = 0) -> bytes:
        key, vector = self._expanded(b"key", 32 if self._digest == "sha384" else 16), self._expanded(b"iv", 12)
        nonce = int.from_bytes(vector, "big") ^ self._sent
        self._sent += 1
        inner = content + bytes([kind]) + bytes(padding)
        head = b"\x17\x03\x03" + (len(inner) + 16 & 0xFFFF).to_bytes(2, "big")
        return head + AESGCM(key).encrypt(nonce.to_bytes(12, "big"), inner, head)

    def key_update(self, *, asks: bool) -> bytes:
        """27 bytes, after which everything is by a new key; `asks` for one of the other side too."""
        written = self.record(bytes([KEY_UPDATE, 0, 0, 1, asks]), HANDSHAKE)
        self._secret, self._sent = self._expanded(b"traffic upd", len(self._secret)), 0
        return written
