"""Does a change of the simulation leave what it plays as it was? The digests of the traces of some seeds of each kind.

    python -m tests.simulation.traces /tmp/before            # notes them, where there is no such file
    python -m tests.simulation.traces /tmp/before            # says which differ
    python -m tests.simulation.traces /tmp/before --seeds 1-20 --kind quorum

A change of a node may alter traces, one of the simulated loop, network, disk or of the checks may not: a seed that
found something has to find it again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ottla.simulation import scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.traces", description=__doc__)
    parser.add_argument("noted", type=Path, help="a file of digests")
    parser.add_argument("--seeds", default="1-3")
    parser.add_argument("--kind", choices=scenario.KINDS)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    known = (
        dict(line.rsplit(" ", 1) for line in options.noted.read_text("utf-8").splitlines())
        if (options.noted.exists())
        else {}
    )
    differing = 0
    for kind in [options.kind] if options.kind else scenario.KINDS:
        for seed in range(int(first), int(last or first) + 1):
            outcome = scenario.run(seed, kind)
            name, digest = f"{kind} {seed}", outcome.digest
            differs = known.setdefault(name, digest) != digest
            differing += differs
            about = f"{outcome.simulated_s:6.1f} s in {outcome.cpu_s:6.2f} s, {outcome.steps:7} events"
            print(f"{name:16} {about} {'DIFFERS' if differs else ''}{outcome.failures or ''}", flush=True)
    options.noted.write_text("".join(f"{name} {digest}\n" for name, digest in known.items()), encoding="utf-8")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
