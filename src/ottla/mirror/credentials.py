"""SCRAM users as a metadata log has them, and fingerprints of their credentials. No request gives the keys of a user
away, so a mirror reads the log itself (`users.py`). Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer, LeaderEpoch, Offset
from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.metadata_records import FRAME_VERSION, decode_record
from ottla.protocol.records.record_batch import (
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from ottla.protocol.schemas.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.security.sasl.scram import BY_NAME, BY_NUMBER, Credential

_WANTED: Final = frozenset(
    schemas.schema(each.__name__).api_key
    for each in (
        UserScramCredentialRecord, RemoveUserScramCredentialRecord, BeginTransactionRecord, EndTransactionRecord,
        AbortTransactionRecord,
    )
)  # fmt: skip
"""Kinds of records that are decoded; a newer release may have others that are not known here."""
_DIGEST_BYTES: Final = 16


class User(NamedTuple):
    """One way of a user to log in."""

    name: str
    mechanism: str


class Carried(NamedTuple):
    """What a change of a user sets: the credential as it is stored, None where it is removed."""

    user: User
    credential: Credential | None = None


class Fingerprint(NamedTuple):
    """Tells whether a credential is the one that was carried. No key can be computed from it."""

    salt: str
    digest: str

    def fits(self, user: User, credential: Credential) -> bool:
        return hmac.compare_digest(self.digest, fingerprint(user, credential, self.salt).digest)


def fingerprint(user: User, credential: Credential, salt: str) -> Fingerprint:
    """The fingerprint with a random `salt` (hex)."""
    parts = (
        user.name.encode("utf-8", "surrogatepass"),
        user.mechanism.encode(),
        credential.salt,
        credential.stored_key,
        credential.server_key,
        str(credential.iterations).encode(),
    )
    text = b"".join(len(each).to_bytes(4, "big") + each for each in parts)
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES, key=bytes.fromhex(salt)).hexdigest()
    return Fingerprint(salt, digest)


def number_of(user: User) -> int:
    """The number of the mechanism in requests (KIP-554)."""
    return BY_NAME[user.mechanism].number


class UserLog:
    """Replays the users of one metadata log. Its methods raise KafkaError for what cannot be read."""

    def __init__(self) -> None:
        self.users: dict[User, Credential] = {}
        self.offset: Offset = 0
        """Where to read on. All before it was committed."""
        self.epoch: LeaderEpoch = 0
        """Epoch of the last record before `offset`, 0 for none."""
        self._transaction: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] | None = None
        """Records of a transaction that has not ended yet; they count only once it has (KIP-868)."""

    def add(self, records: Buffer, high_watermark: Offset) -> None:
        """Batches of the log from `offset` on, of which only those below the high watermark count."""
        for position, header in iterate_batches(records):
            if header.last_offset >= high_watermark:
                return
            if header.last_offset < self.offset:
                continue
            self._replay(records, position, header)
            self.offset, self.epoch = header.next_offset, header.leader_epoch

    def add_snapshot(self, pieces: Buffer) -> int:
        """Whole batches at the beginning of `pieces` of a snapshot; returns their size. The log is to be empty before,
        and `placed` afterwards."""
        size = 0
        for position, header in iterate_batches(pieces):
            self._replay(pieces, position, header)
            size = position + header.size
        return size

    def placed(self, end_offset: Offset, epoch: LeaderEpoch) -> None:
        """The snapshot that was added ends there."""
        self.offset, self.epoch = end_offset, epoch

    def _replay(self, batch: Buffer, position: int, header: BatchHeader) -> None:
        if not crc_is_valid(batch, position, header):
            raise CorruptBatch(f"the metadata log at offset {header.base_offset}: the CRC is wrong")
        if header.is_control:  # of the quorum
            return
        for record in iterate_records(batch, position):
            for each in _decoded(record.value):
                self._take(each)

    def _take(self, record: object) -> None:
        if isinstance(record, BeginTransactionRecord):
            self._transaction = []
        elif isinstance(record, AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, EndTransactionRecord):
            done, self._transaction = self._transaction, None
            for each in done or ():
                self._set(each)
        elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
            if self._transaction is None:
                self._set(record)
            else:
                self._transaction.append(record)

    def _set(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        mechanism = BY_NUMBER.get(record.mechanism)
        if mechanism is None:  # of a newer release: nobody could log in with it here
            return
        user = User(record.name, mechanism.name)
        if isinstance(record, RemoveUserScramCredentialRecord):
            self.users.pop(user, None)
        else:
            self.users[user] = Credential(record.salt, record.stored_key, record.server_key, record.iterations)


def _decoded(value: Buffer | None) -> Iterator[object]:
    """The record, if it is about users or begins or ends a transaction."""
    if value is None or len(value) < 3:
        raise KafkaError(ErrorCode.corrupt_message, "a record of the metadata log is too short")
    if value[0] != FRAME_VERSION:
        raise KafkaError(ErrorCode.unsupported_version, f"metadata records with frame version {value[0]}")
    if value[1] in _WANTED:
        try:
            yield decode_record(value)[0]
        except MalformedRecord as error:
            raise KafkaError(ErrorCode.unsupported_version, f"a user of the metadata log: {error}") from None
