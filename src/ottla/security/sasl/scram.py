"""SCRAM (RFC 5802, RFC 7677; KIP-84, KIP-554): formulas, messages and the server's side.

What Kafka's server does otherwise and this one on purpose not: an unknown name gets a made-up salt, so that nobody
learns which names exist; mandatory extensions (`m=`) are refused; names are compared in the form of SASLprep. Passwords
are bytes of UTF-8 as they are, as in Kafka's tools and in librdkafka, which prepare none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.security.sasl import SCRAM_SHA_256, SCRAM_SHA_512, AuthenticationFailed
from ottla.security.sasl.saslprep import saslprep

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Limits of credentials that are stored (KIP-554)."""

MESSAGE_BYTES_MAX: Final = 65_536
"""Twice the longest name. Messages of clients have some 100 bytes."""


class ScramMechanism(NamedTuple):
    """One of the two hash functions."""

    name: str
    number: int
    """In records and requests (KIP-554)."""
    digest: str
    """The name of the function in `hashlib`."""
    digest_bytes: int


SHA_256: Final = ScramMechanism(SCRAM_SHA_256, 1, "sha256", 32)
SHA_512: Final = ScramMechanism(SCRAM_SHA_512, 2, "sha512", 64)
BY_NAME: Final = {each.name: each for each in (SHA_256, SHA_512)}
BY_NUMBER: Final = {each.number: each for each in (SHA_256, SHA_512)}


class Credential(NamedTuple):
    """What a server knows of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations}, [hidden])"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2, half a microsecond an iteration."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode("utf-8", "surrogatepass"), salt, iterations)


def keyed(mechanism: ScramMechanism, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, mechanism.digest)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Server Key")


def hashed(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.digest, data).digest()


def xor(one: bytes, other: bytes) -> bytes:
    """Exclusive or of two byte strings of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def credential(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """What is stored of a salted password."""
    stored = hashed(mechanism, client_key(mechanism, salted))
    return Credential(salt, stored, server_key(mechanism, salted), iterations)


_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NONCE_BITS: Final = 130
"""Nonces and salts of Kafka are numbers of so many bits, written with 36 digits."""
NONCE_BYTES: Final = 17


def nonce_text(random_bytes: bytes) -> str:
    """A nonce, or salt, of NONCE_BYTES random bytes: 26 letters and digits, as Kafka's."""
    number = int.from_bytes(random_bytes, "big") % (1 << _NONCE_BITS)
    digits = ""
    for _ in range(26):
        number, digit = divmod(number, 36)
        digits = _BASE_36[digit] + digits
    return digits


class Shape(NamedTuple):
    """What the credentials of users have in common, which a made-up one must have too."""

    iterations: int = ITERATIONS_MIN
    salt_bytes: int = 26
    is_text: bool = True
    """Whether salts are of letters and digits, as Kafka's tools make them; librdkafka takes any bytes."""


def shape_of(salt: bytes, iterations: int) -> Shape:
    return Shape(iterations, len(salt), salt.isalnum())


def made_up(mechanism: ScramMechanism, secret: bytes, name: str, shape: Shape) -> Credential:
    """For a name without a credential: the same salt each time, and keys that no password has."""

    def derived(what: str) -> bytes:
        text = f"{what}\0{mechanism.name}\0{name}"
        return keyed(mechanism, secret, text.encode("utf-8", "replace"))

    salt = b""
    while len(salt) < shape.salt_bytes:
        piece = derived(f"salt {len(salt)}")
        salt += nonce_text(piece[:NONCE_BYTES]).encode() if shape.is_text else piece
    return Credential(salt[: shape.salt_bytes], derived("stored key"), derived("server key"), shape.iterations)


_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_VALUE: Final = r"[^,\0]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE_64: Final = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>(?P<flag>n|y|p=[A-Za-z0-9.\-]+),(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE_64}),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]+={_VALUE})*?)"
    rf",p=(?P<proof>{_BASE_64})"
)


class ClientFirst(NamedTuple):
    """The first message of a client."""

    header: str
    """The GS2 header, which the final message repeats."""
    bare: str
    authorization_id: str
    name: str
    nonce: str
    extensions: dict[str, str]


def parse_client_first(token: bytes) -> ClientFirst:
    """Raises AuthenticationFailed."""
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise AuthenticationFailed(reason="the first SCRAM message cannot be read")
    if match["flag"].startswith("p"):
        raise AuthenticationFailed(reason="the client demands channel binding, which is not offered")
    if match["bare"].startswith("m="):
        raise AuthenticationFailed(reason="the client demands an extension that is not supported (m=)")
    extensions = dict(each.split("=", 1) for each in match["extensions"].split(",") if each)
    return ClientFirst(
        match["header"],
        match["bare"],
        unescaped(match["authorization_id"] or ""),
        unescaped(match["name"]),
        match["nonce"],
        extensions,
    )


def shows_token(first: ClientFirst) -> bool:
    """Whether the name is the id of a delegation token (KIP-48)."""
    return first.extensions.get("tokenauth", "").lower() == "true"


def escaped(name: str) -> str:
    """A name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(token: bytes) -> str:
    if len(token) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(reason=f"a SCRAM message of {len(token)} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(reason="a SCRAM message that is not UTF-8") from None


def decoded(text: str) -> bytes:
    """Base64. Raises AuthenticationFailed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed(reason="a SCRAM message with bad base64") from None


Find = Callable[[str], "Credential | None"]
"""The credential of a name in this mechanism."""


class TokenLogin(NamedTuple):
    """A delegation token that somebody shows (KIP-48)."""

    owner: str
    """The name of the user it stands for."""
    expires_at_s: float
    credential: Callable[[], Credential]
    """Makes what the login is checked by, which takes milliseconds."""


FindToken = Callable[[str], "TokenLogin | None"]
"""The token of an id, if it is valid."""


def _no_tokens(token_id: str) -> TokenLogin | None:
    return None


class ScramServer:
    """Two messages in, two out; the second one proves that the server knows the user."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Find,
        made_up: Callable[[str], Credential],
        random_bytes: bytes,
        find_token: FindToken = _no_tokens,
    ) -> None:
        """`made_up` gives a credential for unknown names; `random_bytes` are NONCE_BYTES."""
        self.user: str | None = None
        self.expires_at_s: float | None = None
        self.claimed: str | None = None
        """The name that the client gave, for the audit log."""
        self.by_token = False
        """Whether the client showed a delegation token, and no password of the user."""
        self._find_token = find_token
        self._token: TokenLogin | None = None
        self._mechanism = mechanism
        self._find = find
        self._made_up = made_up
        self._own_nonce = nonce_text(random_bytes)
        self._first: ClientFirst | None = None
        self._name: str | None = None
        """The name that was found; None if there is none."""
        self._credential = Credential(b"", b"", b"", 0)
        self._server_first = ""

    def takes_long(self, token: bytes) -> bool:
        """So does the first message of who shows a delegation token. The token is looked up here, and its credential is
        made by `step`, which then may run in a thread."""
        if self._first is not None or b"tokenauth" not in token[:MESSAGE_BYTES_MAX]:
            return False
        try:
            first = parse_client_first(token)
        except AuthenticationFailed:
            return False  # `step` says why
        if not shows_token(first):
            return False
        self._token = self._find_token(first.name)
        return self._token is not None

    def step(self, token: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        if self.user is not None:
            raise AuthenticationFailed(reason="a SCRAM message after the last one")
        return self._begin(token) if self._first is None else self._end(self._first, token)

    def _begin(self, token: bytes) -> bytes:
        self._first = first = parse_client_first(token)
        self.claimed = first.name
        if first.authorization_id not in ("", first.name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        found = self._found(first)
        if found is None:
            self._credential = self._made_up(first.name)
        else:
            self._name, self._credential = found
        salt = base64.b64encode(self._credential.salt).decode()
        self._server_first = f"r={first.nonce}{self._own_nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode()

    def _found(self, first: ClientFirst) -> tuple[str, Credential] | None:
        """The name as it is stored, with its credential: the name as it was sent, else its prepared form."""
        if shows_token(first):  # an id is not the name of a user, though both may be the same text
            self.by_token = True
            shown = self._token
            if shown is None:
                return None
            self.expires_at_s = shown.expires_at_s
            return shown.owner, shown.credential()
        try:
            prepared = saslprep(first.name)
        except ValueError:
            prepared = first.name
        for name in dict.fromkeys((first.name, prepared)):
            found = self._find(name)
            if found is not None:
                return name, found
        return None

    def _end(self, first: ClientFirst, token: bytes) -> bytes:
        match = _CLIENT_FINAL.fullmatch(_text(token))
        if match is None:
            raise AuthenticationFailed(reason="the final SCRAM message cannot be read")
        if not hmac.compare_digest(match["nonce"].encode(), (first.nonce + self._own_nonce).encode()):
            raise AuthenticationFailed(reason="the nonce of the final SCRAM message is another one")
        if decoded(match["binding"]) != first.header.encode():
            raise AuthenticationFailed(reason="the channel binding of the final SCRAM message is another one")
        mechanism, known = self._mechanism, self._credential
        proof = decoded(match["proof"])
        if len(proof) != mechanism.digest_bytes:
            raise AuthenticationFailed(reason=f"a SCRAM proof of {len(proof)} bytes")
        text = f"{first.bare},{self._server_first},{match['without_proof']}".encode()
        shown = xor(proof, keyed(mechanism, known.stored_key, text))
        is_right = hmac.compare_digest(hashed(mechanism, shown), known.stored_key)
        if not is_right or self._name is None:
            what = "token" if self.by_token else "name"
            raise AuthenticationFailed(reason="a wrong password" if self._name is not None else f"an unknown {what}")
        self.user = self._name
        return b"v=" + base64.b64encode(keyed(mechanism, known.server_key, text))
