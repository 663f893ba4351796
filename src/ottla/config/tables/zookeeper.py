"""Settings of a broker whose cluster lives in ZooKeeper, with the names and defaults that Kafka 3.9 had for them."""

from __future__ import annotations

from ottla.config.checks import AtLeast
from ottla.config.setting import Setting, Type

MODE = "ottla.zookeeper.mode"

# fmt: off
ZOOKEEPER: tuple[Setting, ...] = (
    Setting("zookeeper.connect", Type.STRING, None, internal=True,
            doc="The ensemble, as host:port,host:port/chroot. Without process.roles the cluster lives there."),
    Setting("zookeeper.session.timeout.ms", Type.INT, "18000", AtLeast(1), internal=True,
            doc="Milliseconds without a word after which the ensemble takes a broker for gone."),
    Setting("zookeeper.connection.timeout.ms", Type.INT, None, AtLeast(1), internal=True,
            doc="Milliseconds that a start waits for the ensemble; by default zookeeper.session.timeout.ms."),
    Setting("zookeeper.max.in.flight.requests", Type.INT, "10", AtLeast(1), internal=True,
            doc="Requests to the ensemble that wait for their answers at once."),
    Setting("password.encoder.secret", Type.PASSWORD, None, internal=True,
            doc="Encrypts passwords among dynamic settings, which ZooKeeper keeps."),
    Setting("password.encoder.old.secret", Type.PASSWORD, None, internal=True,
            doc="The secret before this one, for passwords that were encrypted with it."),
    Setting(MODE, Type.BOOLEAN, "false", internal=True,
            doc="Whether the cluster lives in ZooKeeper; set for a file with zookeeper.connect and no process.roles."),
)
# fmt: on
