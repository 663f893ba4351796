"""A finding of `ottla migrate check`, and its weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

STOPS: Final = "stops"
LOOK: Final = "look"
FINE: Final = "fine"
WEIGHTS: Final = (STOPS, LOOK, FINE)


@dataclass(frozen=True)
class Finding:
    code: str
    """Its name, for scripts and for `--accept`."""
    weight: str
    what: str
    todo: str = ""
    where: tuple[str, ...] = ()
    """The nodes, topics or partitions that it is about."""

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "weight": self.weight, "what": self.what, "to_do": self.todo, "where": [*self.where]}
