"""A client's principal as one node tells it to another in an Envelope (KIP-590, `DefaultKafkaPrincipalBuilder`).

Two bytes of version, then `DefaultPrincipalData`: type, name, and whether a delegation token was shown.
"""

from __future__ import annotations

import struct

from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.layout import Malformed
from ottla.protocol.messages import MalformedRequest
from ottla.protocol.reader import Reader
from ottla.protocol.writer import Writer

_INT16 = struct.Struct(">h")
VERSION = 0


class TokenPrincipal(str):
    """`User:name`, of a client that logged in with a delegation token of that user, and so may not ask for another."""

    __slots__ = ()


def encode_principal(principal: str) -> bytes:
    """`principal` as `User:name`."""
    kind, _, name = principal.partition(":")
    writer = Writer(_INT16.pack(VERSION))
    by_token = isinstance(principal, TokenPrincipal)
    values = {"type": kind, "name": name, "token_authenticated": by_token}
    writer.write(schemas.layout("DefaultPrincipalData", VERSION), values)
    return writer.done()


def decode_principal(data: Buffer) -> str:
    """The inverse. Raises MalformedRequest."""
    try:
        (version,) = _INT16.unpack_from(data)
        if version != VERSION:
            raise MalformedRequest(f"a principal in version {version}")
        found = Reader(data, _INT16.size).read(schemas.layout("DefaultPrincipalData", VERSION))
    except (Malformed, struct.error) as error:
        raise MalformedRequest(f"a principal that cannot be read: {error}") from error
    text = f"{found.type}:{found.name}"
    return TokenPrincipal(text) if found.token_authenticated else text
