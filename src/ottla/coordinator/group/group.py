"""What a coordinator needs of a group, whatever its protocol; `kinds.py` has what differs between protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.protocol.internal.group_records import GroupRecord


class Group(Protocol):
    """A group of any kind. A package is asked for by `group_type`, so that a node without such groups loads none."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_type(self) -> str:
        """The name in ListGroups; `kind_of` finds what groups of it do."""

    @property
    def protocol_type(self) -> str | None: ...
    @property
    def protocol_name(self) -> str | None: ...
    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the topics that it reads are known."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether its offsets are in `__consumer_offsets`."""

    @property
    def expires(self) -> bool:
        """Whether the group goes with its last offset."""

    @property
    def generation(self) -> int: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def is_empty(self) -> bool: ...
    @property
    def shown_state(self) -> str:
        """Its state, as Kafka names it."""

    def is_subscribed_to(self, topic: str, /) -> bool: ...
    def tombstones(self) -> list[GroupRecord]:
        """Tombstones that delete the group, except for its offsets."""

    def request_refresh(self) -> None:
        """A topic has changed: the next heartbeat looks at the topics."""
