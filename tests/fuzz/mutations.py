"""Ways to make a request wrong: in one value of its tree, or in its bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from tests.fuzz import batches
from tests.fuzz.tree import FIXED, SIZED, Value, body, length, null, render, uvarint

OfValue = Callable[[Value, Random], bytes | None]
"""What to write instead, None where this does not fit. May change the value instead and return what it renders to."""
OfFrame = Callable[[bytes, Random], bytes]

NAMES = (b"", b".", b"..", b"a b", b"a/b", b"x" * 250, b"__consumer_offsets", b"__cluster_metadata", b"\xc3\xa9",
         b"a\0b", b"\xef\xbf\xbd", b"fuzz_0", b"%s", b"{}", b"../../x", b"\n")  # fmt: skip


def sized(value: Value) -> bool:
    return value.kind in (*SIZED, "array") and value.content is not None


def to_null(value: Value, dice: Random) -> bytes | None:
    return null(value) if value.kind in (*SIZED, "array") or (value.kind == "struct" and value.nullable) else None


def negative_length(value: Value, dice: Random) -> bytes | None:
    if value.kind not in (*SIZED, "array"):
        return None
    if value.flexible:
        return uvarint(dice.choice((0xFFFFFFFF, 0xFFFFFFF0, 0x80000001, 0x80000000)))
    return length(value, dice.choice((-2, -3, -(1 << 15) if value.kind == "string" else -(1 << 31))))


def huge_count(value: Value, dice: Random) -> bytes | None:
    if not sized(value):
        return None
    most = 0x7FFF if value.kind == "string" and not value.flexible else 0x7FFFFFFE
    claimed = min(most, dice.choice((len(value.content) + 1, 100, 10_000, 200_001, 1 << 24, 0x7FFFFFFE)))
    return length(value, claimed) + body(value)


def endless_varint(value: Value, dice: Random) -> bytes | None:
    if not value.flexible or value.kind not in (*SIZED, "array"):
        return None
    return b"\xff" * dice.choice((5, 6, 11)) + b"\x7f"


def long_varint(value: Value, dice: Random) -> bytes | None:
    """The same length in more bytes than it needs."""
    if not value.flexible or not sized(value):
        return None
    count = len(value.content) + 1
    return bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14]) + body(value)


def same_rows_again(value: Value, dice: Random) -> bytes | None:
    if value.kind != "array" or not value.content:
        return None
    rows = [render(row) for row in value.content]
    rows *= dice.choice((2, 3, 50))
    return length(value, len(rows)) + b"".join(rows)


def no_rows(value: Value, dice: Random) -> bytes | None:
    return length(value, 0) if sized(value) else None


def extreme_number(value: Value, dice: Random) -> bytes | None:
    layout = FIXED.get(value.kind)
    if layout is None or layout == ">d":
        return dice.choice((b"\xff" * 16, bytes(16))) if value.kind == "uuid" else None
    size = struct.calcsize(layout) * 8
    number = dice.choice((1 << size - 1, (1 << size - 1) - 1, (1 << size) - 1, (1 << size) - 2, 0, 1, 2, 127, 200))
    return (number & (1 << size) - 1).to_bytes(size // 8, "big")


def not_utf_8(value: Value, dice: Random) -> bytes | None:
    if value.kind != "string":
        return None
    data = dice.choice((b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"fuzz-0\x80"))
    return length(value, len(data)) + data


def odd_name(value: Value, dice: Random) -> bytes | None:
    if value.kind != "string":
        return None
    data = dice.choice(NAMES)
    return length(value, len(data)) + data


def long_string(value: Value, dice: Random) -> bytes | None:
    if value.kind not in ("string", "bytes"):
        return None
    size = dice.choice((300, 0x7FFF, 0x8000, 100_000))
    if value.kind == "string" and not value.flexible:
        size = min(size, 0x7FFF)
    return length(value, size) + b"l" * size


def unknown_tags(value: Value, dice: Random) -> bytes | None:
    if value.kind != "struct" or not value.flexible or value.content is None:
        return None
    for _ in range(dice.choice((1, 1, 3, 100))):
        value.tags.append((dice.choice((0, 1, 2, 77, 0x7FFFFFFF)), dice.randbytes(dice.choice((0, 1, 16, 300)))))
    return render(value)


def wrong_tags(value: Value, dice: Random) -> bytes | None:
    """A number of tagged fields, or the size of one, that is not so."""
    if value.kind != "struct" or not value.flexible or value.content is None:
        return None
    known, value.tags = value.tags, []
    data = render(value)[:-1]
    value.tags = known
    return data + dice.choice((b"\x05", b"\x01\x4d\x7f", b"\xff\xff\x7f", b"\xff" * 5, b"\x01\xff\xff\xff\xff\x0f\x00"))


def wrong_batch(value: Value, dice: Random) -> bytes | None:
    if value.kind != "records":
        return None
    data = batches.wrong(dice)
    return length(value, len(data)) + data


def nonsense(value: Value, dice: Random) -> bytes | None:
    return dice.randbytes(dice.choice((0, 1, 4, 40)))


OF_VALUES: dict[str, OfValue] = {
    "null": to_null, "negative length": negative_length, "huge count": huge_count, "endless varint": endless_varint,
    "long varint": long_varint, "same rows again": same_rows_again, "no rows": no_rows,
    "extreme number": extreme_number, "not UTF-8": not_utf_8, "odd name": odd_name, "long string": long_string,
    "unknown tags": unknown_tags, "wrong tags": wrong_tags, "wrong batch": wrong_batch, "nonsense": nonsense,
}  # fmt: skip


def cut(frame: bytes, dice: Random) -> bytes:
    return frame[: dice.randrange(len(frame))]


def more_behind(frame: bytes, dice: Random) -> bytes:
    return frame + dice.randbytes(dice.choice((1, 4, 100)))


def flip(frame: bytes, dice: Random) -> bytes:
    changed = bytearray(frame)
    for _ in range(dice.choice((1, 1, 2, 5))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def overwrite(frame: bytes, dice: Random) -> bytes:
    position = dice.randrange(len(frame))
    data = dice.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff\x0f"))
    return frame[:position] + data + frame[position + len(data) :]


def insert(frame: bytes, dice: Random) -> bytes:
    position = dice.randrange(len(frame))
    return frame[:position] + dice.randbytes(dice.randint(1, 8)) + frame[position:]


def remove(frame: bytes, dice: Random) -> bytes:
    position = dice.randrange(len(frame))
    return frame[:position] + frame[position + dice.randint(1, 8) :]


def another_api(frame: bytes, dice: Random) -> bytes:
    """The body of one API or version under the head of another."""
    head = struct.pack(">hh", dice.choice((*range(76), -1, 500)), dice.choice((*range(14), -1, 99)))
    return head + frame[4:]


def odd_client(frame: bytes, dice: Random) -> bytes:
    (size,) = struct.unpack_from(">h", frame, 8)
    name = dice.choice((b"\xff\xff", b"\xff\xfe", b"\0\0", b"\0\2\xff\xfe", b"\x7f\xff", b"\x7f\xff" + b"c" * 0x7FFF))
    return frame[:8] + name + frame[10 + max(size, 0) :]


OF_FRAMES: dict[str, OfFrame] = {
    "cut": cut, "more behind": more_behind, "flip": flip, "overwrite": overwrite, "insert": insert, "remove": remove,
    "another API": another_api, "odd client": odd_client,
}  # fmt: skip
NONE = "none"
KINDS = (NONE, *OF_VALUES, *OF_FRAMES)


def mutate(request: Value, name: str, dice: Random) -> bool:
    """Make one value of a request wrong in the way `name`; False where no value fits."""
    values = list(request.walk())
    dice.shuffle(values)
    for value in values:
        instead = OF_VALUES[name](value, dice)
        if instead is not None:
            value.raw = instead
            return True
    return False
