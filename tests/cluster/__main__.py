"""`python -m tests.cluster pair|under-kafka|over-kafka|kafka` starts one until it is interrupted: see `processes.py`.

`python -m tests.cluster conformance [pair|under-kafka|over-kafka|kafka ...]` runs the conformance suite: `suite.py`.

`python -m tests.cluster faults [--rounds N] [--nodes 3|5] [--seed S]` breaks a cluster under load: `faults.py`.

`python -m tests.cluster bumps [--turns N] [--kills N] [--seed S]` has an idempotent producer's batches refused and
leaders killed: `bumped_epochs.py`.

`python -m tests.cluster rolling [--times N]` makes a Kafka of three nodes an Ottla and a Kafka again: `rolling.py`.

`python -m tests.cluster mixed [combined|broker|controller ...]` has one JVM of Kafka 4.4 among three nodes, under load
with rolling changes: `mixed.py`.

`python -m tests.cluster walk [--secured] [--separate] [--dynamic] [--kill]` does so by `ottla migrate walk`: `walk.py`.

`python -m tests.cluster restarts [--by kafka|walk]` counts records that rolling restarts double: `restarts.py`.

`python -m tests.cluster securing` secures an open cluster by rolling restarts under load, and opens it: `securing.py`.

`python -m tests.cluster check [--side kafka|ottla]` kills a leader of a safe cluster under `ottla check`: `safe.py`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from tests.cluster import suite
from tests.cluster.processes import CLUSTERS


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # processes are ended, directories deleted
    if sys.argv[1:2] == ["conformance"]:
        sys.exit(suite.main(sys.argv[2:]))
    if sys.argv[1:2] == ["faults"]:
        from tests.cluster import faults

        sys.exit(faults.main(sys.argv[2:]))
    if sys.argv[1:2] == ["bumps"]:
        from tests.cluster import bumped_epochs

        sys.exit(bumped_epochs.main(sys.argv[2:]))
    if sys.argv[1:2] == ["rolling"]:
        from tests.cluster import rolling

        sys.exit(rolling.main(sys.argv[2:]))
    if sys.argv[1:2] == ["mixed"]:
        from tests.cluster import mixed

        sys.exit(mixed.main(sys.argv[2:]))
    if sys.argv[1:2] == ["walk"]:
        from tests.cluster import walk

        sys.exit(walk.main(sys.argv[2:]))
    if sys.argv[1:2] == ["restarts"]:
        from tests.cluster import restarts

        sys.exit(restarts.main(sys.argv[2:]))
    if sys.argv[1:2] == ["securing"]:
        from tests.cluster import securing

        sys.exit(securing.main(sys.argv[2:]))
    if sys.argv[1:2] == ["check"]:
        from tests.cluster import safe

        sys.exit(safe.main(sys.argv[2:]))
    kind = sys.argv[1] if len(sys.argv) > 1 else "pair"
    if kind not in CLUSTERS:
        print(__doc__)
        sys.exit(kind not in ("-h", "--help"))
    start = CLUSTERS[kind]
    with tempfile.TemporaryDirectory() as directory, start(Path(directory)) as bootstrap:
        print(bootstrap, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
