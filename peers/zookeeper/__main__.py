"""`python -m peers.zookeeper install` fetches ZooKeeper's jars."""

from __future__ import annotations

import sys

from peers import zookeeper

if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    try:
        zookeeper.install()
    except RuntimeError as error:
        sys.exit(f"peers: {error}")
