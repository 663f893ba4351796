"""SCRAM against the examples of the RFCs, another implementation (scramp), and what an attacker would send."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient
from scramp import ScramMechanism as OtherMechanism

from ottla.security.sasl import AuthenticationFailed, scram
from ottla.security.sasl.client import ScramClient
from ottla.security.sasl.saslprep import saslprep
from ottla.security.sasl.scram import SHA_256, SHA_512, Credential, ScramMechanism, ScramServer

SALT = b"0123456789abcdef"
BYTES = bytes(range(scram.NONCE_BYTES))


def stored(mechanism: ScramMechanism, password: str, salt: bytes = SALT, iterations: int = 4096) -> Credential:
    return scram.credential(mechanism, scram.salted_password(mechanism, password, salt, iterations), salt, iterations)


def server(
    mechanism: ScramMechanism, users: dict[str, str], random_bytes: bytes = BYTES, iterations: int = 4096
) -> ScramServer:
    credentials = {name: stored(mechanism, password, iterations=iterations) for name, password in users.items()}
    return ScramServer(
        mechanism, credentials.get, lambda name: scram.made_up(mechanism, b"secret", name, scram.Shape()), random_bytes
    )


def talk(there: ScramServer, here: ScramClient) -> None:
    token: bytes | None = here.first()
    while token is not None:
        token = here.step(there.step(token))


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = stored(SHA_256, "pencil", salt)
    there = ScramServer(SHA_256, {"user": known}.get, lambda name: known, BYTES)
    there._own_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = there.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert answer == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert there.step(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert there.user == "user"


NAMES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([SHA_256, SHA_512]), NAMES, st.text(min_size=1, max_size=10), st.binary(min_size=17, max_size=17)
)
def test_both_ends_agree(mechanism: ScramMechanism, name: str, password: str, random_bytes: bytes) -> None:
    password = password.encode("utf-8", "replace").decode()
    there = server(mechanism, {name: password})
    talk(there, ScramClient(mechanism, name, password, random_bytes))
    assert there.user == name
    there = server(mechanism, {name: password})
    with pytest.raises(AuthenticationFailed):
        talk(there, ScramClient(mechanism, name, password + "x", random_bytes))
    assert there.user is None


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([SHA_256, SHA_512]),
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20),
)
def test_scramp_speaks_with_both_ends(mechanism: ScramMechanism, name: str, password: str) -> None:
    there = server(mechanism, {name: password}, iterations=4097)
    other = OtherClient([mechanism.name], name, password)
    first = there.step(other.get_client_first().encode())
    other.set_server_first(first.decode())
    other.set_server_final(there.step(other.get_client_final().encode()).decode())
    assert there.user == name

    kind = OtherMechanism(mechanism.name)
    auth = kind.make_auth_info(password, iteration_count=4097)
    other_server = kind.make_server(lambda user: auth if user == name else None)
    here = ScramClient(mechanism, name, password, BYTES)
    other_server.set_client_first(here.first().decode())
    final = here.step(other_server.get_server_first().encode())
    assert final is not None
    other_server.set_client_final(final.decode())
    assert here.step(other_server.get_server_final().encode()) is None


def begun(users: dict[str, str] | None = None) -> tuple[ScramServer, str, str]:
    """A server that has answered, its answer, and a right final message."""
    there = server(SHA_256, users or {"alice": "secret"})
    here = ScramClient(SHA_256, "alice", "secret", BYTES)
    answer = there.step(here.first())
    final = here.step(answer)
    assert final is not None
    return there, answer.decode(), final.decode()


def test_the_right_final_message_is_accepted() -> None:
    there, _, final = begun()
    assert there.step(final.encode()).startswith(b"v=") and there.user == "alice"


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("nonce", lambda final: final.replace(",p=", "x,p=")),
        ("nonce", lambda final: final.replace("r=", "r=x", 1)),
        ("binding", lambda final: final.replace("c=biws", "c=eSws")),  # y,,
        ("binding", lambda final: final.replace("c=biws", "c=")),
        ("proof", lambda final: final[: final.index(",p=")] + ",p="),
        ("proof", lambda final: final[: final.index(",p=")] + ",p=AAAA"),
        ("read", lambda final: final[: final.index(",p=")]),
        ("read", lambda final: final + ",x"),
        ("read", lambda final: final.replace("p=", "p=!", 1)),
        ("password", lambda final: final[: final.index(",p=")] + ",p=" + base64.b64encode(bytes(32)).decode()),
    ],
)
def test_a_changed_final_message_is_refused(what: str, change: object) -> None:
    """CVE-2024-56128: the final nonce is compared."""
    there, _, final = begun()
    with pytest.raises(AuthenticationFailed, match=what):
        there.step(change(final).encode())  # type: ignore[operator]
    assert there.user is None


def test_a_final_message_counts_for_one_exchange_only() -> None:
    _, _, final = begun()
    there = server(SHA_256, {"alice": "secret"}, random_bytes=bytes(17))
    there.step(ScramClient(SHA_256, "alice", "secret", BYTES).first())
    with pytest.raises(AuthenticationFailed, match="nonce"):
        there.step(final.encode())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=al=2Bice,r=abc",
        b"x,,n=alice,r=abc",
        b"n,,n=alice,r=a\x01c",
        b"\xff",
        b"n,,n=a\0b,r=abc",
        b"n,,r=abc,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=" + b"a" * 70_000 + b",r=abc",
    ],
)
def test_a_bad_first_message_is_refused(first: bytes) -> None:
    """Demanded channel binding (p=) and mandatory extensions (m=) among them: RFC 5802, chapters 5.1 and 6."""
    with pytest.raises(AuthenticationFailed):
        server(SHA_256, {"alice": "secret"}).step(first)


@pytest.mark.parametrize("first", [b"y,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=alice,r=abc,some=extension"])
def test_unusual_first_messages_are_taken(first: bytes) -> None:
    assert server(SHA_256, {"alice": "secret"}).step(first).startswith(b"r=abc")


def test_an_unknown_name_is_answered_like_a_known_one() -> None:
    """No made-up answer tells that the name is not there: the salt is the same each time, and formed as Kafka's."""
    answers = []
    for random_bytes in (bytes(17), bytes([1] * 17)):
        there = server(SHA_256, {"alice": "secret"}, random_bytes)
        answers.append(dict(part.split("=", 1) for part in there.step(b"n,,n=bob,r=abc").decode().split(",")))
        with pytest.raises(AuthenticationFailed) as failure:
            there.step(b"c=biws,r=" + answers[-1]["r"].encode() + b",p=" + base64.b64encode(bytes(32)))
        assert failure.value.message == ""  # what a wrong password gives
    assert answers[0]["s"] == answers[1]["s"] and answers[0]["r"] != answers[1]["r"]
    assert len(base64.b64decode(answers[0]["s"])) == 26 and answers[0]["i"] == "4096"
    shape = scram.Shape()
    other = scram.made_up(SHA_256, b"secret", "carol", shape)
    assert base64.b64encode(other.salt).decode() != answers[0]["s"]
    assert scram.made_up(SHA_512, b"secret", "bob", shape).salt != scram.made_up(SHA_256, b"secret", "bob", shape).salt
    for salt, iterations in ((bytes(range(64)), 8192), (b"abc123", 4096), (b"x" * 70, 5000)):
        shape = scram.shape_of(salt, iterations)
        made = scram.made_up(SHA_256, b"secret", "bob", shape)
        assert scram.shape_of(made.salt, made.iterations) == shape


def test_a_delegation_token_is_no_user() -> None:
    there = server(SHA_256, {"alice": "secret"})
    here = ScramClient(SHA_256, "alice", "secret", BYTES, extensions={"tokenauth": "true"})
    with pytest.raises(AuthenticationFailed):
        talk(there, here)


def test_names_are_prepared() -> None:
    """SASLprep (RFC 4013): the same name, typed otherwise; the principal is the name as it is stored."""
    assert saslprep("I\u00adX") == "IX" and saslprep("\u00aa") == "a" and saslprep("\u2168") == "IX"
    for bad in ("\u0007", "\u0627\u0031", "\u0627a"):
        with pytest.raises(ValueError):
            saslprep(bad)
    there = server(SHA_256, {"jürgen": "secret"})
    talk(there, ScramClient(SHA_256, "ju\u0308rgen", "secret", BYTES))
    assert there.user == "jürgen"
    there = server(SHA_256, {"ju\u0308rgen": "secret", "jürgen": "other"})
    talk(there, ScramClient(SHA_256, "ju\u0308rgen", "secret", BYTES))
    assert there.user == "ju\u0308rgen"


# The client's end.


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("r={nonce}x,s=c2FsdA==,i=4095", "iterations"),
        ("r={nonce}x,s=c2FsdA==,i=1000000000", "iterations"),  # CVE-2026-10143: a loop of hours
        ("r={nonce}x,s=c2FsdA==,i=99999999999999", "read"),
        ("r={nonce},s=c2FsdA==,i=4096", "nonce"),
        ("r=other,s=c2FsdA==,i=4096", "nonce"),
        ("r={nonce}x,s=!,i=4096", "read"),
        ("m=must,r={nonce}x,s=c2FsdA==,i=4096", "read"),
        ("", "read"),
    ],
)
def test_a_client_does_not_believe_every_server(answer: str, why: str) -> None:
    here = ScramClient(SHA_256, "alice", "secret", BYTES)
    here.first()
    with pytest.raises(AuthenticationFailed, match=why):
        here.step(answer.format(nonce=scram.nonce_text(BYTES)).encode())


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=other-error", b"", b"\xff", b"v=" + base64.b64encode(bytes(32))])
def test_a_server_has_to_know_the_password(final: bytes) -> None:
    here = ScramClient(SHA_256, "alice", "secret", BYTES)
    here.step(server(SHA_256, {"alice": "secret"}).step(here.first()))
    with pytest.raises(AuthenticationFailed):
        here.step(final)


def test_credentials_are_not_shown() -> None:
    text = f"{stored(SHA_256, 'secret')!r} {stored(SHA_256, 'secret')}"
    assert "salt" not in text and "key" not in text and "iterations=4096" in text
