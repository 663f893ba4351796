"""Tokens: what is believed, and every way to forge one that the field has seen (CVE-2026-33557, CVE-2026-110985)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.client import OAuthBearerClient
from ottla.security.sasl.jwt import InvalidToken, KeySet, Rules, UnknownKey, checked, parse_keys, unsecured, verified
from ottla.security.sasl.oauthbearer import REFUSED, OAuthBearerServer

NOW = 1_800_000_000
RULES = Rules("https://issuer", ("kafka",), 30)
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer", "aud": "kafka", "sub": "alice", "iat": NOW - 10, "exp": NOW + 60, "scope": "read write",
}  # fmt: skip


@cache
def rsa_key(name: str = "one", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def jwk(key: Any, kid: str | None = "one", **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    found = json.loads(algorithm.to_jwk(key.public_key()))
    found.pop("key_ops", None)
    return {**found, **({} if kid is None else {"kid": kid}), **more}


def key_set(*entries: dict[str, Any]) -> KeySet:
    return parse_keys(json.dumps({"keys": list(entries)}).encode())


def keys() -> KeySet:
    return key_set(jwk(rsa_key()), jwk(ec_key(), "two"))


def signed(claims: dict[str, Any] = CLAIMS, algorithm: str = "RS256", key: Any = None, **headers: Any) -> str:
    return jwt.encode(claims, key or rsa_key(), algorithm, headers={"kid": "one", **headers})


def with_claims(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


def raw(header: dict[str, Any], claims: Any = CLAIMS, signature: bytes = b"") -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    return f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}.{part(signature)}"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_tokens_with_rsa(algorithm: str) -> None:
    found = verified(signed(algorithm=algorithm), keys(), RULES, NOW)
    assert found.subject == "alice" and found.expires_at_s == NOW + 60 and found.scope == {"read", "write"}


@pytest.mark.parametrize(
    ("algorithm", "curve", "quick"),
    [("ES256", ec.SECP256R1, True), ("ES384", ec.SECP384R1, False), ("ES512", ec.SECP521R1, False)],
)
def test_tokens_with_curves(algorithm: str, curve: type[ec.EllipticCurve], quick: bool) -> None:
    known = key_set(jwk(ec_key(curve)))
    assert verified(signed(algorithm=algorithm, key=ec_key(curve)), known, RULES, NOW).subject == "alice"
    assert known.is_quick is quick


def test_a_key_without_a_name_is_found_if_it_is_the_only_one() -> None:
    token = jwt.encode(CLAIMS, rsa_key(), "RS256")
    assert verified(token, key_set(jwk(rsa_key(), None), jwk(ec_key())), RULES, NOW).subject == "alice"
    with pytest.raises(UnknownKey):
        verified(token, key_set(jwk(rsa_key()), jwk(rsa_key("other"), "three")), RULES, NOW)


def public_pem() -> bytes:
    return (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def hs256_with_the_public_key() -> str:
    head = raw({"alg": "HS256", "typ": "JWT", "kid": "one"}).rpartition(".")[0]
    signature = hmac.digest(public_pem(), head.encode(), hashlib.sha256)
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered() -> str:
    head, _, signature = signed().split(".")
    return f"{head}.{raw({}, with_claims(sub='admin')).split('.')[1]}.{signature}"


FORGED = {
    "none": lambda: raw({"alg": "none"}),
    "None": lambda: raw({"alg": "None", "kid": "one"}),
    "nothing": lambda: raw({}),
    "hs256 with the public key": hs256_with_the_public_key,
    "rs256 without a signature": lambda: raw({"alg": "RS256", "kid": "one"}),
    "rs256 with some signature": lambda: raw({"alg": "RS256", "kid": "one"}, signature=bytes(256)),
    "another key": lambda: signed(key=rsa_key("other")),
    "another key, with itself in the header": lambda: signed(key=rsa_key("other"), jwk=jwk(rsa_key("other"))),
    "another kid": lambda: signed(kid="three"),
    "a kid that is no text": lambda: raw({"alg": "RS256", "kid": {"a": 1}}),
    "the key of another algorithm": lambda: signed(algorithm="ES256", key=ec_key()),
    "es256 with zeros": lambda: raw({"alg": "ES256", "kid": "two"}, signature=bytes(64)),
    "changed claims": tampered,
    "crit": lambda: signed(crit=["exp"]),
    "another issuer": lambda: signed(with_claims(iss="https://other")),
    "no issuer": lambda: signed(with_claims(iss=None)),
    "a list of issuers": lambda: signed({**CLAIMS, "iss": "https://issuer/"}),
    "another audience": lambda: signed(with_claims(aud="other")),
    "no audience": lambda: signed(with_claims(aud=None)),
    "an audience that is no text": lambda: raw({"alg": "RS256", "kid": "one"}, with_claims(aud=[{}])),
    "expired": lambda: signed(with_claims(exp=NOW - 30)),
    "no end": lambda: signed(with_claims(exp=None)),
    "no beginning": lambda: signed(with_claims(iat=None)),
    "from the future": lambda: signed(with_claims(iat=NOW + 31)),
    "not yet": lambda: signed(with_claims(nbf=NOW + 31)),
    "no name": lambda: signed(with_claims(sub=None)),
    "a name that is too long": lambda: signed(with_claims(sub="a" * 1025)),
    "an empty name": lambda: signed(with_claims(sub=" ")),
    "a scope that is a number": lambda: signed(with_claims(scope=7)),
    "two parts": lambda: "a.b",
    "no json": lambda: "a.b.c",
    "encrypted": lambda: "a.b.c.d.e",
    "too long": lambda: "a" * 300_000 + ".b.c",
    "deep": lambda: raw({"alg": "RS256"}).replace(".", ".W1tb", 1),
}


@pytest.mark.parametrize("which", FORGED)
def test_forged_tokens_are_refused(which: str) -> None:
    with pytest.raises(InvalidToken) as refusal:
        verified(FORGED[which](), keys(), RULES, NOW)
    assert "alice" not in str(refusal.value)


def test_without_keys_nothing_is_believed() -> None:
    with pytest.raises(UnknownKey):
        verified(signed(), KeySet(), RULES, NOW)
    with pytest.raises(InvalidToken):
        verified(raw({"alg": "none"}), KeySet(), Rules(None, ()), NOW)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"exp": NOW - 29}, NOW - 29),  # within the skew
        ({"iat": NOW + 30, "nbf": NOW + 30}, NOW + 60),
        ({"exp": NOW + 0.5}, NOW + 0.5),
        ({"exp": 10**30}, 1e11),
        ({"aud": ["other", "kafka"], "scope": ["a"]}, NOW + 60),
    ],
)
def test_what_just_holds(changes: dict[str, Any], end: float) -> None:
    assert verified(signed(with_claims(**changes)), keys(), RULES, NOW).expires_at_s == end


@pytest.mark.parametrize("value", [True, "1900000000", None, [], float("nan"), {}])
def test_times_are_numbers(value: Any) -> None:
    with pytest.raises(InvalidToken):
        checked({**CLAIMS, "exp": value}, RULES, NOW)


def test_other_claims_for_name_and_scope() -> None:
    rules = Rules("https://issuer", ("kafka",), 30, "scp", "client_id")
    found = verified(signed(with_claims(client_id="bob", scp=["x"], sub=None)), keys(), rules, NOW)
    assert found.subject == "bob" and found.scope == {"x"}


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {**jwk(rsa_key()), "use": "enc"},
        {**jwk(rsa_key()), "alg": "HS256"},
        {**jwk(rsa_key()), "key_ops": ["sign"]},
        {**jwk(rsa_key()), "n": "AQAB"},
        jwk(rsa_key("short", 1024)),
        {"kty": "RSA", "kid": "one"},
        {**jwk(ec_key()), "x": "AAAA"},
        {**jwk(ec_key()), "crv": "P-111"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
    ],
)
def test_keys_that_are_not_used(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="none of the keys"):
        key_set(entry)
    assert len(key_set(entry, jwk(ec_key())).keys) == 1


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys":{}}', b"\xff", b'{"keys":[],"keys":[]}', b"[" * 100_000])
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(data)


def test_a_key_for_one_algorithm_is_for_no_other() -> None:
    known = key_set(jwk(rsa_key(), alg="RS256"))
    assert verified(signed(), known, RULES, NOW).subject == "alice"
    with pytest.raises(UnknownKey):
        verified(signed(algorithm="PS256"), known, RULES, NOW)


def test_tokens_that_nobody_signed_are_for_tests() -> None:
    rules = Rules(None, ())
    assert unsecured(raw({"alg": "none"}, {"sub": "alice", "exp": NOW + 1}), rules, NOW).subject == "alice"
    for token in (signed(), raw({"alg": "none"}, signature=b"x"), raw({"alg": "none"}, with_claims(exp=None))):
        with pytest.raises(InvalidToken):
            unsecured(token, rules, NOW)


# The exchange.


def server(is_quick: bool = True) -> OAuthBearerServer:
    return OAuthBearerServer(lambda token: verified(token, keys(), RULES, NOW), is_quick=is_quick)


def test_an_exchange() -> None:
    there, here = server(), OAuthBearerClient(signed(), {"traceId": "1 2"})
    assert there.step(here.first()) == b"" and here.step(b"") is None
    assert there.user == "alice" and there.expires_at_s == NOW + 60


def test_a_refused_token_is_answered_in_json_first() -> None:
    there, here = server(), OAuthBearerClient(signed(with_claims(aud="other")))
    answer = there.step(here.first())
    assert json.loads(answer) == {"status": "invalid_token"} and there.user is None
    final = here.step(answer)
    assert final == b"\x01"
    with pytest.raises(AuthenticationFailed) as failure:
        there.step(final)
    assert failure.value.message == REFUSED and "audience" in failure.value.reason
    with pytest.raises(AuthenticationFailed):
        here.step(b"")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"p=x,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"\xff\x00",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().step(message)


def test_an_authorization_id_must_be_the_name() -> None:
    there = server()
    there.step(OAuthBearerClient(signed(), authorization_id="alice").first())
    assert there.user == "alice"
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        server().step(OAuthBearerClient(signed(), authorization_id="bob").first())


def test_extensions_cannot_bring_another_token() -> None:
    for extensions in ({"auth": "Bearer x"}, {"a1": "x"}, {"a": "x\x01auth=Bearer y"}, {"a": ""}):
        with pytest.raises(ValueError):
            OAuthBearerClient("t", extensions)


def test_long_checks_belong_in_a_thread() -> None:
    assert (
        not server().takes_long(b"x") and server(is_quick=False).takes_long(b"x") and server().takes_long(bytes(9000))
    )
