"""Finds the quota of a client: for user, client id, both, and the defaults of each (Kafka's `ClientQuotaManager`).

Eight levels, from the most to the least specific: user and client id, user and any client id, user, any user and client
id, any user and any client id, any user, client id, any client id. Who shares a level shares its quota only where the
level has a name: each client that a default holds for has that much for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

UNLIMITED: Final = float((1 << 63) - 1)

_CLIENT_ID_LEVEL, _USER_LEVEL, _BOTH_LEVEL = 1, 2, 4

Entity = tuple[tuple[str, str | None], ...]
"""Types with names, by type; no name stands for the default (`MetadataImage.client_quotas`)."""


class _Any:
    """The default of a type, where the other type is absent or not."""


_ANY: Final = _Any()
_Level = tuple["str | _Any | None", "str | _Any | None"]


class Tags(NamedTuple):
    """The clients that share one quota, as metrics name them: empty for all. A client without an id has None."""

    user: str
    client_id: str | None


class Limits:
    """The quotas of one kind."""

    def __init__(self) -> None:
        self._limits: dict[_Level, float] = {}
        self._counts = {_CLIENT_ID_LEVEL: 0, _USER_LEVEL: 0, _BOTH_LEVEL: 0}
        self._levels = 0

    def __bool__(self) -> bool:
        return bool(self._limits)

    def change(self, entity: Entity, value: float | None) -> None:
        """Set the quota of an entity, or remove it."""
        parts = dict(entity)
        level = (_named(parts, USER), _named(parts, CLIENT_ID))
        if (value is not None) != (level in self._limits):
            kind = (_USER_LEVEL if level[1] is None else _BOTH_LEVEL) if level[0] is not None else _CLIENT_ID_LEVEL
            self._counts[kind] += 1 if value is not None else -1
            if self._counts[kind] <= 1:
                self._levels = sum(kind for kind, count in self._counts.items() if count)
        if value is None:
            self._limits.pop(level, None)
        else:
            self._limits[level] = value

    def tags(self, user: str, client_id: str | None) -> Tags:
        """The tags under which a request's usage is counted."""
        levels = self._levels
        if levels in (0, _CLIENT_ID_LEVEL):
            return Tags("", client_id)
        if levels == _USER_LEVEL:
            return Tags(user, "")
        if levels == _BOTH_LEVEL:
            return Tags(user, client_id)
        limits = self._limits
        named = client_id is not None
        if (named and (user, client_id) in limits) or (user, _ANY) in limits:
            return Tags(user, client_id)
        if (user, None) in limits:
            return Tags(user, "")
        if (named and (_ANY, client_id) in limits) or (_ANY, _ANY) in limits:
            return Tags(user, client_id)
        if (_ANY, None) in limits:
            return Tags(user, "")
        return Tags("", client_id)

    def of(self, tags: Tags) -> float | None:
        """Their quota; None where there is none."""
        user, client_id = tags
        if client_id is None:
            return None
        levels: tuple[_Level, ...]
        if user and client_id:
            levels = (user, client_id), (user, _ANY), (_ANY, client_id), (_ANY, _ANY)
        elif user:
            levels = (user, None), (_ANY, None)
        elif client_id:
            levels = (None, client_id), (None, _ANY)
        else:
            return None
        return next((self._limits[level] for level in levels if level in self._limits), None)


def _named(parts: Mapping[str, str | None], kind: str) -> str | _Any | None:
    if kind not in parts:
        return None
    name = parts[kind]
    return _ANY if name is None else name


class AddressLimits:
    """Connections per second by address of a client (KIP-612)."""

    def __init__(self) -> None:
        self._limits: dict[str | None, int] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def change(self, entity: Entity, value: float | None) -> None:
        address = dict(entity)[IP]
        if value is None:
            self._limits.pop(address, None)
        else:
            self._limits[address] = int(value)

    def of(self, address: str) -> int | None:
        found = self._limits.get(address)
        return self._limits.get(None) if found is None else found
