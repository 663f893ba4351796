"""Takes an id for a new node where all can see it, at the controller, before anything is written for the node.

Several nodes may be added at once, by hosts that share nothing but the cluster. A registration alone does not tell who
was first, as a later one with another incarnation takes its place until the first heartbeat. The command that gets a
heartbeat through has the id for a session, and others are refused (KIP-631). The node then registers as that same
incarnation.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from ottla.cli import wire
from ottla.cli.cluster.voters import quorum_of
from ottla.cli.exits import FAILED, CommandFailed
from ottla.errors import ErrorCode
from ottla.metadata.image import Endpoint
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.client.security import Security

NAMES_DIRECTORIES = 2
"""Version of BrokerRegistration; controllers before Kafka 3.7 have none, and are not asked."""
TRIES_MAX = 100
"""Ids that others take meanwhile; and the times that the controller may move."""
POLL_S = 0.1
LOCK_S_MAX = 120.0
_MOVED = frozenset({ErrorCode.not_controller, ErrorCode.request_timed_out, ErrorCode.network_exception})
_TAKEN = frozenset({ErrorCode.duplicate_broker_registration, ErrorCode.stale_broker_epoch})


@dataclass(frozen=True)
class Claim:
    incarnation_id: UUID | None
    """The incarnation id that the node must register with; None if the controllers are too old to be asked."""


def claim(
    bootstrap: str, cluster_id: str, wanted: int, endpoints: Mapping[str, Endpoint], node: Security | None = None
) -> Claim | None:
    """Take an id for this command; None where another node has it. `node` is how the new node connects to controllers,
    who know nodes by their certificates, and not the administrator who runs this. Raises CommandFailed."""
    incarnation_id = uuid4()
    for _ in range(TRIES_MAX):
        address = _controller(bootstrap, cluster_id)
        if wire.version_max(address, ApiKey.BROKER_REGISTRATION, node) < NAMES_DIRECTORIES:
            return Claim(None)
        code = _claim_at(address, cluster_id, wanted, endpoints, incarnation_id, node)
        if code in _TAKEN:
            return None
        if not code:
            return Claim(incarnation_id)
        if code not in _MOVED:
            raise wire.failure_of(code, f"node {wanted} cannot be registered: ")
        time.sleep(POLL_S)
    raise wire.failure_of(ErrorCode.not_controller, f"node {wanted} cannot be registered: ")


def _claim_at(
    address: str,
    cluster_id: str,
    wanted: int,
    endpoints: Mapping[str, Endpoint],
    incarnation_id: UUID,
    node: Security | None,
) -> int:
    """The error code of the two requests."""
    from ottla.drivers.metadata.broker_lifecycle import listeners_and_features

    registration = {
        "broker_id": wanted,
        "cluster_id": cluster_id,
        "incarnation_id": incarnation_id,
        **listeners_and_features(endpoints),
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": (uuid4(),),  # the node names its own when it registers
    }
    answer = wire.ask(address, ApiKey.BROKER_REGISTRATION, registration, secured=node)
    if answer["error_code"]:
        return int(answer["error_code"])
    beat = {
        "broker_id": wanted,
        "broker_epoch": answer["broker_epoch"],
        "current_metadata_offset": 0,
        "want_fence": True,
        "want_shut_down": False,
    }
    return int(wire.ask(address, ApiKey.BROKER_HEARTBEAT, beat, secured=node)["error_code"])


def _controller(bootstrap: str, cluster_id: str) -> str:
    """Where the leader of the quorum listens. Raises CommandFailed."""
    quorum: Mapping[str, Any] = quorum_of(bootstrap)
    leader = quorum["topics"][0]["partitions"][0]["leader_id"]
    for node in quorum["nodes"] or ():
        for place in node["listeners"][:1] if node["node_id"] == leader else ():
            return wire.node_address(place["host"], place["port"], leader, cluster_id)
    raise wire.failure_of(ErrorCode.leader_not_available, "the quorum")


@contextmanager
def one_at_a_time(say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Nodes that are added on this machine at once look for free ports one after the other: until the first listens, or
    until what is given is called. Raises CommandFailed."""
    path = os.path.join(tempfile.gettempdir(), f"ottla-cluster-add-{os.getuid()}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def release() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # for the processes that were forked meanwhile, too

    try:
        _lock(descriptor, say)
        yield release
    finally:
        release()
        os.close(descriptor)


def _lock(descriptor: int, say: Callable[[str], None]) -> None:
    deadline, told = time.monotonic() + LOCK_S_MAX, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() > deadline:
                raise CommandFailed("another `ottla cluster add` on this machine does not finish", FAILED) from error
            if not told:
                say("waiting for another node to be added on this machine")
                told = True
            time.sleep(POLL_S)
        else:
            return
