"""Values that no log, error or dump may show."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"
"""What Kafka shows instead of a password."""


def revealed(text: str) -> str:
    """A text as it is, whether it is a secret or not."""
    return text.reveal() if isinstance(text, Secret) else text


class Secret(str):
    """A text that is shown as `[hidden]`: by `str`, `repr`, `format` and so in f-strings, logs and tracebacks.

    Everything else is that of the text itself: its methods, comparisons, `encode`. Compare secrets that a client sends
    with `hmac.compare_digest` alone.
    """

    __slots__ = ()

    def __new__(cls, text: str = "") -> Secret:
        return super().__new__(cls, revealed(text))

    def reveal(self) -> str:
        """The text."""
        return self[:]

    def __getitem__(self, index: object) -> str:
        return str.__getitem__(self, index)  # type: ignore[index]

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __mod__(self, values: object) -> str:
        raise TypeError("a secret is no format")
