"""Stores the offset up to which the metadata log was fsynced in `fsynced-end` beside it, which Kafka ignores.

The file is not fsynced itself: a killed process leaves what it wrote, and a power loss an older number, which is a
lower bound all the same.
"""

from __future__ import annotations

import posixpath

from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.protocol.crc32c import crc32c

FSYNCED_END_FILE = "fsynced-end"


def encode_fsynced_end(offset: Offset) -> bytes:
    text = f"{offset:020d}".encode()
    return b"%b %08x\n" % (text, crc32c(text))


def read_fsynced_end(fs: FileSystem, directory: str) -> Offset:
    """0 where nothing, or nothing that can be believed, is written."""
    try:
        data = fs.read_bytes(posixpath.join(directory, FSYNCED_END_FILE))
        offset = int(data[:20])
    except (FileNotFoundError, ValueError):
        return 0
    return offset if data == encode_fsynced_end(offset) else 0
