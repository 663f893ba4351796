"""What a node wants to know of an X.509 certificate (RFC 5280): whose it is, other names, from when until when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from ottla.security import der
from ottla.security.distinguished_names import rfc2253

_ALTERNATIVE_NAMES = bytes((0x55, 0x1D, 0x11))
"""Object identifier 2.5.29.17."""


class Certificate(NamedTuple):
    subject: str
    """RFC 2253 text, as Java writes it."""
    issuer: str
    not_before_ms: int
    not_after_ms: int
    alternative_names: frozenset[bytes]
    """Each in DER; what they say is compared, not shown."""


def subject_of(certificate: bytes) -> str:
    """The subject's text of a certificate in DER. Raises ValueError."""
    return rfc2253(_parts(certificate)[2].encoded)


def read_certificate(certificate: bytes) -> Certificate:
    """A certificate in DER. Raises ValueError."""
    issuer, validity, subject, rest = _parts(certificate)
    begins, ends = der.values(validity.content)
    return Certificate(
        rfc2253(subject.encoded), rfc2253(issuer.encoded), _time_ms(begins), _time_ms(ends), _alternative_names(rest)
    )


def _parts(certificate: bytes) -> tuple[der.Value, der.Value, der.Value, list[der.Value]]:
    """Issuer, validity, subject, and what follows the key."""
    to_be_signed = der.value_at(der.only(certificate, der.SEQUENCE))
    fields = list(der.values(to_be_signed.content))
    if fields and fields[0].tag == 0xA0:  # the version; without one it is 1
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate without all of its fields")
    _serial, _algorithm, issuer, validity, subject, _key, *rest = fields
    return issuer, validity, subject, rest


def _alternative_names(rest: list[der.Value]) -> frozenset[bytes]:
    for field in rest:
        if field.tag != 0xA3:
            continue
        for extension in der.values(der.only(field.content, der.SEQUENCE)):
            parts = list(der.values(extension.content))
            if parts and parts[0].content == _ALTERNATIVE_NAMES:
                names = der.only(parts[-1].content, der.SEQUENCE)
                return frozenset(each.encoded for each in der.values(names))
    return frozenset()


def _time_ms(value: der.Value) -> int:
    text = value.content.decode("ascii", "strict")
    if value.tag == der.UTC_TIME:  # RFC 5280: two digits of the year, from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif value.tag != der.GENERALIZED_TIME:
        raise ValueError("a certificate's time is of no known kind")
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
