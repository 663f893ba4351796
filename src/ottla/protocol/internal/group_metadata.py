"""Members in the record of a classic group, of which each change writes all: bytes that are kept from one record to the
next, in the one version that is written (`group_records.GROUP_METADATA_VERSION`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.protocol.internal.codec import decode
from ottla.protocol.internal.group_records import GROUP_METADATA_VERSION
from ottla.protocol.schemas.records import GroupMetadataValue, MemberMetadata

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TIMES_AND_SIZE = struct.Struct(">iii")
_NULL = b"\xff\xff"


def member_head(
    member_id: str,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    subscription: bytes,
) -> bytes:
    """What precedes the assignment. Raises struct.error for a number or length out of range."""
    return b"".join(
        (
            _text(member_id),
            _NULL if instance_id is None else _text(instance_id),
            _text(client_id),
            _text(client_host),
            _TIMES_AND_SIZE.pack(rebalance_timeout_ms, session_timeout_ms, len(subscription)),
            subscription,
        )
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def member_row(head: bytes, assignment: bytes) -> bytes:
    """A whole member."""
    return b"".join((head, _INT.pack(len(assignment)), assignment))


class MemberRows:
    """The encoded members of one record. As a sequence it has each as a `MemberMetadata`, for those who look."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[bytes]) -> None:
        self._rows = rows

    def encoded(self, group: GroupMetadataValue) -> bytes:
        """The value of the record of their group."""
        head = (
            _SHORT.pack(GROUP_METADATA_VERSION),
            _text(group.protocol_type),
            _INT.pack(group.generation),
            _NULL if group.protocol is None else _text(group.protocol),
            _NULL if group.leader is None else _text(group.leader),
            _LONG.pack(group.current_state_timestamp),
            _INT.pack(len(self)),
        )
        return b"".join([*head, *self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[MemberMetadata]:
        return iter(self._decoded())

    def __getitem__(self, index: Any) -> Any:
        return self._decoded()[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | MemberRows):
            return NotImplemented
        return self._decoded() == tuple(other)

    def __repr__(self) -> str:
        return repr(self._decoded())

    def _decoded(self) -> tuple[MemberMetadata, ...]:
        return tuple([decode(MemberMetadata, GROUP_METADATA_VERSION, row) for row in self._rows])
