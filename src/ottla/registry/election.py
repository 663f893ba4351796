"""Elects the instance that writes in a Kafka group, as Confluent's registry does.

Instances join the group `schema-registry` with the protocol type `sr`; each says where it is. The member that the
coordinator calls leader chooses the one that writes: the one that does already, or else the one with the smallest URL.
An instance that has not had an answer to a heartbeat for a session does not take itself for the leader any more; what
keeps two from writing is not this, but the transactional id behind `store.Writer`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.client.cluster import GROUP, Cluster
from ottla.client.config import ClientConfig
from ottla.client.connection import Connection
from ottla.client.security import PLAINTEXT, Security
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.protocol.messages import ApiKey

_LOG = logging.getLogger("ottla.registry")

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
SESSION_MS: Final = 10_000
HEARTBEAT_S: Final = 1.0
REBALANCE_MS: Final = 10_000
"""How long members are waited for that have not joined again."""
PAUSE_S: Final = 0.2
"""After a failure."""
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
_VERSIONS: Final = {
    ApiKey.JOIN_GROUP: (5, 5),
    ApiKey.SYNC_GROUP: (3, 3),
    ApiKey.HEARTBEAT: (3, 3),
    ApiKey.LEAVE_GROUP: (3, 3),
}
_DROPPED: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id})


@dataclass(frozen=True)
class Identity:
    """An instance, as it introduces itself to the others (`SchemaRegistryIdentity`)."""

    host: str
    port: int
    scheme: str = "http"
    is_eligible: bool = True
    is_leader: bool = False
    version: int = 1

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": self.is_leader,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Identity:
        """Raises KeyError, TypeError, ValueError."""
        return cls(
            str(found["host"]),
            int(found["port"]),
            str(found.get("scheme") or "http"),
            bool(found.get("master_eligibility", True)),
            bool(found.get("leader", False)),
            int(found.get("version", 1)),
        )


def choose(members: Mapping[str, Identity]) -> dict[str, Any]:
    """The assignment that all members are given, from what each has said of itself."""
    eligible = {name: each for name, each in members.items() if each.is_eligible}
    leading = [name for name, each in eligible.items() if each.is_leader]
    by_url = sorted(eligible, key=lambda name: (eligible[name].url, name))
    chosen = leading[0] if len(leading) == 1 else by_url[0] if by_url else None
    urls = {each.url for each in members.values()}
    assignment: dict[str, Any] = {"version": 1, "error": NO_ERROR if len(urls) == len(members) else DUPLICATE_URLS}
    if chosen is not None:
        assignment |= {"master": chosen, "master_identity": replace(members[chosen], is_leader=True).as_json()}
    return assignment


class Election:
    """One instance's membership, in a thread of its own."""

    def __init__(
        self,
        bootstrap: tuple[str, ...],
        group: str,
        identity: Identity,
        on_change: Callable[[bool], None],
        security: Security = PLAINTEXT,
    ) -> None:
        """`on_change` is called with whether this instance is the leader, whenever that is decided."""
        self._group = group
        self._identity = identity
        self._on_change = on_change
        timeout_s = (REBALANCE_MS + SESSION_MS) / 1000
        self._cluster = Cluster(
            ClientConfig(bootstrap, client_id="schema-registry", request_timeout_s=timeout_s, security=security)
        )
        self._connection: Connection | None = None
        self._member_id = ""
        self._generation = -1
        self._is_chosen = False
        self._leader_url: str | None = None
        self._valid_until = 0.0
        """Monotonic: until then nobody else can have been chosen without this instance leaving."""
        self._stopping = threading.Event()
        self._decided = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schemas election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that another one is chosen at once."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(HEARTBEAT_S)

    def is_leader(self) -> bool:
        return self._is_chosen and time.monotonic() < self._valid_until

    def leader_url(self) -> str | None:
        """URL of the leader, if it is another instance."""
        return None if self._is_chosen else self._leader_url

    def wait_decided(self, timeout_s: float) -> bool:
        """Whether anybody is chosen, this instance or another."""
        return self._decided.wait(timeout_s)

    # The thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._join()
                while not self._stopping.wait(HEARTBEAT_S):
                    if not self._heartbeat():
                        break
            except (OSError, KafkaError) as error:
                self._failed(error)
                self._stopping.wait(PAUSE_S)
        self._leave()

    def _failed(self, error: OSError | KafkaError) -> None:
        _LOG.warning("the election of a leader is delayed", extra=fields(group=self._group, error=str(error)))
        if isinstance(error, KafkaError) and error.code in _DROPPED:
            self._member_id, self._generation = "", -1
        self._cluster.drop_coordinator(GROUP, self._group)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, api_key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            self._connection = self._cluster.connect(self._cluster.coordinator(GROUP, self._group))
        version = self._connection.version(api_key, *_VERSIONS[api_key])
        return self._connection.ask(api_key, version, values)

    def _join(self) -> None:
        """Until a generation has an assignment. Raises KafkaError, OSError."""
        while not self._stopping.is_set():
            me = replace(self._identity, is_leader=self._is_chosen)
            asked = {
                "group_id": self._group,
                "session_timeout": SESSION_MS,
                "rebalance_timeout": REBALANCE_MS,
                "member_id": self._member_id,
                "group_instance_id": None,
                "protocol_type": PROTOCOL_TYPE,
                "protocols": [{"name": PROTOCOL, "metadata": json.dumps(me.as_json()).encode()}],
            }
            answer = self._ask(ApiKey.JOIN_GROUP, asked)
            code = ErrorCode(answer["error_code"])
            if code is ErrorCode.member_id_required:  # KIP-394
                self._member_id = answer["member_id"]
                continue
            _check(code, "JoinGroup")
            self._member_id, self._generation = answer["member_id"], answer["generation_id"]
            asked_at = time.monotonic()
            assignment = self._sync(answer)
            if assignment is not None:
                self._valid_until = asked_at + SESSION_MS / 1000
                self._take(assignment)
                return

    def _sync(self, joined: Mapping[str, Any]) -> dict[str, Any] | None:
        """The assignment, which this member makes if the coordinator says so; None if the group has to join again."""
        assignments = []
        if joined["leader"] == self._member_id:
            members = {}
            for row in joined["members"]:
                with suppress(
                    ValueError, KeyError, TypeError
                ):  # a member that introduces itself otherwise is not chosen
                    members[row["member_id"]] = Identity.of_json(json.loads(row["metadata"]))
            chosen = json.dumps(choose(members)).encode()
            assignments = [{"member_id": row["member_id"], "assignment": chosen} for row in joined["members"]]
        asked = {**self._me(), "group_instance_id": None, "assignments": assignments}
        answer = self._ask(ApiKey.SYNC_GROUP, asked)
        code = ErrorCode(answer["error_code"])
        if code is ErrorCode.rebalance_in_progress:
            return None
        _check(code, "SyncGroup")
        found: dict[str, Any] = json.loads(answer["assignment"] or b"{}")
        return found

    def _take(self, assignment: Mapping[str, Any]) -> None:
        if assignment.get("error", NO_ERROR) != NO_ERROR:
            _LOG.error("instances have the same address: give each its own", extra=fields(url=self._identity.url))
        found = assignment.get("master_identity")
        self._leader_url = Identity.of_json(found).url if found else None
        self._is_chosen = assignment.get("master") == self._member_id
        _LOG.info("leader elected", extra=fields(leader=self._leader_url, is_me=self._is_chosen))
        self._decided.set()
        self._on_change(self._is_chosen)

    def _heartbeat(self) -> bool:
        """False when the group has to join again. Raises KafkaError, OSError."""
        sent_at = time.monotonic()
        answer = self._ask(ApiKey.HEARTBEAT, {**self._me(), "group_instance_id": None})
        code = ErrorCode(answer["error_code"])
        if code is ErrorCode.none or code is ErrorCode.rebalance_in_progress:
            self._valid_until = sent_at + SESSION_MS / 1000
            return code is ErrorCode.none
        _check(code, "Heartbeat")
        return False

    def _me(self) -> dict[str, Any]:
        return {"group_id": self._group, "generation_id": self._generation, "member_id": self._member_id}

    def _leave(self) -> None:
        self._is_chosen = False
        if self._member_id:
            member = {"member_id": self._member_id, "group_instance_id": None}
            with suppress(OSError, KafkaError):
                self._ask(ApiKey.LEAVE_GROUP, {"group_id": self._group, "members": [member]})
        if self._connection is not None:
            self._connection.close()
        self._cluster.close()


def _check(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise KafkaError(code, what)
