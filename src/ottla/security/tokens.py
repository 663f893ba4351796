"""Delegation tokens (KIP-48, KIP-373): an id that anybody may see, and an HMAC of it that only nodes can make.

Who shows both, by SCRAM with the extension `tokenauth=true`, is the token's owner. The HMAC is in no record, log or
dump: every node makes it from the id and `delegation.token.secret.key`, as Kafka's do.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Generator, Mapping
from typing import Any, Final, Protocol

from ottla.config.secret import Secret
from ottla.security.sasl import scram

HMACS_PER_STEP: Final = 64
"""One costs two microseconds."""


class Token(Protocol):
    """A `DelegationTokenRecord`, which is all that the metadata says of a token."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


def hmac_of(secret: Secret, token_id: str) -> bytes:
    """What proves that somebody was given a token. HmacSHA512, as `DelegationTokenManager.createHmac`."""
    return hmac.digest(secret.encode(), token_id.encode("utf-8", "surrogatepass"), "sha512")


def password_of(secret: Secret, token_id: str) -> Secret:
    """The HMAC as clients give it for a password."""
    return Secret(base64.b64encode(hmac_of(secret, token_id)).decode())


def credential_of(mechanism: scram.ScramMechanism, secret: Secret, token_id: str) -> scram.Credential:
    """What a login with a token is checked by: 2 to 4 ms of a processor. All nodes have the same salt, so that a client
    learns nothing by asking two of them."""
    text = f"salt of a token\0{mechanism.name}\0{token_id}".encode("utf-8", "surrogatepass")
    salt = scram.nonce_text(scram.keyed(mechanism, secret.encode(), text)[: scram.NONCE_BYTES]).encode()
    salted = scram.salted_password(mechanism, password_of(secret, token_id)[:], salt, scram.ITERATIONS_MIN)
    return scram.credential(mechanism, salted, salt, scram.ITERATIONS_MIN)


def is_expired(token: Token, now_ms: int) -> bool:
    """Whether nobody can log in or renew with it any more, though it may still be in the metadata."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def may_renew(token: Token, principal: str) -> bool:
    """Whether it belongs to them, or they were named when it was made."""
    return principal == token.owner or principal in token.renewers


def may_see(token: Token, principal: str) -> bool:
    """Whether it is shown to them without an ACL: who asked for it sees it too (`TokenInformation.ownerOrRenewer`)."""
    return principal == token.requester or may_renew(token, principal)


class TokenFinder:
    """Finds tokens by their HMAC, which requests name them by. It remembers HMACs, not tokens."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._ids: dict[bytes, str] = {}
        self._known: dict[str, bytes] = {}

    def find(self, tokens: Mapping[str, Any], shown: bytes) -> Generator[None, None, Any | None]:
        """The token of an HMAC among those of an image. Yields now and then: the first look makes all HMACs."""
        token_id = self._ids.get(shown)
        if token_id is None:
            for number, gone in enumerate([each for each in self._known if each not in tokens], start=1):
                del self._ids[self._known.pop(gone)]
                if number % HMACS_PER_STEP == 0:
                    yield
            for number, new in enumerate([each for each in tokens if each not in self._known], start=1):
                made = self._known[new] = hmac_of(self._secret, new)
                self._ids[made] = new
                if number % HMACS_PER_STEP == 0:
                    yield
            token_id = self._ids.get(shown)
        return None if token_id is None else tokens.get(token_id)
