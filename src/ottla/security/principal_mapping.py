"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a user (KIP-371).

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),.*$/$1/L,DEFAULT

The first rule whose pattern matches the whole subject decides; `L` and `U` change the case of the result, `DEFAULT` is
the subject as it is. As Kafka's `SslPrincipalMapper`. Patterns are Java's; one that Python would read differently, or
not at all, is refused, because it could let in whom it was not written for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ottla.errors import OttlaError

SETTING = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)

_JAVA_ONLY = frozenset("pPQEhHRXGzZNkvV0")
"""Letters that mean something behind a backslash in Java and something else, or nothing, in Python."""

_DOT = r"[^\n\r\u0085\u2028\u2029]"
"""What a dot matches in Java; in Python it matches all but a newline."""


class NoMatchingRule(Exception):
    """No rule is for this name: the client is refused."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    replacement: tuple[str | int, ...] = ()
    """Texts and numbers of groups."""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expand, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.replacement)


class PrincipalMapper:
    """The rules of a listener."""

    def __init__(self, rules: str) -> None:
        """Raises OttlaError for a rule that cannot be read."""
        self._text = rules
        self._rules = [rule for text in _split(rules) if (rule := _parsed(text)) is not None]

    def name_of(self, subject: str) -> str:
        """The user's name. Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {SETTING} applies to {subject}: {self._text}")


def _split(rules: str) -> Iterator[str]:
    position, text = 0, rules.strip()
    while position <= len(text):
        match = _SPLITTER.search(text, position)
        if match is None:
            return
        yield match[1]
        position = match.end() if match.end() > match.start() else match.end() + 1


def _parsed(text: str) -> _Rule | None:
    """None for an empty rule."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        rest = text if match is None else text[match.end() :]
        raise OttlaError(f"{SETTING}: {text!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]; see {rest!r}")
    if match[1] is not None:
        return _Rule(None)
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    return _Rule(pattern, tuple(_replacement(match[3], pattern)), match[4])


def _compiled(java: str) -> re.Pattern[str]:
    try:
        return re.compile("".join(_translated(java)), re.ASCII)
    except (re.error, ValueError) as error:
        raise OttlaError(f"{SETTING}: the pattern {java!r} cannot be read: {error}") from None


def _translated(java: str) -> Iterator[str]:
    """The pattern in Python's syntax. Raises OttlaError where both may differ."""
    position, in_class = 0, False
    any_char = "." if re.match(r"\(\?[a-zA-Z]*s", java) else _DOT
    while position < len(java):
        char = java[position]
        following = java[position + 1 : position + 2]
        if char == "\\":
            if following in _JAVA_ONLY or not following:
                raise OttlaError(f"{SETTING}: the pattern {java!r} has \\{following}, which only Java knows")
            yield char + following
            position += 2
            continue
        if in_class:
            if char == "[" or java.startswith("&&", position):
                raise OttlaError(f"{SETTING}: the pattern {java!r} has a set in a set, which only Java knows")
            in_class = char != "]"
        elif char == "[":
            in_class = True
            if following == "]" or java.startswith("[^]", position):
                raise OttlaError(f"{SETTING}: the pattern {java!r} has an empty set")
        elif char == ".":
            char = any_char
        elif java.startswith("(?<", position) and java[position + 3 : position + 4] not in ("=", "!"):
            yield "(?P<"
            position += 3
            continue
        elif java.startswith("(?P", position):
            raise OttlaError(f"{SETTING}: the pattern {java!r} has (?P, which Java does not know")
        yield char
        position += 1


def _replacement(java: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """Texts and numbers of groups. A group that the pattern does not have is text (`escapeLiteralBackReferences`)."""
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
        if char == "\\" or (char == "$" and (digits is None or not pattern.groups)):
            raise OttlaError(f"{SETTING}: the replacement {java!r} refers to a group that the pattern does not have")
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
