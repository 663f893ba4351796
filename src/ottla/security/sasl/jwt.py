"""JSON Web Tokens for OAUTHBEARER: whom they name, and whether they may be believed (KIP-768, RFC 8725).

Fail closed. A signature is checked with a key of the identity provider (JWKS) by an algorithm of a list: RS, PS and ES,
never `none`, never one with a shared secret, and only with a key of the algorithm's own kind. Keys that a token
brings along (`jwk`, `jku`, `x5u`) are not looked at. Needs `pip install "ottla[security]"`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **{f"{kind}{bits}": ("RSA", None) for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"), "ES384": ("EC", "P-384"), "ES512": ("EC", "P-521"),
}  # fmt: skip
"""Algorithm to the type of its keys and their curve."""

RSA_BITS_MIN: Final = 2048
RSA_BITS_QUICK: Final = 4096
"""A check takes 0.1 ms with 2,048 bits and 0.3 with 4,096."""
CURVES_QUICK: Final = frozenset({"P-256"})
"""A check takes 0.13 ms; with the longer curves a millisecond and more."""

KEYS_MAX: Final = 1000
"""Identity providers publish two or three."""
TOKEN_CHARS_MAX: Final = 262_144
"""Half of what a client may send before it is known. Tokens have one to four kilobytes."""

SUBJECT_CHARS_MAX: Final = 1024
"""A user's name goes into requests between nodes, logs and metrics; the longest ids of providers have some 100."""

TIME_S_MAX: Final = 1e11
"""The year 5138. Numbers beyond it are taken as this one, so that timers and integers hold."""


class InvalidToken(Exception):
    """A token that is not believed, and why; the reason has nothing of the token but names of claims."""


class UnknownKey(InvalidToken):
    """A token that is signed with a key that the identity provider has not published, or not yet."""


class Token(NamedTuple):
    """What is believed of a token."""

    subject: str
    expires_at_s: float
    scope: frozenset[str] = frozenset()


class Rules(NamedTuple):
    """What a token must say (`sasl.oauthbearer.*`)."""

    issuer: str | None
    """None: any."""
    audiences: tuple[str, ...]
    """One of them must be the token's; empty: any or none."""
    skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class Key(NamedTuple):
    """A public key of an identity provider."""

    kid: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    """The only algorithm that it is for; None: any of its kind."""
    public: Any
    is_quick: bool


class KeySet:
    """The keys that tokens are checked with."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self.keys = tuple(keys)
        self.is_quick = all(each.is_quick for each in keys)

    def find(self, kid: str | None, algorithm: str) -> Key:
        """Raises UnknownKey."""
        kind, curve = ALGORITHMS[algorithm]
        fitting = [
            each
            for each in self.keys
            if each.kind == kind
            and each.curve == curve
            and each.algorithm in (None, algorithm)
            and (kid is None or each.kid == kid)
        ]
        if len(fitting) != 1:
            what = "no key" if not fitting else "more than one key"
            raise UnknownKey(f"{what} of the identity provider fits the token's kid and algorithm")
        return fitting[0]


def parse_keys(data: bytes) -> KeySet:
    """The usable keys of a JWKS document. Raises ValueError where there are none."""
    document = _json_object(data)
    entries = document.get("keys")
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise ValueError(f"not a key set, which has a list of at most {KEYS_MAX} keys")
    keys = [key for each in entries if isinstance(each, dict) and (key := _key(each)) is not None]
    if not keys:
        raise ValueError("none of the keys can be used: RSA of 2,048 bits or more, or EC, for signatures")
    return KeySet(keys)


def _key(entry: Mapping[str, Any]) -> Key | None:
    """None for a key that is not for signatures, or of no kind that is known: such ones may stand beside others."""
    kid, kind, curve, algorithm = (entry.get(name) for name in ("kid", "kty", "crv", "alg"))
    operations = entry.get("key_ops")
    if kind not in ("RSA", "EC") or entry.get("use", "sig") != "sig" or not isinstance(kid, str | None):
        return None
    if algorithm is not None and algorithm not in ALGORITHMS:
        return None
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None
    try:
        public = _rsa(entry) if kind == "RSA" else _ec(entry)
    except (ValueError, TypeError, KeyError, binascii.Error):
        return None
    if kind == "RSA":
        bits = public.key_size
        return None if bits < RSA_BITS_MIN else Key(kid, kind, None, algorithm, public, bits <= RSA_BITS_QUICK)
    return Key(kid, kind, curve, algorithm, public, curve in CURVES_QUICK)


def _rsa(entry: Mapping[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    return RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()


def _ec(entry: Mapping[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    curves: Mapping[str, ec.EllipticCurve] = {
        "P-256": ec.SECP256R1(),
        "P-384": ec.SECP384R1(),
        "P-521": ec.SECP521R1(),
    }
    curve = curves[entry["crv"]]
    return ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve).public_key()


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def verified(token: str, keys: KeySet, rules: Rules, now_s: float) -> Token:
    """What a signed token says. Raises InvalidToken, UnknownKey."""
    return checked(signed_claims(token, keys), rules, now_s)


def signed_claims(token: str, keys: KeySet) -> dict[str, Any]:
    """The claims of a token whose signature is valid; `checked` looks at what they say. Raises InvalidToken,
    UnknownKey."""
    import jwt

    header, _ = _parts(token)
    algorithm = str(header.get("alg"))
    if algorithm not in ALGORITHMS:
        raise InvalidToken("the token's algorithm is not one of " + ", ".join(ALGORITHMS))
    if "crit" in header or "b64" in header:
        raise InvalidToken("the token has a header that must be understood and is not (crit)")
    kid = header.get("kid")
    if not isinstance(kid, str | None):
        raise InvalidToken("the token's kid is not a text")
    key = keys.find(kid, algorithm)
    try:
        payload = jwt.PyJWS(algorithms=[algorithm]).decode_complete(token, key.public, [algorithm])["payload"]
    except jwt.PyJWTError as error:
        raise InvalidToken(f"the token's signature is not valid ({type(error).__name__})") from None
    return _claims(payload)


def unsecured(token: str, rules: Rules, now_s: float) -> Token:
    """What a token without a signature says, which anyone can write: for tests. Raises InvalidToken."""
    header, payload = _parts(token)
    if header.get("alg") != "none" or not token.endswith("."):
        raise InvalidToken("the token is signed, and only tokens without a signature are accepted")
    return checked(_claims(payload), rules, now_s, is_secured=False)


def checked(claims: Mapping[str, Any], rules: Rules, now_s: float, *, is_secured: bool = True) -> Token:
    """The claims, if they keep the rules (KIP-768). Raises InvalidToken."""
    expires_at_s = _time(claims, "exp")
    if now_s - rules.skew_s >= expires_at_s:
        raise InvalidToken("the token has expired")
    if (is_secured or "iat" in claims) and _time(claims, "iat") - rules.skew_s > now_s:
        raise InvalidToken("the token is issued in the future (iat)")
    if "nbf" in claims and _time(claims, "nbf") - rules.skew_s > now_s:
        raise InvalidToken("the token is not valid yet (nbf)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token is of another issuer (iss)")
    if rules.audiences:
        audience = claims.get("aud")
        given = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if not any(isinstance(each, str) and each in rules.audiences for each in given):
            raise InvalidToken("the token is for another audience (aud)")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip() or len(subject) > SUBJECT_CHARS_MAX:
        raise InvalidToken(f"the token has no name in claim {rules.subject_claim}, or one that is too long")
    return Token(subject, expires_at_s, _scope(claims.get(rules.scope_claim)))


def _scope(value: Any) -> frozenset[str]:
    """A text with blanks between scopes, or a list."""
    items = value.split() if isinstance(value, str) else [] if value is None else value
    if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
        raise InvalidToken("the token's scope is neither a text nor a list of texts")
    return frozenset(items)


def _time(claims: Mapping[str, Any], name: str) -> float:
    """Seconds since 1970. Raises InvalidToken where the claim is missing or no number."""
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and math.isnan(value))
    ):
        raise InvalidToken(f"the token has no time in claim {name}")
    return float(min(max(value, -TIME_S_MAX), TIME_S_MAX))


def _parts(token: str) -> tuple[dict[str, Any], bytes]:
    """(header, payload). Raises InvalidToken."""
    parts = token.split(".") if len(token) <= TOKEN_CHARS_MAX else []
    if len(parts) != 3:
        raise InvalidToken("not a JSON Web Token")
    try:
        return _json_object(_decoded(parts[0])), _decoded(parts[1])
    except (ValueError, TypeError):
        raise InvalidToken("not a JSON Web Token") from None


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        return _json_object(payload)
    except ValueError:
        raise InvalidToken("the token's claims are not a JSON object") from None


def _json_object(data: bytes) -> dict[str, Any]:
    """A JSON object, without a name that is given twice. Raises ValueError."""
    try:
        found = json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decoded(text: str) -> bytes:
    """Base64 for URLs, without padding. Raises ValueError."""
    if not isinstance(text, str) or "=" in text:
        raise ValueError("not base64 without padding")
    padded = (text + "=" * (-len(text) % 4)).translate(_URL_SAFE)
    return base64.b64decode(padded, validate=True)


_URL_SAFE = str.maketrans("-_+/", "+/!!")
"""Characters of the other alphabet become some that no alphabet has."""
