"""The control records of the metadata log and its snapshots, and the file that keeps a voter's promises.

A control record has a four-byte key (version 0, type) and a message whose first field is its version again
(Kafka's `ControlRecordUtils`). `quorum-state` is the same kind of message as JSON (`QuorumStateData`).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.model import METADATA_TOPIC, ZERO_UUID, Buffer, uuid_from_base64, uuid_to_base64
from ottla.protocol.internal.codec import MalformedRecord, decode, encode
from ottla.protocol.schemas.records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

_KEY: Final = struct.Struct(">hh")


CONTROL_TYPES: Final[dict[type, int]] = {
    LeaderChangeMessage: 2,
    SnapshotHeaderRecord: 3,
    SnapshotFooterRecord: 4,
    KRaftVersionRecord: 5,
    VotersRecord: 6,
}
_CLASSES: Final[dict[int, type]] = {number: cls for cls, number in CONTROL_TYPES.items()}


def encode_control(record: Any) -> tuple[bytes, bytes]:
    """(key, value) of a control record; its own `version` field says in which version it is written."""
    return _KEY.pack(0, CONTROL_TYPES[type(record)]), encode(record, record.version)


def decode_control(key: Buffer, value: Buffer) -> Any:
    """The control record of a key and a value; None for a type that concerns no metadata log (abort, commit, unknown).

    Raises MalformedRecord.
    """
    try:
        _, number = _KEY.unpack_from(key)
        (version,) = struct.unpack_from(">h", value)
    except struct.error as error:
        raise MalformedRecord(f"truncated control record: {error}") from error
    cls = _CLASSES.get(number)
    return None if cls is None else decode(cls, version, value)


@dataclass(frozen=True, slots=True)
class QuorumStateFile:
    """Contents of `quorum-state`: what this node must not forget, or it could vote twice in an epoch.

    `data_version` 0 is written while `kraft.version` is 0, with the voters; version 1 with the directory voted for.
    """

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = -1
    voted_directory_id: UUID = ZERO_UUID
    voters: tuple[int, ...] = ()
    data_version: int = 1


def encode_quorum_state(state: QuorumStateFile) -> bytes:
    """JSON with the field order and the spacing of Kafka's `FileQuorumStateStore`."""
    fields: dict[str, Any]
    if state.data_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_base64(state.voted_directory_id),
        }
    fields["data_version"] = state.data_version
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumStateFile:
    """Raises MalformedRecord: a node that has forgotten its vote must not guess it."""
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise MalformedRecord(f"quorum-state of {METADATA_TOPIC} has data_version {version}")
        directory = fields.get("votedDirectoryId")
        return QuorumStateFile(
            leader_id=fields["leaderId"],
            leader_epoch=fields["leaderEpoch"],
            voted_id=fields["votedId"],
            voted_directory_id=ZERO_UUID if directory is None else uuid_from_base64(directory),
            voters=tuple(voter["voterId"] for voter in fields.get("currentVoters") or ()),
            data_version=version,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedRecord(f"quorum-state is not readable: {error}") from error
