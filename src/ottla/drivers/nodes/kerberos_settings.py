"""What a node's settings say of Kerberos on a listener: the key that checks clients, users' names, logins at others."""

from __future__ import annotations

import random as random_module
from typing import TYPE_CHECKING

from ottla.config.listener_settings import of_mechanism
from ottla.drivers.nodes.jaas_settings import jaas_name, jaas_of
from ottla.drivers.nodes.kerberos import Acceptor, Initiator, Renewal, default_realm, library
from ottla.errors import OttlaError
from ottla.security.sasl import GSSAPI, AuthenticationFailed, jaas
from ottla.security.sasl.kerberos_names import SETTING, ShortNamer, parse_principal
from ottla.security.sasl.kerberos_options import KerberosOptions, kerberos_options, service_name

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig


def acceptor_of(config: ServerConfig, listener: str) -> Acceptor:
    """Blocks to read the keytab. Raises OttlaError."""
    library()
    options = _options(config, listener)
    setting = jaas_name(listener, GSSAPI)
    if options.keytab is None or options.principal is None:
        raise OttlaError(
            f"{setting}: clients are checked by the key in a keytab: set useKeyTab=true, keyTab and principal"
        )
    try:
        has_host = parse_principal(options.principal).instance
    except AuthenticationFailed as error:
        raise OttlaError(f"{setting}: {error.reason}") from None
    if not has_host:
        raise OttlaError(
            f"{setting}: the principal is {options.principal}, but that of a service has a host: kafka/HOST@REALM, "
            "with the HOST that clients connect to"
        )
    try:
        return Acceptor(options.keytab, options.principal)
    except OttlaError as error:
        raise OttlaError(f"{setting}: {error}") from None


def namer_of(config: ServerConfig, listener: str) -> ShortNamer:
    """Raises OttlaError for rules that cannot be read."""
    options = _options(config, listener)
    own = None if options.principal is None else parse_principal(options.principal).realm
    return ShortNamer(of_mechanism(config, listener, GSSAPI, SETTING), default_realm() or own or "")


def initiator_of(config: ServerConfig, listener: str, random: random_module.Random) -> Initiator:
    """How this node logs in at those behind a listener. Raises OttlaError."""
    library()
    options = _options(config, listener)
    service = service_name(of_mechanism(config, listener, GSSAPI, "sasl.kerberos.service.name"), options)
    renewal = Renewal(
        of_mechanism(config, listener, GSSAPI, "sasl.kerberos.ticket.renew.window.factor"),
        of_mechanism(config, listener, GSSAPI, "sasl.kerberos.ticket.renew.jitter"),
        of_mechanism(config, listener, GSSAPI, "sasl.kerberos.min.time.before.relogin") / 1000,
    )
    return Initiator(
        service,
        keytab=options.keytab,
        principal=options.principal,
        cache=options.cache,
        renewal=renewal,
        share=random.random(),
    )


def _options(config: ServerConfig, listener: str) -> KerberosOptions:
    module, setting = jaas_of(config, listener, GSSAPI), jaas_name(listener, GSSAPI)
    if module is None:
        raise OttlaError(
            f"listener {listener} has GSSAPI without a key: set {setting}={jaas.KERBEROS_MODULE} required "
            'useKeyTab=true storeKey=true keyTab="FILE" principal="kafka/HOST@REALM";'
        )
    try:
        return kerberos_options(module)
    except OttlaError as error:
        raise OttlaError(f"{setting}: {error}") from None
