"""How the ensemble is reached: by TLS or in the clear, with which login, and who may change the znodes that are made.

    access = ensemble_access(SystemNetwork(), given, read)     # `given` as a broker's file has it
    client = ZooKeeper(access.network, connect, random=random, login=access.login)
    ...
    access.close()

The settings are those of Kafka's brokers: `zookeeper.ssl.*`, `zookeeper.set.acl` and the section `Client` of a JAAS
file. What they ask for is done or refused by its name; no protection that is asked for is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.config import definitions
from ottla.config.secret import revealed
from ottla.errors import OttlaError
from ottla.network import Network
from ottla.zookeeper.messages import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from ottla.zookeeper.session import Login

NETTY_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"
CLEAR_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNIO"
"""The values of `zookeeper.clientCnxnSocket` that a file of Kafka has."""

LOGIN_FILE, LOGIN_SECTION = "ottla.zookeeper.login.config", "ottla.zookeeper.login.context"

SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token")
"""Znodes that only brokers read, with all below them (`ZkData.SensitiveRootPaths`)."""

OPEN = "/consumers"
"""Consumers of old times write their offsets below it."""

_BY_ENDING = {".jks": "JKS", ".p12": "PKCS12", ".pkcs12": "PKCS12", ".pem": "PEM"}

Read = Callable[[str], bytes]
"""The content of a file. Raises OSError."""


@dataclass(frozen=True)
class EnsembleAccess:
    network: Network
    """Connects to the ensemble."""
    login: Login | None = None
    sets_acls: bool = False
    close: Callable[[], None] = lambda: None
    """Ends the threads of TLS, once no client uses the network any more."""

    def acl(self, path: str) -> Sequence[ACL]:
        """Permissions of a znode that is made at `path`, as `ZkData.defaultAcls`."""
        if not self.sets_acls or path == OPEN:
            return OPEN_ACL_UNSAFE
        return CREATOR_ALL_ACL if path.startswith(SENSITIVE) else (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)


def ensemble_access(network: Network, given: Mapping[str, str], read: Read) -> EnsembleAccess:
    """`given` maps names of settings to texts; those that are not of the ensemble are passed over. Raises OttlaError
    for what cannot be."""

    def get(name: str) -> Any:
        setting = definitions.BROKER[name]
        text = revealed(given[name]) if name in given else setting.default
        try:
            return None if text is None else setting.parse(text)
        except ValueError as error:
            raise OttlaError(str(error)) from None

    login = _login(get, read)
    sets_acls = bool(get("zookeeper.set.acl"))
    has_tls = bool(get("zookeeper.ssl.client.enable"))
    socket = get("zookeeper.clientCnxnSocket")
    if socket not in (None, "", CLEAR_SOCKET, NETTY_SOCKET):
        raise OttlaError(
            f"zookeeper.clientCnxnSocket is {socket}: Ottla loads no classes; with TLS it is {NETTY_SOCKET}"
        )
    if has_tls and socket == CLEAR_SOCKET:
        raise OttlaError(f"zookeeper.ssl.client.enable is true, but {CLEAR_SOCKET} knows no TLS: use {NETTY_SOCKET}")
    has_certificate = has_tls and bool(get("zookeeper.ssl.keystore.location"))
    if sets_acls and login is None and not has_certificate:
        raise OttlaError(
            "zookeeper.set.acl is true, but this broker has no login for the ensemble: give a JAAS file with a section "
            f"{get(LOGIN_SECTION)} ({LOGIN_FILE}, or java.security.auth.login.config in KAFKA_OPTS), or TLS with a key "
            "store of its own"
        )
    if not has_tls:
        return EnsembleAccess(network, login, sets_acls)
    secured, close = _over_tls(network, get, read)
    return EnsembleAccess(secured, login, sets_acls, close)


def _login(get: Callable[[str], Any], read: Read) -> Login | None:
    path = get(LOGIN_FILE)
    if not path:
        return None
    from ottla.security.sasl.jaas import DIGEST_MODULE, parse_login_file  # few ensembles have logins

    try:
        text = read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OttlaError(f"{LOGIN_FILE}: {path} cannot be read: {error}") from None
    try:
        module = parse_login_file(text, get(LOGIN_SECTION))
    except OttlaError as error:
        raise OttlaError(f"{LOGIN_FILE}: {path}: {error}") from None
    if module is None:
        return None  # the file has the logins of brokers alone, as in Kafka
    if module.name != DIGEST_MODULE:
        raise OttlaError(
            f"{path}: the section {get(LOGIN_SECTION)} has {module.name}, but this version logs in at ZooKeeper by "
            f"{DIGEST_MODULE} only"
        )
    if module.login is None:
        raise OttlaError(f"{path}: the section {get(LOGIN_SECTION)} needs a username and a password")
    name, password = module.login
    return Login(name, password.reveal())


def _over_tls(network: Network, get: Callable[[str], Any], read: Read) -> tuple[Network, Callable[[], None]]:
    from ottla.drivers.nodes.tls_contexts import load, read_stores
    from ottla.security.tls_settings import tls_settings
    from ottla.tls_handshakes import Handshakes
    from ottla.tls_network import TlsNetwork

    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if get(name):
            raise OttlaError(
                f"{name} is true, but this version does not ask whether a certificate is revoked: remove it"
            )
    try:
        stores = read_stores(tls_settings(lambda name: _of_listeners(get, name)), read)
        contexts = load(stores, serves=False).contexts
    except OttlaError as error:
        named = re.sub(r"(?<![.\w])ssl\.key\.password", "ssl.keystore.password", str(error))
        raise OttlaError("ZooKeeper: " + re.sub(r"(?<![.\w])ssl\.", "zookeeper.ssl.", named)) from None
    handshakes = Handshakes()
    return TlsNetwork(network, contexts, handshakes), handshakes.close


def _of_listeners(get: Callable[[str], Any], name: str) -> Any:
    """The value of a setting of listeners, as the ensemble's have it: a key has its store's password, and a PEM file no
    other one."""
    if name not in _NAMES:
        return _FIXED.get(name)
    found = get(_NAMES[name])
    if name in ("ssl.keystore.type", "ssl.truststore.type"):
        path = (_of_listeners(get, f"{name.removesuffix('type')}location") or "").lower()
        return found or next((kind for ending, kind in _BY_ENDING.items() if path.endswith(ending)), "JKS")
    if name in ("ssl.keystore.password", "ssl.truststore.password"):
        kind = _of_listeners(get, f"{name.removesuffix('password')}type")
        return None if kind.upper() == "PEM" else found
    if name == "ssl.enabled.protocols" and not found:
        one = _of_listeners(get, "ssl.protocol")
        return () if one == "TLS" else (one,)
    return found


_NAMES: Mapping[str, str] = {
    "ssl.key.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
    "ssl.protocol": "zookeeper.ssl.protocol",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}
"""What listeners call the settings of the ensemble."""

_FIXED: Mapping[str, Any] = {"ssl.client.auth": "none", "ssl.allow.dn.changes": False, "ssl.allow.san.changes": False}
"""What only a listener has."""
