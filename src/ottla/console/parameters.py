"""Parameters of pages and acts: a name, what it may be, and its value from text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.console.asking import Invalid

TEXT_MAX: Final = 1_000
"""Characters of a parameter that is a text."""


@dataclass(frozen=True)
class Parameter:
    name: str
    what: str
    """For the API's document."""
    choices: Sequence[str] = ()
    default: str | int = ""
    low: int | None = None
    """Not None for a number: the lowest."""
    high: int = 0
    is_required: bool = False
    length_max: int = TEXT_MAX

    def parse(self, text: str | None) -> str | int:
        """Raises Invalid."""
        if text is None or (text == "" and not self.is_required):
            if self.is_required:
                raise Invalid(f"{self.name} is missing")
            return self.default
        if self.low is not None:
            if not (text.isascii() and text.isdecimal() and len(text) <= 19 and self.low <= int(text) <= self.high):
                raise Invalid(f"{self.name} must be a number from {self.low} to {self.high}")
            return int(text)
        if self.choices and text not in self.choices:
            raise Invalid(f"{self.name} must be one of {', '.join(filter(None, self.choices))}")
        if len(text) > self.length_max:
            raise Invalid(f"{self.name} has more than {self.length_max} characters")
        return text
