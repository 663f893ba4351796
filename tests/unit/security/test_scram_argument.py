"""`storage format --add-scram`: what Kafka's tool takes, and no value in a message."""

from __future__ import annotations

import base64

import pytest

from ottla.errors import OttlaError
from ottla.security.sasl import scram
from ottla.security.sasl.scram_argument import parse_scram_argument

BYTES = bytes(17)


def test_a_password() -> None:
    found = parse_scram_argument("SCRAM-SHA-256=[name=alice,password=alice-secret]", BYTES)
    salt = scram.nonce_text(BYTES).encode()
    expected = scram.salted_password(scram.SHA_256, "alice-secret", salt, 4096)
    assert found.name == "alice" and found.mechanism is scram.SHA_256
    assert found.credential == scram.credential(scram.SHA_256, expected, salt, 4096)


def test_a_salted_password_and_quotes() -> None:
    salted = scram.salted_password(scram.SHA_512, "x", b"salt", 8192)
    text = (
        f'SCRAM-SHA-512=[ name="a,b", iterations=8192, salt="{base64.b64encode(b"salt").decode()}",'
        f'saltedpassword="{base64.b64encode(salted).decode()}"]'
    )
    found = parse_scram_argument(text, BYTES)
    assert found.name == "a,b" and found.credential == scram.credential(scram.SHA_512, salted, b"salt", 8192)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "form"),
        ("SCRAM-SHA-256", "form"),
        ("SCRAM-SHA-256=name=a,password=canary", "form"),
        ("SCRAM-SHA-1=[name=a,password=canary]", "SCRAM-SHA-1 is not one"),
        ("SCRAM-SHA-256=[password=canary]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "exactly one"),
        ("SCRAM-SHA-256=[name=a,password=canary,saltedpassword=AAAA]", "exactly one"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,salt=AAAA,saltedpassword=AAAA]", "needs 32"),
        ("SCRAM-SHA-256=[name=a,salt=canary!,password=canary]", "not base64"),
        ("SCRAM-SHA-256=[name=a,password=canary,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=canary,iterations=16385]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=canary,iterations=many]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=canary,password=canary]", "given twice"),
        ("SCRAM-SHA-256=[name=a,secret=canary]", "not one of"),
        ('SCRAM-SHA-256=[name=a,password="canary]', "cannot be read"),
        ("SCRAM-SHA-256=[name=a,password=]", "empty"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(OttlaError, match=why) as refusal:
        parse_scram_argument(text, BYTES)
    assert "canary" not in str(refusal.value)
