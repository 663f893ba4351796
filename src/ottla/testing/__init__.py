"""What users test with: `Broker`, a real node in a process of its own, and test doubles such as `disk.py`.

Start at `broker.py`; `child.py` is its other half, `plugin.py` gives pytest its fixtures. May import every layer below
`cli`, but this file and `broker.py` only the standard library: they are loaded into other people's tests.
"""

from ottla.testing.broker import Broker as Broker
from ottla.testing.process import BrokerError as BrokerError
