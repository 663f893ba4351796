"""Java's regular expressions, as rules of users' names have them, and what replaces their matches.

A pattern that Python would read differently, or not at all, is refused, because it could let in whom it was not written
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ottla.errors import OttlaError

_JAVA_ONLY = frozenset("pPQEhHRXGzZNkvV0")
"""Letters that mean something behind a backslash in Java and something else, or nothing, in Python."""

_DOT = r"[^\n\r\u0085\u2028\u2029]"
"""What a dot matches in Java; in Python it matches all but a newline."""


def compiled(java: str, setting: str) -> re.Pattern[str]:
    """Raises OttlaError for what Java and Python may read differently; `setting` is named then."""
    try:
        return re.compile("".join(_translated(java, setting)), re.ASCII)
    except (re.error, ValueError) as error:
        raise OttlaError(f"{setting}: the pattern {java!r} cannot be read: {error}") from None


def _translated(java: str, setting: str) -> Iterator[str]:
    """The pattern in Python's syntax. Raises OttlaError where both may differ."""
    position, in_class = 0, False
    any_char = "." if re.match(r"\(\?[a-zA-Z]*s", java) else _DOT
    while position < len(java):
        char = java[position]
        following = java[position + 1 : position + 2]
        if char == "\\":
            if following in _JAVA_ONLY or not following:
                raise OttlaError(f"{setting}: the pattern {java!r} has \\{following}, which only Java knows")
            yield char + following
            position += 2
            continue
        if in_class:
            if char == "[" or java.startswith("&&", position):
                raise OttlaError(f"{setting}: the pattern {java!r} has a set in a set, which only Java knows")
            in_class = char != "]"
        elif char == "[":
            in_class = True
            if following == "]" or java.startswith("[^]", position):
                raise OttlaError(f"{setting}: the pattern {java!r} has an empty set")
        elif char == ".":
            char = any_char
        elif java.startswith("(?<", position) and java[position + 3 : position + 4] not in ("=", "!"):
            yield "(?P<"
            position += 3
            continue
        elif java.startswith("(?P", position):
            raise OttlaError(f"{setting}: the pattern {java!r} has (?P, which Java does not know")
        yield char
        position += 1


def replacement(java: str, pattern: re.Pattern[str], setting: str, *, is_strict: bool = False) -> Iterator[str | int]:
    """Texts and numbers of groups. A group that the pattern does not have is text (`escapeLiteralBackReferences`), or
    refused by a strict reader. Raises OttlaError."""
    position = 0
    while position < len(java):
        char = java[position]
        if char == "\\" and position + 1 < len(java):
            yield java[position + 1]
            position += 2
            continue
        named = re.compile(r"\$\{([a-zA-Z][a-zA-Z0-9]*)\}").match(java, position)
        if named is not None and named[1] in pattern.groupindex:
            yield pattern.groupindex[named[1]]
            position = named.end()
            continue
        digits = re.compile(r"\$([0-9]+)").match(java, position)
        group = None if digits is None else _group(digits[1], pattern.groups)
        if group is not None:
            yield int(group)
            position += 1 + len(group)
            continue
        if char == "\\" or (char == "$" and (is_strict or digits is None or not pattern.groups)):
            raise OttlaError(f"{setting}: the replacement {java!r} refers to a group that the pattern does not have")
        yield char
        position += 1


def _group(digits: str, groups: int) -> str | None:
    """As Java: the longest number that is a group, which begins with the first digit."""
    found = None
    for end in range(1, len(digits) + 1):
        if int(digits[:end]) > groups:
            break
        found = digits[:end]
    return found


def expanded(match: re.Match[str], parts: Sequence[str | int]) -> str:
    """What replaces a match; a group that took no part is empty."""
    return "".join(each if isinstance(each, str) else match[each] or "" for each in parts)
