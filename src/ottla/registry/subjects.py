"""Names of subjects and the contexts that they are in: `orders-value`, `:.staging:orders-value`.

A context is a registry within the registry, with ids of its own. The default context is written as no context at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""Not a context of subjects: its configuration and mode apply to all contexts that have none."""
WILDCARD: Final = ":*:"
"""Prefix for the subjects of all contexts."""
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


class Subject(NamedTuple):
    """A name, and the context it is in."""

    context: str
    """Context with its dot: `.` or `.staging`."""
    name: str

    @property
    def text(self) -> str:
        """The text in requests and records: the key of a subject."""
        return prefix_of(self.context) + self.name


def parse(text: str) -> Subject:
    """Take apart `:.CONTEXT:NAME`, `:.CONTEXT` or `NAME`."""
    if not text.startswith(":."):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def prefix_of(context: str) -> str:
    """Prefix of names in a context: `:.staging:`, or nothing in the default context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalize(text: str) -> str:
    """The one way of writing a subject: `:.:orders` is `orders`, `:.staging` is `:.staging:`."""
    return parse(text).text


def qualify(parent: str, text: str) -> str:
    """A subject that another refers to: it is in the same context unless it says another."""
    context = parse(parent).context
    if text.startswith(":.") or context == DEFAULT_CONTEXT:
        return normalize(text)
    return Subject(context, text).text


def is_valid(text: str, *, or_context: bool = False) -> bool:
    """Whether a subject may have this name; with `or_context` also whether it names a whole context."""
    if not text or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        return False
    found = parse(text)
    if found.context == GLOBAL_CONTEXT:
        return or_context and not found.name
    if not found.name:
        return or_context
    return found.name not in _RESERVED and not found.name.startswith(":")
