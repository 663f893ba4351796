"""Delegation tokens, decided as by Kafka's `DelegationTokenControlManager` (KIP-48, KIP-373).

A refusal is an answer with an error, not an exception, since CreateDelegationToken says in it who asked for whom.
Which connections may ask at all is decided by the handlers (`server/security/delegation_tokens.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.decision import NAMES_PER_STEP, Decision, Steps
from ottla.errors import ErrorCode
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.model import random_uuid, uuid_to_base64
from ottla.protocol.schemas.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.security.tokens import Token, hmac_of, is_expired, may_renew

if TYPE_CHECKING:
    from ottla.config.secret import Secret
    from ottla.controller.decision import Inputs
    from ottla.protocol.schemas import sent


Asked = Mapping[str, Any]

MOMENT_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970: the latest that every client can read."""
NO_TIMESTAMP: Final = -1
USER: Final = "User"


def principals_of(asked: Asked, requester: str) -> tuple[str, str]:
    """The owner of a token to be created, and who asks for it."""
    name = asked.get("owner_principal_name")
    return (f"{asked.get('owner_principal_type') or ''}:{name}" if name else str(requester)), str(requester)


def not_created(asked: Asked, requester: str, error: ErrorCode) -> sent.CreateDelegationTokenResponse:
    """The answer of CreateDelegationToken to who gets none."""
    return {**_said(*principals_of(asked, requester)), **NO_TOKEN, "error_code": error}


NO_TOKEN: sent.CreateDelegationTokenResponse = {
    "issue_timestamp": NO_TIMESTAMP, "expiry_timestamp": NO_TIMESTAMP, "max_timestamp": NO_TIMESTAMP, "token_id": "",
    "hmac": b"",
}  # fmt: skip


def create(
    image: MetadataImage, asked: sent.CreateDelegationTokenRequest, by: Inputs
) -> Decision[sent.CreateDelegationTokenResponse]:
    """A token for the requester, or for whom the requester may create them."""
    owner, requester = principals_of(asked, by.requester)
    secret, error = by.config.delegation_token_secret_key, _refusal(image, by)
    if error is None and any(each["principal_type"] != USER for each in asked["renewers"]):
        error = ErrorCode.invalid_principal_type
    if error is not None:  # with zeros where a handler has -1, as Kafka's controller
        return Decision(
            {
                **_said(owner, requester),
                "error_code": error,
                "issue_timestamp": 0,
                "expiry_timestamp": 0,
                "max_timestamp": 0,
                "token_id": "",
                "hmac": b"",
            }
        )
    assert secret is not None  # `by.tokens` is made of it
    now, lifetime = by.now_ms, by.config.delegation_token_max_lifetime_ms
    if asked["max_lifetime"] > 0:
        lifetime = min(lifetime, asked["max_lifetime"])
    latest = _moment(now + lifetime)
    expiry = min(latest, _moment(now + by.config.delegation_token_expiry_time_ms))
    token_id = uuid_to_base64(random_uuid(by.random))
    renewers = tuple(f"{each['principal_type']}:{each['principal_name']}" for each in asked["renewers"])
    record = DelegationTokenRecord(owner, requester, renewers, now, latest, expiry, token_id)
    response: sent.CreateDelegationTokenResponse = {
        **_said(owner, requester),
        "error_code": ErrorCode.none,
        "issue_timestamp": now,
        "expiry_timestamp": expiry,
        "max_timestamp": latest,
        "token_id": token_id,
        "hmac": hmac_of(secret, token_id),
    }
    return Decision(response, [record])


def renew(
    image: MetadataImage, asked: sent.RenewDelegationTokenRequest, by: Inputs
) -> Steps[sent.RenewDelegationTokenResponse]:
    """The token is valid for so much longer, but never beyond its end."""
    token, error = yield from _found(image, asked, by)
    if error is None and is_expired(token, by.now_ms):
        error = ErrorCode.delegation_token_expired
    if error is None and not may_renew(token, by.requester):
        error = ErrorCode.delegation_token_owner_mismatch
    if error is not None:
        return _refused(error)
    period = by.config.delegation_token_expiry_time_ms
    if asked["renew_period"] > 0:
        period = min(period, asked["renew_period"])
    return _until(token, by.now_ms + period)


def expire(
    image: MetadataImage, asked: sent.ExpireDelegationTokenRequest, by: Inputs
) -> Steps[sent.ExpireDelegationTokenResponse]:
    """The token ends now, with a negative period, or after one."""
    token, error = yield from _found(image, asked, by)
    if error is None and not may_renew(token, by.requester):
        error = ErrorCode.delegation_token_owner_mismatch
    period = asked["expiry_time_period"]
    if error is None and period >= 0 and is_expired(token, by.now_ms):
        error = ErrorCode.delegation_token_expired
    if error is not None:
        return _refused(error)
    if period < 0:
        response: sent.ExpireDelegationTokenResponse = {"error_code": ErrorCode.none, "expiry_timestamp": by.now_ms}
        return Decision(response, [RemoveDelegationTokenRecord(token.token_id)])
    return _until(token, by.now_ms + period)


def expired(image: MetadataImage, now_ms: int) -> Steps[bool]:
    """Remove the tokens that have ended. Nobody asks for it."""
    ended = []
    for number, token in enumerate(image.delegation_tokens.values(), start=1):
        if is_expired(token, now_ms):
            ended.append(RemoveDelegationTokenRecord(token.token_id))
        if number % NAMES_PER_STEP == 0:
            yield
    return Decision(False, ended, atomic=False)


def _refusal(image: MetadataImage, by: Inputs) -> ErrorCode | None:
    if by.tokens is None:
        return ErrorCode.delegation_token_auth_disabled
    if not features.supports_delegation_tokens(image.features):
        return ErrorCode.unsupported_version
    return None


def _found(image: MetadataImage, asked: Asked, by: Inputs) -> Any:
    """In steps: the token of the request and None, or None and what is wrong."""
    error = _refusal(image, by)
    if error is not None:
        return None, error
    assert by.tokens is not None
    token = yield from by.tokens.find(image.delegation_tokens, bytes(asked["hmac"]))
    return token, None if token is not None else ErrorCode.delegation_token_not_found


def _until(token: DelegationTokenRecord, at_ms: int) -> Decision[sent.RenewDelegationTokenResponse]:
    expiry = min(token.max_timestamp, _moment(at_ms))
    response: sent.RenewDelegationTokenResponse = {"error_code": ErrorCode.none, "expiry_timestamp": expiry}
    return Decision(response, [token.replaced(expiration_timestamp=expiry)])


def _refused(error: ErrorCode) -> Decision[sent.RenewDelegationTokenResponse]:
    return Decision({"error_code": error, "expiry_timestamp": 0})


def _said(owner: str, requester: str) -> sent.CreateDelegationTokenResponse:
    """Two principals as answers have them."""
    kind, _, name = owner.partition(":")
    requester_kind, _, requester_name = requester.partition(":")
    return {
        "principal_type": kind,
        "principal_name": name,
        "token_requester_principal_type": requester_kind,
        "token_requester_principal_name": requester_name,
    }


def said_of(token: Token, secret: Secret) -> sent.DescribedDelegationToken:
    """A token as DescribeDelegationToken tells of it."""
    renewers = [each.partition(":") for each in token.renewers]
    kind, _, name = token.owner.partition(":")
    requester_kind, _, requester_name = token.requester.partition(":")
    return {
        "principal_type": kind,
        "principal_name": name,
        "token_requester_principal_type": requester_kind,
        "token_requester_principal_name": requester_name,
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiration_timestamp,
        "max_timestamp": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": hmac_of(secret, token.token_id),
        "renewers": [{"principal_type": kind, "principal_name": name} for kind, _, name in renewers],
    }


def _moment(at_ms: int) -> int:
    return min(at_ms, MOMENT_MAX)
