"""Names of certificates as Java writes them; `tests/conformance/security/test_names_like_java.py` asks Java itself."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.security.certificates import read_certificate, subject_of
from ottla.security.distinguished_names import rfc2253
from tests.certificates import NOW, Authority

CN, ORGANIZATION, EMAIL = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.EMAIL_ADDRESS


def text_of(*attributes: x509.NameAttribute) -> str:
    return rfc2253(x509.Name(list(attributes)).public_bytes())


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("a,b", r"a\,b"),
        ('x"=+<>#;\\', r"x\"\=\+\<\>\#\;\\"),
        (" both ends ", r"\ both ends\ "),
        ("  ", r"\ \ "),
        ("in  side", "in  side"),
        ("Größe 中 🐘", "Größe 中 🐘"),
    ],
)
def test_escapes(value: str, written: str) -> None:
    assert text_of(x509.NameAttribute(CN, value)) == f"CN={written}"


def test_the_last_part_comes_first() -> None:
    parts = [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(ORGANIZATION, "Acme"),
        x509.NameAttribute(CN, "n"),
    ]
    assert text_of(*parts) == "CN=n,O=Acme,C=DE"


def test_attributes_without_a_keyword_are_numbers_and_bytes() -> None:
    mail = x509.NameAttribute(EMAIL, "a@b", _type=_ASN1Type.IA5String)
    assert text_of(mail) == "1.2.840.113549.1.9.1=#160361" + "4062"
    assert text_of(x509.NameAttribute(NameOID.SERIAL_NUMBER, "7")).startswith("2.5.4.5=#13")


def test_attributes_of_one_part() -> None:
    both = x509.RelativeDistinguishedName([x509.NameAttribute(CN, "n"), x509.NameAttribute(NameOID.USER_ID, "u")])
    assert rfc2253(x509.Name([both]).public_bytes()) in ("CN=n+UID=u", "UID=u+CN=n")


def test_a_certificate() -> None:
    authority = Authority("The Authority")
    identity = authority.issue("node", hosts=("localhost", "10.0.0.1"), days=(-3, 7))
    found = read_certificate(identity.der)
    assert (found.subject, found.issuer) == ("CN=node", "CN=The Authority")
    assert subject_of(identity.der) == "CN=node"
    assert found.not_after_ms // 1000 - found.not_before_ms // 1000 == 10 * 86400
    assert abs(found.not_before_ms / 1000 - (NOW.timestamp() - 3 * 86400)) < 2
    assert len(found.alternative_names) == 2
    assert read_certificate(authority.issue("x", hosts=()).der).alternative_names == frozenset()


def test_damaged_certificates_are_refused() -> None:
    """They come from peers: whatever is cut off or changed, it is a ValueError or another name."""
    der = Authority().issue("node").der
    for end in range(0, len(der), 7):
        with pytest.raises(ValueError):
            read_certificate(der[:end])
    for at in range(len(der)):
        changed = bytes((*der[:at], der[at] ^ 0xFF, *der[at + 1 :]))
        try:
            read_certificate(changed)
        except ValueError:
            pass
