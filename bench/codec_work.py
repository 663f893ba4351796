"""A process that decodes and encodes what it is asked to, line by line: `bench/codec.py` measures it.

    time SIDE|ACTION|MESSAGE|MILLIS     answers nanoseconds of CPU per operation, and how many operations were done
    count SIDE|ACTION|MESSAGE|COUNT     does so many and answers, while somebody counts instructions

SIDE is `ottla` or `kio`. Kio encodes entities that are there already, Ottla builds a message from a handler's values.
Of messages with a codec of their own SIDE is `hand` for that codec or `schema` for the one of all other messages.
"""

from __future__ import annotations

import gc
import importlib
import io
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from bench.codec_messages import BY_HAND, BY_NAME, Measured

MARK = "answer "
NAMES = {"request": "Request", "response": "Response"}


def kio_class(message: Measured) -> Any:
    """Kio's class of the message. Raises LookupError for records, which kio does not have."""
    if message.key is None:
        raise LookupError(message.name)
    kind = "request" if message.is_request else "response"
    module = importlib.import_module(f"kio.schema.{message.key.name.lower()}.v{message.version}.{kind}")
    return getattr(module, message.java_class.rpartition(".")[2].removesuffix("Data"))


def kio_decoder(message: Measured) -> Callable[[], Any]:
    from kio.serial import entity_reader

    read, body = entity_reader(kio_class(message)), message.body()
    return lambda: read(body, 0)


def kio_encoder(message: Measured) -> Callable[[], bytes]:
    from kio.serial import entity_reader, entity_writer

    cls = kio_class(message)
    entity, write = entity_reader(cls)(message.body(), 0)[0], entity_writer(cls)

    def encode() -> bytes:
        out = io.BytesIO()
        write(out, entity)
        return out.getvalue()

    return encode


MAKERS: dict[tuple[str, str], Callable[[Measured], Callable[[], Any]]] = {
    ("ottla", "decode"): Measured.decoder,
    ("ottla", "encode"): Measured.encoder,
    ("kio", "decode"): kio_decoder,
    ("kio", "encode"): kio_encoder,
}


@cache
def operation(side: str, action: str, name: str) -> Callable[[], Any]:
    if side == "hand":
        made = BY_HAND[name].by_hand()
    elif side == "schema":
        made = BY_HAND[name].by_schema()
    else:
        made = MAKERS[side, action](BY_NAME[name])
    made()  # what is compiled or imported on first use
    gc.collect()
    gc.freeze()
    return made


def timed(run: Callable[[], Any], millis: int) -> tuple[float, int]:
    """(nanoseconds of CPU per operation, operations); at least one, however long it takes."""
    done, share = 0, 1
    begin, before = time.monotonic(), time.process_time_ns()
    while True:
        for _ in range(share):
            run()
        done += share
        took = (time.monotonic() - begin) * 1000
        if took >= millis:
            return (time.process_time_ns() - before) / done, done
        if took < millis / 10:
            share = min(share * 2, 1 << 16)


def main() -> None:
    for line in sys.stdin:
        verb, _, asked = line.rstrip("\n").partition(" ")
        side, action, name, amount = asked.split("|")
        run = operation(side, action, name)
        if verb == "time":
            nanoseconds, done = timed(run, int(amount))
            print(f"{MARK}{nanoseconds} {done}", flush=True)
        else:
            for _ in range(int(amount)):
                run()
            print(f"{MARK}{amount}", flush=True)


if __name__ == "__main__":
    main()
