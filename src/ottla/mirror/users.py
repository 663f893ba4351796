"""Reads the SCRAM users of a source with their keys: Fetch and FetchSnapshot of the metadata log at a controller, as an
observer of the quorum does (KIP-595, KIP-630). The source is a Kafka in KRaft mode or an Ottla; either wants
CLUSTER_ACTION for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.cluster import Retry
from ottla.client.config import ClientConfig, split_address
from ottla.client.connection import Connection
from ottla.client.security import SecurityFailure
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.credentials import User, UserLog
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, Offset
from ottla.protocol.messages import ApiKey
from ottla.security.sasl.scram import Credential

FETCH_VERSIONS: Final = (13, 17)
"""Topics have ids from 13 on."""
SNAPSHOT_VERSIONS: Final = (0, 1)
PIECE_BYTES: Final = 8 << 20
"""Bytes of one answer; a batch of the metadata log has no more."""
UNREAD_BYTES_MAX: Final = 64 << 20
"""Limit of a batch of a snapshot."""
OBSERVER: Final = -1
"""A replica without an id: the leader counts it for nothing."""
_ELSEWHERE: Final = frozenset({
    ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch, ErrorCode.not_leader_or_follower,
    ErrorCode.broker_not_available,
})  # fmt: skip
"""Another one leads, or this one does not know yet who does."""
_WHY: Final = {
    ErrorCode.cluster_authorization_failed: "reading users takes CLUSTER_ACTION on the source's cluster",
    ErrorCode.inconsistent_cluster_id: "it is a controller of another cluster than the source's brokers",
}


class _Elsewhere(Exception):
    """Ask another controller, or this one with another epoch."""


class SourceUsers:
    """The users of one cluster. The first `read` reads all of its metadata log, the next ones what is new. Of one
    thread."""

    def __init__(self, config: ClientConfig, cluster_id: str | None) -> None:
        """The bootstrap addresses of `config` are controllers. Connects when first asked."""
        self._config = config
        self._cluster_id = cluster_id
        self._log = UserLog()
        self._epoch: LeaderEpoch = 0
        self._leader: tuple[str, int] | None = None
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self) -> Mapping[User, Credential]:
        """The users that are committed now. Raises KafkaError, SecurityFailure, OSError."""
        retry = Retry(self._config.request_timeout_s)
        while True:
            failure: Exception = KafkaError(ErrorCode.not_controller, "no controller says that it leads")
            forbidden: SecurityFailure | None = None
            for address in self._addresses():
                try:
                    self._read_from(address)
                    return dict(self._log.users)
                except _Elsewhere:
                    pass
                except SecurityFailure as error:
                    forbidden = error
                except OSError as error:
                    failure = error
                self.close()
            if forbidden is not None:
                raise forbidden
            if not retry.again():
                raise failure

    def _addresses(self) -> list[tuple[str, int]]:
        """The leader first, and once more behind the others: one of them may have said who leads."""
        all_ = list(map(split_address, self._config.bootstrap))
        return [*([self._leader] if self._leader else all_[:1]), *all_]

    def _read_from(self, address: tuple[str, int]) -> None:
        if self._connection is None or self._leader != address:
            self.close()
            self._connection = Connection(*address, self._config)
        target: Offset | None = None
        retry = Retry(self._config.request_timeout_s)
        while target is None or self._log.offset < target:
            before = self._log.offset
            row = self._fetch(self._connection)
            self._leader = address
            if row["diverging_epoch"]["epoch"] >= 0:  # the source has lost records, or is another one now
                self._log = UserLog()
                continue
            if row["snapshot_id"]["epoch"] >= 0:
                self._load(self._connection, row["snapshot_id"])
                continue
            high_watermark = row["high_watermark"]
            if high_watermark >= 0:
                target = high_watermark if target is None else target
                self._log.add(memoryview(row["records"] or b""), high_watermark)
            is_stuck = high_watermark < 0 or self._log.offset == before < high_watermark
            if is_stuck and not retry.again():  # a new leader does not know at once what is committed
                raise _Elsewhere

    def _fetch(self, connection: Connection) -> Mapping[str, Any]:
        asked = {
            "partition": 0,
            "current_leader_epoch": self._epoch,
            "fetch_offset": self._log.offset,
            "last_fetched_epoch": self._log.epoch,
            "partition_max_bytes": PIECE_BYTES,
        }
        values = {
            "cluster_id": self._cluster_id,
            "replica_id": OBSERVER,
            "replica_state": {"replica_id": OBSERVER, "replica_epoch": -1},
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": PIECE_BYTES,
            "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [asked]}],
        }
        version = connection.version(ApiKey.FETCH, *FETCH_VERSIONS)
        answer = connection.ask(ApiKey.FETCH, version, values)
        _check(connection, answer["error_code"])
        row = _only(answer["responses"])
        self._heard(row, answer.get("node_endpoints") or ())
        if row["error_code"] == ErrorCode.offset_out_of_range:
            self._log = UserLog()
            raise _Elsewhere
        _check(connection, row["error_code"])
        return row

    def _heard(self, row: Mapping[str, Any], endpoints: Any) -> None:
        """Take the epoch and the leader from an answer. Raises _Elsewhere where another one leads."""
        leader = row["current_leader"]
        if leader["leader_epoch"] > self._epoch:
            self._epoch = leader["leader_epoch"]
        if row["error_code"] in _ELSEWHERE:
            at = {each["node_id"]: (each["host"], each["port"]) for each in endpoints}
            self._leader = at.get(leader["leader_id"], self._leader)
            raise _Elsewhere

    def _load(self, connection: Connection, snapshot: Mapping[str, int]) -> None:
        """Start over from a snapshot."""
        log, unread, position = UserLog(), bytearray(), 0
        while True:
            asked = {
                "partition": 0,
                "current_leader_epoch": self._epoch,
                "position": position,
                "snapshot_id": {"end_offset": snapshot["end_offset"], "epoch": snapshot["epoch"]},
            }
            values = {
                "cluster_id": self._cluster_id,
                "replica_id": OBSERVER,
                "max_bytes": PIECE_BYTES,
                "topics": [{"name": METADATA_TOPIC, "partitions": [asked]}],
            }
            version = connection.version(ApiKey.FETCH_SNAPSHOT, *SNAPSHOT_VERSIONS)
            answer = connection.ask(ApiKey.FETCH_SNAPSHOT, version, values)
            _check(connection, answer["error_code"])
            row = _only(answer["topics"])
            self._heard(row, answer.get("node_endpoints") or ())
            if row["error_code"] == ErrorCode.snapshot_not_found:  # there is a newer one
                raise _Elsewhere
            _check(connection, row["error_code"])
            piece = row["unaligned_records"] or b""
            position += len(piece)
            unread += piece
            del unread[: log.add_snapshot(bytes(unread))]
            if position >= row["size"] and not unread:
                break
            if not piece or len(unread) > UNREAD_BYTES_MAX:
                what = f"{connection.address}: a snapshot that ends within a batch"
                raise KafkaError(ErrorCode.corrupt_message, what)
        log.placed(snapshot["end_offset"], snapshot["epoch"])
        self._log = log


def _check(connection: Connection, code: int) -> None:
    """Raises KafkaError."""
    if code:
        error = ErrorCode(code)
        why = _WHY.get(error, "it does not let the metadata log be read")
        raise KafkaError(error, f"{connection.address}: {why}")


def _only(topics: Any) -> Mapping[str, Any]:
    """The one partition of an answer. Raises KafkaError."""
    if len(topics) != 1 or len(topics[0]["partitions"]) != 1:
        raise KafkaError(ErrorCode.network_exception, "an answer about other logs than was asked for")
    row: Mapping[str, Any] = topics[0]["partitions"][0]
    return row
