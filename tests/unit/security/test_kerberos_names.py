"""Users' names of Kerberos principals, and the exchange of GSSAPI around a context that is made up."""

from __future__ import annotations

import pytest

from ottla.errors import OttlaError
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.gssapi import NO_LAYER, TOKEN_BYTES_MAX, GssapiClient, GssapiServer
from ottla.security.sasl.jaas import KERBEROS_MODULE, parse_jaas
from ottla.security.sasl.kerberos_names import ShortNamer
from ottla.security.sasl.kerberos_options import KerberosOptions, kerberos_options

RULES = (
    r"RULE:[1:$1@$0](.*@ACME\.ORG)s/@.*//L",
    r"RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
    r"RULE:[2:$1-at-$2](host-.*)s/-/_/g/U",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("alice@EXAMPLE.ORG", "alice"),
        ("kafka/node1@EXAMPLE.ORG", "kafka"),
        ("Alice@ACME.ORG", "alice"),
        ("bob/admin@ELSEWHERE.ORG", "bob"),
        ("host/a-b@ELSEWHERE.ORG", "HOST_AT_A_B"),
        ("nobody", "nobody"),
        ("alice@ELSEWHERE.ORG", None),
        ("alice@ACMEXORG", None),
        ("a/b/c@EXAMPLE.ORG", None),
        ("a@b@EXAMPLE.ORG", None),
    ],
)
def test_names(principal: str, name: str | None) -> None:
    namer = ShortNamer(RULES, "EXAMPLE.ORG")
    if name is None:
        with pytest.raises(AuthenticationFailed):
            namer.name_of(principal)
    else:
        assert namer.name_of(principal) == name


def test_a_result_that_is_no_simple_name_is_refused() -> None:
    """Else the rest of a principal would become a part of a user's name."""
    with pytest.raises(AuthenticationFailed, match="no simple name"):
        ShortNamer(["RULE:[1:$1@$0]"], "EXAMPLE.ORG").name_of("alice@EXAMPLE.ORG")


@pytest.mark.parametrize(
    "rule",
    [
        "RULE",
        "RULE:[1:$1",
        "RULE:[:$1]",
        "DEFAULTS",
        "RULE:[1:$1]x",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1](()",
        "RULE:[1:$1](a)s/a/$1/",
        "RULE:[1:$1](a)s/a/b",
        r"RULE:[1:$1](\p{Alpha})",
        "default",
        "",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rule: str) -> None:
    with pytest.raises(OttlaError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        ShortNamer([rule], "EXAMPLE.ORG")


def test_options() -> None:
    whole = f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="FILE:/k" principal="kafka/h@R";'
    assert kerberos_options(parse_jaas(whole)) == KerberosOptions("/k", "kafka/h@R")
    cached = f"{KERBEROS_MODULE} required useTicketCache=true ticketCache='/c' serviceName=kafka;"
    assert kerberos_options(parse_jaas(cached)) == KerberosOptions(cache="/c", service="kafka")


class Context:
    """Established after `answers`; wraps by a letter in front."""

    peer = "alice@EXAMPLE.ORG"

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    @property
    def is_complete(self) -> bool:
        return not self.answers

    def step(self, token: bytes | None) -> bytes:
        return self.answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"w" + message

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] != b"w":
            raise AuthenticationFailed(reason="not wrapped")
        return token[1:]


def server(*answers: bytes) -> GssapiServer:
    context = Context(*answers)
    return GssapiServer(lambda: context, ShortNamer(["DEFAULT"], "EXAMPLE.ORG").name_of)


@pytest.mark.parametrize(
    ("of_server", "of_client", "tokens"),
    [
        ([b"reply"], [b"ticket", b""], 3),  # the server proves who it is: its token is the last of the context
        ([b""], [b"ticket"], 2),
        ([b"more", b"reply"], [b"ticket", b"again", b""], 4),
    ],
)
def test_both_ends(of_server: list[bytes], of_client: list[bytes], tokens: int) -> None:
    there, here = server(*of_server), GssapiClient(Context(*of_client))
    token: bytes | None = here.first()
    count = 0
    while token is not None:
        assert there.user is None and there.takes_long(token)
        count += 1
        token = here.step(there.step(token))
    assert (there.user, count) == ("alice", tokens)


@pytest.mark.parametrize(
    "tokens",
    [
        [b"ticket", b"not empty"],
        [b"ticket", b"", b"w\x02\0\0\0"],  # integrity, which was not offered
        [b"ticket", b"", b"w\x04\0\0\0"],
        [b"ticket", b"", b"w\x01\0\0"],
        [b"ticket", b"", b"w"],
        [b"ticket", b"", b"\x01\0\0\0"],
        [b"ticket", b"", b"w\x01\0\0\0", b""],
        [bytes(TOKEN_BYTES_MAX + 1)],
    ],
)
def test_what_a_client_may_not_say(tokens: list[bytes]) -> None:
    there = server(b"reply")
    with pytest.raises(AuthenticationFailed):
        for token in tokens:
            there.step(token)


def test_a_client_that_goes_on_for_ever_is_refused() -> None:
    there = server(*[b"more"] * 100)
    with pytest.raises(AuthenticationFailed, match="not established"):
        for _ in range(20):
            there.step(b"again")


def test_whom_a_client_wants_to_be_does_not_count() -> None:
    there = server(b"reply")
    for token in (b"ticket", b""):
        there.step(token)
    assert there.step(b"w" + NO_LAYER + b"admin@EXAMPLE.ORG") == b"" and there.user == "alice"


@pytest.mark.parametrize("offered", [b"w\x06\0\0\0", b"w\x01\0\0", b"w\x01\0\0\0x", b"w", b"\x01\0\0\0"])
def test_what_a_server_may_not_offer(offered: bytes) -> None:
    here = GssapiClient(Context(b"ticket", b""))
    assert here.first() == b"ticket" and here.step(b"reply") == b""
    with pytest.raises(AuthenticationFailed):
        here.step(offered)
