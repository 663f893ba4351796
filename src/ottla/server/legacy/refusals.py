"""What is logged of requests in versions that are not served: once for each client address, which setting serves them.

Kafka 4 closes the connection of such a client, and so does a node: its versions have no error for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ottla.protocol import schemas
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.server.api import RequestContext

if TYPE_CHECKING:
    from ottla.drivers.ports import Settled

SETTING: Final = "ottla.legacy.protocol.versions.enable"

ADDRESSES_MAX: Final = 10_000
"""Addresses that are remembered; above, all are forgotten, and told once more."""

_TOLD: WeakKeyDictionary[Settled, dict[str, None]] = WeakKeyDictionary()


def unsupported(context: RequestContext) -> MalformedRequest:
    """Why the connection is closed."""
    name, version = ApiKey(context.api_key).name, context.api_version
    text = f"version {version} of {name} is not supported"
    if not _is_removed(context.api_key, version):
        return MalformedRequest(text)
    told = _TOLD.setdefault(context.node, {})
    if context.client_host in told:
        return MalformedRequest(text)
    if len(told) >= ADDRESSES_MAX:
        told.clear()
    told[context.client_host] = None
    return MalformedRequest(f"{text}; {SETTING}=true serves clients as old as this one")


def _is_removed(key: int, version: int) -> bool:
    try:
        first, last = schemas.schema(schemas.api_message("request", key) + schemas.REMOVED).versions
    except KeyError:
        return False
    return first <= version <= last
