"""The ids that an account knows, in slots of some hundred: a call to Spark's state costs as much as many ids do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import orjson

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

SLOT: Final = "slot INT"
IDS: Final = "ids BINARY"
"""A slot's state: JSON, the day of each id."""
SLOT_IDS_MAX: Final = 512
"""When one has more, there are to be twice as many slots."""


class Ids:
    """For one batch of an account, which has 1, 2, 4, ... `slots`. What is not saved is as if it had not been."""

    def __init__(self, state: MapState, slots: int) -> None:
        self.slots = slots
        self._state = state
        self._open: dict[int, dict[str, int]] = {}
        self._changed: set[int] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._slot(self._number(name))

    def add(self, name: str, day: int) -> None:
        number = self._number(name)
        self._slot(number)[name] = day
        self._changed.add(number)

    def drop_older(self, day: int) -> None:
        """Ids of days before this one: state does not grow for good."""
        for number in range(self.slots):
            found = self._slot(number)
            left = {name: its for name, its in found.items() if its >= day}
            if len(left) < len(found):
                self._open[number] = left
                self._changed.add(number)

    def save(self) -> None:
        while any(len(ids) > SLOT_IDS_MAX for ids in self._open.values()):
            self._double()
        for number in self._changed:
            if self._open[number]:
                self._state.updateValue((number,), (orjson.dumps(self._open[number]),))
            else:
                self._state.removeKey((number,))
        self._changed.clear()

    def _double(self) -> None:
        known = [pair for number in range(self.slots) for pair in self._slot(number).items()]
        self.slots *= 2
        self._open = {number: {} for number in range(self.slots)}
        for name, day in known:
            self._open[self._number(name)][name] = day
        self._changed = set(self._open)

    def _number(self, name: str) -> int:
        return crc32(name.encode("utf-8", "surrogatepass")) & (self.slots - 1)

    def _slot(self, number: int) -> dict[str, int]:
        if number not in self._open:
            found = self._state.getValue((number,))
            self._open[number] = {} if found is None else orjson.loads(found[0])
        return self._open[number]
