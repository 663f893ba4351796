"""The kinds of groups beside classic ones, each a table of functions (`kind.py`) in its package.

A package is loaded when there is a group of its kind.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.coordinator.group.kind import Kind


@cache
def kind_of(group_type: str) -> Kind:
    """The kind of a `group_type` that is not "classic"."""
    if group_type == "consumer":
        from ottla.coordinator.group.consumer.kind import CONSUMER_KIND

        return CONSUMER_KIND
    if group_type == "share":
        from ottla.coordinator.group.share.kind import SHARE_KIND

        return SHARE_KIND
    assert group_type == "streams"
    from ottla.coordinator.group.streams.kind import STREAMS_KIND

    return STREAMS_KIND
