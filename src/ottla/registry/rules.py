"""The cluster's ACLs, for an authorizer of the registry: asked every few seconds, decided here as a broker does."""

from __future__ import annotations

import logging
import threading
from typing import Final
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import Security
from ottla.config import authorizer as settings
from ottla.config.server import ServerConfig
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Acl, AclFilter, Binding, ResourceType, described
from ottla.security.authorizer import Authorizer
from ottla.server.security.acls import DecisionLog

_LOG = logging.getLogger("ottla.registry")

REFRESH_S: Final = 5.0
"""How long a changed ACL may take to count here."""
_KINDS: Final = (ResourceType.TOPIC, ResourceType.CLUSTER)
"""The resources that routes ask for."""


class Rules:
    """The authorizer of an instance. `authorizer` is read by any thread, everything else is for one thread."""

    def __init__(self, bootstrap: str, security: Security, config: ServerConfig) -> None:
        self.authorizer: Authorizer | None = None
        """None where the cluster checks no ACLs: then whoever logs in may do everything, as on the brokers."""
        self._cluster = Cluster(
            ClientConfig(parse_addresses(bootstrap), "schema-registry", security=security, request_timeout_s=10.0)
        )
        self._static = config.static
        self._known: frozenset[Binding] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._complained = ""

    def start(self) -> None:
        """Returns when the ACLs are known. Raises OttlaError where they may not be read, OSError."""
        self._take(self._asked())
        self._thread = threading.Thread(target=self._run, name="acls", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while not self._stop.wait(REFRESH_S):
            try:
                self._take(self._asked())
                self._complained = ""
            except (OSError, OttlaError, KafkaError) as error:
                if str(error) != self._complained:
                    self._complained = str(error)
                    _LOG.warning("the ACLs cannot be read, those of before stay", extra=fields(error=str(error)))

    def _asked(self) -> frozenset[Binding] | None:
        """None where the cluster has no authorizer."""
        found: set[Binding] = set()
        for kind in _KINDS:
            answer = self._cluster.ask_any(ApiKey.DESCRIBE_ACLS, AclFilter(resource_type=kind).asked())
            code = ErrorCode(answer["error_code"])
            if code is ErrorCode.security_disabled:
                return None
            if code is ErrorCode.cluster_authorization_failed:
                raise OttlaError(
                    "the registry's own user may not read the cluster's ACLs, by which it decides who may see and "
                    "change schemas\n  allow it: ottla acl add USER describe cluster"
                )
            if code is not ErrorCode.none:
                raise OttlaError(f"the cluster does not tell its ACLs: {code.name.upper()}")
            found.update(described(answer))
        return frozenset(found)

    def _take(self, found: frozenset[Binding] | None) -> None:
        if found is None:
            if self._known is not None:  # one broker with other settings must not open everything
                raise OttlaError("a broker says that the cluster checks no ACLs; restart the registry if that is meant")
            return
        if found == self._known and self.authorizer is not None:
            return
        made = Authorizer(settings.super_users(self._static), settings.allows_everyone(self._static))
        made.on_decision = DecisionLog(made).heard
        acls: dict[UUID, Acl | None] = {UUID(int=number): each for number, each in enumerate(sorted(found))}
        made.apply(acls, {})
        made.ready = True
        self.authorizer, self._known = made, found
