"""AlterUserScramCredentials, decided as by Kafka's `ScramControlManager`.

A user may come once in a request, whatever the mechanisms: a second time is DUPLICATE_RESOURCE, and neither counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
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
    iterations = asked["iterations"]
    if iterations < scram.ITERATIONS_MIN:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > scram.ITERATIONS_MAX:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    if not asked["salted_password"]:
        raise KafkaError(ErrorCode.unacceptable_credential, "The salted password must not be empty")
    stored = scram.credential(mechanism, asked["salted_password"], asked["salt"], iterations)
    return record_of(mechanism, asked["name"], stored)


def record_of(mechanism: scram.ScramMechanism, name: str, stored: scram.Credential) -> UserScramCredentialRecord:
    """The record of a user's credential."""
    return UserScramCredentialRecord(
        name, mechanism.number, stored.salt, stored.stored_key, stored.server_key, stored.iterations
    )
