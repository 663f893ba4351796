"""The kinds of groups, each a table of functions (`kind.py`) in its package.

A package is loaded when there is a group of its kind.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ottla.protocol.internal.group_records import ModernKey, types_of

if TYPE_CHECKING:
    from ottla.coordinator.group.kind import Kind
    from ottla.protocol.internal.group_records import Key


@cache
def kind_of(group_type: str) -> Kind:
    """The kind of a `group_type`."""
    if group_type == "classic":
        from ottla.coordinator.group.classic.kind import CLASSIC_KIND

        return CLASSIC_KIND
    if group_type == "consumer":
        from ottla.coordinator.group.consumer.kind import CONSUMER_KIND

        return CONSUMER_KIND
    if group_type == "share":
        from ottla.coordinator.group.share.kind import SHARE_KIND

        return SHARE_KIND
    assert group_type == "streams"
    from ottla.coordinator.group.streams.kind import STREAMS_KIND

    return STREAMS_KIND


def kind_of_record(key: Key) -> Kind:
    """The kind of the groups that have records of such a key, which is none of an offset."""
    return kind_of(types_of(key).group_type if isinstance(key, ModernKey) else "classic")
