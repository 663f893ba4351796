"""Reads what a denial was about from a line of a log: of Ottla's log or audit log, or of Kafka's authorizer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.security.explained import KINDS

_KAFKA: Final = re.compile(
    r"Principal = (?P<principal>.+?) is (?:Denied|Allowed) [Oo]peration = (?P<operation>\w+)"
    r"(?: from host = (?P<host>\S+))? on resource = (?P<resource>\w+:\w+:.*?)"
    r"(?: for request = \w+ with resourceRefCount = \d+)?(?: based on rule (?P<rule>.*?))?(?: \(kafka[\w.]*\))?\s*$"
)
_FIELD: Final = re.compile(r'(?:^|\s)(principal|operation|host|resource|rule)=("(?:[^"\\]|\\.)*"|\S+)')
_PATTERNS: Final = ("LITERAL", "PREFIXED")


class Denial(NamedTuple):
    principal: str
    operation: str
    """As it is typed: `describe-configs`."""
    kind: str
    """A word of `explained.KINDS`."""
    name: str
    host: str
    rule: str
    """What the broker said has decided; empty where the line does not say it."""


def denial_of(line: str) -> Denial | None:
    """None for a line that is not about a user's right."""
    line = line.strip()
    if (start := line.find("{")) >= 0 and line.endswith("}"):
        try:
            found = json.loads(line[start:])
        except (ValueError, RecursionError):
            return None
        return _of(found) if isinstance(found, dict) else None
    match = _KAFKA.search(line)
    if match is not None:
        return _of(match.groupdict(""))
    try:
        return _of({name: json.loads(word) if word[0] == '"' else word for name, word in _FIELD.findall(line)})
    except ValueError:
        return None


def _of(found: Mapping[str, Any]) -> Denial | None:
    principal, operation, resource = (found.get(each) for each in ("principal", "operation", "resource"))
    if not (isinstance(principal, str) and isinstance(operation, str) and isinstance(resource, str)):
        return None
    word, _, name = resource.partition(":")
    pattern, colon, rest = name.partition(":")
    if colon and pattern in _PATTERNS:
        name = rest
    kind = _kebab(word)
    kind = "token" if kind == "delegation-token" else kind
    if not principal or kind not in KINDS:
        return None
    host, rule = found.get("host"), found.get("rule")
    return Denial(
        principal,
        _kebab(operation),
        kind,
        name,
        host if isinstance(host, str) else "",
        rule if isinstance(rule, str) else "",
    )


def _kebab(word: str) -> str:
    """`DescribeConfigs`, `DESCRIBE_CONFIGS` and `TransactionalId` as they are typed."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", word).replace("_", "-").lower()
