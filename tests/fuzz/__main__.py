"""`python -m tests.fuzz --seconds 3600 --seed 7`: attack node after node until the time is over or something breaks."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from ottla.protocol.messages import ApiKey
from tests.fuzz import secured
from tests.fuzz.run import Plan, attack, seeds, shown

ROUND_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=3, help="how many attack at once")
    parser.add_argument("--api", action="append", default=[], help="attack this API (CREATE_TOPICS); may be repeated")
    parser.add_argument("--problems", type=int, default=1, help="how many end it")
    parser.add_argument("--steps", type=int, help="of each start of a node, instead of a time: the same steps each run")
    parser.add_argument("--secured", action="store_true", help="attack handshakes of TLS and logins instead")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    requests = 0
    for seed in seeds(options.seed):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with tempfile.TemporaryDirectory() as directory:
            if options.secured:
                found = uvloop.run(secured.attack(Path(directory), str(seed), seconds=min(ROUND_S, left)))
                print(f"seed {seed} of {options.seed}: {secured.shown(found)}", flush=True)
                if found.problems:
                    print("\n".join(found.problems[: options.problems]))
                    return 1
                continue
            seconds = min(ROUND_S, left) / 2
            plan = Plan(Path(directory), str(seed), options.clients, options.steps, seconds)
            plan.apis, plan.problems_max = [ApiKey[name] for name in options.api], options.problems
            done = uvloop.run(attack(plan))
        requests += done.requests
        print(f"seed {seed} of {options.seed}: {shown(done)}\n{requests} requests so far\n", flush=True)
        if done.problems:
            print("\n".join(done.problems[: options.problems]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
