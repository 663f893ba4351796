"""GSSAPI logins of clients: tickets are kept, and renewed, for all connections of a process."""

from __future__ import annotations

import random
import threading
from typing import Final

from ottla.client.security import Kerberos, SecurityFailure
from ottla.drivers.nodes.kerberos import Initiator, Renewal
from ottla.errors import OttlaError
from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.gssapi import GssapiClient

_kept: dict[Kerberos, Initiator] = {}
_lock: Final = threading.Lock()


def client_of(kerberos: Kerberos, host: str) -> GssapiClient:
    """For a login at the broker of this host, its first token made. Raises SecurityFailure."""
    with _lock:
        initiator = _kept.get(kerberos)
        if initiator is None:
            initiator = _kept[kerberos] = Initiator(
                kerberos.service,
                keytab=kerberos.keytab,
                principal=kerberos.principal,
                cache=kerberos.cache,
                renewal=Renewal(kerberos.window_factor, kerberos.jitter, kerberos.renewal_seconds_min),
                share=random.random(),
            )
    try:
        return GssapiClient(initiator.context(host)).prepare()
    except OttlaError as error:
        raise SecurityFailure(f"sasl.mechanism=GSSAPI: {error}") from None
    except AuthenticationFailed as error:
        keys = f"the keytab {kerberos.keytab}" if kerberos.keytab else "the ticket of kinit"
        raise SecurityFailure(
            f"there is no Kerberos ticket for {kerberos.service}/{host}: {error.reason}; check {keys}, "
            "sasl.kerberos.service.name, and krb5.conf"
        ) from None
