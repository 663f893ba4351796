"""What users test with: `Broker` and `Cluster`, real nodes in processes of their own; test doubles such as `disk.py`.

Start at `broker.py` and `cluster.py`; `child.py` is their other half, `records.py` has what they read and write,
`plugin.py` gives pytest its fixtures, `testcontainers.py` stands in for a container. May import every layer below
`cli`, but this file, `broker.py` and `records.py` only the standard library: they are loaded into other people's tests.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.testing.broker import Broker as Broker
from ottla.testing.process import BrokerError as BrokerError
from ottla.testing.records import ConsumeTimeout as ConsumeTimeout
from ottla.testing.records import Record as Record

if TYPE_CHECKING:
    from ottla.testing.asynchronous import AsyncBroker as AsyncBroker
    from ottla.testing.asynchronous import AsyncCluster as AsyncCluster
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.registry import Registry as Registry

_LATER = {
    "AsyncBroker": "ottla.testing.asynchronous",
    "AsyncCluster": "ottla.testing.asynchronous",
    "Cluster": "ottla.testing.cluster",
    "Registry": "ottla.testing.registry",
}
"""Loaded when somebody asks for them."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
