"""The login by DIGEST-MD5: RFC 2831's own example, and what is refused. A real server is asked in
tests/conformance/zookeeper/test_secured.py."""

from __future__ import annotations

import pytest

from ottla.zookeeper.digest_md5 import DigestMd5, LoginRefused

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'  # RFC 2831, 4
)


def example(password: str = "secret") -> DigestMd5:
    login = DigestMd5("chris", password, "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")
    assert login.step(b"") == b""
    return login


def test_the_example_of_the_rfc() -> None:
    login = example()
    answer = login.step(CHALLENGE) or b""
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer and b'username="chris"' in answer
    assert login.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    login = example()
    login.step(CHALLENGE)
    with pytest.raises(LoginRefused, match="does not know the password"):
        login.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "knows no login"),
        (CHALLENGE.replace(b"nonce=", b"once="), "no nonce"),
        (CHALLENGE.replace(b"md5-sess", b"md5"), "another algorithm"),
        (CHALLENGE.replace(b'"auth"', b'"auth-int,auth-conf"'), "without protection"),
        (b'realm="never ends', "cannot be read"),
        (b'nonce="' + b"n" * 3000 + b'"', "3008 bytes"),
    ],
)
def test_challenges_that_are_refused(said: bytes, why: str) -> None:
    with pytest.raises(LoginRefused, match=why):
        example().step(said)


def test_quotes_and_other_alphabets_are_written_as_the_server_reads_them() -> None:
    login = DigestMd5('a"\\ö', "пароль", "c")
    login.step(b"")
    answer = login.step(CHALLENGE.replace(b'realm="elwood.innosoft.com",', b'realm="a \\"b\\"",')) or b""
    assert b'username="a\\"\\\\\xc3\xb6",realm="a \\"b\\""' in answer
    latin = DigestMd5("a", "пароль", "c")
    latin.step(b"")
    with pytest.raises(LoginRefused, match="no UTF-8"):
        latin.step(CHALLENGE.replace(b",charset=utf-8", b""))
