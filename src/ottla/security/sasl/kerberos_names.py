"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to the name of a user.

    RULE:[1:$1@$0](.*@EXAMPLE\\.ORG)s/@.*//,RULE:[2:$1](kafka)/L,DEFAULT

`[n:format]` is for principals of n parts before the realm, `$0` is the realm, `$1` and `$2` the parts; what the format
makes must match the pattern in parentheses, and `s/from/to/g` replaces in it. `DEFAULT` is the first part, in the
default realm only. The first rule that applies decides. As Kafka's `KerberosShortNamer` and `KerberosRule`, whose
grammar is Hadoop's; a format or a replacement that could not be filled in is refused here when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.security.java_patterns import compiled, expanded, replacement
from ottla.security.sasl import AuthenticationFailed

SETTING: Final = "sasl.kerberos.principal.to.local.rules"

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>[0-9]*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"([^$]*)(\$([0-9]*))?")
_NOT_SIMPLE = re.compile("[/@]")
PARTS_MAX: Final = 2
"""No principal has more parts here; rules for more apply to nobody, as in Kafka."""


class Principal(NamedTuple):
    """PRIMARY/INSTANCE@REALM, of which the last two may be missing."""

    primary: str
    instance: str | None = None
    realm: str | None = None


def parse_principal(text: str) -> Principal:
    """Raises AuthenticationFailed for more parts than two, and several @."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return Principal(match[1], match[2], match[3])
    if "@" in text:
        raise AuthenticationFailed(reason=f"malformed Kerberos principal {text!r}")
    return Principal(text)


class _Rule(NamedTuple):
    parts: int
    format: tuple[str | int, ...]
    match: re.Pattern[str] | None
    source: re.Pattern[str] | None
    target: tuple[str | int, ...]
    is_global: bool
    case: str

    def apply(self, parameters: Sequence[str]) -> str | None:
        if len(parameters) - 1 != self.parts:
            return None
        base = "".join(each if isinstance(each, str) else parameters[each] for each in self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        source = self.source
        if source is not None:
            base = source.sub(lambda match: expanded(match, self.target), base, 0 if self.is_global else 1)
        return base


class ShortNamer:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises OttlaError for a rule that cannot be read."""
        self._rules = [_parsed(each) for each in rules]
        self._default_realm = default_realm

    def name_of(self, text: str) -> str:
        """The user's name of a principal. Raises AuthenticationFailed where no rule applies."""
        principal = parse_principal(text)
        if principal.instance is None and principal.realm is None:
            return principal.primary
        realm = "null" if principal.realm is None else principal.realm  # as Java writes it
        parameters = [realm, principal.primary]
        if principal.instance is not None:
            parameters.append(principal.instance)
        for rule in self._rules:
            if rule is None:
                found = principal.primary if principal.realm == self._default_realm else None
            else:
                found = rule.apply(parameters)
            if found is None:
                continue
            if _NOT_SIMPLE.search(found):
                raise AuthenticationFailed(reason=f"{SETTING} makes {found!r} of {text!r}, which is no simple name")
            case = "" if rule is None else rule.case
            return found.lower() if case == "L" else found.upper() if case == "U" else found
        raise AuthenticationFailed(reason=f"no rule of {SETTING} applies to {text!r}")


def _parsed(text: str) -> _Rule | None:
    """None for DEFAULT. Raises OttlaError."""
    match = _RULE.match(text)
    if match is None or match.end() != len(text):
        rest = text if match is None else text[match.end() :]
        raise OttlaError(
            f"{SETTING}: {text!r} is neither DEFAULT nor RULE:[n:format](pattern)s/from/to/g/L; see {rest!r}"
        )
    if match["default"] is not None:
        return None
    if not match["parts"] or len(match["parts"]) > 9:
        raise OttlaError(f"{SETTING}: {text!r} does not say for how many parts it is, as in RULE:[1:$1@$0]")
    parts = int(match["parts"])
    source = None if match["source"] is None else compiled(match["source"], SETTING)
    return _Rule(
        parts,
        tuple(_format(match["format"], parts, text)),
        None if match["match"] is None else compiled(match["match"], SETTING),
        source,
        () if source is None else tuple(replacement(match["target"], source, SETTING, is_strict=True)),
        match["all"] is not None,
        match["case"] or "",
    )


def _format(text: str, parts: int, rule: str) -> list[str | int]:
    """Raises OttlaError for a parameter that the principal cannot have: Kafka would refuse each login."""
    found: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        assert match is not None
        found.append(match[1])
        if match[3] is not None:
            if not match[3] or len(match[3]) > 9 or int(match[3]) > parts:
                raise OttlaError(f"{SETTING}: {rule!r} has {match[2]}: allowed are $0 to ${parts}")
            found.append(int(match[3]))
        position = match.end()
    return found
