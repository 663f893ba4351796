"""What users test with: `Broker` and `Cluster`, real nodes in processes of their own; test doubles such as `disk.py`.

Start at `broker.py` and `cluster.py`; `child.py` is their other half, `plugin.py` gives pytest its fixtures. May import
every layer below `cli`, but this file and those two only the standard library, and what needs no more: they are loaded
into other people's tests.
"""

from typing import TYPE_CHECKING, Any

from ottla.testing.broker import Broker as Broker
from ottla.testing.process import BrokerError as BrokerError

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.registry import Registry as Registry


def __getattr__(name: str) -> Any:
    """`Cluster` and `Registry` are loaded when somebody asks for them."""
    if name == "Cluster":
        from ottla.testing.cluster import Cluster

        return Cluster
    if name == "Registry":
        from ottla.testing.registry import Registry

        return Registry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
