"""A bug that can be planted in a module while it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutation(NamedTuple):
    name: str
    kind: str
    """Kind of the runs that look for it."""
    module: str
    old: str
    """Occurs once in the module."""
    new: str
    seeds: int = 10
    """It is found within so many, from seed `first` on."""
    first: int = 1
    """A seed that finds it at little cost."""

    @property
    def path(self) -> Path:
        return ROOT / "src" / Path(*self.module.split(".")).with_suffix(".py")

    def source(self) -> str:
        """The module with the bug in it. Raises ValueError where the piece is not there, or not alone."""
        text = self.path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} is {text.count(self.old)} times in {self.path}")
        return text.replace(self.old, self.new)
