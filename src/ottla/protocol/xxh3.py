"""XXH3, 64 bits, without a seed: the hash by which Kafka knows whether the topics of a group have changed (KIP-1101).

As specified in xxHash's `xxhash_spec.md`; hash4j, which Kafka uses, gives the same numbers.
"""

from __future__ import annotations

import struct
from typing import Final

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_INT = struct.Struct("<I").unpack_from
_LONG = struct.Struct("<Q").unpack_from
_STRIPE: Final = 64
_STRIPES_PER_BLOCK: Final = 16


def xxh3_64(data: bytes) -> int:
    """The hash as a signed number, like Java's long."""
    found = _hash(data)
    return found - (1 << 64) if found >> 63 else found


def _hash(data: bytes) -> int:
    length = len(data)
    if length > 240:
        return _of_long(data)
    if length > 128:
        return _of_241(data)
    if length > 16:
        return _of_129(data)
    if length > 8:
        low = _LONG(data, 0)[0] ^ (_secret(24) ^ _secret(32))
        high = _LONG(data, length - 8)[0] ^ (_secret(40) ^ _secret(48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _fold(low, high))
    if length >= 4:
        both = _INT(data, length - 4)[0] + (_INT(data, 0)[0] << 32)
        return _mixed(both ^ _secret(8) ^ _secret(16), length)
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _avalanche_64(combined ^ _INT(_SECRET, 0)[0] ^ _INT(_SECRET, 4)[0])
    return _avalanche_64(_secret(56) ^ _secret(64))


def _of_129(data: bytes) -> int:
    """Hash of 17 to 128 bytes: pairs of 16 from both ends."""
    length = len(data)
    total = length * _P64_1
    for index in range((length - 1) // 32, -1, -1):
        total += _mix(data, 16 * index, 32 * index) + _mix(data, length - 16 * (index + 1), 32 * index + 16)
    return _avalanche(total)


def _of_241(data: bytes) -> int:
    """Hash of 129 to 240 bytes."""
    length = len(data)
    total = length * _P64_1
    for index in range(8):
        total += _mix(data, 16 * index, 16 * index)
    total = _avalanche(total)
    for index in range(8, length // 16):
        total += _mix(data, 16 * index, 16 * (index - 8) + 3)
    return _avalanche(total + _mix(data, length - 16, 119))


def _of_long(data: bytes) -> int:
    """Hash long data in stripes, each with a part of the secret, eight lanes of 64 bits."""
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    length = len(data)
    for number in range((length - 1) // _STRIPE):
        stripe = number % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, number * _STRIPE, 8 * stripe)
        if stripe == _STRIPES_PER_BLOCK - 1:
            for index, lane in enumerate(lanes):
                lanes[index] = (lane ^ lane >> 47 ^ _secret(128 + 8 * index)) * _P32_1 & _MASK
    _accumulate(lanes, data, length - _STRIPE, 121)
    total = length * _P64_1
    for index in range(4):
        at = 11 + 16 * index
        total += _fold(lanes[2 * index] ^ _secret(at), lanes[2 * index + 1] ^ _secret(at + 8))
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, position: int, secret: int) -> None:
    for index in range(8):
        (value,) = _LONG(data, position + 8 * index)
        key = value ^ _secret(secret + 8 * index)
        lanes[index ^ 1] = lanes[index ^ 1] + value & _MASK
        lanes[index] = lanes[index] + (key & 0xFFFF_FFFF) * (key >> 32) & _MASK


def _secret(position: int) -> int:
    return int(_LONG(_SECRET, position)[0])


def _mix(data: bytes, position: int, secret: int) -> int:
    low, high = _LONG(data, position)[0], _LONG(data, position + 8)[0]
    return _fold(low ^ _secret(secret), high ^ _secret(secret + 8))


def _fold(one: int, other: int) -> int:
    product = one * other
    return product & _MASK ^ product >> 64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mixed(value: int, length: int) -> int:
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * 0x9FB21C651E98DF25 & _MASK
    value ^= (value >> 35) + length
    value = value * 0x9FB21C651E98DF25 & _MASK
    return value ^ value >> 28


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32
