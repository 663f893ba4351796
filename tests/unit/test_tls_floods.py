"""What a peer can do to a node within TLS, before and after its handshake: messages that are no data, handshakes that
nobody waits for any more."""

from __future__ import annotations

import asyncio
import hmac
import random
import ssl
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from ottla.tls_records import NOISE_MAX, PIECE_BYTES, PIECE_RECORDS, Pieces
from tests.unit.server.stub import until
from tests.unit.test_tls_network import End, client_context, pair, run  # noqa: F401


class Attacker:
    """A client that has the keys of its connection, and writes records itself."""

    def __init__(self, keys: Path) -> None:
        self._keys = keys
        context = client_context()
        context.keylog_filename = str(keys)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._secret = b""
        self._digest = ""
        self._sent = 0
        """Records of the newest key."""
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                self._incoming.write(await self.reader.read(1 << 16))
        self.writer.write(self._outgoing.read())
        lines = map(str.split, self._keys.read_text().splitlines())
        self._secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._digest = "sha384" if len(self._secret) == 48 else "sha256"

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (RFC 8446, 7.1)."""
        info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        found, last = b"", b""
        while len(found) < size:
            last = hmac.digest(self._secret, last + info + bytes([len(found) // 32 + 1]), self._digest)
            found += last
        return found[:size]

    def record(self, content: bytes, kind: int) -> bytes:
        """Data is of kind 23, a message of a handshake of kind 22."""
        key, vector = self._expanded(b"key", 32 if self._digest == "sha384" else 16), self._expanded(b"iv", 12)
        nonce = int.from_bytes(vector, "big") ^ self._sent
        self._sent += 1
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        return head + AESGCM(key).encrypt(nonce.to_bytes(12, "big"), content + bytes([kind]), head)

    def key_update(self, *, asks: bool) -> bytes:
        """27 bytes, after which everything is by a new key; `asks` for one of the other side too."""
        written = self.record(bytes([24, 0, 0, 1, asks]), 22)
        self._secret, self._sent = self._expanded(b"traffic upd", len(self._secret)), 0
        return written


@pytest.mark.parametrize("asks", [True, False])
def test_changes_of_keys_without_end(run: Any, tmp_path: Path, asks: bool) -> None:  # noqa: F811
    """64 KB of them would hold the loop for 50 ms and more, in one read of OpenSSL."""

    async def main() -> None:
        async with pair() as both:
            attacker = Attacker(tmp_path / "keys")
            await attacker.connect(both.port)
            attacker.writer.write(attacker.record(b"before", 23))
            server = await both.accepted()
            assert await server.until(6) == b"before"
            flood = b"".join(attacker.key_update(asks=asks) for _ in range(5_000))
            given: list[int] = []
            bio = server.transport._incoming

            class Watched:
                """The BIO, with what it is given at once."""

                pending = property(lambda self: bio.pending)

                def write(self, data: memoryview) -> None:
                    given.append(len(data))
                    bio.write(data)

            server.transport._incoming = Watched()
            attacker.writer.write(flood)
            failure = await server.lost
            assert "too many messages that are no data" in str(failure)
            assert max(given) <= (PIECE_RECORDS + 1) * 27
            most = NOISE_MAX + PIECE_RECORDS if asks else (NOISE_MAX + 1) * PIECE_RECORDS
            assert sum(given) / 27 <= most + PIECE_RECORDS
            attacker.writer.close()

    run(main())


def test_a_change_of_keys_now_and_then(run: Any, tmp_path: Path) -> None:  # noqa: F811
    """Between data, alone, and cut into pieces; what asks for it is answered."""

    async def main() -> None:
        async with pair() as both:
            attacker = Attacker(tmp_path / "keys")
            await attacker.connect(both.port)
            chance, expected, sent = random.Random(3), b"", b""
            for number in range(20):
                data = chance.randbytes(chance.choice((1, 100, 16_000)))
                sent += attacker.record(data, 23) + attacker.key_update(asks=number % 2 == 0)
                expected += data
            for number in range(len(sent) // 997 + 1):
                attacker.writer.write(sent[number * 997 : (number + 1) * 997])
                await asyncio.sleep(0)
            server = await both.accepted()
            assert await server.until(len(expected)) == expected
            server.transport.write(b"by a tenth key")
            assert await attacker.reader.read(10)
            assert not server.lost.done()
            attacker.writer.close()

    run(main())


def test_a_handshake_that_nobody_waits_for_costs_nothing(run: Any) -> None:  # noqa: F811
    """Clients that connect, say hello and are gone, while all threads are busy: each would still cost half a
    millisecond, before those that stayed."""

    async def main() -> None:
        async with pair() as both:
            begun, go_on = threading.Event(), threading.Event()

            def busy() -> Any:
                begun.set()
                go_on.wait(30)

            loop = asyncio.get_running_loop()
            for _ in range(8):
                both.handshakes.run(loop, busy)
            await loop.run_in_executor(None, begun.wait, 30)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            with pytest.raises(ssl.SSLWantReadError):
                client_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
            hello = outgoing.read()
            for _ in range(50):
                _, writer = await asyncio.open_connection("127.0.0.1", both.port)
                writer.write(hello)
                await writer.drain()
                writer.transport.abort()
            await until(lambda: len(both.ends) == 50 and all(each.lost.done() for each in both.ends))
            go_on.set()
            await both.connect()
            assert not any(hasattr(each.transport, "tls") for each in both.ends[:50])

    run(main())


RECORDS = st.lists(st.integers(0, 17_000), min_size=1, max_size=60)


@given(RECORDS, st.randoms(use_true_random=False))
def test_pieces_are_whole_records_wherever_the_stream_is_cut(sizes: list[int], chance: random.Random) -> None:
    stream = b"".join(b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes)
    ends, end = set(), 0
    for size in sizes:
        end += 5 + size
        ends.add(end)
    pieces, position = Pieces(), 0
    while position < len(stream):
        size = chance.choice((1, 3, 5, 27, 1000, 65_536))
        data = memoryview(stream[position : position + size])
        at = 0
        while at < len(data):
            if at == 0 and pieces.is_one_record(data, len(data)):
                assert position in ends | {0} and position + len(data) in ends
                break
            end = pieces.next(data, at)
            assert end > at
            assert end - at <= PIECE_BYTES + 17_005 + 5
            whole = [each for each in ends if position + at < each <= position + end]
            assert len(whole) <= PIECE_RECORDS + 1
            assert position + end in ends or end == len(data)
            assert pieces.is_between == (position + end in ends)
            at = end
        position += len(data)
