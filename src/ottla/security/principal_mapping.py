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
from ottla.security.java_patterns import compiled, expanded, replacement

SETTING = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)


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
        result = self.pattern.sub(lambda match: expanded(match, self.replacement), name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


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
    pattern = compiled(match[2], SETTING)
    return _Rule(pattern, tuple(replacement(match[3], pattern, SETTING)), match[4])
