"""Run Ottla and Apache Kafka under the same load, warm, in alternation, and print medians, spread and ratios.

    python -m bench                     every table, about twenty minutes
    python -m bench produce fetch       some of them
    python -m bench --side ottla ...    one side only, while working on it
    python -m bench --json FILE         keep the results; tables that FILE has already are replaced, others stay
    python -m bench.render              write docs/performance.md and README.md from docs/performance.json

Every side is warmed until its rate is steady, then measured in rounds A B A B; --seconds 1 --rounds 1 --quick is for
trying out. Figures on a shared machine move: read the spread, and what does not move (CPU, system calls, instructions).
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench import results
from bench.brokers import SIDES
from bench.steady import Rule
from bench.tables import Run, all_tables

QUICK = Rule(windows=2, window_s=0.5, spread_max=1.0, seconds_min=1.0, requests_min=1, seconds_max=2.0)


def main() -> None:
    tables = all_tables()
    names = "\n".join(f"  {each.name:<14}{each.what}" for each in tables.values())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"tables:\n{names}"
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="all, if none is named")
    parser.add_argument("--side", action="append", choices=list(SIDES))
    parser.add_argument("--seconds", type=float, default=3.0, help="of a measured window (3)")
    parser.add_argument("--rounds", type=int, default=3, help="measured windows of each side (3)")
    parser.add_argument("--quick", action="store_true", help="hardly any warm-up: to try a table, not to measure")
    parser.add_argument("--directory", type=Path, help="where data goes (default: the temporary directory)")
    parser.add_argument("--json", type=Path, help="where results are kept")
    arguments = parser.parse_args()
    for name in arguments.tables:
        if name not in tables:
            parser.error(f"no table {name!r}; there are {', '.join(tables)}")
    kept = results.Results.read(arguments.json) if arguments.json else results.Results()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # brokers are stopped, directories deleted
    print(f"{results.machine()}; commit {results.commit()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.directory) as base:
        run = Run(arguments.side or list(SIDES), arguments.seconds, arguments.rounds, Path(base))
        if arguments.quick:
            run.rule, run.first_warm_up_s = QUICK, 0.0
        failed = []
        try:
            for name in arguments.tables or tables:
                begin = time.monotonic()
                try:
                    for section in tables[name].make(run):
                        print(f"\n### {section.title}\n\n{results.markdown(section)}", flush=True)
                        kept.add(name, section, run)
                        if arguments.json:
                            kept.write(arguments.json)
                except Exception:  # the tables that took minutes before are kept, those behind are made
                    traceback.print_exc()
                    failed.append(name)
                    run.cool()
                print(f"({name}: {time.monotonic() - begin:.0f} s)", flush=True)
        finally:
            run.cool()
    if failed:
        sys.exit(f"not made: {', '.join(failed)}")


if __name__ == "__main__":
    main()
