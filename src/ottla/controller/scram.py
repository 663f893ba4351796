"""AlterUserScramCredentials, decided as by Kafka's `ScramControlManager`, and Ottla's StoreUserScramCredentials.

A user may come once in a request, whatever the mechanisms: a second time is DUPLICATE_RESOURCE, and neither counts.
Credentials to be stored as they are may come once for each mechanism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.security.sasl import scram

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

TWICE: Final = "A user credential cannot be altered twice in the same request"

Record = UserScramCredentialRecord | RemoveUserScramCredentialRecord


def alter_scram_credentials(
    image: MetadataImage, request: sent.AlterUserScramCredentialsRequest
) -> Steps[sent.AlterUserScramCredentialsResponse]:
    """One row for each user: first what changes, then what is refused."""
    records: dict[str, Record] = {}
    refused: dict[str, KafkaError] = {}
    changes = [(_removed, each) for each in request["deletions"]] + [(_stored, each) for each in request["upsertions"]]
    for index, (change, asked) in enumerate(changes, start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        name = asked["name"]
        if name in refused:
            continue
        if records.pop(name, None) is not None:
            refused[name] = KafkaError(ErrorCode.duplicate_resource, TWICE)
            continue
        try:
            records[name] = change(image, asked)
        except KafkaError as error:
            refused[name] = error.with_traceback(None)  # which would keep the request
    results: list[sent.AlterUserScramCredentialsResult] = [
        {"user": name, "error_code": ErrorCode.none, "error_message": None} for name in records
    ]
    results += [
        {"user": name, "error_code": error.code, "error_message": error.message} for name, error in refused.items()
    ]
    return Decision({"results": results}, list(records.values()))


def store_scram_credentials(
    image: MetadataImage, request: sent.StoreUserScramCredentialsRequest
) -> Steps[sent.StoreUserScramCredentialsResponse]:
    """One row for each row of the request, in its order."""
    times: dict[tuple[str, int], int] = Counter()
    for index, each in enumerate(request["credentials"], start=1):
        times[each["name"], each["mechanism"]] += 1
        if index % ITEMS_PER_STEP == 0:
            yield
    records: list[Record] = []
    results: list[sent.StoreUserScramCredentialsResult] = []
    for index, asked in enumerate(request["credentials"], start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        code, message = ErrorCode.none, None
        try:
            if times[asked["name"], asked["mechanism"]] > 1:
                raise KafkaError(ErrorCode.duplicate_resource, TWICE)
            records.append(_as_it_is(image, asked))
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(
            {"user": asked["name"], "mechanism": asked["mechanism"], "error_code": code, "error_message": message}
        )
    return Decision({"results": results}, records)


def _mechanism(image: MetadataImage, asked: Mapping[str, Any]) -> scram.ScramMechanism:
    """Raises KafkaError."""
    if not asked["name"]:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = scram.BY_NUMBER.get(asked["mechanism"])
    if mechanism is None:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if not features.supports_scram(image.features):
        raise KafkaError(
            ErrorCode.unsupported_version, "The current metadata version does not support SCRAM credentials"
        )
    return mechanism


def _removed(image: MetadataImage, asked: Mapping[str, Any]) -> Record:
    mechanism = _mechanism(image, asked)
    if (asked["name"], mechanism.number) not in image.scram_credentials:
        raise KafkaError(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(asked["name"], mechanism.number)


def _stored(image: MetadataImage, asked: Mapping[str, Any]) -> Record:
    mechanism = _mechanism(image, asked)
    iterations = _iterations(asked)
    if not asked["salted_password"]:
        raise KafkaError(ErrorCode.unacceptable_credential, "The salted password must not be empty")
    stored = scram.credential(mechanism, asked["salted_password"], asked["salt"], iterations)
    return record_of(mechanism, asked["name"], stored)


def _as_it_is(image: MetadataImage, asked: sent.StoredScramCredential) -> Record:
    """The record of a credential that another cluster has stored. Raises KafkaError."""
    mechanism = _mechanism(image, asked)
    iterations = _iterations(asked)
    if not asked["salt"]:
        raise KafkaError(ErrorCode.unacceptable_credential, "The salt must not be empty")
    if {len(asked["stored_key"]), len(asked["server_key"])} != {mechanism.digest_bytes}:
        what = f"Keys of {mechanism.name} have {mechanism.digest_bytes} bytes"
        raise KafkaError(ErrorCode.unacceptable_credential, what)
    stored = scram.Credential(bytes(asked["salt"]), bytes(asked["stored_key"]), bytes(asked["server_key"]), iterations)
    return record_of(mechanism, asked["name"], stored)


def _iterations(asked: Mapping[str, Any]) -> int:
    """Raises KafkaError."""
    iterations: int = asked["iterations"]
    if iterations < scram.ITERATIONS_MIN:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > scram.ITERATIONS_MAX:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    return iterations


def record_of(mechanism: scram.ScramMechanism, name: str, stored: scram.Credential) -> UserScramCredentialRecord:
    """The record of a user's credential."""
    return UserScramCredentialRecord(
        name, mechanism.number, stored.salt, stored.stored_key, stored.server_key, stored.iterations
    )
