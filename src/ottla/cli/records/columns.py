"""The formats `hex` and `base64`: a record a line, every byte of it, in columns that `cut` and `awk` take apart.

PARTITION TAB TIMESTAMP TAB KEY TAB VALUE, then TAB NAME:VALUE for each header. Keys, values, and names and values of
headers are encoded; null is `-`. `ottla produce` reads what `ottla consume` writes.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable

from ottla.cli.records.record import Outgoing, Record

NULL = b"-"

_ENCODE: dict[str, Callable[[bytes], bytes]] = {"hex": lambda data: data.hex().encode(), "base64": base64.b64encode}
_DECODE: dict[str, Callable[[bytes], bytes]] = {
    "hex": lambda text: bytes.fromhex(text.decode("ascii")),
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def columns_emitter(encoding: str) -> Callable[[Record], None]:
    """Prints each record as a line of encoded columns."""
    encode = _ENCODE[encoding]

    def cell(data: bytes | None) -> bytes:
        return NULL if data is None else encode(data)

    def emit(record: Record) -> None:
        columns = [b"%d\t%d" % (record.partition, record.timestamp_ms), cell(record.key), cell(record.value)]
        columns += [encode(name.encode()) + b":" + cell(value) for name, value in record.headers]
        sys.stdout.buffer.write(b"\t".join(columns) + b"\n")

    return emit


def columns_reader(encoding: str) -> Callable[[bytes], Outgoing]:
    """Takes such a line apart. What it returns raises ValueError for any other line."""
    decode = _DECODE[encoding]

    def cell(text: bytes) -> bytes | None:
        return None if text == NULL else decode(text)

    def read(line: bytes) -> Outgoing:
        columns = line.split(b"\t")
        if len(columns) < 4:
            raise ValueError(f"{len(columns)} columns of partition, timestamp, key, value")
        headers = []
        for text in columns[4:]:
            name, colon, value = text.partition(b":")
            if not colon:
                raise ValueError(f"a header without a colon: {text.decode(errors='replace')}")
            headers.append((decode(name).decode(), cell(value)))
        return Outgoing(cell(columns[3]), cell(columns[2]), tuple(headers), int(columns[0]), int(columns[1]))

    return read
