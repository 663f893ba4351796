"""A client's connection over TLS: who is there follows from the certificate that it showed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.logs import fields
from ottla.security.principal_mapping import NoMatchingRule
from ottla.server.connection import Connection

if TYPE_CHECKING:
    from ottla.server.listener import Listener

_NETWORK = logging.getLogger("ottla.network")


class SecuredConnection(Connection):
    """Made by a `Listener` of the protocol SSL."""

    __slots__ = ()

    def secured(self, peer: str | None) -> None:
        """Called by `ottla.tls_network` when the handshake is done: `peer` is the subject of the client's certificate.

        A client without a certificate is User:ANONYMOUS, one for whose name there is no rule is refused (KIP-371)."""
        if peer is None:
            return
        listener: Listener = self._listener
        mapper = listener.principal_mapper
        try:
            name = peer if mapper is None else mapper.name_of(peer)
        except NoMatchingRule as error:
            text = fields(listener=listener.name, client=self.client_host, error=str(error))
            _NETWORK.warning("a client's certificate has no user", extra=text)
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
