"""`python -m peers.kafka install | tool CLASS ARG...`"""

from __future__ import annotations

import subprocess
import sys

from peers import kafka

if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        try:
            kafka.install()
        except RuntimeError as error:
            sys.exit(f"peers: {error}")
    elif len(sys.argv) > 2 and sys.argv[1] == "tool":
        kafka.install()
        sys.exit(subprocess.call(kafka.java(sys.argv[2], *sys.argv[3:])))
    else:
        sys.exit(__doc__)
