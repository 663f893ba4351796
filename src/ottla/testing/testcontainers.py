"""A drop-in for `testcontainers.kafka` (Python): the same classes, without Docker and without that package.

    from ottla.testing.testcontainers import KafkaContainer

`KafkaContainer` is a `Broker`, `RedpandaContainer` a broker and a schema registry, each in a process or thread of its
own on loopback. What a container has and they have not (an image, a shell, a network of containers) is accepted where
a test cannot notice, and raises `NotInContainer` or warns where it could. To leave a suite as it is, put this module in
the other's place in a `conftest.py`:

    sys.modules["testcontainers.kafka"] = ottla.testing.testcontainers
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ottla.testing.broker import PORT_MAX, Broker
from ottla.testing.registry import Registry
from ottla.testing.wrapped import Wrapped

__all__ = ["KafkaContainer", "NotInContainer", "RedpandaContainer", "kafka_config"]

KAFKA_PREFIX = "KAFKA_"
DATA = ("/var/lib/kafka/data", "/var/lib/redpanda/data", "/tmp/kraft-combined-logs", "/bitnami/kafka")
"""Where images keep the data: a volume there is a directory to keep."""
OWN = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.voters",
    "inter.broker.listener.name", "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "node.id",
    "process.roles", "zookeeper.connect",
})  # fmt: skip
"""Settings of where a node is, which is not in a container here."""
NO_SETTINGS = re.compile(r"KAFKA_(HEAP_OPTS|OPTS|JMX_.*|JVM_.*|GC_.*|LOG4J_.*|TOOLS_.*|CONFLUENT_.*|KRAFT_.*)")
"""Variables for the JVM, and for the scripts of an image."""


NOT_STARTED = "the container is not started: use it in `with`, or call start()"


class NotInContainer(NotImplementedError):
    """What was asked for needs a real container."""


@dataclass
class _KafkaConfig:
    limit_broker_to_first_host: bool = field(
        default_factory=lambda: os.environ.get("TC_KAFKA_LIMIT_BROKER_TO_FIRST_HOST") == "true"
    )
    """Has no effect: a broker here has one address."""


kafka_config = _KafkaConfig()


class Network(Protocol):
    """Docker's, by whatever class it comes."""

    @property
    def name(self) -> str | None: ...


class _Container:
    """What `DockerContainer` of testcontainers offers, for a broker on loopback."""

    _kafka_port: int
    """The port inside the container that stands for the broker's."""

    def __init__(
        self,
        image: str,
        docker_client_kw: Mapping[str, Any] | None = None,
        command: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        ports: Sequence[int] | None = None,
        volumes: Sequence[tuple[str, str, str]] | None = None,
        network: Network | None = None,
        network_aliases: Sequence[str] | None = None,
        transferables: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """`image`, `docker_client_kw`, `command` and `kwargs` are for Docker, and have no effect."""
        self.image = image
        self.env: dict[str, str] = dict(env or {})
        self.ports: dict[str, int | None] = {}
        self.volumes: dict[str, dict[str, str]] = {}
        self.tmpfs: dict[str, str] = {}
        self._name = name
        self._kwargs = kwargs
        self._strategy: Any = None
        self._broker: Broker | None = None
        self._wrapped: Wrapped | None = None
        self._command = command
        self.with_exposed_ports(*(ports or ()))
        for volume in volumes or ():
            self.with_volume_mapping(*volume)
        if network is not None:
            self.with_network(network)
        if network_aliases:
            self.with_network_aliases(*network_aliases)
        for each in transferables or ():
            self.with_copy_into_container(*each)

    # What a container is to be

    def with_env(self, key: str, value: Any) -> Self:
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: str) -> Self:
        for name, value in variables.items():
            self.with_env(name, value)
        return self

    def with_env_file(self, env_file: str | os.PathLike[str]) -> Self:
        """Lines of NAME=value; comments and quotes as in a shell. For more, install python-dotenv."""
        for name, value in _env_file(Path(env_file)).items():
            self.with_env(name, value)
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        self.ports[_port_name(container)] = None if host in (None, "") else int(_port_name(host))
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        for port in ports:
            self.ports.setdefault(_port_name(port), None)
        return self

    def with_network(self, network: Network) -> Self:
        """Containers of a network do not find the broker in it. It warns."""
        warnings.warn(
            "this Kafka is on the host: programs on the host reach it, containers of a network do not"
            " (for those: ottla dev --advertise)",
            stacklevel=2,
        )
        return self

    def with_network_aliases(self, *aliases: str) -> Self:
        """Has no effect; `with_network` has warned."""
        return self

    def with_kwargs(self, **kwargs: Any) -> Self:
        """Has no effect: they are Docker's."""
        self._kwargs = kwargs
        return self

    def maybe_emulate_amd64(self) -> Self:
        return self

    def with_command(self, command: str | Sequence[str]) -> Self:
        """Has no effect, as with the original, which starts Kafka by a command of its own."""
        self._command = command
        return self

    def with_name(self, name: str) -> Self:
        self._name = name
        return self

    def with_volume_mapping(self, host: str | os.PathLike[str], container: str, mode: str = "ro") -> Self:
        """A volume at the data directory of a known image keeps the data in `host`. Raises NotInContainer for any
        other: nothing here would read it."""
        if container.rstrip("/") not in DATA:
            raise NotInContainer(
                f"a volume at {container}: this Kafka reads no files of an image; settings go through with_env"
            )
        self.volumes[str(host)] = {"bind": container, "mode": mode}
        return self

    def with_tmpfs_mount(self, container_path: str, size: str | None = None) -> Self:
        """Has no effect: the data is in a temporary directory."""
        self.tmpfs[container_path] = size or ""
        return self

    def with_copy_into_container(self, transferable: Any, destination_in_container: str, mode: int = 0o644) -> Self:
        raise NotInContainer(f"copying to {destination_in_container}: this Kafka reads no files of an image")

    def waiting_for(self, strategy: Any) -> Self:
        """Called once the broker serves; `get_logs` has the lines that Kafka would print."""
        self._strategy = strategy
        return self

    # Its life

    def start(self) -> Self:
        """Returns when clients are served. Raises BrokerError."""
        if self._broker is not None:
            raise RuntimeError("the container is started already")
        keep = next(iter(self.volumes), None)
        broker = Broker(settings_of(self.env), keep=keep, port=self.ports.get(str(self._kafka_port)) or 0)
        broker.start()
        self._broker = broker
        self._wrapped = Wrapped(broker, self._name or self.get_container_id(), self._printed)
        if self._strategy is not None:
            self._strategy.wait_until_ready(self)
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Once stopped it does nothing."""
        broker, self._broker = self._broker, None
        wrapped, self._wrapped = self._wrapped, None
        if broker is not None:
            if wrapped is not None and wrapped.status == "paused":
                wrapped.unpause()
            broker.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What it is asked

    @property
    def broker(self) -> Broker:
        """Ottla's own object, which can do more. Raises RuntimeError when not started."""
        if self._broker is None:
            raise RuntimeError(NOT_STARTED)
        return self._broker

    def get_bootstrap_server(self) -> str:
        return self.broker.bootstrap

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: str | int) -> int:
        """The port on the host for one of the container's. Raises ConnectionError for one that is not exposed."""
        if _port_name(port) != str(self._kafka_port):
            raise ConnectionError(f"Port mapping for {self.get_container_id()} and port {port} is not available")
        return self.broker.port

    def get_container_id(self) -> str:
        return f"ottla-{self.broker.port}"

    def get_wrapped_container(self) -> Wrapped:
        """Stops, starts, kills and pauses the broker, as Docker's own object does. Raises RuntimeError."""
        if self._wrapped is None:
            raise RuntimeError(NOT_STARTED)
        return self._wrapped

    def get_docker_client(self) -> Any:
        raise NotInContainer("there is no Docker client: this Kafka is a process on the host")

    def get_container_info(self) -> None:
        """None, as where Docker does not answer."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """(standard output, standard error): a line that says it serves, in Kafka's words; warnings and errors."""
        return self._printed()

    def _printed(self) -> tuple[bytes, bytes]:
        line = f"[KafkaServer id=1] started; Kafka Server started; Started Kafka API server: {self.broker.bootstrap}\n"
        return line.encode(), self.broker.output.encode()

    def reload(self) -> None:
        """Nothing is remembered that could be old."""

    @property
    def status(self) -> str:
        return "not_started" if self._broker is None else self.get_wrapped_container().status

    def wait(self) -> int:
        """The exit code, once another thread or the system has ended the broker."""
        return self.get_wrapped_container().wait()["StatusCode"]

    def exec(self, command: Any) -> Any:
        raise NotInContainer(
            f"exec({command!r}): there is no shell; .broker.create_topic(), .produce() and .consume() do what Kafka's"
            " scripts are run for, and so does `ottla` on the host"
        )

    def copy_into_container(self, transferable: Any, destination_in_container: str, mode: int = 0o644) -> None:
        self.with_copy_into_container(transferable, destination_in_container, mode)

    def copy_from_container(self, source_in_container: str, destination_on_host: Path) -> None:
        raise NotInContainer(f"copying {source_in_container}: the data is in .broker.directory")


class KafkaContainer(_Container):
    """with KafkaContainer() as kafka:
        connection = kafka.get_bootstrap_server()

    Settings go through `with_env("KAFKA_NUM_PARTITIONS", "3")`, as for the image. `with_kraft` changes nothing: Ottla
    has no other mode.
    """

    def __init__(
        self,
        image: str = "confluentinc/cp-kafka:7.6.0",
        port: int = 9093,
        wait_strategy_check_string: str = r".*\[KafkaServer id=\d+\] started.*",
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        **kwargs: Any,
    ) -> None:
        """Raises NotInContainer for TLS and SASL, which Ottla has not yet."""
        if security_protocol != "PLAINTEXT":
            raise NotInContainer(f"security_protocol={security_protocol!r}: Ottla has neither TLS nor SASL yet")
        super().__init__(image, **kwargs)
        self.port = self._kafka_port = port
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.kraft_enabled = False
        self.cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
        self.wait_for = re.compile(wait_strategy_check_string)
        self.with_exposed_ports(port)
        self.with_env("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1")
        self.with_env("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", "10000000")

    def with_kraft(self) -> Self:
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Has no effect but on the attribute: each broker makes a new one."""
        self.cluster_id = cluster_id
        return self

    def start(self, timeout: int = 30) -> Self:
        """Returns when clients are served. Raises BrokerError."""
        return super().start()


class RedpandaContainer(_Container):
    """with RedpandaContainer() as redpanda:
        connection = redpanda.get_bootstrap_server()
        registry = redpanda.get_schema_registry_address()

    The registry starts when its address is asked for, or with the broker if its port is bound. It needs the extra
    `registry`.
    """

    redpanda_port = _kafka_port = 9092
    schema_registry_port = 8081

    def __init__(self, image: str = "docker.redpanda.com/redpandadata/redpanda:v23.1.13", **kwargs: Any) -> None:
        super().__init__(image, **kwargs)
        self._registry: Registry | None = None
        self.wait_for = re.compile(r".*Started Kafka API server.*")
        self.with_exposed_ports(self.redpanda_port, self.schema_registry_port)

    def get_schema_registry_address(self) -> str:
        """Raises BrokerError where the extra is not installed."""
        if self._registry is None:
            port = self.ports.get(str(self.schema_registry_port)) or 0
            self._registry = Registry(self.get_bootstrap_server(), port=port).start()
        return self._registry.url

    def get_exposed_port(self, port: str | int) -> int:
        if _port_name(port) == str(self.schema_registry_port):
            return int(self.get_schema_registry_address().rpartition(":")[2])
        return super().get_exposed_port(port)

    def start(self, timeout: int = 10) -> Self:
        """Returns when clients are served. Raises BrokerError."""
        super().start()
        if self.ports[str(self.schema_registry_port)] is not None:
            self.get_schema_registry_address()  # who has chosen its port knows it without asking
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.stop()
        super().stop(force, delete_volume)


def settings_of(env: Mapping[str, str]) -> dict[str, str]:
    """Kafka's settings in the variables of an image: KAFKA_LOG_RETENTION_MS is log.retention.ms, two underscores are
    one, three a dash. Those of the JVM and of where a node is are left out; Kafka ignores names that it does not know,
    and so does this, with a warning."""
    from ottla.config import foreign

    found = {}
    for variable, value in env.items():
        if not variable.startswith(KAFKA_PREFIX) or NO_SETTINGS.fullmatch(variable):
            continue
        name = re.sub("_{1,3}", lambda match: "._-"[len(match[0]) - 1], variable.removeprefix(KAFKA_PREFIX).lower())
        if name in OWN:
            continue
        if foreign.is_known(name):
            found[name] = value
        else:
            warnings.warn(f"{variable}: Kafka has no setting {name}; it has no effect", stacklevel=3)
    return found


def _port_name(port: str | int) -> str:
    """The number in 9093, "9093" or "9093/tcp". Raises ValueError."""
    text = str(port).partition("/")[0]
    if not (text.isascii() and text.isdecimal() and int(text) <= PORT_MAX):
        raise ValueError(f"a port is a number from 0 to {PORT_MAX}, not {port!r}")
    return text


def _env_file(path: Path) -> dict[str, str]:
    import shlex

    found = {}
    for line in path.read_text().splitlines():
        words = shlex.split(line.removeprefix("export "), comments=True)
        if words:
            name, _, value = words[0].partition("=")
            found[name] = value
    return found
