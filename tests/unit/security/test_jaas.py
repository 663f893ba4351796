"""JAAS texts: the four modules that are known, no other, and no text that is read otherwise than it was meant."""

from __future__ import annotations

import pytest

from ottla.config.secret import Secret
from ottla.errors import OttlaError
from ottla.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas


def test_a_brokers_entry() -> None:
    found = parse_jaas(
        f'{PLAIN_MODULE} required \\\n username="admin" \\\n password="admin secret" user_admin="admin secret" '
        'user_alice="a\\"b=;,\\\\" ;'.replace("\\\n", "\n")
    )
    assert found.name == PLAIN_MODULE
    assert found.login == ("admin", "admin secret")
    assert found.users == {"admin": "admin secret", "alice": 'a"b=;,\\'}
    assert "secret" not in repr(found) and "secret" not in str(found.options)


def test_other_ways_to_write_it() -> None:
    text = f"// a comment\n{SCRAM_MODULE} REQUIRED /* another\none */ username='al\\u' password=plain.word-1 "
    text += '"odd key"=x;'
    found = parse_jaas(text)
    assert found.options["username"] == "alu" and found.options["password"] == "plain.word-1"
    assert found.options["odd key"] == "x"
    assert parse_jaas(f'{SCRAM_MODULE} required password="\\101\\t\\377";').options["password"] == "A\t\u00ff"
    assert parse_jaas(f"{SCRAM_MODULE} required;").login is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no login module"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "not known, and none is loaded"),
        ("com.sun.security.auth.module.LdapLoginModule required;", "not known, and none is loaded"),
        ("org.apache.kafka.common.security.plain.plainloginmodule required;", "not known"),
        (f'{PLAIN_MODULE} user_a="x";', "control flag"),
        (f"{PLAIN_MODULE}", "control flag"),
        (f'{PLAIN_MODULE} required user_a="x"', "semicolon"),
        (f"{PLAIN_MODULE} required user_a;", "has no value"),
        (f"{PLAIN_MODULE} required user_a=;", "has no value"),
        (f"{PLAIN_MODULE} required =x;", "no name"),
        (f'{PLAIN_MODULE} required user_a="x" user_a="y";', "given twice"),
        (f'{PLAIN_MODULE} required user_a="x\ny";', "cannot be read"),
        (f'{PLAIN_MODULE} required user_a="x;', "cannot be read"),
        (f"{PLAIN_MODULE} required user_a=half/lost;", "cannot be read"),
        (f"{PLAIN_MODULE} required user_a=1234;", "cannot be read"),
        (f"{PLAIN_MODULE} required; {SCRAM_MODULE} required;", "2 login modules"),
        (" " * 2_000_000, "characters"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    """CVE-2025-27818, CVE-2025-27819, CVE-2023-25194: modules that look up what an attacker names."""
    with pytest.raises(OttlaError, match=why):
        parse_jaas(text)


def test_no_message_shows_a_value() -> None:
    for text in (
        f'{PLAIN_MODULE} required user_a="canary" user_a="canary";',
        f'{PLAIN_MODULE} required user_a="canary',
    ):
        with pytest.raises(OttlaError) as failure:
            parse_jaas(text)
        assert "canary" not in str(failure.value)


def test_a_secret_is_hidden_wherever_it_is_shown() -> None:
    secret = Secret("canary")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r:>20}", "%s %r" % (secret, secret), f"{[secret]}"]  # noqa: UP031
    shown += [f"{secret:>12}", "{}".format(secret), str({"password": secret})]  # noqa: UP032
    assert not any("canary" in each for each in shown) and all("[hidden]" in each for each in shown)
    assert secret == "canary" and secret.encode() == b"canary" and secret[:3] == "can"
    assert type(secret.reveal()) is str and secret.reveal() == "canary" and f"{secret.reveal()}" == "canary"
