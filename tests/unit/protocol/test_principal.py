"""The principal in an Envelope, byte for byte as Kafka writes it."""

from __future__ import annotations

import pytest

from ottla.protocol.messages import MalformedRequest
from ottla.protocol.principal import decode_principal, encode_principal


def test_bytes_as_kafka_writes_them() -> None:
    """`MessageUtil.toVersionPrefixedBytes` of DefaultPrincipalData 0: version, two compact strings, a flag, no tags."""
    data = encode_principal("User:ANONYMOUS")
    assert data == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    assert decode_principal(data) == "User:ANONYMOUS"
    assert decode_principal(encode_principal("User:CN=a:b,O=ü")) == "User:CN=a:b,O=ü"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\1\1\0\0", b"\0\0\x05User", b"\0\0\xff\xff\xff\xff\x0f"])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_principal(data)
