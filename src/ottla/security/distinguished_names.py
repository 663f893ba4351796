"""Names in certificates as text of RFC 2253, exactly as Java writes them: rules that map names to users are matched
against it, and so are ACLs.

Java's `X500Name.getRFC2253Name` and `AVA.toRFC2253String`: the last part of the name first; keywords for nine kinds of
attributes, numbers for all others, with their values as hexadecimal DER; characters escaped as RFC 2253 says, where a
carriage return at an end counts as a space.
"""

from __future__ import annotations

from ottla.security import der

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes for which Java's `AVAKeyword` has a keyword of RFC 2253."""

_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString."""

_ESCAPED = frozenset(',=+<>#;"\\')


def rfc2253(name: bytes) -> str:
    """The text of a Name in DER. Raises ValueError."""
    parts = [_part(each.content) for each in der.values(der.only(name, der.SEQUENCE))]
    return ",".join(reversed(parts))


def _part(content: bytes) -> str:
    """A relative distinguished name; several attributes stand in the order of the certificate."""
    return "+".join(_attribute(each.content) for each in der.values(content))


def _attribute(content: bytes) -> str:
    identifier, value = der.values(content)
    number = der.oid_text(identifier.content)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in inner)
    before = "".join(f"\\{each}" for each in text[:lead])
    after = "".join(f"\\{each}" for each in text[lead + len(inner) :])
    return before + escaped + after
