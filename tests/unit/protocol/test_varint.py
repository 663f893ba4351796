"""Variable-length integers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.varint import read_uvarint, uvarint, uvarint_size, write_uvarint, zigzag_varint


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    out = bytearray(b"before")
    write_uvarint(out, value)
    assert out[6:] == uvarint(value)
    assert read_uvarint(out, 6) == (value, len(out))
    assert uvarint_size(value) == len(out) - 6


@given(st.integers(0, 2**31 - 1))
def test_a_signed_varint_has_its_sign_in_the_lowest_bit(value: int) -> None:
    assert read_uvarint(zigzag_varint(value), 0)[0] == 2 * value


def test_longer_than_five_bytes_is_malformed() -> None:
    with pytest.raises(struct.error):
        read_uvarint(b"\xff\xff\xff\xff\xff\x01", 0)


def test_the_end_of_the_buffer_inside_a_varint_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\xff\xff", 0)
