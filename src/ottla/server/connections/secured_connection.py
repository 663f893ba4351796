"""A client's connection over TLS: who is there follows from the certificate that it showed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from ottla.security.principal_mapping import NoMatchingRule
from ottla.server.connections.connection import Connection

if TYPE_CHECKING:
    from ottla.server.connections.connection_ports import TlsListener

SUBJECT_CHARS_MAX: Final = 1024
"""A user's name goes into requests between nodes, logs and metrics. And the time that rules such as
`^CN=(.*?),OU=(.*?),O=.*$` take grows with its square or faster, while the node does nothing else."""


class SecuredConnection(Connection):
    """Made by a `Listener` of the protocol SSL."""

    __slots__ = ()

    def secured(self, peer: str | None) -> None:
        """Called by `ottla.tls_network` when the handshake is done: `peer` is the subject of the client's certificate.

        A client without a certificate is User:ANONYMOUS, one for whose name there is no rule is refused (KIP-371)."""
        if peer is None:
            return
        listener = cast("TlsListener[Connection]", self._listener)
        mapper = listener.principal_mapper
        try:
            if len(peer) > SUBJECT_CHARS_MAX:
                raise NoMatchingRule(f"its subject has {len(peer)} characters, at most {SUBJECT_CHARS_MAX} are taken")
            name = peer if mapper is None else mapper.name_of(peer)
        except NoMatchingRule as error:
            listener.log_refused("a client's certificate has no user", self.client_host, str(error), logging.WARNING)
            if listener.node.audit is not None:
                listener.node.audit.login_failed(self.client_host, listener.name, "SSL", str(error))
            self.abort()
            return
        self.principal = f"User:{name}"
        audit = listener.node.audit
        if audit is not None:
            audit.logged_in(self.principal, self.client_host, listener.name, "SSL")
        if self.quotas is not None:  # they were those of anonymous users
            self.quotas = None
            self.quotas = None if listener.quotas is None else listener.quotas.of_connection(self)
