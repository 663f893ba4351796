"""Regular expressions of clients, by RE2: matched in time that grows with the text only.

Kafka's brokers use RE2/J for what clients send them, as a backtracking matcher can be held up for ever by a few bytes.
What the two make of a pattern is the same, but that RE2/J refuses two groups of one name.
"""

from __future__ import annotations

from typing import Final

PATTERN_LENGTH_MAX: Final = 4_096
MEMORY_MAX: Final = 1 << 20
"""Bytes that RE2 may use for one of them. Where that is not enough to remember states, it goes on without."""


class InvalidRegularExpression(ValueError):
    """The pattern is not valid in RE2, or too large."""


class RegularExpression:
    """Raises InvalidRegularExpression."""

    def __init__(self, pattern: str) -> None:
        import re2  # most nodes never see one

        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(f"longer than {PATTERN_LENGTH_MAX} characters")
        options = re2.Options()
        options.max_mem = MEMORY_MAX
        options.log_errors = False
        try:
            self._pattern = re2.compile(pattern.encode(), options)
        except re2.error as error:
            raise InvalidRegularExpression(error.args[0].decode(errors="replace")) from None

    def matches(self, text: str) -> bool:
        """Whether the whole text does."""
        return self._pattern.fullmatch(text.encode()) is not None
