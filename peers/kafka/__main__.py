"""`python -m peers.kafka install | tool CLASS ARG...`"""

from __future__ import annotations

import subprocess
import sys

from peers import kafka

if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        kafka.install()
    elif len(sys.argv) > 2 and sys.argv[1] == "tool":
        kafka.install()
        sys.exit(subprocess.call(kafka.java(sys.argv[2], *sys.argv[3:])))
    else:
        sys.exit(__doc__)
