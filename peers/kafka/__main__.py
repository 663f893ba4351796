"""`python -m peers.kafka install | tool CLASS ARG...`

`install` fetches every release, those with ZooKeeper (`old.py`) too; a tool is of the release that KAFKA_RELEASE names,
else of 4.3.
"""

from __future__ import annotations

import os
import subprocess
import sys

from peers import kafka
from peers.kafka import old

if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        try:
            for release in kafka.RELEASES:
                kafka.install(release)
            for release in old.OLD_RELEASES:
                old.install_old(release)
        except RuntimeError as error:
            sys.exit(f"peers: {error}")
    elif len(sys.argv) > 2 and sys.argv[1] == "tool":
        release = os.environ.get("KAFKA_RELEASE", "4.3")
        kafka.install(release)
        sys.exit(subprocess.call(kafka.java(sys.argv[2], *sys.argv[3:], release=release)))
    else:
        sys.exit(__doc__)
