"""What `--secure` makes in a directory: an authority, certificates of nodes, an administrator, and files for clients.

security/ca.pem        the certificate that clients trust
security/ca-key.pem    the key of the authority: who has it can be anybody
security/token-secret  what the nodes make delegation tokens from: who has it can be anybody who has one
client.properties      Kafka's names: for `ottla --config`, Kafka's tools and `format("ottla")`
librdkafka.properties  librdkafka's names: kcat -F, confluent-kafka
spark.properties       options of Spark's Kafka connector
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.exits import FAILED, MISUSED, CommandFailed
from ottla.cli.security import authority

if TYPE_CHECKING:
    from ottla.client.security import Security

SECURITY: Final = "security"
NODE_FILE: Final = "node.pem"
TOKEN_SECRET: Final = "token-secret"
CLIENT: Final = "client.properties"
LIBRDKAFKA: Final = "librdkafka.properties"
SPARK: Final = "spark.properties"
ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-256"
LISTENER: Final = "SASL_SSL"
NODES_LISTENER: Final = "NODES"
"""The listener of brokers among themselves, which show each other certificates."""
PASSWORD_BYTES: Final = 24
NODE_ID: Final = 1
"""The id of a node that is alone, unless its settings say otherwise."""
SALT_BYTES: Final = 24
ITERATIONS: Final = 4096
"""Kafka's minimum: more would not protect a password of 192 random bits better."""
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def make_authority(root: Path) -> None:
    """Raises CommandFailed."""
    authority.create(root / SECURITY, f"Ottla CA of {root.name or 'a cluster'}")


def new_password() -> str:
    """A password of letters, digits, - and _: no file of settings needs a quotation mark for it."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def credentials(password: str) -> Sequence[Any]:
    """Records of the administrator, with which the cluster begins (KIP-900). Raises CommandFailed."""
    from ottla.protocol.schemas.records import UserScramCredentialRecord
    from ottla.security.sasl import scram

    found = []
    for mechanism in (scram.SHA_256, scram.SHA_512):
        salt = secrets.token_bytes(SALT_BYTES)
        salted = scram.salted_password(mechanism, password, salt, ITERATIONS)
        made = scram.credential(mechanism, salted, salt, ITERATIONS)
        found.append(
            UserScramCredentialRecord(
                ADMIN, mechanism.number, made.salt, made.stored_key, made.server_key, made.iterations
            )
        )
    return found


def write_certificate(root: Path, file: Path, *hosts: str) -> None:
    """A key and certificate of a node that is reached by these hosts, and by the names of this machine. Raises
    CommandFailed."""
    names = authority.own_names([each.strip("[]") for each in hosts])
    authority.write_private(file, authority.issue(root / SECURITY, authority.NODE_NAME, names))


def node_settings(root: Path, file: Path, settings: Mapping[str, str], brokers_port: int) -> dict[str, str]:
    """What the `settings` that `local_cluster` has for a node are to be, with the certificate in `file`. Other brokers
    reach it at `brokers_port`, and show certificates."""
    if "advertised.listeners" not in settings:  # a controller alone
        return {
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "listener.name.controller.ssl.client.auth": "required",
            **_settings(root, file),
        }
    address, *others = settings["listeners"].removeprefix("PLAINTEXT://").split(",")
    own = f"{LISTENER}://{address},{NODES_LISTENER}://{address.rpartition(':')[0]}:{brokers_port}"
    return {
        "listeners": ",".join((own, *others)),
        "advertised.listeners": own,
        "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,{NODES_LISTENER}:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": NODES_LISTENER,
        "listener.name.controller.ssl.client.auth": "required",
        f"listener.name.{NODES_LISTENER.lower()}.ssl.client.auth": "required",
        **_settings(root, file),
    }


def _settings(root: Path, file: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(root / SECURITY / authority.CA_FILE),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:CN={authority.NODE_NAME}",
        "ottla.http.security.protocol": "SASL_SSL",
        "delegation.token.secret.key": _token_secret(root / SECURITY / TOKEN_SECRET),
    }


def _token_secret(file: Path) -> str:
    """What delegation tokens are made from, the same for all nodes of the directory. Raises CommandFailed."""
    if not file.exists():
        authority.write_private(file, f"{new_password()}\n".encode())
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", FAILED) from None


# A node that is added later.


@dataclass(frozen=True)
class NewNode:
    """The key and certificate of a node before it has a directory."""

    root: Path
    """Where the cluster's authority and files for clients are."""
    pem: bytes = field(repr=False)

    @classmethod
    def of(cls, root: Path, host: str) -> NewNode:
        """Raises CommandFailed."""
        names = authority.own_names([host.strip("[]")])
        return cls(root, authority.issue(root / SECURITY, authority.NODE_NAME, names))

    @property
    def security(self) -> Security:
        """The node's connections to controllers, which know it by its certificate."""
        from ottla.client.security import Security, Store, Tls

        own = Store(content=self.pem, kind="PEM")
        trusted = Store(location=str(self.root / SECURITY / authority.CA_FILE), kind="PEM")
        return Security("SSL", Tls(trusted=trusted, certificate=own, key=own))

    def write(self, file: Path) -> None:
        authority.write_private(file, self.pem)


def root_of_cluster(node: Path, client: Path | None) -> Path | None:
    """The directory of `ottla cluster up --secure` to which a node is to belong: the one around the node's, or the one
    of the client's file or of the certificate that it trusts. None where there is none."""
    candidates = [node.parent]
    if client is not None:
        trusted = _written(client.absolute().parent, client.name).get("ssl.truststore.location")
        candidates += [client.absolute().parent, *([] if trusted is None else [Path(trusted).absolute().parent.parent])]
    for each in candidates:
        has_nodes = next(each.glob("node-*/server.properties"), None) is not None  # else its only node stays alone
        if has_nodes and (each / SECURITY / authority.CA_KEY_FILE).exists() and (each / CLIENT).exists():
            return each
    return None


# One node.


def root_of(directory: str) -> Path:
    """Where a directory's files for clients are: in it, or beside the data of a single node."""
    path = Path(directory)
    beside = path.absolute().parent / f"{path.absolute().name}-security"
    return beside if (beside / CLIENT).exists() and not (path / CLIENT).exists() else path


def single_node(data: str, listen: str) -> dict[str, str]:
    """Settings of a node with its data in `data`, which is formatted with the administrator if it is new. Files for
    clients are beside it, in DATA-security. Raises CommandFailed."""
    path = Path(data).absolute()
    root = path.with_name(f"{path.name}-security")
    file = root / SECURITY / NODE_FILE
    host, _, port = listen.rpartition(":")
    if port == "0":
        raise CommandFailed("--secure writes files with the node's address for clients: give a port, not 0", MISUSED)
    address = f"{host or '127.0.0.1'}:{port}"
    for each in (root, root / SECURITY):
        authority.ensure_own(each)
    if not (root / CLIENT).exists():
        _ensure_new(path)
        make_authority(root)
        password = new_password()
        _format(path, password)
        client_files(root, address, password)
    elif _written(root)["bootstrap.servers"] != address:
        client_files(root, address, _written(root, LIBRDKAFKA)["sasl.password"])
    if not file.exists() or host.strip("[]") not in ("", *authority.shown_file(file)[0].names):
        write_certificate(root, file, host)
    # A node that is alone shows its login to nobody, but has to have one.
    return {
        "listeners": f"{LISTENER}://{listen}",
        "inter.broker.listener.name": LISTENER,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": _written(root)["sasl.jaas.config"],
        **_settings(root, file),
    }


def _written(root: Path, name: str = CLIENT) -> dict[str, str]:
    from ottla.client.properties import read_file

    return read_file(root / name)


def _ensure_new(data: Path) -> None:
    from ottla.filesystem import OsFileSystem
    from ottla.storage.checkpoints.meta_properties import read_meta_properties

    if data.is_dir() and read_meta_properties(OsFileSystem(), str(data)) is not None:
        raise CommandFailed(
            f"{data} has data of a node without security, and --secure is for a new one: name another directory",
            MISUSED,
        )


def _format(data: Path, password: str) -> None:
    import random

    from ottla.clock import SystemClock
    from ottla.drivers.metadata.formatting import format_directories
    from ottla.filesystem import OsFileSystem
    from ottla.storage.checkpoints.meta_properties import random_directory_id

    dice = random.SystemRandom()
    format_directories(
        OsFileSystem(),
        [str(data)],
        str(data),
        NODE_ID,
        random_directory_id(dice),
        dice,
        SystemClock().now_ms(),
        credentials=credentials(password),
    )


def client_files(root: Path, bootstrap: str, password: str, user: str = ADMIN) -> None:
    """Write the files for clients; their owner alone may read them."""
    trusted = str((root / SECURITY / authority.CA_FILE).absolute())
    kafka = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_SCRAM} required username="{user}" password="{password}";',
    }
    # Registries are logged in at with the same password; only Ottla and Confluent's clients know the name.
    registry = {"schema.registry.basic.auth.credentials.source": "SASL_INHERIT"}
    librdkafka = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": trusted,
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
    }
    for name, settings in (
        (CLIENT, {**kafka, **registry}),
        (LIBRDKAFKA, librdkafka),
        (SPARK, {f"kafka.{setting}": value for setting, value in kafka.items()}),
    ):
        authority.write_private(root / name, _text(settings).encode())


def _text(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
