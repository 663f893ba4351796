"""A client's principal as one node tells it to another in an Envelope (KIP-590, `DefaultKafkaPrincipalBuilder`).

Two bytes of version, then `DefaultPrincipalData`: type, name, and whether a delegation token was shown.
"""

from __future__ import annotations

import io
import struct

from ottla.model import Buffer
from ottla.protocol.messages import MalformedRequest, is_about_bytes, writer

_INT16 = struct.Struct(">h")
VERSION = 0


class TokenPrincipal(str):
    """`User:name`, of a client that logged in with a delegation token of that user, and so may not ask for another."""

    __slots__ = ()


def encode_principal(principal: str) -> bytes:
    """`principal` as `User:name`."""
    from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

    kind, _, name = principal.partition(":")
    by_token = isinstance(principal, TokenPrincipal)
    out = io.BytesIO()
    out.write(_INT16.pack(VERSION))
    writer(DefaultPrincipalData)(out, DefaultPrincipalData(type_=kind, name=name, token_authenticated=by_token))
    return out.getvalue()


def decode_principal(data: Buffer) -> str:
    """The inverse. Raises MalformedRequest."""
    from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
    from kio.serial import entity_reader

    try:
        (version,) = _INT16.unpack_from(data)
        if version != VERSION:
            raise MalformedRequest(f"a principal in version {version}")
        found = entity_reader(DefaultPrincipalData)(memoryview(data).toreadonly(), _INT16.size)[0]
    except Exception as error:
        if not is_about_bytes(error):
            raise
        raise MalformedRequest(f"a principal that cannot be read: {error}") from error
    text = f"{found.type_}:{found.name}"
    return TokenPrincipal(text) if found.token_authenticated else text
