"""`python -m tests.damage.run --seeds N`: damages of every kind at N seeds, and what became of them."""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.damage.metadata_search import METADATA_KINDS, search_metadata
from tests.damage.search import HOW, KINDS, Outcome, counted, search


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    failures = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for kind in dict.fromkeys((*KINDS, *METADATA_KINDS)):
            for how in HOW:
                for clean in (True, False):
                    try:
                        if kind in METADATA_KINDS:
                            search_metadata(seed, kind, how, clean=clean)
                        if kind in KINDS:
                            outcomes.append(search(seed, kind, how, clean=clean))
                    except Exception:
                        failures += 1
                        print(f"seed {seed}: {how} of {kind}, {'clean' if clean else 'killed'}")
                        traceback.print_exc(limit=-2)
    found = counted(outcomes)
    for kind in KINDS:
        print(f"{kind:40} fired {found[kind, 'fired']:6} detected {found[kind, 'detected']:6}")
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
