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


def __getattr__(name: str) -> Any:
    """`Cluster` is loaded when somebody asks for it."""
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing.cluster import Cluster

    return Cluster
