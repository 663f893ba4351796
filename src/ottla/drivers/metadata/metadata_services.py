"""What a node has to do with metadata, put together for every role: who it is, its replica of the metadata log, the
publisher of what is committed there, the way to the active controller, the broker's life, and where the node is a
controller, the one that is active while this node leads. The parts know each other only as their constructors say.

A node that is alone speaks with nobody, and what it would need for that is not even imported.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import random as random_module
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.clock import Clock
from ottla.controller.decision import Decide
from ottla.drivers.controller.active_controller import ActiveController, ControllerSettings, first_decisions
from ottla.drivers.controller.controller_activation import ControllerActivation
from ottla.drivers.controller.controller_channel import ControllerChannel, LocalControllerChannel
from ottla.drivers.metadata.broker_lifecycle import (
    SHUTDOWN_ANSWER_S,
    BrokerLifecycle,
    BrokerSettings,
    listeners_and_features,
)
from ottla.drivers.metadata.directories import (
    Identity,
    check_lost,
    identify,
    known_cluster_id,
    lost_partitions,
    mark,
    some_of,
)
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.drivers.metadata.snapshot_generator import SnapshotGenerator, SnapshotSettings
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.quorum.quorum_settings import QuorumSettings
from ottla.errors import KafkaError, OttlaError
from ottla.filesystem import FileSystem
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from ottla.model import LeaderEpoch, NodeId, random_uuid
from ottla.network import Address
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.metadata_records import decode_record
from ottla.protocol.schemas.records import UserScramCredentialRecord
from ottla.quorum.election import Timing
from ottla.quorum.snapshot import BOOTSTRAP_FILE, read_snapshot
from ottla.quorum.voters import ReplicaKey
from ottla.storage.config import LogConfig

_LOG = logging.getLogger("ottla.controller")

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.controller.broker_watch import BrokerWatch
    from ottla.drivers.controller.controller_registration import ControllerRegistrar
    from ottla.drivers.controller.remote_controller_channel import RemoteControllerChannel
    from ottla.drivers.coordinators.producer_ids import ProducerIds
    from ottla.network import Network
    from ottla.protocol.schemas.sent import ControllerRegistrationRequest

SEE_CHANGES_SECONDS_MAX = 1.0
"""How long a client's change is waited for here once it is committed. A round trip is what it takes; Kafka's brokers do
not wait at all, and a client then may not find the topic that it has just created."""

SEE_AGAIN_SECONDS = 0.02
"""How soon the controller is asked again for what it has, if it is lost."""


class MetadataServices:
    """`start` is to be called once, then `catch_up`; before it there is no metadata, and nobody to speak with."""

    snapshots: SnapshotGenerator
    channel: ControllerChannel
    lifecycle: BrokerLifecycle
    watch: BrokerWatch | None = None
    """Watches the brokers that reach this controller over a network."""
    controller: ActiveController | None = None
    """None where the node is only a broker; active while this node leads."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        config: ServerConfig,
        network: Network | None = None,
    ) -> None:
        """Without a `network` the node is to be alone."""
        self._fs = fs
        self._clock = clock
        self._random = random
        self._network = network
        self.config = config
        self.node_id: NodeId = config.node_id
        self.cluster_id = ""
        self.directory_ids: Mapping[str, UUID] = {}
        """Id of every log directory, by path, from its meta.properties (written on first start)."""
        self.quorum = self._new_quorum()
        self.publisher = MetadataPublisher(self.quorum)
        self._identity = Identity("", {})
        self._has_all_directories = True
        self._is_open = False
        self._is_made = False
        self._is_current = False
        """Whether the image has what was committed when this node started."""
        self._activation: ControllerActivation | None = None
        self.on_active: list[Callable[[], None]] = []
        """Called when the controller of this node has become the active one."""
        self._remote: RemoteControllerChannel | None = None
        self._registrar: ControllerRegistrar | None = None

    async def start(
        self, log_dirs: Sequence[str] | None = None, controller_endpoints: Mapping[str, Endpoint] | None = None
    ) -> None:
        """Give new directories an identity, load the newest snapshot and the log, take part in the quorum: a node that
        is alone leads it when this returns, and its image is current. Others `catch_up`.

        `log_dirs` are those that can be used, if not all can; others reach this controller at `controller_endpoints`
        (listener name to endpoint). Raises OttlaError for directories of another node or cluster, or whose files cannot
        be read, KafkaError (KAFKA_STORAGE_ERROR) or OSError when the disk fails.
        """
        config, quorum, publisher = self.config, self.quorum, self.publisher
        endpoints = controller_endpoints or {}
        paths = config.log_dirs if log_dirs is None else log_dirs
        self._has_all_directories = len(paths) == len(config.log_dirs)
        self._identity = identity = await self._identify(paths, endpoints)
        self.cluster_id, self.directory_ids = identity.cluster_id, identity.directory_ids
        me = ReplicaKey(self.node_id, self.directory_ids[config.metadata_log_dir])
        quorum.open(me, self._static_voters(me, endpoints))
        self._is_open = True
        found = publisher.preview(self.cluster_id)
        if quorum.alone or not config.is_broker:
            self._check_directories(found)
        if config.is_controller and features.METADATA_VERSION not in found.features:
            self._bootstrap_records()  # what is wrong with them is said before the node votes
        if config.is_controller and not endpoints:  # nobody else could vote with it, or be a broker of its
            self._check_alone({key.node_id for key in quorum.voters}, found.brokers)
        quorum.start(self.cluster_id, endpoints)
        publisher.load()
        self._make_parts(endpoints)
        if quorum.alone:
            assert self._activation is not None
            await self._activation.wait_active()
            self._is_current = True
        self.snapshots.start()
        if self._registrar is not None:
            self._registrar.start()

    def _new_quorum(self) -> QuorumNode:
        return QuorumNode(self._fs, self._clock, self._random, quorum_settings(self.config), self._network)

    def _new_lifecycle(self) -> BrokerLifecycle:
        settings = broker_settings(self.config, self.cluster_id)
        return BrokerLifecycle(self.channel, self._random, settings, lambda: self.publisher.image.offset)

    def _meet_leader(self, leader_id: NodeId, epoch: LeaderEpoch) -> None:
        """Send a heartbeat to a new controller at once: it watches a broker's connection only from its first heartbeat
        on, and would notice a death before that only when the session ends."""
        if leader_id >= 0 and leader_id != self.node_id:
            self.lifecycle.say_now()

    def _make_parts(self, endpoints: Mapping[str, Endpoint]) -> None:
        config, quorum, publisher, clock = self.config, self.quorum, self.publisher, self._clock
        if config.is_controller:
            registration = self._controller_registration(endpoints)
            self.controller = ActiveController(quorum, publisher, clock, self._random, self._controller_settings())
            self._activation = ControllerActivation(
                self.node_id,
                quorum,
                publisher,
                self.controller,
                lambda image: self._first_decisions(image, registration),
                self.on_active,
            )
            self.channel = LocalControllerChannel(self.controller, publisher, self._elsewhere)
            self._activation.begin()
            if not quorum.alone:
                from ottla.drivers.controller.controller_registration import ControllerRegistrar

                self._registrar = ControllerRegistrar(self.channel, publisher, registration)
        else:
            self.channel = self._new_remote(None)
        self.snapshots = SnapshotGenerator(quorum, publisher, clock, snapshot_settings(config))
        self.lifecycle = self._new_lifecycle()
        quorum.on_leader_change.append(self._meet_leader)
        self._is_made = True

    @cached_property
    def producer_ids(self) -> ProducerIds:
        """Made with the first idempotent producer that has no id."""
        from ottla.drivers.coordinators.producer_ids import ProducerIds

        return ProducerIds(self.channel, self.node_id, self.lifecycle)

    async def catch_up(self) -> None:
        """Returns when the image has what the controllers had committed when one of them first answered.

        Raises OttlaError when none does in `initial.broker.registration.timeout.ms`, for a feature level that this
        software does not support, or for a directory that may stand in for one that is lost; KafkaError or OSError when
        the disk fails.
        """
        if self._is_current:
            return
        seconds_max = self.config.initial_broker_registration_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds_max):
                await self.publisher.wait_published(await self.quorum.caught_up() - 1)
        except TimeoutError:
            refused = self.quorum.refused
            why = "no controller answers" if refused is None else str(refused)
            raise OttlaError(
                f"the metadata of the cluster could not be fetched within {seconds_max:g} s: {why}; start the "
                f"controllers, or "
                "correct controller.quorum.bootstrap.servers or controller.quorum.voters"
            ) from None
        if self.publisher.failure is not None:
            raise self.publisher.failure
        self._check_directories(self.publisher.image)
        self._is_current = True

    @property
    def cut_off(self) -> str | None:
        """Why nothing can be decided about the cluster now, where no node is at fault; None if all is well."""
        return None

    async def wait_unfenced(self) -> None:
        """Returns when the image shows this broker as the controller does since the last heartbeat."""

        def is_there(image: MetadataImage) -> bool:
            found = image.brokers.get(self.node_id)
            return found is not None and found.epoch == self.lifecycle.broker_epoch and not found.fenced

        if is_there(self.publisher.image):
            return
        seen = asyncio.Event()

        def look(delta: MetadataDelta, image: MetadataImage) -> None:
            if is_there(image):
                seen.set()

        self.publisher.subscribe(look)
        await seen.wait()

    async def leave(self) -> None:
        """Leave while the broker still serves, so that other replicas lead before it is gone; at once where nobody can.
        The same for the quorum: what others ask of the active controller could not be committed any more, once the
        listeners are closed.
        """
        if self._is_made and not self.quorum.alone:
            await self.lifecycle.stop(self._deserted)
            self.quorum.resign()
        elif self._is_made and any(not each.fenced and each.id != self.node_id for each in self._brokers()):
            await self.lifecycle.stop()

    async def _deserted(self) -> None:
        """Returns when so many of the other voters are gone that nothing is committed any more: all nodes of a cluster
        stop together, and this one is among the last."""
        from ottla.drivers.controller.reachability import wait_gone

        assert self._network is not None
        voters = [each.node_id for each in self.quorum.voters]
        others = [self.quorum.address_of(each) for each in voters if each != self.node_id]
        needed = len(voters) // 2 + 1
        known = [each for each in others if each is not None]
        await wait_gone(self._network, known, len(voters) - needed + 1, setup_s=SHUTDOWN_ANSWER_S)

    def _brokers(self) -> Iterable[BrokerRegistration]:
        return self.publisher.image.brokers.values()

    async def stop(self) -> None:
        """Resign as broker, let running changes finish, close the log. Also after a start that failed."""
        self.publisher.unsubscribe_all()
        if self._is_made:
            await self.lifecycle.stop()
            if self._registrar is not None:
                await self._registrar.stop()
            if self.controller is not None:
                await self.controller.stop()
            if self._remote is not None:
                await self._remote.close()
        await self.publisher.stop()
        if self._activation is not None:
            await self._activation.stop()
        if self._is_made:
            await self.snapshots.stop()
        if self._is_open:
            await self.quorum.stop()

    # The other controllers.

    def _elsewhere(self) -> ControllerChannel | None:
        """The way to the active controller where that may be another node."""
        if self._remote is None and not self.quorum.alone:
            assert isinstance(self.channel, LocalControllerChannel)
            return self._new_remote(self.channel)
        return self._remote

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]]:
        """What the active controller serves (API to lowest and highest version), where that is another node and this
        one has asked it anything; else empty."""
        return {} if self._remote is None else self._remote.versions

    def _new_remote(self, here: LocalControllerChannel | None) -> ControllerChannel:
        from ottla.drivers.controller.controller_link import remote_channel

        assert self._network is not None
        remote = self._remote = remote_channel(
            self._network, self._random, self.config, self.quorum.controllers, self._see_changes, here
        )
        self.on_active.append(remote.activated)
        return remote

    async def _see_changes(self) -> None:
        """Wait, though not for long, until this node's image has what the controller has now. A controller that is lost
        when it has answered is asked for again: its successor has the change too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SEE_CHANGES_SECONDS_MAX):
                while True:
                    with suppress(KafkaError):
                        if (end := await self.quorum.committed_end()) >= 0:
                            break
                    await asyncio.sleep(SEE_AGAIN_SECONDS)
                await self.publisher.wait_published(end - 1)

    # Who this node is, and who votes.

    async def _identify(self, paths: Sequence[str], endpoints: Mapping[str, Endpoint]) -> Identity:
        """A new directory is of the cluster that the settings lead to; where they lead nowhere, of a new one."""
        config, named = self.config, self.config.ottla_cluster_id or None
        known = known_cluster_id(self._fs, [*paths, config.metadata_log_dir])
        if known and named and known != named:
            raise OttlaError(f"{paths[0]} belongs to cluster {known}, but ottla.cluster.id is {named}")
        followed = None
        if not config.is_controller or self._joins(endpoints):
            followed = known or named
            if followed is None:
                from ottla.drivers.controller.controller_link import find_cluster_id

                assert self._network is not None
                followed = await find_cluster_id(self._network, self._random, config)
        elif known is None and named is None and set(config.quorum_voters) - {self.node_id}:
            raise OttlaError(
                f"{config.metadata_log_dir} is new, and controller.quorum.voters names several controllers, which "
                f"must belong to one cluster: set the same ottla.cluster.id for all of them"
            )
        return identify(
            self._fs,
            paths,
            config.metadata_log_dir,
            self.node_id,
            self._random,
            self._clock.now_ms(),
            new_cluster=named,
            followed_cluster=followed,
        )

    def _joins(self, endpoints: Mapping[str, Endpoint]) -> bool:
        """Whether the settings lead to other controllers than this one, and name no voters: it is one more."""
        config = self.config
        own = {(end.host, end.port) for end in endpoints.values()}
        own |= {(each.host, each.port) for each in config.controller_listeners}
        return not config.quorum_voters and any((each.host, each.port) not in own for each in config.quorum_servers)

    def _static_voters(self, me: ReplicaKey, endpoints: Mapping[str, Endpoint]) -> list[ReplicaKey]:
        """The voters if the log does not name them (`kraft.version` 0). Raises OttlaError if the settings and the
        directory contradict each other."""
        named = set(self.config.quorum_voters)
        stored = self.quorum.log.read_quorum_state()
        known = set() if stored is None else set(stored.voters)
        if not self.config.is_controller:
            return [ReplicaKey(node_id) for node_id in self.config.quorum_voters]
        if named:
            if known and known != named:
                raise OttlaError(
                    f"controller.quorum.voters names {some_names(named)}, but the quorum of "
                    f"{self.config.metadata_log_dir} has {some_names(known)}: correct the setting, or give another "
                    "directory"
                )
            return [me if node_id == self.node_id else ReplicaKey(node_id) for node_id in self.config.quorum_voters]
        self._check_alone(known, ())
        return [] if not known and self._joins(endpoints) else [me]

    def _check_directories(self, image: MetadataImage) -> None:
        check_directories(self._fs, self.config, self._identity, image, are_all=self._has_all_directories)

    def _check_alone(self, voters: set[NodeId], registered: Iterable[NodeId]) -> None:
        """Raises OttlaError when the directory belongs to a cluster of several, which the settings do not lead to:
        leading it alone would split it."""
        for kind, found in (("a quorum with controllers", voters), ("a cluster with brokers", set(registered))):
            if others := found - {self.node_id}:
                raise OttlaError(
                    f"{self.config.metadata_log_dir} belongs to {kind} {some_names(others)}, but the settings name "
                    f"neither them nor a listener for them: add controller.quorum.voters or "
                    f"controller.quorum.bootstrap.servers, and a listener of controller.listener.names"
                )

    # The controller.

    def _controller_settings(self) -> ControllerSettings:
        config = self.config
        return ControllerSettings(
            self.node_id,
            self.cluster_id,
            config.static,
            session_timeout_s=config.broker_session_timeout_ms / 1000,
            has_broker=config.is_broker,
        )

    def _first_decisions(self, image: MetadataImage, registration: ControllerRegistrationRequest) -> list[Decide[Any]]:
        """A log that has only the results of elections is still new: a crash may have come before the bootstrap
        records."""
        is_new = features.METADATA_VERSION not in image.features and not image.brokers and not image.topics_by_name
        levels, more = self._bootstrap_records() if is_new else ({}, [])
        return first_decisions(
            levels,
            self.config.static.get("min.insync.replicas", "1"),
            open_transaction=self.publisher.open_transaction,
            registration=registration,
            more=more,
        )

    def _controller_registration(self, endpoints: Mapping[str, Endpoint]) -> ControllerRegistrationRequest:
        common = listeners_and_features(endpoints)
        return {
            "controller_id": self.node_id,
            "incarnation_id": random_uuid(self._random),
            "zk_migration_ready": False,
            "listeners": common["listeners"],
            "features": common["features"],
        }

    def _bootstrap_records(self) -> tuple[Mapping[str, int], list[Any]]:
        """What the directory was formatted with: feature levels, and other records (SCRAM users, KIP-900). Raises
        OttlaError."""
        path = posixpath.join(self.config.metadata_log_dir, BOOTSTRAP_FILE)
        try:
            if self._fs.exists(path):
                batches = list(read_snapshot(self._fs.read_bytes(path)))
            else:  # as Kafka 4.4 formats a directory
                batches = [
                    (each.header, each.items)
                    for each in self.quorum.committed_snapshot()
                    if each.snapshot is not None and each.snapshot.end_offset == 0
                ]
            records = [decode_record(item)[0] for header, items in batches for item in items if not header.is_control]
        except (MalformedRecord, KafkaError) as error:
            raise OttlaError(
                f"{path} is damaged ({error}): the directory holds only feature levels so far; remove the file to "
                f"start with those of this release"
            ) from error
        levels = {record.name: record.feature_level for record in records if hasattr(record, "feature_level")}
        if not records:
            return features.BOOTSTRAP, []
        why = features.why_unsupported(levels)
        if why is not None:
            raise OttlaError(f"{self.config.metadata_log_dir} has feature levels of a newer release: {why}")
        return levels, [record for record in records if isinstance(record, UserScramCredentialRecord)]


def some_names(nodes: set[NodeId]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def check_directories(
    fs: FileSystem, config: ServerConfig, identity: Identity, image: MetadataImage, *, are_all: bool
) -> None:
    """Refuse a directory that may stand in for one that is lost; log an error about what is recreated empty."""
    lost = lost_partitions(image, config.node_id, identity)
    check_lost(identity, lost, config.metadata_log_dir)
    mark(fs, identity, config.node_id)
    if lost and are_all:
        found = fields(count=len(lost), partitions=some_of(lost))
        _LOG.error("RECORDS ARE LOST: a log directory is missing; its partitions are recreated empty", extra=found)


def broker_settings(config: ServerConfig, cluster_id: str) -> BrokerSettings:
    incarnation_id = config.ottla_broker_incarnation_id
    return BrokerSettings(
        config.node_id,
        cluster_id,
        config.broker_rack,
        heartbeat_interval_s=config.broker_heartbeat_interval_ms / 1000,
        registration_timeout_s=config.initial_broker_registration_timeout_ms / 1000,
        directory_failure_timeout_s=config.log_dir_failure_timeout_ms / 1000,
        incarnation_id=UUID(incarnation_id) if incarnation_id else None,
    )


def snapshot_settings(config: ServerConfig) -> SnapshotSettings:
    return SnapshotSettings(
        config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
    )


def quorum_settings(config: ServerConfig) -> QuorumSettings:
    """The metadata log is kept until snapshots replace it, never by retention, and fsyncs only when it is told to."""
    log_config = LogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=(1 << 31) - 1,
        file_delete_delay_ms=60_000,
    )
    return QuorumSettings(
        config.node_id,
        config.metadata_log_dir,
        log_config,
        config.metadata_max_retention_ms,
        config.metadata_max_retention_bytes,
        can_vote=config.is_controller,
        addresses={node_id: Address(*host) for node_id, host in config.quorum_voters.items()},
        bootstrap=[Address(*each) for each in config.quorum_servers],
        auto_join=config.controller_quorum_auto_join_enable,
        listener=config.controller_protocol[0],
        timing=Timing(
            config.controller_quorum_election_timeout_ms,
            config.controller_quorum_fetch_timeout_ms,
            config.controller_quorum_election_backoff_max_ms,
        ),
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        fetch_bytes_max=config.controller_quorum_fetch_max_bytes,
        snapshot_bytes_max=config.controller_quorum_fetch_snapshot_max_bytes,
        metrics_window_ms=config.metrics_sample_window_ms,
        metrics_windows=config.metrics_num_samples,
    )
