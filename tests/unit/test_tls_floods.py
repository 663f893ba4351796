"""What a peer can do to a node within TLS, before and after its handshake: messages that are no data, handshakes that
nobody waits for any more."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tls_records import NOISE_MAX, PIECE_RECORDS, Pieces
from tests.fuzz.tls_attacker import TlsAttacker
from tests.unit.server.stub import until
from tests.unit.test_tls_network import End, client_context, pair, run  # noqa: F401


@pytest.mark.parametrize("asks", [True, False])
def test_changes_of_keys_without_end(run: Any, tmp_path: Path, asks: bool) -> None:  # noqa: F811
    """64 KB of them would hold the loop for 50 ms and more, in one read of OpenSSL."""

    async def main() -> None:
        async with pair() as both:
            attacker = TlsAttacker(tmp_path / "keys", client_context())
            await attacker.connect(both.port)
            attacker.writer.write(attacker.record(b"before"))
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
            attacker = TlsAttacker(tmp_path / "keys", client_context())
            await attacker.connect(both.port)
            chance, expected, sent = random.Random(3), b"", b""
            for number in range(20):
                data = chance.randbytes(chance.choice((1, 100, 16_000)))
                sent += attacker.record(data) + attacker.key_update(asks=number % 2 == 0)
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
            await until(lambda: len(both.ends) == 50 and all(each.transport._early_eof for each in both.ends))
            go_on.set()
            await both.connect()
            await until(lambda: all(each.lost.done() for each in both.ends[:50]))
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
            end = pieces.next(data, at)
            assert end > at
            whole = [each for each in ends if position + at < each <= position + end]
            assert len(whole) <= PIECE_RECORDS + 1
            assert position + end in ends or end == len(data)
            assert pieces.is_between == (position + end in ends)
            at = end
        position += len(data)
